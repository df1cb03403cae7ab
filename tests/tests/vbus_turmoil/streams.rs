// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections of a guest that returns all bytes (`nc HOST PORT -e cat`): what was sent comes back,
//! in order, for as long as a connection lasts.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that are compared at once.
const BLOCK: usize = 16 << 10;
/// Blocks that are under way.
const WINDOW: u64 = 2;
/// How long a block may take: more than TCP waits at most before it sends again.
const PATIENCE: Duration = Duration::from_secs(180);
const TICK: Duration = Duration::from_millis(50);

fn block(number: u64) -> Vec<u8> {
    let words =
        (0..BLOCK as u64 / 8).map(|at| (number << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

/// A server.
pub struct Server {
    listener: TcpListener,
    /// The first connection lasts until the end, whatever happens.
    lasts: bool,
    pub connections: AtomicU64,
    /// Blocks that came back.
    pub blocks: AtomicU64,
}

impl Server {
    pub fn new(lasts: bool) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Server {
            listener,
            lasts,
            connections: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
        }
    }

    pub fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::SeqCst)
    }

    /// Serves one connection after the other.
    pub fn serve(&self, end: &AtomicBool) {
        while !end.load(Ordering::SeqCst) {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    thread::sleep(TICK);
                    continue;
                }
                Err(error) => unreachable!("{error}"),
            };
            self.connections.fetch_add(1, Ordering::SeqCst);
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(TICK)).unwrap();
            // A write waits while the guest reads nothing.
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            let done = self.exchange(stream, end);
            if let (Err(why), true) = (done, self.lasts) {
                unreachable!("the stream has ended after {} blocks: {why}", self.blocks());
            }
        }
    }

    /// Sends until the end, and until all of it has come back. The error: the connection has ended
    /// before.
    fn exchange(&self, mut stream: TcpStream, end: &AtomicBool) -> Result<(), String> {
        let (mut sent, mut number) = (0, 0);
        let mut found = vec![0; BLOCK];
        loop {
            while sent < number + WINDOW && !end.load(Ordering::SeqCst) {
                let done = stream.write_all(&block(sent));
                done.map_err(|error| error.to_string())?;
                sent += 1;
            }
            if sent == number {
                return Ok(());
            }
            let (begun, mut filled) = (Instant::now(), 0);
            while filled < BLOCK {
                match stream.read(&mut found[filled..]) {
                    Ok(0) => return Err("the guest ends it".to_string()),
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        if begun.elapsed() > PATIENCE {
                            return Err("nothing comes".to_string());
                        }
                    }
                    Err(error) => return Err(error.to_string()),
                }
                let expected = block(number);
                assert!(
                    found[..filled] == expected[..filled],
                    "block {number} has other bytes"
                );
            }
            number += 1;
            self.blocks.fetch_add(1, Ordering::SeqCst);
        }
    }
}
