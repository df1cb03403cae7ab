// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that interrupts vCPUs for each other, on hosts that cannot confine the signals of a
//! machine's processes ([`super::signal_scope::SignalScope::Monitor`]).
//!
//! A vCPU that kicks another one sets its bit, wakes this thread if the thread sleeps, and waits
//! for the end of a round. [`kick::signal`] decides which thread gets the signal. It knows the
//! machine's processes, so no number that a guest writes reaches another process.

use super::core::Core;
use super::{kick, sys};
use crate::size::size;
use paravane_abi::process as ph;
use paravane_wakeup::sleep_unless;
use std::sync::atomic::Ordering;

// Each vCPU has a bit.
const _: () = assert!(ph::PHV_MAX_VCPUS <= 64);

/// Runs the thread until the machine is stopped.
pub fn run(core: &Core) {
    let wanted = &core.shared.header().kick_wanted;
    let sleeping = &core.shared.header().kick_sleeping;
    let rounds = &core.shared.header().kick_rounds;
    while !core.stopping() {
        if serve(core) {
            rounds.fetch_add(1, Ordering::SeqCst);
            sys::futex_wake(rounds);
            continue;
        }
        sleep_unless(
            sleeping,
            || wanted.load(Ordering::SeqCst) != 0 || core.stopping(),
            || sys::futex_wait(sleeping, 1, None),
        );
    }
}

/// Serves the requested kicks. False: there were none.
fn serve(core: &Core) -> bool {
    let bits = core.shared.header().kick_wanted.swap(0, Ordering::SeqCst);
    // A guest can set any bit.
    for vcpu in (0..core.vcpus.min(size(ph::PHV_MAX_VCPUS))).filter(|vcpu| bits >> vcpu & 1 != 0) {
        kick::signal(core, vcpu);
    }
    bits != 0
}

/// Wakes the thread, so that it notices that the machine is stopped.
pub fn wake(core: &Core) {
    let sleeping = &core.shared.header().kick_sleeping;
    sleeping.store(0, Ordering::SeqCst);
    sys::futex_wake(sleeping);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::shared::Shared;
    use paravane_abi::process::area::VcpuState;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// What the layer does to kick `vcpu`.
    fn ask(core: &Core, bits: u64) {
        let wanted = &core.shared.header().kick_wanted;
        wanted.fetch_or(bits, Ordering::SeqCst);
        let sleeping = &core.shared.header().kick_sleeping;
        paravane_wakeup::wake_announced(sleeping, || sys::futex_wake(sleeping));
    }

    #[test]
    fn every_request_is_served_and_the_end_is_noticed() {
        let core = Arc::new(Core::new(Shared::new(0).unwrap(), 2).unwrap());
        for vcpu in 0..2 {
            let state = &core.shared.vcpu(vcpu).state;
            state.store(VcpuState::Halted, Ordering::SeqCst);
        }
        let thread = std::thread::spawn({
            let core = Arc::clone(&core);
            move || run(&core)
        });
        let wait = |vcpu| &core.shared.vcpu(vcpu).wait_word;
        for round in 1..200 {
            // With bits of vCPUs that do not exist.
            ask(&core, 0xffff_0000_0000_0002);
            let deadline = Instant::now() + Duration::from_secs(20);
            while wait(1).load(Ordering::SeqCst) < round {
                assert!(Instant::now() < deadline, "round {round}");
                std::thread::yield_now();
            }
        }
        assert_eq!(wait(0).load(Ordering::SeqCst), 0);
        let rounds = &core.shared.header().kick_rounds;
        assert!(rounds.load(Ordering::SeqCst) > 0, "whoever asked may go on");
        core.stop();
        thread.join().unwrap();
    }
}
