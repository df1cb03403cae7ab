// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unix_client PATH`: sends its standard input to a Unix socket, and prints what comes until the
//! other end closes. Waits for a socket that does not exist yet, for at most two minutes.

use std::error::Error;
use std::io::{Write, copy};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("unix_client: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("no path")?;
    let mut stream = connect(Path::new(&path))?;
    let mut writer = stream.try_clone()?;
    let sender = spawn(move || -> std::io::Result<()> {
        copy(&mut std::io::stdin(), &mut writer)?;
        // Fails if the other end has gone.
        let _ = writer.shutdown(Shutdown::Write);
        Ok(())
    });
    let mut output = std::io::stdout();
    copy(&mut stream, &mut output)?;
    output.flush()?;
    // The thread that waits for input ends with the process.
    if sender.is_finished() {
        sender.join().map_err(|_| "the sender has panicked")??;
    }
    Ok(())
}

fn connect(path: &Path) -> std::io::Result<UnixStream> {
    let begun = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Err(error) if begun.elapsed() > PATIENCE => return Err(error),
            Err(_) => sleep(Duration::from_millis(20)),
            Ok(stream) => return Ok(stream),
        }
    }
}
