// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chooses a user-mode network: passt if it runs on this host, else the stack in this process. Both
//! use the same addresses.

use crate::user::{Config, Network};
use crate::{Error, Link, passt, publish};
use std::fmt;
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
    /// For the guest's card.
    pub wire: Wire,
    /// Which network it is.
    pub choice: Choice,
}

/// A network that is ready to start. To start it, no file is created, opened or executed.
#[derive(Debug)]
pub struct Lazy {
    passt: passt::Prepared,
    stack: Box<Network>,
}

/// The network's side of the guest's card.
#[derive(Debug)]
pub enum Wire {
    /// passt. The owner keeps its process as long as the link.
    Passt(Link, passt::Process),
    /// The stack, for the thread of the card.
    Stack(Box<Network>),
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

/// Makes a network for a guest whose network card has the address `mac`. `program` is passt, if it
/// is installed. `config` receives the number of each published port. Fails if a port is taken.
pub fn start(program: Option<&Path>, config: &mut Config, mac: [u8; 6]) -> Result<Auto, Error> {
    config.publish = publish::settle(&config.publish)?;
    let passt = match (program, passt::unfit(config)) {
        (None, _) => Err("it is not installed".to_string()),
        (_, Some(why)) => Err(why.to_string()),
        (Some(program), None) => passt::prepare(program, config).map_err(words),
    };
    let because = match passt {
        Err(why) => why,
        Ok(passt) if config.publish.is_empty() => {
            let stack = Box::new(Network::new(config.clone())?);
            return Ok(Auto::Later(Lazy { passt, stack }));
        }
        // The stack must not bind the ports while passt has them.
        Ok(passt) => match passt.go(mac) {
            Ok(passt) => return Ok(Auto::Now(with_passt(passt))),
            Err(error) => words(error),
        },
    };
    let stack = Box::new(Network::new(config.clone())?);
    Ok(Auto::Now(with_stack(stack, because)))
}

impl Lazy {
    /// The largest IP packet that the network takes, in bytes.
    pub fn mtu(&self) -> u16 {
        self.stack.mtu()
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
        wire: Wire::Passt(link, process),
        choice: Choice::Passt,
    }
}

fn with_stack(stack: Box<Network>, because: String) -> Open {
    Open {
        wire: Wire::Stack(stack),
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
                let open = match start(program.map(Path::new), &mut config, MAC).unwrap() {
                    Auto::Now(open) => open,
                    Auto::Later(lazy) => lazy.open(MAC),
                };
                assert!(config.publish.iter().all(|port| port.host.port() != 0));
                assert!(open.choice.to_string().contains(part), "{}", open.choice);
            }
        }
    }
}
