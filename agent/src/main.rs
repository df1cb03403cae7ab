// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane-agent`: runs in a guest, and starts there what the monitor asks for.
//!
//! As process 1 it is the whole of a small system's init: it mounts what programs expect, adopts orphans, and ends the machine.
//! Otherwise it is a program like any other, which a system's own init has started.
//!
//!     paravane-agent                       dials the host's vsock
//!     paravane-agent --connect-unix PATH   dials a socket: for tests, no guest needed
//!     paravane-agent --pack PATH           `paravane cp` out of the guest: an archive on standard output
//!     paravane-agent --unpack PATH         and into it: one on standard input

mod command;
mod connection;
mod dial;
mod hosts;
mod init;
mod mounts;
mod network;
mod path;
mod reap;
mod root;
mod runtime;
mod serve;
mod session;
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
    if let Some(copied) = copy() {
        return match copied {
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
    let why = match result.and_then(|()| reap::start()) {
        Ok(()) => serve::run(&address),
        Err(error) => error.to_string(),
    };
    eprintln!("paravane-agent: {why}");
    if first {
        // Nothing can be done here any more, and process 1 must not end.
        // The status goes by way of it.
        let _ = mounts::mount_memory("/sys");
        init::power_off(init::FAILED);
    }
    ExitCode::FAILURE
}

/// As process 1: the machine's root, and then its init or what we do in place of one.
fn begin() -> io::Result<()> {
    // It is out of reach later.
    let own = std::env::args_os().next().unwrap_or_default();
    let mut own = File::open(own)?;
    let line = root::change()?;
    if let Some(wanted) = system::wanted(&line) {
        system::hand_over(wanted, &mut own)?;
    }
    init::start()
}

/// What `paravane cp` asks for, if it does.
fn copy() -> Option<io::Result<()>> {
    if std::process::id() == 1 {
        return None;
    }
    let mut words = std::env::args_os().skip(1);
    let (option, path) = (words.next()?, words.next()?);
    if option == "--pack" {
        Some(tree::pack(Path::new(&path)))
    } else if option == "--unpack" {
        Some(tree::unpack(Path::new(&path)))
    } else {
        None
    }
}

fn address(words: Vec<OsString>) -> Result<dial::Address, String> {
    // The kernel gives process 1 the words of its command line that it does not know.
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
