// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The question itself: does a guest run?

use super::{Finding, Status};
use paravane_hypervisor::process::{Config, End, Output, Vm};
use paravane_user_io::text;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};

/// From the guest's start to its end.
const TIMEOUT: Duration = Duration::from_secs(20);

pub fn finding() -> Finding {
    let start = Instant::now();
    match run() {
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

/// Boots the conformance guest, which lists its tests and ends.
fn run() -> anyhow::Result<()> {
    let vm = Vm::start(&Config {
        name: "built-in guest",
        kernel: paravane_blobs::CONFORMANCE_GUEST,
        layer: paravane_blobs::PROCESS_LAYER,
        command_line: "layer=process list",
        initrd: &[],
        vcpus: 1,
        memory: 64 << 20,
        spaces: None,
        debuggable: false,
        disturb_clock: false,
    })?;
    // The guest's time: what makes the machine has a limit of its own.
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match vm.next() {
            Some(Output::Console(_)) => {}
            Some(Output::End(End::Shutdown(0))) => return Ok(()),
            Some(Output::End(End::Failed(why))) => anyhow::bail!("{why}"),
            Some(Output::End(end)) => anyhow::bail!("it ended with {end:?}"),
            None => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    anyhow::bail!("it has not ended after {} s", TIMEOUT.as_secs());
                }
                let timeout = Timespec::try_from(left).ok();
                // Whatever came, the loop looks again.
                let _ = poll(
                    &mut [PollFd::from_borrowed_fd(vm.bell(), PollFlags::IN)],
                    timeout.as_ref(),
                );
            }
        }
    }
}
