// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Examines a host that gives no answer.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// To QEMU's monitor. The interrupt makes the host's kernel panic, and print the stacks of its
/// tasks and processors, and its timers, to its console.
const COMMANDS: &str = "info registers -a\ninfo lapic 0\ninfo lapic 1\nnmi\n";

/// Returns what QEMU says of the processors. After at most `limit` the console has the rest.
pub(super) fn look(monitor: &Path, limit: Duration) -> String {
    let deadline = Instant::now() + limit;
    let mut said = Vec::new();
    let mut ask = || -> std::io::Result<()> {
        let mut stream = UnixStream::connect(monitor)?;
        stream.write_all(COMMANDS.as_bytes())?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            stream.set_read_timeout(Some(left))?;
            let mut bytes = [0; 4096];
            match stream.read(&mut bytes) {
                // The panic has ended QEMU.
                Ok(0) => return Ok(()),
                Ok(count) => said.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    };
    let why = ask().err().map(|error| format!("{error}\n"));
    let said = String::from_utf8_lossy(&said).replace('\r', "");
    format!("{}{said}", why.unwrap_or_default())
}
