// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A server of the host that returns what it gets.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

/// Starts the server on the loopback address, for as long as the test program runs. Returns its
/// port.
///
/// # Panics
/// There is no port.
#[must_use]
pub fn start() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}
