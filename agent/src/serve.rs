// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections to the monitor, and its requests.

use crate::connection::Connection;
use crate::dial::{Address, dial};
use crate::{command, init, session, system};
use paravane_agent_protocol::{Failure, FromAgent, ToAgent, VERSION};
use std::io;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Time that the monitor may be unreachable.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(20);

/// Connects and serves until the monitor is unreachable. Returns the reason.
pub fn run(address: &Address) -> String {
    let mut since = Instant::now();
    loop {
        let connection = dial(address).and_then(Connection::new);
        let ended = match connection {
            Ok(connection) => first_request(connection, &mut since),
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            if since.elapsed() > PATIENCE {
                return format!("cannot reach the monitor: {error}");
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Waits for the first request of a connection and passes both to a new thread. The caller then
/// opens the next connection, so that one always waits for a request.
fn first_request(mut connection: Connection, since: &mut Instant) -> io::Result<()> {
    connection.say(&FromAgent::Hello { version: VERSION })?;
    let Some(request) = connection.request()? else {
        return Err(io::ErrorKind::ConnectionReset.into());
    };
    *since = Instant::now();
    Builder::new().name("session".to_string()).spawn(move || {
        // An error ends only this connection, which the monitor notices.
        let _ = serve(connection, request);
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
