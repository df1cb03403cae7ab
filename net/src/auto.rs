// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chooses a user-mode network: passt if it runs on this host, else the stack in this process. Both
//! use the same addresses.

use crate::user::{Config, Network};
use crate::{Error, Link, passt, publish, user};
use std::fmt;
use std::io;
use std::path::Path;

/// A network.
#[derive(Debug)]
pub enum Auto {
    /// Started at once: programs outside may connect at any time, or there is no choice to make.
    Now(Open),
    /// Prepared. It starts when the guest sends its first frame.
    Later(Lazy),
}

/// A running network.
#[derive(Debug)]
pub struct Open {
    /// The guest's end.
    pub link: Link,
    /// Keeps the network running. The owner keeps it as long as the link.
    pub running: Running,
    /// Which network it is.
    pub choice: Choice,
}

/// A network that is ready to start. To start it, no file is created, opened or executed.
#[derive(Debug)]
pub struct Lazy {
    passt: passt::Prepared,
    stack: (Link, Network),
}

/// Which network it will be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// passt.
    Passt,
    /// The stack, because passt is not available.
    Stack {
        /// Why passt is not available.
        because: String,
    },
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Passt => f.write_str("passt"),
            Choice::Stack { because } => write!(f, "the stack in this process (passt: {because})"),
        }
    }
}

/// What keeps a network running.
#[derive(Debug)]
#[allow(dead_code)] // it is only dropped
pub enum Running {
    /// The process of passt.
    Passt(passt::Process),
    /// The thread of the stack.
    Stack(Network),
}

/// Makes a network for a guest whose network card has the address `mac`. `program` is passt, if it
/// is installed. The thread of the stack calls `confine` before it reads any data of the guest.
/// `config` receives the number of each published port. Fails if a port is taken.
pub fn start(
    program: Option<&Path>,
    config: &mut Config,
    mac: [u8; 6],
    confine: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<Auto, Error> {
    config.publish = publish::settle(&config.publish)?;
    let passt = match (program, passt::unfit(config)) {
        (None, _) => Err("it is not installed".to_string()),
        (_, Some(why)) => Err(why.to_string()),
        (Some(program), None) => passt::prepare(program, config).map_err(words),
    };
    let because = match passt {
        Err(why) => why,
        Ok(passt) if config.publish.is_empty() => {
            let stack = user::start_in(config.clone(), confine)?;
            return Ok(Auto::Later(Lazy { passt, stack }));
        }
        // The stack must not bind the ports while passt has them.
        Ok(passt) => match passt.go(mac) {
            Ok(passt) => return Ok(Auto::Now(with_passt(passt))),
            Err(error) => words(error),
        },
    };
    Ok(Auto::Now(with_stack(
        user::start_in(config.clone(), confine)?,
        because,
    )))
}

impl Lazy {
    /// The largest IP packet that the network takes, in bytes.
    pub fn mtu(&self) -> u16 {
        self.stack.0.mtu
    }

    /// Starts the network. passt takes about a tenth of a second.
    pub fn open(self, mac: [u8; 6]) -> Open {
        match self.passt.go(mac) {
            Ok(passt) => with_passt(passt),
            Err(error) => with_stack(self.stack, words(error)),
        }
    }
}

fn with_passt((link, process): (Link, passt::Process)) -> Open {
    Open {
        link,
        running: Running::Passt(process),
        choice: Choice::Passt,
    }
}

fn with_stack((link, network): (Link, Network), because: String) -> Open {
    Open {
        link,
        running: Running::Stack(network),
        choice: Choice::Stack { because },
    }
}

fn words(error: Error) -> String {
    match error {
        // The error names passt already.
        Error::Passt(why) => why,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

    #[test]
    fn without_passt_it_is_the_stack_and_says_why() {
        for (program, part) in [
            (None, "not installed"),
            (Some("/bin/false"), "ended at once"),
            (Some("/no/such/passt"), "ended at once"),
        ] {
            for publish in [vec![], vec!["0:80".parse().unwrap()]] {
                let mut config = Config {
                    publish,
                    ..Config::default()
                };
                let open = match start(program.map(Path::new), &mut config, MAC, || Ok(())).unwrap()
                {
                    Auto::Now(open) => open,
                    Auto::Later(lazy) => lazy.open(MAC),
                };
                assert!(config.publish.iter().all(|port| port.host.port() != 0));
                assert!(open.choice.to_string().contains(part), "{}", open.choice);
            }
        }
    }
}
