// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections, and what the monitor asks for on them.

use crate::connection::Connection;
use crate::dial::{Address, dial};
use crate::{command, init, session, system};
use paravane_agent_protocol::{Failure, FromAgent, ToAgent, VERSION};
use std::io;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// For as long as this the monitor may be away, or not there yet.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Dials and serves until the monitor has gone for good; says why it cannot go on.
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

/// Waits for a connection's first request, and leaves it to a thread of its own: the caller then makes the next connection.
fn first_request(mut connection: Connection, since: &mut Instant) -> io::Result<()> {
    connection.say(&FromAgent::Hello { version: VERSION })?;
    let Some(request) = connection.request()? else {
        return Err(io::ErrorKind::ConnectionReset.into());
    };
    *since = Instant::now();
    Builder::new().name("session".to_string()).spawn(move || {
        // What goes wrong with a connection ends that connection. The monitor sees it.
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
                    // What the machine is for, not somebody's look into it.
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
            // Late words to a command that could not be started.
            ToAgent::EndOfInput | ToAgent::Resize(_) | ToAgent::Signal(_) => {}
        }
        next = connection.request()?;
    }
    Ok(())
}
