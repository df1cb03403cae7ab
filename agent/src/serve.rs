// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections to the monitor, and its requests.

use crate::connection::Connection;
use crate::dial::{Address, dial};
use crate::{command, init, session, system};
use paravane_agent_protocol::{Failure, FromAgent, ToAgent, VERSION};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Time that the monitor may be unreachable.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(20);

/// Connects and serves until the monitor is unreachable. Returns the reason.
pub fn run(address: &Address) -> String {
    run_with(address, PATIENCE)
}

fn run_with(address: &Address, patience: Duration) -> String {
    let mut since = Instant::now();
    loop {
        let reached = match dial(address) {
            // A connection may wait for days. Its end before a request says that a client of the
            // monitor has ended, not the monitor.
            Ok(file) => Connection::new(file).and_then(first_request).is_ok(),
            Err(error) if is_shortage(&error) || is_refusal(&error) && Live::count() > 0 => false,
            Err(error) if since.elapsed() > patience => {
                return format!("cannot reach the monitor: {error}");
            }
            Err(_) => {
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        since = Instant::now();
        if !reached {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Whether an error says that this machine lacks something now, which says nothing of the monitor.
fn is_shortage(error: &io::Error) -> bool {
    let number = error.raw_os_error().unwrap_or(0);
    [
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOMEM,
        libc::ENOBUFS,
        libc::EAGAIN,
    ]
    .contains(&number)
}

/// Whether an error says that the other side took no connection. The monitor also refuses those
/// that are more than it can serve, so while it serves some, this does not mean that it has ended.
fn is_refusal(error: &io::Error) -> bool {
    let kind = error.kind();
    kind == io::ErrorKind::ConnectionRefused || kind == io::ErrorKind::ConnectionReset
}

/// A connection that has received a request.
#[derive(Debug)]
struct Live;

static LIVE: AtomicUsize = AtomicUsize::new(0);

impl Live {
    fn new() -> Self {
        LIVE.fetch_add(1, Ordering::Relaxed);
        Live
    }

    fn count() -> usize {
        LIVE.load(Ordering::Relaxed)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for the first request of a connection and passes both to a new thread. The caller then
/// opens the next connection, so that one always waits for a request.
fn first_request(mut connection: Connection) -> io::Result<()> {
    connection.say(&FromAgent::Hello { version: VERSION })?;
    let Some(request) = connection.request()? else {
        return Err(io::ErrorKind::ConnectionReset.into());
    };
    let live = Live::new();
    Builder::new().name("session".to_string()).spawn(move || {
        // An error ends only this connection, which the monitor notices.
        let _ = serve(connection, request);
        drop(live);
    })?;
    Ok(())
}

fn serve(mut connection: Connection, first: ToAgent) -> io::Result<()> {
    let mut next = Some(first);
    let mut configured = false;
    while let Some(request) = next {
        match request {
            ToAgent::Configure(configuration) => {
                let answer = match init::configure(&configuration) {
                    Ok(()) => {
                        configured = true;
                        FromAgent::Done
                    }
                    Err(why) => FromAgent::Failed(Failure { code: 125, why }),
                };
                connection.say(&answer)?;
            }
            ToAgent::Exec(exec) => {
                if configured {
                    // The machine's own command comes after `Configure` on the same connection.
                    // Those of `paravane exec` do not wait.
                    system::wait_until_up();
                }
                match command::start(exec) {
                    Ok(running) => return session::run(connection, running),
                    Err(failure) => connection.say(&FromAgent::Failed(failure))?,
                }
            }
            ToAgent::PowerOff(status) => {
                let why = init::power_off(status);
                connection.say(&FromAgent::Failed(Failure { code: 125, why }))?;
            }
            // The monitor sent these before it learned that the command could not be started.
            ToAgent::EndOfInput | ToAgent::Resize(_) | ToAgent::Signal(_) => {}
        }
        next = connection.request()?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Clients of the monitor may end before they have sent a request.
    #[test]
    fn a_connection_that_ends_without_a_request_is_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let address = Address::Unix(path.clone());
        let patience = 10 * PAUSE;
        let agent = std::thread::spawn(move || run_with(&address, patience));
        let begun = Instant::now();
        listener.set_nonblocking(true).unwrap();
        while begun.elapsed() < 4 * patience {
            assert!(!agent.is_finished());
            let Ok((call, _)) = listener.accept() else {
                std::thread::sleep(PAUSE / 20);
                continue;
            };
            // Longer than the patience, like a machine in which nothing is executed for a while.
            if begun.elapsed() < 2 * patience {
                std::thread::sleep(patience + PAUSE);
            }
            drop(call);
        }
        // A monitor that has ended.
        drop(listener);
        std::fs::remove_file(path).unwrap();
        assert!(agent.join().unwrap().starts_with("cannot reach"));
    }

    #[test]
    fn a_shortage_is_not_the_end_of_the_monitor() {
        let error = io::Error::from_raw_os_error;
        assert!(is_shortage(&error(libc::EMFILE)) && is_shortage(&error(libc::ENOMEM)));
        assert!(!is_shortage(&error(libc::ETIMEDOUT)) && !is_refusal(&error(libc::ETIMEDOUT)));
        assert!(is_refusal(&error(libc::ECONNRESET)) && !is_shortage(&error(libc::ECONNRESET)));
    }
}
