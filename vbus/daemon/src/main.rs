// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vbusd FOLDER [SOCKET]`: what `paravane vbus daemon` runs, as a program of its own.

#![forbid(unsafe_code)]

use paravane_vbusd::Options;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(folder), socket, None) = (args.next(), args.next(), args.next()) else {
        eprintln!(
            "vbusd: wants a folder for its state, and perhaps a socket: vbusd FOLDER [SOCKET]"
        );
        return ExitCode::from(2);
    };
    let Err(error) = paravane_vbusd::run(&Options { folder, socket });
    eprintln!("vbusd: {error:#}");
    ExitCode::from(2)
}
