// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serves gdb's remote protocol (`--gdb`). Threads are vCPUs; all of them stop when one stops.
//!
//! The machine waits at its first instruction until a debugger continues it. When a debugger
//! disconnects, the machine continues, and another debugger may connect. A debugger can read and
//! change everything in the machine, and nothing outside of it.

#![forbid(unsafe_code)]

mod listen;
mod target;

pub use listen::{Address, Listener};

use gdbstub::common::Signal;
use gdbstub::conn::Connection;
use gdbstub::stub::state_machine::GdbStubStateMachine as Machine;
use gdbstub::stub::{DisconnectReason, GdbStub, MultiThreadStopReason as Stop};
use listen::Stream;
use paravane_hypervisor::debug::Debugged;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use target::Target;

/// Serves debuggers until the machine ends. `bell` rings when a vCPU may have stopped or the
/// machine must end.
pub fn serve(debug: Box<dyn Debugged>, listener: &Listener, bell: &OwnedFd) {
    let mut target = Target::new(debug);
    while !target.ending() {
        if !wait(&[listener.as_fd(), bell.as_fd()])
            .first()
            .copied()
            .unwrap_or(false)
        {
            silence(bell);
            continue;
        }
        match listener.accept() {
            Ok(stream) => {
                tracing::info!("a debugger has come");
                target.attach();
                match session(&mut target, stream, bell) {
                    Ok(how) => tracing::info!("the debugger has gone: {how}"),
                    Err(why) => tracing::warn!("the debugger's connection ends: {why}"),
                }
                target.detach();
            }
            Err(error) => tracing::warn!("gdb: {error}"),
        }
    }
}

/// Waits until one of these files is readable. Returns which ones are.
fn wait(files: &[std::os::fd::BorrowedFd<'_>]) -> Vec<bool> {
    let mut set: Vec<PollFd<'_>> = files
        .iter()
        .map(|f| PollFd::from_borrowed_fd(*f, PollFlags::IN))
        .collect();
    // The caller checks everything again after any end of the wait, errors included.
    let _ = poll(&mut set, None);
    set.iter().map(|f| !f.revents().is_empty()).collect()
}

fn silence(bell: &OwnedFd) {
    // The descriptor does not block. It is empty if another reader was faster.
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

/// Serves one debugger from its connection to its end. Returns how it ended.
fn session(target: &mut Target, stream: Stream, bell: &OwnedFd) -> Result<&'static str, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let mut input = stream.reader();
    let gdb = GdbStub::<Target, Stream>::new(stream);
    let mut gdb = gdb.run_state_machine(target).map_err(|e| text(&e))?;
    loop {
        let ready = match &gdb {
            // A vCPU that no request lets run has nothing to report.
            Machine::Idle(_) | Machine::Running(_) => wait(&[input.as_fd(), bell.as_fd()]),
            _ => Vec::new(),
        };
        let byte = match ready.first() {
            Some(true) => match next(&mut input) {
                Ok(Some(byte)) => Some(byte),
                Ok(None) => return Ok("it hung up"),
                Err(error) => return Err(text(&error)),
            },
            _ => None,
        };
        // Input comes first: the bell is served when no byte is left.
        if byte.is_none() && ready.get(1) == Some(&true) {
            silence(bell);
        }
        gdb = match (gdb, byte) {
            (Machine::Idle(gdb), Some(byte)) => {
                gdb.incoming_data(target, byte).map_err(|e| text(&e))?
            }
            (Machine::Idle(gdb), None) => {
                if target.ending() {
                    return Ok("the machine has ended");
                }
                gdb.into()
            }
            (Machine::Running(gdb), Some(byte)) => {
                gdb.incoming_data(target, byte).map_err(|e| text(&e))?
            }
            (Machine::Running(gdb), None) => match target.stopped() {
                Some(stop) => gdb.report_stop(target, stop).map_err(|e| text(&e))?,
                None => gdb.into(),
            },
            (Machine::CtrlCInterrupt(gdb), _) => {
                target.stop_all();
                let stop = Stop::SignalWithThread {
                    tid: target.any_thread(),
                    signal: Signal::SIGINT,
                };
                gdb.interrupt_handled(target, Some(stop))
                    .map_err(|e| text(&e))?
            }
            (Machine::Disconnected(gdb), _) => {
                return Ok(match gdb.get_reason() {
                    DisconnectReason::Kill => {
                        target.kill();
                        "it has ended the machine"
                    }
                    DisconnectReason::Disconnect => "it has let the machine go",
                    _ => "the machine has ended",
                });
            }
        };
    }
}

/// The next byte; `None` after the debugger has disconnected.
fn next(input: &mut Stream) -> io::Result<Option<u8>> {
    let mut byte = [0];
    loop {
        match input.read(&mut byte) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(byte.first().copied()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Connection for Stream {
    type Error = io::Error;

    fn write(&mut self, byte: u8) -> io::Result<()> {
        self.pending.push(byte);
        Ok(())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}
