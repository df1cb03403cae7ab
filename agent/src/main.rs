// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane-agent` runs in a guest and starts the commands that the monitor requests.
//!
//! As process 1 it is also the init of the machine: it mounts file systems, prepares /run, reaps
//! orphans and powers the machine off. Otherwise the root's own init has started it as a service.
//!
//!     paravane-agent                       connects to the host's vsock
//!     paravane-agent --connect-unix PATH   connects to a Unix socket, for tests without a guest
//!     paravane-agent --pack PATH           for `paravane cp`: writes an archive to standard output
//!     paravane-agent --unpack PATH         for `paravane cp`: reads one from standard input
//!     paravane-agent --layer-stats read    for `paravane calls`: prints the layer's counts
//!     paravane-agent --layer-stats reset   the same, and then sets them to zero
//!
//! Modules depend on each other in one direction: `serve` answers requests with `init`, `command`
//! and `session`; `init` uses `reap`, `system`, `runtime`, `network` and `hosts`; those use
//! `mounts`, and so does `modules`. `reap` uses `spawn`, and `session` uses `discard`.

mod command;
mod connection;
mod dial;
mod discard;
mod hosts;
mod init;
mod layer;
mod modules;
mod mounts;
mod network;
mod path;
mod reap;
mod root;
mod runtime;
mod serve;
mod session;
mod spawn;
mod system;
mod tmpfiles;
mod tree;
mod user;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(result) = at_once() {
        return match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let address = match address(std::env::args_os().skip(1).collect()) {
        Ok(address) => address,
        Err(why) => {
            eprintln!("paravane-agent: {why}");
            return ExitCode::from(2);
        }
    };
    let first = std::process::id() == 1;
    let result = if first { begin() } else { Ok(()) };
    let why = match result
        .and_then(|()| hold_child_signals())
        .map(|()| spawn::raise_limit())
        .and_then(|()| if first { init::take_requests() } else { Ok(()) })
        .and_then(|()| reap::start())
    {
        Ok(()) => serve::run(&address),
        Err(error) => error.to_string(),
    };
    eprintln!("paravane-agent: {why}");
    if first {
        // Process 1 must not exit: that would be a kernel panic. The exit status is written to a
        // file in /sys.
        let _ = mounts::mount_memory("/sys");
        init::power_off(init::FAILED);
    }
    ExitCode::FAILURE
}

/// Blocks SIGCHLD in this thread and those that it starts. No code waits for the signal. While a
/// thread starts a command, it blocks all signals. So the kernel gives a SIGCHLD to another thread,
/// although its action is to ignore it, and interrupts that thread's connect(2). Commands begin
/// with no signal blocked (spawn.rs).
fn hold_child_signals() -> io::Result<()> {
    // SAFETY: the set is initialized before it is used, and outlives the calls.
    let result = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
    };
    match result {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Startup as process 1: changes to the machine's root, then executes its init or acts as init.
fn begin() -> io::Result<()> {
    // The path of the program does not exist in the new root.
    let own = std::env::args_os().next().unwrap_or_default();
    let mut own = File::open(own)?;
    modules::load();
    let lists = modules::Lists::read();
    let line = root::change()?;
    lists.provide();
    if let Some(wanted) = system::wanted(&line) {
        system::hand_over(wanted, &mut own)?;
    }
    init::start()
}

/// Does what `--pack`, `--unpack` or `--layer-stats` says, if the command line has one of them.
fn at_once() -> Option<io::Result<()>> {
    if std::process::id() == 1 {
        return None;
    }
    let mut words = std::env::args_os().skip(1);
    let (option, path) = (words.next()?, words.next()?);
    if option == "--pack" {
        Some(tree::pack(Path::new(&path)))
    } else if option == "--unpack" {
        Some(tree::unpack(Path::new(&path)))
    } else if option == "--layer-stats" {
        Some(layer::stats(path == "reset"))
    } else {
        None
    }
}

fn address(words: Vec<OsString>) -> Result<dial::Address, String> {
    // The arguments of process 1 are parameters that the kernel did not recognize.
    if std::process::id() == 1 {
        return Ok(dial::Address::Host);
    }
    let mut words = words.into_iter();
    match (words.next(), words.next(), words.next()) {
        (None, ..) => Ok(dial::Address::Host),
        (Some(option), Some(path), None) if option == "--connect-unix" => {
            Ok(dial::Address::Unix(path.into()))
        }
        _ => Err("usage: paravane-agent [--connect-unix PATH]".to_string()),
    }
}
