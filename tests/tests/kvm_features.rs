// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layer `kvm` on a KVM that lacks a feature: it works as the native layer. The monitor hides
//! the feature, and has KVM refuse features that its CPUID does not offer, so a layer that does not
//! check CPUID fails.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::kvm_host::{KvmHost, Parts};
use paravane_tests::program;

/// Features that the layer asks for: bits of eax of KVM's CPUID leaf 0x40000001.
const FEATURES: [(&str, u32); 8] = [
    ("no I/O delay", 1 << 1),
    ("clock", 1 << 3),
    ("steal time", 1 << 5),
    ("EOI", 1 << 6),
    ("unhalt", 1 << 7),
    ("flush", 1 << 9),
    ("send IPI", 1 << 11),
    ("yield", 1 << 13),
];
/// The tests of calls that are the layer's own, where it has the features.
const TESTS: [&str; 9] = [
    "boot.",
    "apic.eoi.",
    "apic.send_ipi.every_vector",
    "cpu.halt.",
    "cpu.io_delay",
    "lock.",
    "mmu.flush_preempted.",
    "time.read.",
    "time.wallclock",
];

/// Runs tests of the suite on a KVM without these features. Returns what they printed.
fn without(host: &mut KvmHost, bits: u32, test: &str) -> String {
    const SECONDS: u64 = 90;
    let reply = host.run(
        &format!(
            "paravane conformance --hypervisor kvm --layer kvm --cpus 2 --tap --timeout {} \
             --kvm-without {bits} --filter {test}{} 2>&1",
            host.limit(SECONDS).as_secs(),
            host.suite_options()
        ),
        SECONDS + 20,
    );
    reply.output
}

/// Whether tests have run, to the end of the list, and none has failed.
fn good(output: &str) -> bool {
    let whole = !output.contains("Bail out!") && !output.contains("did not run");
    let begins = |start: &str| output.lines().any(|line| line.starts_with(start));
    whole && begins("ok ") && !begins("not ok ")
}

fn host() -> KvmHost {
    let mut parts = Parts::new(2);
    let hooks = program::path_with_hooks().to_path_buf();
    parts.programs = vec![("/bin/paravane".to_string(), hooks)];
    parts.start()
}

/// Each feature by itself, and all of them.
#[test]
#[ignore = "long: make test-release"]
fn the_layer_works_without_each_feature() {
    let mut host = host();
    let all = FEATURES.iter().fold(0, |all, (_, bit)| all | bit);
    for (name, bits) in FEATURES.into_iter().chain([("all of them", all)]) {
        for test in TESTS {
            let output = without(&mut host, bits, test);
            assert!(good(&output), "without {name}, {test}: {output}");
        }
        eprintln!("without {name}: passed");
    }
}
