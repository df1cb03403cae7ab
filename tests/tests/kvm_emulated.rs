// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines on KVM in an emulated host that has it (`paravane_tests::kvm_host`).
//!
//! QEMU's emulation of SVM has defects of its own, of which the suite learns (`suite_options`): it
//! skips tests of features that are not emulated, and prints the reason.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::kvm_host::{Kernel, KvmHost, Parts};
use paravane_tests::program;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Instant;

/// Seconds for all of the suite on a usual host: a guard. It is minutes where nothing else runs.
const WHOLE_SUITE: u64 = 3600;

/// How many of the tests that took longest are named.
const SLOWEST: usize = 5;

/// Runs the suite, or a part of it (` --filter ...`). Returns the result in a line, and whether it
/// passes.
fn conformance(
    host: &mut KvmHost,
    layer: &str,
    cpus: u32,
    part: &str,
    seconds: u64,
) -> (String, bool) {
    let limit = host.limit(seconds).as_secs();
    let begun = Instant::now();
    let reply = host.run(
        &format!(
            "paravane conformance --hypervisor kvm --layer {layer} --cpus {cpus} --tap \
             --timeout {limit} --append times{part}{} 2>&1",
            host.suite_options()
        ),
        seconds + 30,
    );
    let results = |start: &str| {
        let lines = reply.output.lines();
        lines.filter(|line| line.starts_with(start)).count()
    };
    let passed = results("ok ");
    let (skipped, failed) = (reply.output.matches("# SKIP").count(), results("not ok "));
    let complete = !reply.output.contains("did not run") && !reply.output.contains("Bail out!");
    let good = reply.code == 0 && complete && passed > skipped && failed == 0;
    let line = format!(
        "{layer}, {cpus} vCPUs{part}: {} passed, {skipped} skipped, {failed} failed{}, {} s",
        passed.saturating_sub(skipped),
        if complete { "" } else { ", not complete" },
        begun.elapsed().as_secs()
    );
    eprintln!("{line}");
    for (why, tests) in skips(&reply.output) {
        eprintln!("  skipped, {why}: {}", tests.join(" "));
    }
    for (seconds, test) in slowest(&reply.output) {
        eprintln!("  {seconds:.1} s: {test}");
    }
    if !good {
        eprintln!("{}", reply.output);
    }
    (line, good)
}

/// The tests that took longest, with their seconds by the guest's clock.
fn slowest(output: &str) -> Vec<(f64, &str)> {
    let (mut all, mut test) = (Vec::new(), "");
    for line in output.lines() {
        if let Some((_, name)) = line.split_once(" - ") {
            test = name;
        } else if let Some(time) = line.strip_prefix("# ").and_then(|l| l.strip_suffix(" us")) {
            all.extend(time.parse::<f64>().map(|us| (us / 1e6, test)));
        }
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    all.truncate(SLOWEST);
    all
}

/// The tests that were skipped, by reason.
fn skips(output: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in output.lines() {
        if let Some((test, why)) = line.split_once(" # SKIP ") {
            let (_, name) = test.split_once(" - ").unwrap();
            all.entry(why).or_default().push(name);
        }
    }
    all
}

fn linux(host: &mut KvmHost, options: &str, command: &str, seconds: u64) -> (i32, String) {
    let limit = host.limit(seconds).as_secs();
    let reply = host.run(
        &format!("paravane run --timeout {limit} {options} -- {command}"),
        seconds + 30,
    );
    (reply.code, reply.output)
}

/// The report of a host that gives no answer has the registers of its processors, and the stacks.
#[test]
#[should_panic(expected = "Kernel panic")]
#[ignore = "it is for the tests themselves: make test-release"]
fn a_host_without_an_answer_tells_what_it_does() {
    Parts::new(2).start().ok("sleep 1000", 1);
}

/// The tests of KVM in `make test`, in place of a host with hardware: local APICs and several
/// vCPUs, XSAVE, virtio, Linux with devices of a virtual bus, and the choices and refusals that
/// need a host with /dev/kvm.
#[test]
fn a_host_with_kvm() {
    let client = program::tool("unix_client");
    let mut parts = Parts::new(2).with_linux();
    parts.programs.push(("/bin/unix_client".into(), client));
    let mut host = parts.start();
    let (line, good) = conformance(&mut host, "native", 2, " --filter apic.", 60);
    assert!(good, "{line}");
    let (line, good) = conformance(&mut host, "kvm", 2, " --filter bus.", 120);
    assert!(good, "{line}");
    linux_on_a_bus(&mut host);
    choices(&mut host);
}

/// A card, a disk and a console of a virtual bus, each with a way to this host and back.
fn linux_on_a_bus(host: &mut KvmHost) {
    host.ok(
        "mkdir /tmp/w; echo served >/tmp/w/file; httpd -p 127.0.0.1:8000 -h /tmp/w
         truncate -s 1M /tmp/disk
         { echo typed; sleep 600; } | unix_client /tmp/console >/tmp/printed 2>&1 &",
        10,
    );
    let options = "--hypervisor kvm --kernel /vmlinux --cpus 2 --net venet,loopback \
                   --disk /tmp/disk:vbus --console /tmp/console --append venet.pairs=2";
    // Each pair of the card interrupts its own vCPU.
    let command = "sh -c '
        uname -sr; nproc
        for mask in 1 2; do taskset $mask wget -q -O - http://10.0.2.2:8000/file; done
        grep vbus.*-pair /proc/interrupts |
            while read n a b rest; do echo $((a > 0)) $((b > 0)); done
        echo stored >/dev/vbd0; sync; echo 3 >/proc/sys/vm/drop_caches; head -n 1 /dev/vbd0
        exec 3<>/dev/vbc0; stty raw -echo <&3; read word <&3; echo $word; echo printed >&3
        exit 7'";
    let (code, said) = linux(host, options, command, 90);
    let lines: Vec<&str> = said.lines().collect();
    let expected = ["2", "served", "served", "1 0", "0 1", "stored", "typed"];
    assert_eq!((code, lines.get(1..)), (7, Some(&expected[..])), "{said}");
    assert!(
        said.starts_with("Linux 6.12") && said.contains("-vmi"),
        "{said}"
    );
    // Before it was raw, the terminal may have echoed.
    let said = host.ok("head -n 1 /tmp/disk; tail -n 1 /tmp/printed", 10);
    assert_eq!(said, "stored\nprinted\n");
}

/// This KVM is slow, so it is used only on request. A speed that was measured before is believed.
fn choices(host: &mut KvmHost) {
    // The default.
    let auto = "--verbose --kernel /vmlinux";
    let first = chosen(host, auto);
    let expected = "paravane: hypervisor process: /dev/kvm is not fast: ";
    assert!(first.starts_with(expected), "{first}");
    // The measurement is kept.
    let kept = host.ok("cat /root/.cache/paravane/kvm.json", 10);
    let mut kept: Value = serde_json::from_str(&kept).unwrap();
    kept["speed"]["instructions"] = 2_000_000_000u64.into();
    kept["speed"]["exit_ns"] = 1500.into();
    host.ok(
        &format!("echo '{kept}' >/root/.cache/paravane/kvm.json"),
        10,
    );
    let (code, said) = linux(host, auto, "true 2>&1", 60);
    assert_eq!(code, 0, "{said}");
    let expected = "paravane: hypervisor kvm: /dev/kvm is fast: 2000.0 million instructions per \
                    second, 1.5 us for an exit";
    assert_eq!(said.lines().next(), Some(expected));
    // Options that KVM does not have choose the process hypervisor.
    let first = chosen(host, &format!("{auto} --spaces 20"));
    assert_eq!(first, "paravane: hypervisor process: --spaces");
    refusals(host, auto);
}

/// The line that says what runs a machine. Whether Linux then runs on processes of a host that is
/// itself emulated is no matter here.
fn chosen(host: &mut KvmHost, options: &str) -> String {
    let (_, said) = linux(host, options, "true 2>&1", 30);
    said.lines().next().unwrap_or_default().to_string()
}

/// One line each, and processes for `auto`.
fn refusals(host: &mut KvmHost, auto: &str) {
    let conformance = "paravane conformance --hypervisor kvm --layer none --memory";
    let reply = host.run(&format!("{conformance} 60000G"), 10);
    assert!(reply.code == 2, "{}", reply.output);
    let reply = host.run(&format!("ulimit -v 2000000; {conformance} 3G"), 10);
    assert_eq!(reply.code, 2, "{}", reply.output);
    assert!(
        reply
            .output
            .contains("cannot make 3072 MiB of guest memory")
            && reply.output.lines().count() == 1,
        "{}",
        reply.output
    );
    host.ok("rmmod kvm_amd", 10);
    let why = "there is no /dev/kvm (is the host's module kvm loaded?)";
    let reply = host.run(&format!("{conformance} 256M 2>&1"), 10);
    assert!(
        reply.code == 2 && reply.output.contains(why) && reply.output.lines().count() == 1,
        "{}",
        reply.output
    );
    let first = chosen(host, auto);
    let expected = format!("paravane: hypervisor process: {why}");
    assert!(first.starts_with(&expected), "{first}");
}

/// All of the suite with a layer: one of nine results, which is printed.
fn whole_suite(layer: &str, cpus: u32) {
    let mut host = Parts::new(cpus.min(2)).start();
    let (line, good) = conformance(&mut host, layer, cpus, "", WHOLE_SUITE);
    assert!(good, "{line}");
}

macro_rules! whole_suites {
    ($($name:ident: $layer:literal, $cpus:literal;)*) => {
        $(
            #[test]
            #[ignore = "minutes: make test-release"]
            fn $name() {
                whole_suite($layer, $cpus);
            }
        )*
    };
}

whole_suites! {
    suite_none_1_vcpu: "none", 1;
    suite_none_2_vcpus: "none", 2;
    suite_none_4_vcpus: "none", 4;
    suite_native_1_vcpu: "native", 1;
    suite_native_2_vcpus: "native", 2;
    suite_native_4_vcpus: "native", 4;
    suite_kvm_1_vcpu: "kvm", 1;
    suite_kvm_2_vcpus: "kvm", 2;
    suite_kvm_4_vcpus: "kvm", 4;
}

/// VMI-Linux on KVM: `paravane kernel verify`, a disk, a shared folder, a published port, and more
/// memory than fits below 4 GiB.
#[test]
#[ignore = "long: make test-release"]
fn linux_with_devices() {
    let kernel = paravane_tests::vm::kernel().unwrap_or_else(paravane_tests::linux::kernel);
    let compressed = kernel.with_file_name("bzImage");
    let mut host = Parts::new(2)
        .file("/kernel/vmlinux", &kernel)
        .file("/kernel/bzImage", &compressed)
        .start();
    let said = host.ok(
        "paravane kernel verify --kernel /kernel --on kvm --timeout 600",
        900,
    );
    assert!(
        said.contains("ok     boots on KVM with the ROM native, 2 vCPUs"),
        "{said}"
    );
    assert!(
        said.contains("ok     boots on KVM, compressed, without a ROM, 1 vCPU"),
        "{said}"
    );
    host.ok(
        "mkdir -p /tmp/v; echo text >/tmp/v/a; truncate -s 1M /tmp/disk",
        10,
    );
    let options = "--hypervisor kvm --kernel /kernel/vmlinux --memory 5G --volume /tmp/v:/v \
                   --disk /tmp/disk";
    let command = "sh -c 'cat /v/a; echo more >/v/b; echo x >/dev/vda; sync; grep MemTotal \
                   /proc/meminfo'";
    let (code, said) = linux(&mut host, options, command, 90);
    let memory = said.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let memory: u64 = memory
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert!(
        code == 0 && said.starts_with("text\n") && memory > 4 << 20,
        "{said}"
    );
    assert_eq!(host.ok("cat /tmp/v/b; head -c 1 /tmp/disk", 10), "more\nx");
    host.ok(
        "paravane run --detach --name web --hypervisor kvm --kernel /kernel/vmlinux --net stack \
         --publish 8080:80 -- sh -c 'mkdir /w; echo served >/w/index.html; httpd -f -h /w'",
        90,
    );
    let said = host.ok(
        "for i in $(seq 100); do wget -q -O - http://127.0.0.1:8080/ 2>/dev/null && exit 0; \
         sleep 0.3; done; exit 1",
        120,
    );
    assert_eq!(said, "served\n");
    host.ok(
        "paravane inspect web | grep -q '\"name\": \"kvm\"'; paravane rm --force web",
        30,
    );
}

/// Debian's kernel, with its modules beside it.
#[test]
#[ignore = "long: make test-release"]
fn a_kernel_of_a_distribution() {
    let kernel = Kernel::get();
    let mut parts = Parts::new(2).file("/d/boot/vmlinuz", &kernel.image());
    let folder = format!("/d/lib/modules/{}/kernel", kernel.release());
    for module in kernel.drivers() {
        let path = format!("{folder}/{module}.ko");
        parts = parts.file(&path, &kernel.module(&module));
    }
    let mut host = parts.start();
    let options = "--kernel /d/boot/vmlinuz --cpus 2 --hypervisor";
    let (code, said) = linux(
        &mut host,
        &format!("{options} auto --memory 5G"),
        "sh -c 'uname -r; nproc; exit 7'",
        120,
    );
    let expected = format!("{}\n2\n", kernel.release());
    assert_eq!((code, said.as_str()), (7, expected.as_str()));
    let (code, said) = linux(&mut host, &format!("{options} process"), "true 2>&1", 30);
    assert!(
        code == 2 && said.contains("a bzImage, which only --hypervisor kvm starts"),
        "{said}"
    );
}
