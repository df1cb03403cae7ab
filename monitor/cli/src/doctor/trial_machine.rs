// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a guest, to see whether that works on this host.

use super::{Finding, Status};
use paravane_hypervisor::process::{Config, End, Heuristics, Output, Vm};
use paravane_user_io::text;
use paravane_user_io::worker::{self, Limit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};

/// The time for creating the machine, and again the time from the guest's start to its end.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Makes the guest list its tests and end.
const LIST: &str = "layer=process list";

pub fn finding() -> Finding {
    let start = Instant::now();
    match run(LIST, TIMEOUT) {
        Ok(()) => {
            let time = start.elapsed().as_millis();
            Finding::new(
                "guest",
                Status::Ok,
                true,
                format!("the conformance guest has booted and ended in {time} ms"),
            )
        }
        Err(error) => Finding::new(
            "guest",
            Status::Bad,
            false,
            text::one_line(&format!("does not run: {error:#}")),
        ),
    }
}

/// Boots the conformance kernel with this command line, and waits for its end.
fn run(words: &'static str, timeout: Duration) -> anyhow::Result<()> {
    let limit = Limit {
        signals: None,
        deadline: Instant::now() + timeout,
    };
    let vm = worker::within(&limit, "starter", || {
        Vm::start(&Config {
            name: "built-in guest",
            kernel: paravane_blobs::CONFORMANCE_GUEST,
            layer: paravane_blobs::PROCESS_LAYER,
            command_line: words,
            initrd: &[],
            vcpus: 1,
            memory: 64 << 20,
            spaces: None,
            debuggable: false,
            heuristics: Heuristics::default(),
        })
    })?;
    let deadline = Instant::now() + timeout;
    loop {
        match vm.next() {
            Some(Output::Console(_)) => {}
            Some(Output::End(End::Shutdown(0))) => return Ok(()),
            Some(Output::End(End::Failed(why))) => anyhow::bail!("{why}"),
            Some(Output::End(end)) => anyhow::bail!("it ended with {end:?}"),
            None => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    anyhow::bail!("it has not ended after {} s", timeout.as_secs());
                }
                let timeout = Timespec::try_from(left).ok();
                // The loop checks everything again after any end of the wait.
                let _ = poll(
                    &mut [PollFd::from_borrowed_fd(vm.bell(), PollFlags::IN)],
                    timeout.as_ref(),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_does_not_end_is_given_up() {
        // This command line makes the guest measure for minutes.
        let words = "layer=process bench=vmi batches=20000";
        let begun = Instant::now();
        let error = run(words, Duration::from_secs(2)).unwrap_err().to_string();
        assert_eq!(error, "it has not ended after 2 s");
        assert!(
            begun.elapsed() < Duration::from_secs(2 + 5),
            "{:?}",
            begun.elapsed()
        );
    }
}
