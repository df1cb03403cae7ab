// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane boot`: a kernel on the process hypervisor with its console on stdout, for whoever works on either.

use super::Outcome;
use crate::cli::Boot;
use crate::devices::rng::Rng;
use crate::process::{Config, End, Output, Vm};
use crate::signals::Signals;
use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Runs the command.
pub fn run(args: &Boot) -> anyhow::Result<Outcome> {
    let read = |path: &std::path::Path| std::fs::read(path).with_context(|| path.display().to_string());
    let path = match &args.kernel {
        Some(path) => path.clone(),
        None => crate::kernel::locate_or_build()?.vmlinux,
    };
    let kernel = read(&path)?;
    let initrd = args.initrd.as_deref().map(read).transpose()?.unwrap_or_default();
    let signals = Signals::install().context("cannot take note of signals")?;
    let vm = Vm::start_with(
        &Config {
            name: &path.display().to_string(),
            kernel: &kernel,
            layer: paravane_blobs::PROCESS_LAYER,
            command_line: &args.append,
            initrd: &initrd,
            vcpus: args.cpus,
            memory: u64::from(args.memory) << 20,
            spaces: args.spaces,
            debuggable: args.debuggable,
            disturb_clock: false,
        },
        vec![Box::new(Rng::default())],
    )?;
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    let mut out = io::stdout().lock();
    loop {
        match vm.next() {
            Some(Output::Console(bytes)) => {
                out.write_all(&bytes)?;
                out.flush()?;
                continue;
            }
            Some(Output::End(End::Shutdown(code))) => return Ok(Outcome::Guest(code)),
            Some(Output::End(End::Reboot(_))) => bail!("the machine was reset"),
            Some(Output::End(End::Failed(why))) => bail!("{why}; the virtual machine was ended"),
            None => {}
        }
        if let Some(signal) = signals.pending() {
            return Ok(Outcome::Interrupted(signal));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("the machine had not ended after {} s", args.timeout);
        }
        let mut files = [
            PollFd::from_borrowed_fd(vm.bell(), PollFlags::IN),
            PollFd::from_borrowed_fd(signals.wake(), PollFlags::IN),
        ];
        // Everything is looked at again, whatever came.
        let _ = rustix::event::poll(&mut files, Timespec::try_from(left).ok().as_ref());
    }
}
