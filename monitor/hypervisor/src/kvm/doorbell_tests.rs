// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest of a few instructions that drives a device with registers of its own, such as a bridge
//! to a virtual bus: a store that waits until the device has carried it out, a command by a call,
//! the two kinds of notification, and the interrupt.

use super::guest_tests::{bridge, run_with};
use super::layout::{APIC, BUS_CALL, DEVICE_PIN, DEVICES, IOAPIC, doorbell};
use crate::output::End;
use paravane_devices::counters::Counters;
use paravane_devices::{Machine, Model, OwnDevice};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What the device shows at offset 0 of its page.
const MAGIC: u32 = 0x6c6c_6562;
/// Where it shows the result of a store, and the numbers of a notification.
const SHOWN: usize = 8;
/// The address of a command, and what the device answers.
const COMMAND: u64 = 0x7fff_1240;
const ANSWER: i32 = -77;

// A mistake ends at 9 with a step's number in ecx. An access to port 0x80 is an exit, so that the
// looks take long enough.
core::arch::global_asm!(
    ".pushsection .rodata",
    ".global paravane_kvm_doorbell_guest",
    ".global paravane_kvm_doorbell_guest_end",
    ".code32",
    "paravane_kvm_doorbell_guest:",
    "mov $1, %ecx",
    "mov ${devices}, %esi",
    "cmpl ${magic}, (%esi)",
    "jne 9f",
    // The device adds 1 and shows that.
    "mov $2, %ecx",
    "movl $41, 0x10(%esi)",
    "cmpl $42, {shown}(%esi)",
    "jne 9f",
    // A command by a call, then one for registers of which there are none. No other register
    // changes.
    "mov $6, %ecx",
    "mov %ecx, %edi",
    "mov ${call}, %edx",
    "mov ${devices}, %ebx",
    "mov ${command}, %ecx",
    "mov $0x12345678, %eax",
    "outl %eax, %dx",
    "cmpl ${command}, %ecx",
    "mov %edi, %ecx",
    "jne 9f",
    "cmpl ${answer}, %eax",
    "jne 9f",
    "cmpl ${devices}, %ebx",
    "jne 9f",
    "cmpl ${call}, %edx",
    "jne 9f",
    "mov $7, %ecx",
    "mov %ecx, %edi",
    "lea 8(%esi), %ebx",
    "mov ${command}, %ecx",
    "outl %eax, %dx",
    "mov %edi, %ecx",
    "cmpl $-2, %eax",
    "jne 9f",
    // The device's pin gives vector 0x92 to local APIC 0, which is on.
    "movl $0x1ff, {apic} + 0xf0",
    "movl $0x10 + 2 * {pin} + 1, {ioapic}",
    "movl $0, {ioapic} + 0x10",
    "movl $0x10 + 2 * {pin}, {ioapic}",
    "movl $0x92, {ioapic} + 0x10",
    // Number 2 by the register: the device shows its bit.
    "mov $3, %ecx",
    "movl $2, 0x50(%esi)",
    "mov $2000000, %ebx",
    "2: dec %ebx",
    "je 9f",
    "inb $0x80, %al",
    "cmpl $4, {shown}(%esi)",
    "jne 2b",
    // Number 3 by the port: it interrupts, too.
    "mov $4, %ecx",
    "mov ${port}, %edx",
    "mov $3, %eax",
    "outl %eax, %dx",
    "mov $2000000, %ebx",
    "3: dec %ebx",
    "je 9f",
    "inb $0x80, %al",
    "testl $0x40000, {apic} + 0x240",
    "je 3b",
    "mov $5, %ecx",
    "cmpl $8, {shown}(%esi)",
    "jne 9f",
    "mov $0x10, %ecx",
    "9: mov %ecx, %eax",
    "outb %al, $0xf4",
    "jmp 9b",
    "paravane_kvm_doorbell_guest_end:",
    ".code64",
    ".popsection",
    devices = const DEVICES,
    magic = const MAGIC,
    shown = const SHOWN,
    apic = const APIC,
    ioapic = const IOAPIC,
    pin = const DEVICE_PIN,
    port = const doorbell(0),
    call = const BUS_CALL,
    command = const COMMAND,
    answer = const ANSWER,
    options(att_syntax)
);

unsafe extern "C" {
    static paravane_kvm_doorbell_guest: u8;
    static paravane_kvm_doorbell_guest_end: u8;
}

fn code() -> Vec<u8> {
    let (start, end) = (
        &raw const paravane_kvm_doorbell_guest,
        &raw const paravane_kvm_doorbell_guest_end,
    );
    // SAFETY: the assembler has put constant bytes between the two labels.
    unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) }.to_vec()
}

/// Records its calls, and interrupts for number 3.
#[derive(Default)]
struct Bell {
    machine: Option<Machine>,
    /// What it has counted, for the test.
    counters: Arc<std::sync::OnceLock<Arc<Counters>>>,
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bell")
    }
}

impl OwnDevice for Bell {
    bridge!();

    fn attach(&mut self, machine: Machine) {
        machine.page.show(0, MAGIC);
        let _ = self.counters.set(Arc::clone(&machine.counters));
        self.machine = Some(machine);
    }

    fn write(&mut self, offset: u32, width: u32, value: u64) {
        assert_eq!((offset, width, value), (0x10, 4, 41));
        self.machine.as_ref().unwrap().page.show(SHOWN, 42);
    }

    fn command(&mut self, address: u64) -> i32 {
        assert_eq!(address, COMMAND);
        ANSWER
    }

    fn serve(&mut self, _: bool, notified: u32) -> u32 {
        let machine = self.machine.as_ref().unwrap();
        if notified != 0 {
            machine.page.show(SHOWN, notified);
        }
        if notified & 8 != 0 {
            machine.line.raise();
        }
        0
    }
}

#[test]
fn a_driver_notifies_a_bridge_by_its_register_and_its_port() {
    let bell = Bell::default();
    let counters = Arc::clone(&bell.counters);
    if let Some((_, end)) = run_with(&code(), Model::Own(Box::new(bell))) {
        assert_eq!(end, End::Shutdown(0));
        let counters = counters.get().unwrap();
        assert_eq!(counters.interrupts.load(Ordering::Relaxed), 1);
    }
}

/// A notification with a number that no connection has wakes nothing. The code differs in one byte.
#[test]
fn a_number_that_is_too_large_notifies_nobody() {
    let mut code = code();
    for (bytes, to) in [
        ([0xb8, 3, 0, 0, 0], 16u32),
        ([0xbb, 0x80, 0x84, 0x1e, 0], 20_000),
    ] {
        // The last one: the looks for the interrupt.
        let at = code.windows(5).rposition(|found| found == bytes).unwrap();
        code[at + 1..at + 5].copy_from_slice(&to.to_le_bytes());
    }
    if let Some((_, end)) = run_with(&code, Model::Own(Box::new(Bell::default()))) {
        assert_eq!(end, End::Failed("it ended with the value 0x4".to_string()));
    }
}
