// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A user-mode network, whichever can be had: passt where it runs, else the stack in this process. Addresses are the same in both.

use crate::user::{Config, Network};
use crate::{Error, Link, passt, publish, user};
use std::fmt;
use std::io;
use std::path::Path;

/// A network.
#[derive(Debug)]
pub enum Auto {
    /// It runs: somebody outside may come at any time, or there is nothing to choose.
    Now(Open),
    /// It is to be started when the guest first has something to say.
    Later(Lazy),
}

/// A network that runs.
#[derive(Debug)]
pub struct Open {
    /// The guest's end.
    pub link: Link,
    /// To be kept as long as the link.
    pub running: Running,
    /// Which one it is.
    pub choice: Choice,
}

/// A network that was made ready. Nothing has to be made, opened or executed any more to have it run.
#[derive(Debug)]
pub struct Lazy {
    passt: passt::Prepared,
    stack: (Link, Network),
}

/// Which one it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// passt.
    Passt,
    /// The stack, because passt cannot be had.
    Stack {
        /// Why, in words.
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
    /// A process.
    Passt(passt::Process),
    /// A thread.
    Stack(Network),
}

/// Makes a network for a guest whose card is `mac`; `program` is passt, if there is one. `confine` is called by the stack's thread, if there is one,
/// before it reads anything of the guest's. `config` gets a number for each published port; fails where one is taken.
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
        // Both cannot have the ports.
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
    /// The largest IP packet that it takes.
    pub fn mtu(&self) -> u16 {
        self.stack.0.mtu
    }

    /// Starts it. Takes a while.
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
        // It names itself.
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
