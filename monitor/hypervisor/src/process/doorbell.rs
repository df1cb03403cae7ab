// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that answers the layer's doorbell: console output, requests for processes, the
//! machine's end.

use super::core::Core;
use super::shared::copy;
use super::sys;
use crate::output::{End, Output};
use crate::size::size;
use paravane_abi::process as ph;
use paravane_abi::process::area::VmState;
use paravane_user_io::text;
use std::sync::atomic::Ordering;
use std::time::Duration;

const RING: usize = size(ph::PHV_CONSOLE_SIZE);
const MESSAGE: usize = 256;
/// How long the thread sleeps after a ring without a reason: a hostile guest could ring without
/// end.
const PAUSE: Duration = Duration::from_millis(1);
/// The longest such sleep. It doubles with each such ring in a row.
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// Runs the thread until the machine has ended or is stopped. `sink` may block; the guest then
/// waits.
pub fn run(core: &Core, mut sink: impl FnMut(Output)) {
    let doorbell = &core.shared.header().doorbell;
    let wanted = &core.shared.header().proc_wanted;
    let mut console = Console { tail: 0 };
    let (mut most_wanted, mut pause, mut last) = (0, PAUSE, 0);
    // The thread was woken, and has found no reason yet.
    let mut woken = false;
    while !core.stopping() {
        let rung = doorbell.load(Ordering::SeqCst);
        // The state is read before the console, so that output from before the end is printed
        // before it.
        let end = ending(core);
        let mut any = match console.drain(core, &mut sink) {
            Ok(any) => any,
            Err(damage) => {
                sink(Output::End(End::Failed(damage)));
                return;
            }
        };
        if let Some(end) = end {
            sink(Output::End(end));
            return;
        }
        // A vCPU that has stopped also rings.
        if core.wakeups.wake_debugger() && rung != last {
            pause = PAUSE;
            woken = false;
        }
        last = rung;
        let now_wanted = wanted.load(Ordering::Relaxed);
        // The number that the layer wants only grows.
        if now_wanted > most_wanted {
            core.wakeups.wake_supervisor();
            most_wanted = now_wanted;
            any = true;
        }
        if any {
            pause = PAUSE;
            woken = false;
        } else if woken || doorbell.load(Ordering::SeqCst) != rung {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            woken = false;
        } else {
            sys::futex_wait(doorbell, rung, None);
            woken = true;
        }
    }
}

/// Whether and how the machine has ended.
fn ending(core: &Core) -> Option<End> {
    let header = core.shared.header();
    let status = || header.vm_status.load(Ordering::Acquire);
    match header.vm_state.load(Ordering::Acquire) {
        Ok(VmState::Running) => core.end.failure().map(End::Failed),
        Ok(VmState::Shutdown) => {
            let [status, ..] = status().to_le_bytes();
            Some(End::Shutdown(status))
        }
        Ok(VmState::Reboot) => Some(End::Reboot(status())),
        Ok(VmState::Fatal) => {
            let mut bytes = [0u8; MESSAGE];
            copy(&header.message, &mut bytes);
            let said = bytes.split(|&b| b == 0).next().unwrap_or_default();
            Some(End::Failed(text::one_line(&text::clean(said))))
        }
        Err(other) => Some(End::Failed(format!(
            "the shared area is damaged: machine state {other}"
        ))),
    }
}

/// The reading end of the console ring.
struct Console {
    /// Bytes taken so far. The monitor's own count: the copy in the shared area is for the layer.
    tail: u32,
}

impl Console {
    /// Takes everything from the ring. Returns false if there was nothing.
    fn drain(&mut self, core: &Core, sink: &mut impl FnMut(Output)) -> Result<bool, String> {
        let head = core.shared.header().console_head.load(Ordering::Acquire);
        let length = size(head.wrapping_sub(self.tail).into());
        if length > RING {
            return Err(format!(
                "the shared area is damaged: {length} bytes in the console ring of {RING}"
            ));
        }
        if length == 0 {
            return Ok(false);
        }
        let mut bytes = vec![0u8; length];
        let start = size(self.tail.into()) % RING;
        let (first, second) = bytes.split_at_mut(length.min(RING - start));
        core.shared
            .read(size(ph::PHV_SHARED_CONSOLE) + start, first);
        core.shared.read(size(ph::PHV_SHARED_CONSOLE), second);
        sink(Output::Console(bytes));
        self.tail = head;
        // Published only after the reader has the bytes, so that a guest that prints faster than
        // its reader reads waits.
        let tail = &core.shared.header().console_tail;
        tail.store(head, Ordering::Release);
        sys::futex_wake(tail);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::shared::Shared;
    use proptest::prelude::*;

    fn core() -> Core {
        Core::new(Shared::new(0).unwrap(), 1).unwrap()
    }

    fn print(core: &Core, bytes: &[u8]) {
        let head = &core.shared.header().console_head;
        let mut at = head.load(Ordering::Relaxed);
        for byte in bytes {
            core.shared.write(
                size(ph::PHV_SHARED_CONSOLE) + size(at.into()) % RING,
                &[*byte],
            );
            at = at.wrapping_add(1);
        }
        head.store(at, Ordering::Relaxed);
    }

    fn set_message(core: &Core, message: &[u8]) {
        for (byte, value) in core.shared.header().message.iter().zip(message) {
            byte.store(*value, Ordering::Relaxed);
        }
    }

    /// Everything that comes from a machine that has ended.
    fn collect(core: &Core) -> (Vec<u8>, End) {
        let (mut bytes, mut end) = (Vec::new(), None);
        run(core, |output| match output {
            Output::Console(more) => bytes.extend(more),
            Output::End(how) => end = Some(how),
        });
        (bytes, end.unwrap())
    }

    #[test]
    fn the_last_words_come_before_the_end() {
        let core = core();
        print(&core, b"ok 1\n");
        let header = core.shared.header();
        header.vm_status.store(0x103, Ordering::Relaxed);
        header.vm_state.store(VmState::Shutdown, Ordering::Relaxed);
        assert_eq!(collect(&core), (b"ok 1\n".to_vec(), End::Shutdown(3)));
    }

    #[test]
    fn a_message_is_only_text() {
        let core = core();
        set_message(&core, b"no \x1b[2Jroom\nleft\0more");
        let state = &core.shared.header().vm_state;
        state.store(VmState::Fatal, Ordering::Relaxed);
        assert_eq!(collect(&core).1, End::Failed("no roomleft".to_string()));
        set_message(&core, &[b'x'; MESSAGE]);
        assert_eq!(collect(&core).1, End::Failed("x".repeat(MESSAGE)));
    }

    /// Each ring comes when the thread sleeps again.
    #[test]
    fn rings_without_a_reason_wake_the_thread_ever_more_rarely() {
        let core = core();
        let doorbell = &core.shared.header().doorbell;
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tell.send(rustix::thread::gettid()).unwrap();
                run(&core, |_| {});
            });
            let thread = told.recv().unwrap();
            let sleeps = || {
                let path = format!("/proc/self/task/{}/status", thread.as_raw_nonzero());
                let text = std::fs::read_to_string(path).unwrap();
                let line = text.lines().find(|line| line.starts_with("voluntary_ctxt"));
                let number = line.unwrap().rsplit('\t').next().unwrap();
                number.parse::<u64>().unwrap()
            };
            let (before, begun) = (sleeps(), std::time::Instant::now());
            for _ in 0..2000 {
                doorbell.fetch_add(1, Ordering::SeqCst);
                sys::futex_wake(doorbell);
                std::thread::sleep(Duration::from_micros(50));
            }
            let (slept, took) = (sleeps() - before, begun.elapsed());
            core.stop();
            // Two for each pause, of 1, 2, 4, 8, 16 and then 32 ms.
            let most = 2 * (6 + took.as_millis() / LONGEST_PAUSE.as_millis());
            assert!(u128::from(slept) <= most, "{slept} sleeps in {took:?}");
        });
    }

    #[test]
    fn the_ring_goes_round() {
        let core = core();
        let mut console = Console { tail: 0 };
        let mut seen = Vec::new();
        let mut expected = Vec::new();
        for round in 0..40u8 {
            let bytes = vec![round; 5000];
            print(&core, &bytes);
            expected.extend(bytes);
            console
                .drain(&core, &mut |output| {
                    if let Output::Console(more) = output {
                        seen.extend(more);
                    }
                })
                .unwrap();
        }
        assert!(seen == expected);
    }

    #[test]
    fn a_failure_of_the_host_ends_it() {
        let core = core();
        core.fail("first".to_string());
        core.fail("second".to_string());
        assert_eq!(collect(&core).1, End::Failed("first".to_string()));
    }

    proptest! {
        #[test]
        fn any_content_of_the_shared_area_is_survived(
            head: u32, state in 1u32.., status: u32,
            message in prop::collection::vec(any::<u8>(), MESSAGE),
        ) {
            let core = core();
            let header = core.shared.header();
            header.console_head.store(head, Ordering::Relaxed);
            header.vm_state.word().store(state, Ordering::Relaxed);
            header.vm_status.store(status, Ordering::Relaxed);
            set_message(&core, &message);
            let (bytes, end) = collect(&core);
            prop_assert!(bytes.len() <= RING);
            if let End::Failed(why) = end {
                prop_assert!(!why.chars().any(char::is_control));
            }
        }
    }
}
