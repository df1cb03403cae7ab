// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both halves of each protocol, in every order that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p paravane-wakeup --release`
//!
//! The layer's half is written here as in the C source that each function names. Where the C relies
//! on a locked instruction as a full barrier, the model has the instruction and a fence. A wake
//! that is lost leaves a thread in `Futex::wait` for good, which loom reports as a deadlock.
#![cfg(loom)]

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use paravane_wakeup::{Found, Target, raise, sleep_unless, sleep_until, wake_announced};

/// A futex: compares and sleeps in one step with respect to `wake`.
struct Futex {
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    fn new() -> Self {
        Futex {
            queue: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    fn wait(&self, word: &AtomicU32, value: u32) {
        let queue = self.queue.lock().unwrap();
        if word.load(Ordering::Relaxed) == value {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    fn wake(&self) {
        let queue = self.queue.lock().unwrap();
        self.woken.notify_one();
        drop(queue);
    }
}

/// A read-modify-write of the layer's, which is a locked instruction and so a full barrier.
fn locked_or(word: &AtomicU32, bits: u32) {
    word.fetch_or(bits, Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

/// `wake_announced()` of `host/doorbell.h`.
fn layer_wake_announced(sleeping: &AtomicU32, futex: &Futex) {
    if sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0, Ordering::SeqCst) != 0 {
        futex.wake();
    }
}

struct Device {
    notify: AtomicU32,
    sleeping: AtomicU32,
    futex: Futex,
}

impl Device {
    fn new() -> Arc<Self> {
        Arc::new(Device {
            notify: AtomicU32::new(0),
            sleeping: AtomicU32::new(0),
            futex: Futex::new(),
        })
    }

    fn wait(&self) {
        self.futex.wait(&self.sleeping, 1);
    }

    /// The device's thread, until it has seen `all`. `wait` is the last step of its sleep.
    fn run(&self, all: u32, wait: impl Fn(&Self)) {
        let mut seen = 0;
        while seen != all {
            let bits = self.notify.swap(0, Ordering::SeqCst);
            seen |= bits;
            if bits == 0 {
                sleep_unless(
                    &self.sleeping,
                    || self.notify.load(Ordering::SeqCst) != 0,
                    || wait(self),
                );
            }
        }
    }
}

fn notify_twice(wait: fn(&Device)) {
    let device = Device::new();
    let vcpu = thread::spawn({
        let device = Arc::clone(&device);
        move || {
            locked_or(&device.notify, 1);
            layer_wake_announced(&device.sleeping, &device.futex);
        }
    });
    let host = thread::spawn({
        let device = Arc::clone(&device);
        move || {
            device.notify.fetch_or(2, Ordering::SeqCst);
            wake_announced(&device.sleeping, || device.futex.wake());
        }
    });
    device.run(3, wait);
    vcpu.join().unwrap();
    host.join().unwrap();
}

/// `device_notify()` of `device/notify.c` by a vCPU, and the monitor's wake for the host.
#[test]
fn every_notification_reaches_the_device() {
    loom::model(|| notify_twice(Device::wait));
}

/// A futex on the work instead of the announcement: a waker that is late takes the announcement of
/// the next sleep, and the wake after that finds none.
#[test]
#[should_panic(expected = "deadlock")]
fn a_futex_on_the_work_loses_a_wake() {
    loom::model(|| notify_twice(|device| device.futex.wait(&device.notify, 0)));
}

/// A sleep and a wake without the waker's barrier: the model finds the lost wake.
#[test]
#[should_panic(expected = "deadlock")]
fn without_a_barrier_a_wake_is_lost() {
    loom::model(|| {
        let device = Device::new();
        let vcpu = thread::spawn({
            let device = Arc::clone(&device);
            move || {
                device.notify.fetch_or(1, Ordering::Relaxed);
                layer_wake_announced(&device.sleeping, &device.futex);
            }
        });
        device.run(1, Device::wait);
        vcpu.join().unwrap();
    });
}

/// `ask()` of `vcpu/irq.c`: here the announcement itself is the futex.
#[test]
fn every_kick_is_served() {
    loom::model(|| {
        let (wanted, sleeping) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let futex = Arc::new(Futex::new());
        let vcpu = thread::spawn({
            let (wanted, sleeping) = (Arc::clone(&wanted), Arc::clone(&sleeping));
            let futex = Arc::clone(&futex);
            move || {
                locked_or(&wanted, 1);
                layer_wake_announced(&sleeping, &futex);
            }
        });
        while wanted.swap(0, Ordering::SeqCst) == 0 {
            sleep_unless(
                &sleeping,
                || wanted.load(Ordering::SeqCst) != 0,
                || futex.wait(&sleeping, 1),
            );
        }
        vcpu.join().unwrap();
    });
}

/// `deadline_set()` of `vcpu/alarm.c`.
#[test]
fn an_earlier_deadline_is_not_slept_through() {
    const NEVER: u64 = u64::MAX;
    loom::model(|| {
        let (deadline, next) = (Arc::new(AtomicU64::new(NEVER)), Arc::new(AtomicU64::new(0)));
        let word = Arc::new(AtomicU32::new(0));
        let futex = Arc::new(Futex::new());
        let vcpu = thread::spawn({
            let (deadline, next) = (Arc::clone(&deadline), Arc::clone(&next));
            let (word, futex) = (Arc::clone(&word), Arc::clone(&futex));
            move || {
                deadline.store(7, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                if 7 < next.load(Ordering::SeqCst) {
                    word.fetch_add(1, Ordering::SeqCst);
                    futex.wake();
                }
            }
        });
        loop {
            next.store(0, Ordering::SeqCst);
            let seen = word.load(Ordering::SeqCst);
            let moment = deadline.load(Ordering::SeqCst);
            if moment == 7 {
                break;
            }
            sleep_until(
                &next,
                moment,
                || deadline.load(Ordering::SeqCst),
                || futex.wait(&word, seen),
            );
        }
        vcpu.join().unwrap();
    });
}

const RUNNING: u32 = 1;
const HALTED: u32 = 2;

struct Vcpu {
    pending: AtomicU32,
    state: AtomicU32,
    polling: AtomicU32,
    wait_word: AtomicU32,
    owner: AtomicU64,
    futex: Futex,
}

impl Vcpu {
    fn new() -> Arc<Self> {
        Arc::new(Vcpu {
            pending: AtomicU32::new(0),
            state: AtomicU32::new(RUNNING),
            polling: AtomicU32::new(0),
            wait_word: AtomicU32::new(0),
            owner: AtomicU64::new(1),
            futex: Futex::new(),
        })
    }

    fn target(&self) -> Target<'_> {
        Target {
            pending: &self.pending,
            state: &self.state,
            halted: HALTED,
            polling: &self.polling,
            wait_word: &self.wait_word,
            owner: &self.owner,
        }
    }
}

/// `irq_wait()` of `vcpu/wait.c`.
#[test]
fn a_halted_vcpu_wakes_for_what_is_pending() {
    loom::model(|| {
        let v = Vcpu::new();
        let monitor = thread::spawn({
            let v = Arc::clone(&v);
            move || {
                v.target().set_pending(1);
                if v.target().find() == Found::Waiting {
                    v.futex.wake();
                }
            }
        });
        loop {
            let word = v.wait_word.load(Ordering::Relaxed);
            v.state.store(HALTED, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if v.pending.load(Ordering::Relaxed) != 0 {
                break;
            }
            v.futex.wait(&v.wait_word, word);
        }
        v.state.store(RUNNING, Ordering::Relaxed);
        monitor.join().unwrap();
    });
}

/// When a vCPU that looks for interrupts before it sleeps takes `polling` back.
#[derive(Clone, Copy, PartialEq)]
enum TakesBack {
    BeforeItsLastLook,
    AfterIt,
}

impl Vcpu {
    /// `announce()` of `vcpu/wait.c`, and a look.
    fn announce_and_look(&self) -> bool {
        self.state.store(HALTED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.pending.load(Ordering::Relaxed) != 0
    }

    /// `irq_wait()` of `vcpu/wait.c` with `poll_begin()` and `poll_end()` of `vcpu/poll.c`.
    fn halt(&self, takes_back: TakesBack) {
        self.polling.store(1, Ordering::Relaxed);
        let won = self.announce_and_look();
        if won || takes_back == TakesBack::BeforeItsLastLook {
            self.polling.store(0, Ordering::Relaxed);
        }
        loop {
            let word = self.wait_word.load(Ordering::Relaxed);
            if self.announce_and_look() {
                break;
            }
            if takes_back == TakesBack::AfterIt {
                self.polling.store(0, Ordering::Relaxed);
            }
            self.futex.wait(&self.wait_word, word);
        }
        self.state.store(RUNNING, Ordering::Relaxed);
    }

    /// `irq_notify()` and `vcpu_kick()` of `vcpu/irq.c`.
    fn notify(&self, bits: u32) {
        self.pending.fetch_or(bits, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == HALTED && self.polling.load(Ordering::Relaxed) == 0
        {
            self.wait_word.fetch_add(1, Ordering::SeqCst);
            self.futex.wake();
        }
    }

    /// The monitor sets pending bits, and wakes the vCPU if it waits.
    fn tell(&self, bits: u32) {
        self.target().set_pending(bits);
        if self.target().find() == Found::Waiting {
            self.futex.wake();
        }
    }

    /// Halts until it has taken `all`.
    fn take(&self, all: u32, takes_back: TakesBack) {
        let mut taken = 0;
        while taken != all {
            self.halt(takes_back);
            taken |= self.pending.swap(0, Ordering::SeqCst);
        }
    }
}

/// Two senders, of which one may send its two interrupts at different halts.
fn notify_looking(takes_back: TakesBack, first: fn(&Vcpu, u32), second: fn(&Vcpu, u32)) {
    let vcpu = Vcpu::new();
    let other = thread::spawn({
        let vcpu = Arc::clone(&vcpu);
        move || {
            first(&vcpu, 1);
            second(&vcpu, 2);
        }
    });
    vcpu.take(3, takes_back);
    other.join().unwrap();
}

/// Another vCPU or the monitor sends two interrupts, the second one perhaps at a later halt.
#[test]
fn a_vcpu_that_looks_takes_what_is_not_rung_for() {
    for send in [Vcpu::notify, Vcpu::tell] {
        loom::model(move || notify_looking(TakesBack::BeforeItsLastLook, send, send));
    }
}

/// The sender still reads that the vCPU looks, after its last look.
#[test]
#[should_panic(expected = "deadlock")]
fn polling_that_is_taken_back_too_late_loses_a_wake() {
    loom::model(|| notify_looking(TakesBack::AfterIt, Vcpu::notify, Vcpu::notify));
}

/// The monitor, as the sender, still reads that the vCPU looks, after its last look.
#[test]
#[should_panic(expected = "deadlock")]
fn polling_that_is_taken_back_too_late_loses_a_wake_of_the_monitor() {
    loom::model(|| notify_looking(TakesBack::AfterIt, Vcpu::tell, Vcpu::tell));
}

/// The monitor and another vCPU do not disturb each other.
#[test]
fn a_vcpu_that_looks_is_told_by_both() {
    loom::model(|| {
        let vcpu = Vcpu::new();
        let monitor = thread::spawn({
            let vcpu = Arc::clone(&vcpu);
            move || vcpu.tell(1)
        });
        let other = thread::spawn({
            let vcpu = Arc::clone(&vcpu);
            move || vcpu.notify(2)
        });
        vcpu.take(3, TakesBack::BeforeItsLastLook);
        monitor.join().unwrap();
        other.join().unwrap();
    });
}

/// When the thread that gives a vCPU away clears `owner`.
#[derive(Clone, Copy, PartialEq)]
enum Gone {
    BeforeTheWake,
    AfterIt,
}

/// `space_load()` and `become()` of `vcpu/handover.c`: the thread that takes the vCPU over sees
/// what is pending, or gets the signal. It is found as long as it is the owner.
fn hand_over(gone: Gone) {
    let (v, wake) = (Vcpu::new(), Arc::new(AtomicU32::new(0)));
    let first = thread::spawn({
        let (v, wake) = (Arc::clone(&v), Arc::clone(&wake));
        move || {
            if gone == Gone::BeforeTheWake {
                v.owner.store(0, Ordering::Relaxed);
            }
            wake.swap(1, Ordering::Release);
            if gone == Gone::AfterIt {
                v.owner.store(0, Ordering::Relaxed);
            }
        }
    });
    let next = thread::spawn({
        let v = Arc::clone(&v);
        move || {
            while wake.swap(0, Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            v.owner.store(2, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            v.pending.load(Ordering::Relaxed) != 0
        }
    });
    v.target().set_pending(1);
    let found = v.target().find();
    let seen = next.join().unwrap();
    assert!(seen || found == Found::Owner(2), "{found:?}");
    first.join().unwrap();
    assert_eq!(v.target().find(), Found::Owner(2));
}

#[test]
fn a_hand_over_loses_nothing() {
    loom::model(|| hand_over(Gone::BeforeTheWake));
}

/// The next owner would not be found.
#[test]
#[should_panic(expected = "Owner(0)")]
fn a_name_that_is_cleared_after_the_wake_is_found() {
    loom::model(|| hand_over(Gone::AfterIt));
}

/// `process_line_route()` of `calls/line.c`: a signal that comes while the line is being unmasked
/// is delivered once.
#[test]
fn a_masked_line_delivers_once() {
    loom::model(|| {
        let (route, raised) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let guest = thread::spawn({
            let (route, raised) = (Arc::clone(&route), Arc::clone(&raised));
            move || {
                route.store(0x41, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                u32::from(raised.swap(0, Ordering::SeqCst) != 0)
            }
        });
        let device = u32::from(raise(&route, &raised).is_some());
        assert_eq!(device + guest.join().unwrap(), 1);
    });
}
