// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest of a hundred instructions that drives a virtio device. It tests a register write, a
//! notification and an interrupt on any KVM. It runs in 32-bit mode without paging.

use super::layout::{APIC, DEVICE_PIN, DEVICES, IOAPIC};
use super::{Config, Debug, Vm, check};
use crate::debug::{Debugged, Reason, Resume, State};
use crate::output::{End, Output};
use paravane_devices::Model;
use paravane_devices::rng::Rng;
use rustix::event::{EventfdFlags, eventfd};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Where the guest is loaded, and where it begins.
const LOAD: u32 = 0x10_0000;
const PATIENCE: Duration = Duration::from_secs(60);

// A mistake ends at `fail` with a step's number in ecx. Rings are at 3 MiB.
core::arch::global_asm!(
    ".pushsection .rodata",
    ".global paravane_kvm_test_guest",
    ".global paravane_kvm_test_guest_end",
    ".code32",
    "paravane_kvm_test_guest:",
    "mov $0x7fff0, %esp",
    // A page that reads as registers: the magic number, version 2, a source of entropy.
    "mov $1, %ecx",
    "mov ${devices}, %esi",
    "cmpl $0x74726976, 0x00(%esi)",
    "jne 9f",
    "cmpl $2, 0x04(%esi)",
    "jne 9f",
    "cmpl $4, 0x08(%esi)",
    "jne 9f",
    // Status, and the feature VERSION_1.
    "mov $2, %ecx",
    "movl $0, 0x70(%esi)",
    "movl $1, 0x70(%esi)",
    "movl $3, 0x70(%esi)",
    "movl $1, 0x24(%esi)",
    "movl $1, 0x20(%esi)",
    "movl $11, 0x70(%esi)",
    "cmpl $11, 0x70(%esi)",
    "jne 9f",
    // Queue 0 with 8 entries.
    "mov $3, %ecx",
    "movl $0, 0x30(%esi)",
    "movl $8, 0x38(%esi)",
    "movl $0x300000, 0x80(%esi)",
    "movl $0x301000, 0x90(%esi)",
    "movl $0x302000, 0xa0(%esi)",
    "movl $1, 0x44(%esi)",
    "cmpl $1, 0x44(%esi)",
    "jne 9f",
    "movl $15, 0x70(%esi)",
    // A buffer of 64 bytes that the device writes.
    "movl $0x303000, 0x300000",
    "movl $64, 0x300008",
    "movl $2, 0x30000c",
    "movl $0x10000, 0x301000",
    // The device's pin gives vector 0x92 to local APIC 0, which is on.
    "mov $4, %ecx",
    "movl $0x1ff, {apic} + 0xf0",
    "movl $0x10 + 2 * {pin} + 1, {ioapic}",
    "movl $0, {ioapic} + 0x10",
    "movl $0x10 + 2 * {pin}, {ioapic}",
    "movl $0x92, {ioapic} + 0x10",
    "cmpl $0x92, {ioapic} + 0x10",
    "jne 9f",
    // The notification.
    "mov $5, %ecx",
    "movl $0, 0x50(%esi)",
    // The interrupt has begun. The entry is written again, as after a change of its vCPU.
    "3: cmpl $1, 0x60(%esi)",
    "jne 3b",
    "movl $0x92, {ioapic} + 0x10",
    "mov $5000000, %eax",
    // The request of the interrupt, while interrupts are off.
    "2: dec %eax",
    "je 9f",
    "testl $0x40000, {apic} + 0x240",
    "je 2b",
    // One buffer was used, all of it.
    "mov $6, %ecx",
    "cmpl $0x10000, 0x302000",
    "jne 9f",
    "cmpl $64, 0x302008",
    "jne 9f",
    // The reason of the interrupt, and its acknowledgement.
    "mov $7, %ecx",
    "cmpl $1, 0x60(%esi)",
    "jne 9f",
    "movl $1, 0x64(%esi)",
    "cmpl $0, 0x60(%esi)",
    "jne 9f",
    // A message, and the end.
    "mov $0x3f8, %edx",
    "mov $0x6b, %al",
    "outb %al, %dx",
    "mov $0x10, %al",
    "outb %al, $0xf4",
    "9: mov %ecx, %eax",
    "outb %al, $0xf4",
    "jmp 9b",
    "paravane_kvm_test_guest_end:",
    ".code64",
    ".popsection",
    devices = const DEVICES,
    apic = const APIC,
    ioapic = const IOAPIC,
    pin = const DEVICE_PIN,
    options(att_syntax)
);

unsafe extern "C" {
    static paravane_kvm_test_guest: u8;
    static paravane_kvm_test_guest_end: u8;
}

/// What a test's device of its own says of itself: it is a bridge, which nothing has to be done for
/// at its start.
macro_rules! bridge {
    () => {
        fn kind(&self) -> u32 {
            $crate::kvm::device::BRIDGE
        }

        /// A name that has a policy.
        fn name(&self) -> String {
            "bus".to_string()
        }

        fn numbers(&self) -> u32 {
            16
        }

        fn start(&mut self, _: &paravane_devices::Waker) -> anyhow::Result<()> {
            Ok(())
        }
    };
}
pub(super) use bridge;

fn code() -> &'static [u8] {
    let (start, end) = (
        &raw const paravane_kvm_test_guest,
        &raw const paravane_kvm_test_guest_end,
    );
    // SAFETY: the assembler has put constant bytes between the two labels.
    unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) }
}

/// An ELF file of one segment with this code, entered by PVH at its start.
fn kernel(code: &[u8]) -> Vec<u8> {
    const HEADERS: u64 = 64 + 2 * 56;
    const NOTE: u64 = 20;
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    file.resize(16, 0);
    for half in [2u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1u32.to_le_bytes());
    for word in [u64::from(LOAD), 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 2, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    let (load, size) = (u64::from(LOAD), code.len() as u64);
    for (kind, words) in [
        (1u32, [HEADERS + NOTE, load, load, size, size, 1]),
        (4, [HEADERS, 0, 0, NOTE, NOTE, 4]),
    ] {
        file.extend(kind.to_le_bytes());
        file.extend(7u32.to_le_bytes());
        for word in words {
            file.extend(word.to_le_bytes());
        }
    }
    for word in [4u32, 4, 18] {
        file.extend(word.to_le_bytes());
    }
    file.extend(b"Xen\0");
    file.extend(LOAD.to_le_bytes());
    file.extend(code);
    file
}

/// A machine that runs this code with an entropy device; `None` without a KVM.
fn start(code: &[u8]) -> Option<Vm> {
    let vm = prepare(code)?;
    vm.start_kernel();
    Some(vm)
}

/// A machine with this code and an entropy device, before its start; `None` without a KVM.
fn prepare(code: &[u8]) -> Option<Vm> {
    prepare_with(code, Model::virtio(Rng::default()))
}

/// A machine with this code and this device, before its start; `None` without a KVM.
fn prepare_with(code: &[u8], device: Model) -> Option<Vm> {
    if let Err(why) = check() {
        eprintln!("skipped: {why:#}");
        return None;
    }
    let kernel = kernel(code);
    let config = Config {
        name: "test",
        kernel: &kernel,
        layer: None,
        command_line: "",
        initrd: &[],
        vcpus: 2,
        memory: 64 << 20,
        tests: true,
        large_pages: false,
        emulated: true,
    };
    Some(Vm::prepare(&config, vec![device]).unwrap())
}

/// Runs code. Returns the console and the end; `None` without a KVM.
fn run(code: &[u8]) -> Option<(Vec<u8>, End)> {
    run_with(code, Model::virtio(Rng::default()))
}

/// Runs code in a machine with this device.
pub(super) fn run_with(code: &[u8], device: Model) -> Option<(Vec<u8>, End)> {
    let vm = prepare_with(code, device)?;
    vm.start_kernel();
    let (mut console, begun) = (Vec::new(), Instant::now());
    loop {
        match vm.next() {
            Some(Output::Console(bytes)) => console.extend(bytes),
            Some(Output::End(end)) => return Some((console, end)),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(begun.elapsed() < PATIENCE, "the guest does not end");
    }
}

#[test]
fn a_driver_uses_a_device() {
    if let Some(result) = run(code()) {
        assert_eq!(result, (b"k".to_vec(), End::Shutdown(0)));
    }
}

/// Masks the pin in this many places of the code: where the entry is written, where it is
/// compared, and where it is written again after the interrupt.
fn mask(code: &mut [u8], places: usize) {
    for _ in 0..places {
        let entry = [0x92, 0, 0, 0];
        let at = code.windows(4).position(|bytes| bytes == entry).unwrap();
        code[at + 2] = 1;
    }
}

/// A kernel masks a pin while it moves its interrupt. An interrupt that arrives then is not lost.
#[test]
fn an_interrupt_of_a_masked_pin_comes_when_it_is_unmasked() {
    let mut code = code().to_vec();
    mask(&mut code, 2);
    if let Some(result) = run(&code) {
        assert_eq!(result, (b"k".to_vec(), End::Shutdown(0)));
    }
}

/// The test above can fail: here one byte of the code is changed.
#[test]
fn a_masked_pin_gives_no_interrupt() {
    let mut code = code().to_vec();
    mask(&mut code, 3);
    // Fewer looks: each is an exit where the host does not virtualize local APICs.
    let looks = 5_000_000u32.to_le_bytes();
    let at = code.windows(4).position(|bytes| bytes == looks).unwrap();
    code[at..at + 4].copy_from_slice(&20_000u32.to_le_bytes());
    if let Some((_, end)) = run(&code) {
        assert_eq!(end, End::Failed("it ended with the value 0x5".to_string()));
    }
}

/// A triple fault ends the machine: here an invalid instruction without a handler. The message has
/// the address.
#[test]
fn a_triple_fault_is_told() {
    // lidt of an empty table; ud2
    let mut code = vec![0x0f, 0x01, 0x1d];
    code.extend((LOAD + 9).to_le_bytes());
    code.extend([0x0f, 0x0b, 0, 0, 0, 0, 0, 0]);
    if let Some((_, End::Failed(why))) = run(&code) {
        assert!(why.starts_with("vCPU 0: a triple fault at rip 0x"), "{why}");
    } else {
        assert!(check().is_err(), "it did not fail");
    }
}

/// A debugger of the machine that runs this code; `None` without a KVM.
fn debugged(code: &[u8]) -> Option<(Vm, Debug)> {
    let mut vm = prepare(code)?;
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let (tell, told) = channel();
    vm.debug_with(bell, move |debug| tell.send(debug).unwrap())
        .unwrap();
    vm.start_kernel();
    let debug = told.recv().unwrap();
    debug.attach(true);
    Some((vm, debug))
}

fn stop_of(debug: &Debug, vcpu: usize) -> Reason {
    let begun = Instant::now();
    loop {
        match debug.state(vcpu) {
            State::Stopped(reason) => return reason,
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(begun.elapsed() < PATIENCE, "it does not stop");
    }
}

/// Registers before the first instruction, memory, steps, changed registers, and a stop of a vCPU
/// that runs.
#[test]
fn a_debugger_steps_and_changes_registers() {
    // 0: inc %eax; 1: inc %ebx; 2: jmp 0
    let Some((_vm, debug)) = debugged(&[0x40, 0x43, 0xeb, 0xfc]) else {
        return;
    };
    assert_eq!(stop_of(&debug, 0), Reason::Asked);
    assert_eq!(debug.state(1), State::Off);
    let mut registers = debug.registers(0).unwrap();
    assert_eq!(registers.rip, u64::from(LOAD));
    let mut bytes = [0; 2];
    assert_eq!(debug.read(&registers, LOAD.into(), &mut bytes), 2);
    assert_eq!(bytes, [0x40, 0x43]);
    registers.gpr[0] = 41;
    debug.set_registers(0, &registers);
    debug.resume(0, Resume::Step);
    assert_eq!(stop_of(&debug, 0), Reason::Step);
    let registers = debug.registers(0).unwrap();
    assert_eq!((registers.rip, registers.gpr[0]), (u64::from(LOAD) + 1, 42));
    debug.resume(0, Resume::Continue);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(debug.state(0), State::Runs);
    assert!(debug.stop_all(PATIENCE));
    let registers = debug.registers(0).unwrap();
    assert!(
        (0..4).contains(&(registers.rip - u64::from(LOAD))),
        "{registers:x?}"
    );
    assert!(registers.gpr[0] > 42);
}

/// KVM does not report the start of a vCPU. The vCPU stops even so, also at breakpoints that are
/// older than its start.
#[test]
fn a_debugger_stops_a_vcpu_that_has_started_meanwhile() {
    // Real mode's code of vCPU 1 at 0x8000, a jump to itself. The local APIC is on; INIT; STARTUP
    // again and again.
    #[rustfmt::skip]
    let code = [
        0xc7, 0x05, 0x00, 0x80, 0, 0, 0xeb, 0xfe, 0, 0,
        0xc7, 0x05, 0xf0, 0, 0xe0, 0xfe, 0xff, 0x01, 0, 0,
        0xc7, 0x05, 0x10, 0x03, 0xe0, 0xfe, 0, 0, 0, 1,
        0xc7, 0x05, 0x00, 0x03, 0xe0, 0xfe, 0, 0x45, 0, 0,
        0xc7, 0x05, 0x00, 0x03, 0xe0, 0xfe, 0x08, 0x46, 0, 0, 0xeb, 0xf4,
    ];
    for hardware in [false, true] {
        let Some((vm, debug)) = debugged(&code) else {
            return;
        };
        assert_eq!(stop_of(&debug, 0), Reason::Asked);
        assert!(debug.stop_all(PATIENCE) && debug.state(1) == State::Off);
        if hardware {
            assert!(debug.set_hardware_breakpoints(&[0x8000]));
            debug.resume(0, Resume::Continue);
            match breakpoint(&vm, &debug, 1) {
                None => return,
                Some(reason) => assert_eq!(reason, Reason::Hardware),
            }
            continue;
        }
        let begun = Instant::now();
        while debug.state(1) == State::Off {
            debug.resume(0, Resume::Continue);
            std::thread::sleep(Duration::from_millis(20));
            assert!(debug.stop_all(PATIENCE));
            assert!(begun.elapsed() < PATIENCE, "it does not start");
        }
        assert_eq!(debug.state(1), State::Stopped(Reason::Asked));
        assert_eq!(debug.registers(1).unwrap().rip, 0);
    }
}

/// An int3 that the debugger plants; one of the guest's own, which has no handler; a breakpoint of
/// the processor.
#[test]
fn a_debugger_sets_breakpoints() {
    // 0: inc %eax; 1: inc %ebx; 2: jmp 0
    let Some((vm, debug)) = debugged(&[0x40, 0x43, 0xeb, 0xfc]) else {
        return;
    };
    assert_eq!(stop_of(&debug, 0), Reason::Asked);
    let second = u64::from(LOAD) + 1;
    assert!(debug.set_hardware_breakpoints(&[second]));
    debug.resume(0, Resume::Continue);
    match breakpoint(&vm, &debug, 0) {
        None => return,
        Some(reason) => assert_eq!(reason, Reason::Hardware),
    }
    assert_eq!(debug.registers(0).unwrap().rip, second);
    assert!(debug.set_hardware_breakpoints(&[]));
    assert!(debug.write_physical(second, &[0xcc]));
    debug.resume(0, Resume::Continue);
    match breakpoint(&vm, &debug, 0) {
        None => return,
        Some(reason) => assert_eq!(reason, Reason::Breakpoint),
    }
    let mut registers = debug.registers(0).unwrap();
    assert_eq!(registers.rip, second + 1);
    assert!(debug.write_physical(second, &[0x43]));
    registers.rip = second;
    debug.set_registers(0, &registers);
    debug.resume(0, Resume::Step);
    assert_eq!(stop_of(&debug, 0), Reason::Step);
    assert_eq!(debug.registers(0).unwrap().rip, second + 1);
    // Without a handler the guest's own ends in a triple fault.
    assert!(debug.write_physical(second, &[0xcc]));
    debug.resume(0, Resume::Continue);
    assert_eq!(stop_of(&debug, 0), Reason::Breakpoint);
    debug.resume(0, Resume::Pass);
    let begun = Instant::now();
    loop {
        if let Some(Output::End(End::Failed(why))) = vm.next() {
            assert!(why.contains("triple fault"), "{why}");
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        assert!(begun.elapsed() < PATIENCE, "the guest does not end");
    }
}

/// The reason of the next stop; `None` where KVM is emulated and does not stop: QEMU's emulation of
/// SVM knows no breakpoints of the processor, and gives the guest its int3; other emulators do not
/// know the instruction.
fn breakpoint(vm: &Vm, debug: &Debug, vcpu: usize) -> Option<Reason> {
    let begun = Instant::now();
    let missed = loop {
        if let State::Stopped(reason) = debug.state(vcpu) {
            return Some(reason);
        }
        if let Some(output) = vm.next() {
            break format!("{output:?}");
        }
        if begun.elapsed() > Duration::from_secs(5) {
            break "it runs on".to_string();
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let speed = super::speed::measure().unwrap();
    assert!(!speed.fast(), "{missed}");
    eprintln!("skipped: this KVM is emulated, without such breakpoints: {missed}");
    None
}

/// A guest that never leaves its loop is ended with all its threads.
#[test]
fn a_guest_that_hangs_is_ended() {
    // jmp to itself
    if let Some(vm) = start(&[0xeb, 0xfe]) {
        std::thread::sleep(Duration::from_millis(50));
        assert!(vm.next().is_none());
        let core = Arc::downgrade(&vm.core);
        let begun = Instant::now();
        drop(vm);
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        // Each thread of the machine holds this.
        assert!(core.upgrade().is_none(), "a thread still runs");
    }
}
