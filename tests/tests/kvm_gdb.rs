// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A debugger of a machine on KVM, in an emulated host that has it: registers, memory, steps,
//! interruptions. QEMU's emulation has neither breakpoints of the processor nor exits for an int3
//! (docs/kvm.md), so those are tested on hardware only (`gdb.rs`).

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use object::{Object, ObjectSymbol};
use paravane_tests::kvm_host::{KvmHost, Parts};
use paravane_tests::{linux, program, vm};
use std::fs;

/// Sends packets. Returns the answers.
fn gdb(host: &mut KvmHost, packets: &[&str]) -> Vec<String> {
    let patience = host.limit(20).as_secs();
    let words = packets.join("' '");
    let said = host.ok(
        &format!("gdb_client {patience} /tmp/gdb '{words}' 2>&1"),
        60,
    );
    said.lines().map(str::to_string).collect()
}

/// The instruction pointer among the registers, which are in hexadecimal, lowest byte first.
fn rip(registers: &str) -> u64 {
    let bytes = registers.as_bytes().get(16 * 16..17 * 16).unwrap();
    u64::from_str_radix(&String::from_utf8_lossy(bytes), 16)
        .unwrap()
        .swap_bytes()
}

#[test]
#[ignore = "long: make test-release"]
fn registers_memory_steps_and_interruptions() {
    let kernel = vm::kernel().unwrap_or_else(linux::kernel);
    let file = fs::read(&kernel).unwrap();
    let elf = object::File::parse(&*file).unwrap();
    let banner = elf
        .symbols()
        .find(|s| s.name() == Ok("linux_banner"))
        .unwrap();
    let mut parts = Parts::new(2).with_linux();
    let client = program::tool("gdb_client");
    parts.programs.push(("/bin/gdb_client".into(), client));
    let mut host = parts.start();
    host.ok(
        "{ paravane run --hypervisor kvm --kernel /vmlinux --cpus 2 --gdb /tmp/gdb \
               --name debugged -- sh -c 'until test -e /tmp/go; do :; done; exit 4'
           echo $? >/tmp/code; } >/tmp/out 2>&1 &
         for i in $(seq 300); do test -e /tmp/gdb && exit 0; sleep 0.1; done
         cat /tmp/out; exit 1",
        60,
    );
    // Before the first instruction, and after each of five.
    let step = ["vCont;s:1", "g"];
    let packets = [&["?", "g"][..], &step, &step, &step, &step, &step].concat();
    let said = gdb(&mut host, &packets);
    assert_eq!(rip(&said[1]), elf.entry(), "{said:?}");
    let mut before = elf.entry();
    for pair in said[2..].chunks(2) {
        assert!(pair[0].starts_with("T05"), "{said:?}");
        assert_ne!(rip(&pair[1]), before, "{said:?}");
        before = rip(&pair[1]);
    }
    // Another debugger, while Linux boots or runs: the kernel's text by its own page tables, which
    // may be changed where the guest may not.
    let at = format!("{:x}", banner.address());
    let (read, write) = (format!("m{at},d"), format!("M{at},1:{:02x}", b'l'));
    let back = format!("M{at},1:{:02x}", b'L');
    host.ok("sleep 20", 40);
    let mut packets = vec!["run", "interrupt"];
    packets.extend([&read, &write, &read, &back, &read].map(String::as_str));
    for _ in 0..20 {
        packets.extend(step);
    }
    packets.push("D");
    let said = gdb(&mut host, &packets);
    let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    assert!(said[0].starts_with("T02"), "{said:?}");
    let [right, changed] = ["Linux version", "linux version"].map(hex);
    let (right, changed) = (right.as_str(), changed.as_str());
    assert_eq!(said[1..6], [right, "OK", changed, "OK", right], "{said:?}");
    for pair in said[6..46].chunks(2) {
        assert!(pair[0].starts_with("T05"), "{said:?}");
    }
    assert_eq!(said[46], "OK");
    // The guest has noticed nothing. It may end before the touch has told its end.
    let said = host.ok(
        "paravane exec debugged -- touch /tmp/go 2>/dev/null
         for i in $(seq 100); do test -e /tmp/code && break; sleep 0.1; done; cat /tmp/code",
        60,
    );
    assert_eq!(said, "4\n");
}
