// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that does the work of a notification: counts, and no times.

use super::bus::{LEFT, Port};
use super::guest_tests::{bridge, run_with};
use super::kicks::Kicks;
use super::layout::{DEVICES, doorbell};
use crate::device_work::Work;
use crate::output::End;
use paravane_devices::counters::Counters;
use paravane_devices::{Area, Kicked, Machine, Model, OwnDevice, Page, Setting};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Where the device shows which thread has done its work last, and for which thread the guest
/// waits.
const SHOWN: usize = 8;
const EXPECTED: usize = 12;
/// The thread of a vCPU; the device's own.
const VCPU: u32 = 1;
const OWN: u32 = 2;
/// Microseconds: longer than a test.
const EVER: u32 = u32::MAX;

// Notifies number 3 by the port until the device shows the expected thread. An access to port 0x80
// is an exit, so the device's thread sleeps again before the next notification.
core::arch::global_asm!(
    ".pushsection .rodata",
    ".global paravane_kvm_kicks_guest",
    ".global paravane_kvm_kicks_guest_end",
    ".code32",
    "paravane_kvm_kicks_guest:",
    "mov ${devices}, %esi",
    "mov $2000, %edi",
    "mov ${port}, %edx",
    "1: dec %edi",
    "je 9f",
    "mov $3, %eax",
    "outl %eax, %dx",
    "mov $200, %ebx",
    "2: inb $0x80, %al",
    "dec %ebx",
    "jne 2b",
    "mov {shown}(%esi), %eax",
    "cmp {expected}(%esi), %eax",
    "jne 1b",
    "mov $0x10, %al",
    "outb %al, $0xf4",
    "9: mov $0x11, %al",
    "outb %al, $0xf4",
    "jmp 9b",
    "paravane_kvm_kicks_guest_end:",
    ".code64",
    ".popsection",
    devices = const DEVICES,
    port = const doorbell(0),
    shown = const SHOWN,
    expected = const EXPECTED,
    options(att_syntax)
);

unsafe extern "C" {
    static paravane_kvm_kicks_guest: u8;
    static paravane_kvm_kicks_guest_end: u8;
}

fn code() -> Vec<u8> {
    let (start, end) = (
        &raw const paravane_kvm_kicks_guest,
        &raw const paravane_kvm_kicks_guest_end,
    );
    // SAFETY: the assembler has put constant bytes between the two labels.
    unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) }.to_vec()
}

/// Shows which thread does its work.
#[derive(Debug, Default)]
struct Who {
    rare: Option<Setting>,
    expected: u32,
    page: Option<Page>,
    counters: Arc<OnceLock<Arc<Counters>>>,
    /// What it says of its rounds, and how many there were.
    kicked: Kicked,
    rounds: Arc<AtomicU32>,
}

impl OwnDevice for Who {
    bridge!();

    fn attach(&mut self, machine: Machine) {
        machine.page.show(EXPECTED, self.expected);
        let _ = self.counters.set(machine.counters);
        self.page = Some(machine.page);
    }

    fn write(&mut self, _: u32, _: u32, _: u64) {}

    fn command(&mut self, _: u64) -> i32 {
        0
    }

    fn serve(&mut self, _: bool, notified: u32) -> u32 {
        if notified == 0 {
            return 0;
        }
        self.rounds.fetch_add(1, Ordering::SeqCst);
        let thread = std::thread::current();
        let vcpu = thread.name().is_some_and(|name| name.starts_with("vcpu"));
        if let Some(page) = &self.page {
            page.show(SHOWN, if vcpu { VCPU } else { OWN });
        }
        0
    }

    fn rare(&self) -> Option<Setting> {
        self.rare.clone()
    }

    fn kicked(&mut self, notified: u32) -> Kicked {
        self.serve(false, notified);
        self.kicked
    }
}

fn setting(microseconds: Option<u32>) -> Option<Setting> {
    microseconds.map(|microseconds| Setting::new("kick-us", microseconds))
}

/// Runs the guest until it sees that this thread does the work. Returns how often a vCPU did it;
/// `None` without a KVM.
fn by_vcpu(rare: Option<u32>, expected: u32) -> Option<u64> {
    let who = Who {
        rare: setting(rare),
        expected,
        ..Who::default()
    };
    let counters = Arc::clone(&who.counters);
    let (_, end) = run_with(&code(), Model::Own(Box::new(who)))?;
    assert_eq!(end, End::Shutdown(0), "{rare:?} {expected}");
    Some(counters.get().unwrap().by_vcpu.load(Ordering::Relaxed))
}

#[test]
fn a_vcpu_does_the_work_of_rare_notifications() {
    if let Some(count) = by_vcpu(Some(0), VCPU) {
        assert!(count >= 1, "{count}");
    }
}

#[test]
fn dense_notifications_reach_the_device_s_thread() {
    if let Some(count) = by_vcpu(Some(EVER), OWN) {
        // Those after which they count as dense.
        assert!(count <= 3, "{count}");
    }
}

#[test]
fn no_vcpu_does_the_work_of_a_device_that_does_not_say_so() {
    if let Some(count) = by_vcpu(None, OWN) {
        assert_eq!(count, 0);
    }
}

/// What a device shares, and the rounds of its work.
fn kicks(rare: Option<u32>, kicked: Kicked) -> (Kicks, Arc<Port>, Arc<AtomicU32>) {
    let counter = || EventFd::new(EFD_NONBLOCK).unwrap();
    let port = Arc::new(Port::new(
        Area::new(1).unwrap().page(0),
        counter(),
        counter(),
        true,
    ));
    let who = Who {
        kicked,
        ..Who::default()
    };
    let rounds = Arc::clone(&who.rounds);
    let queues = (0..4).map(|_| counter()).collect();
    let work = Work::Own(Box::new(who));
    let kicks = Kicks::new(&port, queues, work, setting(rare), &Arc::default());
    (kicks, port, rounds)
}

/// Notifies queue 2. Returns whether the caller has done the work, and not the thread's counter.
fn kick(kicks: &Kicks, rounds: &AtomicU32) -> bool {
    let before = rounds.load(Ordering::SeqCst);
    kicks.kick(2);
    let done = rounds.load(Ordering::SeqCst) > before;
    let rung = kicks.queues[2].read().is_ok();
    assert!(done != rung, "each notification has one that serves it");
    done
}

#[test]
fn a_thread_that_works_is_notified() {
    let (kicks, port, rounds) = kicks(Some(0), Kicked::default());
    assert!(!kick(&kicks, &rounds), "it does not sleep");
    kicks.set_sleeps(true);
    assert!(kick(&kicks, &rounds));
    // It has just woken.
    let work = kicks.work();
    assert!(!kick(&kicks, &rounds));
    drop(work);
    assert!(kick(&kicks, &rounds));
    kicks.set_sleeps(false);
    assert!(!kick(&kicks, &rounds));
    // Nothing was left, and another number is no queue's.
    kicks.kick(4);
    kicks.kick(u32::MAX);
    assert_eq!((port.take(), kicks.left()), (0, 0));
}

#[test]
fn what_a_vcpu_leaves_is_the_thread_s() {
    let left = 1 << 16;
    let stream = false;
    let (kicks, port, rounds) = kicks(Some(0), Kicked { left, stream });
    kicks.set_sleeps(true);
    assert!(kick(&kicks, &rounds));
    assert_eq!((port.take(), port.bell.read().unwrap()), (LEFT, 1));
    assert_eq!((kicks.left(), kicks.left()), (left, 0));
}

#[test]
fn a_stream_is_the_thread_s() {
    let (left, stream) = (0, true);
    let (kicks, _, rounds) = kicks(Some(0), Kicked { left, stream });
    kicks.set_sleeps(true);
    let done = (0..20).filter(|_| kick(&kicks, &rounds)).count();
    // Three, and more only after a pause.
    assert!((3..20).contains(&done), "{done}");
    let (kicks, _, rounds) = self::kicks(None, Kicked::default());
    kicks.set_sleeps(true);
    assert!(!kick(&kicks, &rounds), "the device does not say so");
}
