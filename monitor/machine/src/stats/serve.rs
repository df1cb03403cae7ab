// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--metrics`: a socket on which Prometheus, or `curl --unix-socket`, reads the figures by HTTP.
//!
//! It speaks as much HTTP/1.0 as that needs: one request and one answer for each connection. The
//! thread has its own policy, and no client can keep it from answering others.

use super::{Stats, prometheus};
use crate::socket;
use anyhow::Context;
use paravane_confine::{self as confine, Files};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Largest length of a request, in bytes.
const MAX_REQUEST: usize = 8 << 10;
/// How long the end of the machine waits for the thread.
pub const END: Duration = Duration::from_millis(250);
/// Largest number of connections. One more drops the oldest.
const MAX_CLIENTS: usize = 32;

/// The socket and its thread, until this is dropped.
#[derive(Debug)]
pub struct Metrics {
    _name: socket::Name,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Metrics {
    /// Starts to listen. `figures` is called for each scrape.
    pub fn start(
        path: &Path,
        figures: impl Fn() -> Stats + Send + 'static,
    ) -> anyhow::Result<Self> {
        let context = || format!("--metrics {}", path.display());
        let (listener, name) = socket::listen(path).with_context(context)?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut metrics = Metrics {
            _name: name,
            stop: Arc::clone(&stop),
            thread: None,
        };
        let (tell, told) = channel();
        let thread = std::thread::Builder::new()
            .name("metrics".to_string())
            .spawn(move || {
                let entered = confine::enter("metrics", &Files::none());
                let go = entered.is_ok();
                // Fails only if the caller no longer waits for the start.
                let _ = tell.send(entered);
                if go {
                    run(&listener, &stop, &figures);
                }
            });
        metrics.thread = Some(thread.context("cannot start a thread")?);
        told.recv().context("the thread of --metrics ended")??;
        Ok(metrics)
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // The thread may be reading a host file about a process that is about to end.
            let deadline = Instant::now() + END;
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

struct Client {
    stream: UnixStream,
    request: Vec<u8>,
    /// The rest of the answer, once the request has arrived.
    answer: Option<Vec<u8>>,
}

fn run(listener: &UnixListener, stop: &OwnedFd, figures: &dyn Fn() -> Stats) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let mut files = vec![
            PollFd::new(stop, PollFlags::IN),
            PollFd::new(listener, PollFlags::IN),
        ];
        for client in &clients {
            let events = if client.answer.is_some() {
                PollFlags::OUT
            } else {
                PollFlags::IN
            };
            files.push(PollFd::new(&client.stream, events));
        }
        // The loop checks everything again after any end of the wait.
        let _ = poll(&mut files, None);
        if files.first().is_some_and(|file| !file.revents().is_empty()) {
            return;
        }
        while let Ok((stream, _)) = listener.accept() {
            if clients.len() == MAX_CLIENTS {
                clients.remove(0);
            }
            if stream.set_nonblocking(true).is_ok() {
                clients.push(Client {
                    stream,
                    request: Vec::new(),
                    answer: None,
                });
            }
        }
        clients.retain_mut(|client| client.work(figures));
    }
}

impl Client {
    /// Reads and writes. Returns false when the connection is finished.
    fn work(&mut self, figures: &dyn Fn() -> Stats) -> bool {
        if self.answer.is_none() {
            match self.read() {
                Ok(false) => return true,
                Ok(true) => self.answer = Some(answer(&self.request, figures)),
                Err(_) => return false,
            }
        }
        let Some(answer) = &mut self.answer else {
            return true;
        };
        while !answer.is_empty() {
            match self.stream.write(answer) {
                Ok(0) => return false,
                Ok(written) => drop(answer.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        false
    }

    /// Reads. Returns true when the request is complete.
    fn read(&mut self) -> io::Result<bool> {
        let mut piece = [0; 1024];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.request.extend(piece.iter().take(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            let ends = |end: &[u8]| self.request.windows(end.len()).any(|part| part == end);
            if ends(b"\r\n\r\n") || ends(b"\n\n") {
                return Ok(true);
            }
            if self.request.len() > MAX_REQUEST {
                return Err(io::Error::other("too long a request"));
            }
        }
    }
}

/// The complete answer to a request.
fn answer(request: &[u8], figures: &dyn Fn() -> Stats) -> Vec<u8> {
    let first = request
        .split(|&byte| byte == b'\r' || byte == b'\n')
        .next()
        .unwrap_or_default();
    let words: Vec<&[u8]> = first.split(|&byte| byte == b' ').collect();
    let (status, body) = match words[..] {
        [b"GET", b"/metrics" | b"/", version] if version.starts_with(b"HTTP/") => {
            match prometheus::text(figures()) {
                Ok(text) => ("200 OK", text),
                Err(error) => ("500 Internal Server Error", format!("{error}\n")),
            }
        }
        [b"GET", _, version] if version.starts_with(b"HTTP/") => {
            ("404 Not Found", "/metrics is here\n".to_string())
        }
        [_, _, version] if version.starts_with(b"HTTP/") => {
            ("405 Method Not Allowed", "GET it\n".to_string())
        }
        _ => ("400 Bad Request", "HTTP is spoken here\n".to_string()),
    };
    let head = format!(
        "HTTP/1.0 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        if status.starts_with("200") {
            prometheus::CONTENT_TYPE
        } else {
            "text/plain"
        },
        body.len()
    );
    (head + &body).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(request: &str) -> String {
        String::from_utf8(answer(request.as_bytes(), &Stats::default)).unwrap()
    }

    #[test]
    fn only_what_is_there_is_given() {
        assert!(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.0 200 OK\r\n"));
        assert!(ask("GET /etc/passwd HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 404 "));
        assert!(ask("POST / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 405 "));
        for bad in ["", "\r\n\r\n", "GET /metrics", "\0\u{ff} x"] {
            assert!(ask(bad).starts_with("HTTP/1.0 400 "), "{bad:?}");
        }
    }
}
