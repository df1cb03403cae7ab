// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kicks: make a vCPU check its alarms, or a device's interrupt.

use super::core::Core;
use super::sys;
use crate::size::size;
use crate::thread_signal;
use paravane_abi::process as ph;
use paravane_abi::process::area::VcpuState;
use paravane_abi::view::Enumerated;
use paravane_devices::Message;
use paravane_wakeup::{self as wakeup, Found, Target};
use std::sync::atomic::Ordering;

/// A bit of `pending`.
pub const fn bit(value: u64) -> u32 {
    assert!(value <= 0xff);
    #[allow(clippy::cast_possible_truncation)] // just asserted
    {
        value as u32
    }
}

/// The vCPU checks its alarms.
pub const ALARM: u32 = bit(ph::PHV_PENDING_ALARM);
const IRQ: u32 = bit(ph::PHV_PENDING_IRQ);
const NMI: u32 = bit(ph::PHV_PENDING_NMI);
/// The vCPU stops for a debugger.
pub const DEBUG: u32 = bit(ph::PHV_PENDING_DEBUG);

/// The words of a vCPU that a kick uses.
fn target(core: &Core, vcpu: usize) -> Target<'_> {
    let words = core.shared.vcpu(vcpu);
    Target {
        pending: &words.pending,
        state: words.state.word(),
        halted: VcpuState::Halted.raw(),
        polling: &words.polling,
        wait_word: &words.wait_word,
        owner: &words.owner,
    }
}

/// What a vCPU did when it was kicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Was {
    /// It ran or wanted to, or there was none to kick.
    Running,
    /// It was halted, and looked for an interrupt by itself.
    Looking,
    /// It was halted.
    Asleep,
}

/// Sets pending bits of a vCPU and kicks it.
pub fn tell(core: &Core, vcpu: usize, pending: u32) -> Was {
    target(core, vcpu).set_pending(pending);
    signal(core, vcpu)
}

/// Makes a vCPU look at what is pending.
pub fn signal(core: &Core, vcpu: usize) -> Was {
    let target = target(core, vcpu);
    let owner = match target.find() {
        Found::Waiting => {
            sys::futex_wake(target.wait_word);
            return Was::Asleep;
        }
        Found::Looking => {
            // If it sees the bit late, it should have slept instead.
            let told = &core.shared.vcpu(vcpu).told;
            let _ = told.compare_exchange(0, sys::tsc(), Ordering::Relaxed, Ordering::Relaxed);
            return Was::Looking;
        }
        // The next owner looks by itself.
        Found::Owner(0) => return Was::Running,
        Found::Owner(owner) => owner,
    };
    let [t0, t1, t2, t3, p0, p1, p2, p3] = owner.to_le_bytes();
    let (tid, pid) = (
        u32::from_le_bytes([t0, t1, t2, t3]),
        u32::from_le_bytes([p0, p1, p2, p3]),
    );
    // The guest could write any number there, so only a known process counts; tgkill itself checks
    // that the thread belongs to the process.
    core.processes.act(|_, process| {
        let known = process.layer_pid == pid;
        if let Some(tid) = process.thread(tid).filter(|_| known) {
            thread_signal::interrupt(process.pid, tid);
        }
        known
    });
    Was::Running
}

/// Sends all vCPUs a non-maskable interrupt.
pub fn nmi(core: &Core) {
    for vcpu in 0..core.vcpus {
        tell(core, vcpu, NMI);
    }
}

/// Requests an interrupt vector of a vCPU and kicks it. A vCPU that has not taken the last such
/// request waits for its CPU, not for the device.
fn interrupt(core: &Core, vcpu: usize, vector: u8) -> Was {
    let bit = 1 << (vector & 63);
    let requests = &core.shared.vcpu(vcpu).irr[usize::from(vector >> 6)];
    let requested = requests.fetch_or(bit, Ordering::SeqCst) & bit != 0;
    match tell(core, vcpu, IRQ) {
        _ if requested => Was::Running,
        was => was,
    }
}

/// Signals a device's interrupt line: delivers the interrupt where the guest routed it, or keeps it
/// while the line is masked. Returns what the vCPU did that gets it.
pub fn raise(core: &Core, line: usize) -> Was {
    let device = core.shared.device(line);
    let Some(to) = wakeup::raise(&device.route, &device.raised) else {
        return Was::Running;
    };
    let [vector, place @ ..] = to.to_le_bytes();
    let place = u32::from_le_bytes([place[0], place[1], place[2], 0]);
    // The guest can write any value there, so the layer's checks are repeated.
    if u64::from(vector) < paravane_abi::VECTOR_MIN {
        return Was::Running;
    }
    if u64::from(place) == ph::PHV_ROUTE_NOTIFIER {
        let lines = &core.shared.header().lines;
        lines.fetch_or(1 << (line & 63), Ordering::SeqCst);
        return interrupt(core, running(core, notifier(core, line)), vector);
    }
    let vcpu = size(place.into());
    if vcpu >= core.vcpus {
        return Was::Running;
    }
    interrupt(core, vcpu, vector)
}

/// Sends an interrupt whose vector and vCPU the guest chose. It costs what [`raise`] costs: a bit
/// in the vCPU's memory and a kick. A vCPU that is off gets none, as from another vCPU
/// (`layers/process/calls/apic.c`).
pub fn send(core: &Core, message: Message) -> Was {
    let vcpu = size(message.vcpu().into());
    if off(core, vcpu) {
        return Was::Running;
    }
    interrupt(core, vcpu, message.vector())
}

/// Whether a vCPU runs or wants to run, or polls for an interrupt: then it will run soon. A vCPU
/// that was just woken still has the state of one that polls. The guest can write anything there.
pub fn runs(core: &Core, vcpu: usize) -> bool {
    let vcpu = core.shared.vcpu(vcpu);
    vcpu.state.is(VcpuState::Running, Ordering::SeqCst) || vcpu.polling.load(Ordering::SeqCst) != 0
}

/// The vCPU that notified a device last. The guest can write any number there.
pub fn notifier(core: &Core, line: usize) -> usize {
    let vcpu = core.shared.device(line).notifier.load(Ordering::Relaxed);
    Some(size(vcpu.into()))
        .filter(|&vcpu| vcpu < core.vcpus)
        .unwrap_or(0)
}

/// This vCPU, or the first one that runs if it is off: the guest may have stopped it after it
/// notified a device.
fn running(core: &Core, vcpu: usize) -> usize {
    if !off(core, vcpu) {
        return vcpu;
    }
    (0..core.vcpus).find(|&vcpu| !off(core, vcpu)).unwrap_or(0)
}

fn off(core: &Core, vcpu: usize) -> bool {
    let state = &core.shared.vcpu(vcpu).state;
    state.is(VcpuState::Off, Ordering::SeqCst)
}

#[cfg(test)]
#[expect(unsafe_code, reason = "counts signals")]
mod tests {
    use super::*;
    use crate::process::process_ids::Process;
    use crate::process::shared::Shared;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicU32;

    fn core() -> Core {
        let core = Core::new(Shared::new(0).unwrap(), 2).unwrap();
        for vcpu in 0..2 {
            core.shared
                .vcpu(vcpu)
                .state
                .store(VcpuState::Halted, Ordering::SeqCst);
        }
        core
    }

    fn requested(core: &Core, vcpu: usize) -> Vec<u64> {
        let words = core.shared.vcpu(vcpu);
        words
            .irr
            .iter()
            .map(|word| word.load(Ordering::SeqCst))
            .collect()
    }

    /// A vCPU that is woken and has no CPU yet still looks halted.
    #[test]
    fn an_interrupt_that_is_not_taken_is_counted_once() {
        let core = core();
        let device = core.shared.device(3);
        device.route.store(1 << 8 | 0x41, Ordering::SeqCst);
        assert_eq!(raise(&core, 3), Was::Asleep);
        assert_eq!(raise(&core, 3), Was::Running);
        core.shared.vcpu(1).irr[1].store(0, Ordering::SeqCst);
        assert_eq!(raise(&core, 3), Was::Asleep);
    }

    #[test]
    fn a_vcpu_that_looks_by_itself_is_not_woken() {
        let core = core();
        let words = core.shared.vcpu(0);
        words.polling.store(1, Ordering::SeqCst);
        assert!(runs(&core, 0));
        let before = sys::tsc();
        assert_eq!(tell(&core, 0, ALARM), Was::Looking);
        assert_eq!(words.wait_word.load(Ordering::SeqCst), 0);
        // The first time counts.
        let told = words.told.load(Ordering::SeqCst);
        assert!(told >= before && told <= sys::tsc());
        assert_eq!(tell(&core, 0, ALARM), Was::Looking);
        assert_eq!(words.told.load(Ordering::SeqCst), told);
        words.polling.store(0, Ordering::SeqCst);
        assert!(!runs(&core, 0));
        assert_eq!(tell(&core, 0, ALARM), Was::Asleep);
        assert_eq!(words.wait_word.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_line_goes_where_it_is_routed_and_keeps_what_is_masked() {
        let core = core();
        let device = core.shared.device(3);
        raise(&core, 3);
        raise(&core, 3);
        assert_eq!(device.raised.load(Ordering::SeqCst), 1);
        device.route.store(1 << 8 | 0x41, Ordering::SeqCst);
        raise(&core, 3);
        assert_eq!(requested(&core, 0), [0; 4]);
        assert_eq!(requested(&core, 1), [0, 2, 0, 0]);
        let pending = &core.shared.vcpu(1).pending;
        assert_eq!(pending.load(Ordering::SeqCst), IRQ);
        let wait = &core.shared.vcpu(1).wait_word;
        assert_eq!(wait.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_line_of_the_notifier_goes_to_it_and_says_which_it_is() {
        let core = core();
        let device = core.shared.device(3);
        let notifier = u32::try_from(ph::PHV_ROUTE_NOTIFIER).unwrap();
        device.route.store(notifier << 8 | 0x41, Ordering::SeqCst);
        let lines = &core.shared.header().lines;
        for (vcpu, expected) in [(1, 1), (0, 0), (2, 0), (u32::MAX, 0)] {
            device.notifier.store(vcpu, Ordering::SeqCst);
            raise(&core, 3);
            assert_eq!(lines.swap(0, Ordering::SeqCst), 8);
            assert_eq!(requested(&core, expected), [0, 2, 0, 0]);
            assert_eq!(requested(&core, 1 - expected), [0; 4]);
            core.shared.vcpu(expected).irr[1].store(0, Ordering::SeqCst);
        }
        // A vCPU that is off gets none.
        device.notifier.store(1, Ordering::SeqCst);
        let state = &core.shared.vcpu(1).state;
        state.store(VcpuState::Off, Ordering::SeqCst);
        raise(&core, 3);
        assert_eq!(requested(&core, 0), [0, 2, 0, 0]);
    }

    #[test]
    fn a_message_goes_to_its_vcpu_and_to_none_that_is_off() {
        let core = core();
        let to_last = Message::new(1, 0x42, core.vcpus).unwrap();
        assert_eq!(send(&core, to_last), Was::Asleep);
        assert_eq!(requested(&core, 1), [0, 4, 0, 0]);
        assert_eq!(requested(&core, 0), [0; 4]);
        let words = core.shared.vcpu(1);
        assert_eq!(words.pending.load(Ordering::SeqCst), IRQ);
        assert_eq!(words.wait_word.load(Ordering::SeqCst), 1);
        // It was not taken yet.
        assert_eq!(send(&core, to_last), Was::Running);
        words.irr[1].store(0, Ordering::SeqCst);
        words.state.store(VcpuState::Off, Ordering::SeqCst);
        assert_eq!(send(&core, to_last), Was::Running);
        assert_eq!(requested(&core, 1), [0; 4]);
    }

    /// A thread of the monitor waits for this.
    #[test]
    fn a_route_without_a_vector_is_none() {
        let core = core();
        core.shared.device(0).route.store(0x100, Ordering::SeqCst);
        raise(&core, 0);
        assert_eq!(
            (requested(&core, 0), requested(&core, 1)),
            (vec![0; 4], vec![0; 4])
        );
    }

    static SIGNALS: AtomicU32 = AtomicU32::new(0);

    extern "C" fn count_signal(_: libc::c_int) {
        SIGNALS.fetch_add(1, Ordering::SeqCst);
    }

    fn own(core: &Core, pid: u32, tid: u32) {
        core.shared
            .vcpu(0)
            .state
            .store(VcpuState::Running, Ordering::SeqCst);
        core.shared
            .vcpu(0)
            .owner
            .store(u64::from(pid) << 32 | u64::from(tid), Ordering::SeqCst);
    }

    /// This process represents all processes outside the machine.
    #[test]
    fn no_owner_reaches_outside() {
        // SAFETY: the handler only counts; nothing else in these tests uses the signal.
        unsafe {
            libc::signal(
                libc::SIGURG,
                count_signal as *const () as libc::sighandler_t,
            );
        }
        let core = core();
        // SAFETY: takes and returns numbers only.
        let tid = unsafe { libc::gettid() }.unsigned_abs();
        let me = std::process::id();
        for (pid, thread) in [
            (me, tid),
            (me, me),
            (0, tid),
            (u32::MAX, tid),
            (me, 0),
            (me, u32::MAX),
            (1, 1),
        ] {
            own(&core, pid, thread);
            tell(&core, 0, ALARM);
        }
        assert_eq!(SIGNALS.load(Ordering::SeqCst), 0);
        // The check can fail: it sees a signal that arrives.
        core.processes.add(0, Process::of_host(me));
        core.publish_count(1);
        own(&core, me, tid);
        tell(&core, 0, ALARM);
        assert_eq!(SIGNALS.load(Ordering::SeqCst), 1);
        // A thread of another process that is named together with a known process gets no signal.
        own(&core, me, 1);
        tell(&core, 0, ALARM);
        assert_eq!(SIGNALS.load(Ordering::SeqCst), 1);
        // In a PID namespace the layer's ids are translated, and the host's ids mean nothing.
        let inside = self::core();
        inside.processes.add(0, Process::known(me, 2, &[(tid, 7)]));
        inside.publish_count(1);
        for (pid, thread) in [(me, tid), (me, 7), (2, tid), (2, 2), (0, 7)] {
            own(&inside, pid, thread);
            tell(&inside, 0, ALARM);
        }
        assert_eq!(SIGNALS.load(Ordering::SeqCst), 1);
        own(&inside, 2, 7);
        tell(&inside, 0, ALARM);
        assert_eq!(SIGNALS.load(Ordering::SeqCst), 2);
        // After the end of the zygote the ids may be those of others.
        inside.processes.kill();
        tell(&inside, 0, ALARM);
        assert_eq!(SIGNALS.load(Ordering::SeqCst), 2);
    }

    proptest! {
        #[test]
        fn no_route_reaches_outside(route: u32) {
            let core = core();
            core.shared.device(0).route.store(route, Ordering::SeqCst);
            raise(&core, 0);
            let (vector, vcpu) = (route & 0xff, route >> 8);
            let delivered: u32 = (0..2)
                .flat_map(|vcpu| requested(&core, vcpu))
                .map(|word| word.count_ones())
                .sum();
            let notifier = u64::from(vcpu) == ph::PHV_ROUTE_NOTIFIER;
            prop_assert_eq!(delivered, u32::from((vcpu < 2 || notifier) && vector >= 32));
        }
    }
}
