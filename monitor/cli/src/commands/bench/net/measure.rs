// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One measurement of one path: starts its client and reads what the program prints.

use super::super::cpu_time;
use super::super::program::{self, Running, Streams, number};
use super::super::vbus::Daemon;
use super::hosts::{Hosts, start};
use super::paths::{Client, Path};
use anyhow::{Context, bail};
use paravane_user_io::signals::Signals;
use std::process::Command;

/// The longest time for a client, in seconds; a machine that takes longer ends.
const TIMEOUT: &str = "240";
/// The longest life of a server's machine, in seconds.
const SERVER_TIMEOUT: &str = "86400";
/// Where a guest has the measuring program.
const PLACE: &str = "/bench";

/// How much is measured in one turn.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// Round trips.
    trips: u32,
    /// Milliseconds of a stream in each direction.
    stream: u32,
}

impl Lengths {
    pub const QUICK: Lengths = Lengths {
        trips: 300,
        stream: 200,
    };
    pub const FULL: Lengths = Lengths {
        trips: 5000,
        stream: 1500,
    };
}

/// What one turn has found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// Median, 99th percentile and mean of the round trips, in us.
    pub trip: f64,
    pub trip_p99: f64,
    pub trip_mean: f64,
    /// Mbit/s to the server and from it.
    pub send: f64,
    pub receive: f64,
    /// CPU seconds of all processes for each 10^9 bytes of the streams.
    pub cpu: f64,
}

/// What measurements share.
pub struct Terms<'a> {
    pub hosts: &'a Hosts,
    pub bus: Option<&'a Daemon>,
    pub kernel: &'a std::path::Path,
    /// Another build of this program, and its kernel.
    pub older: Option<(&'a std::path::Path, &'a std::path::Path)>,
    /// The folder with the measuring program.
    pub folder: &'a std::path::Path,
    pub cpus: u32,
    pub mtu: u32,
    pub signals: &'a Signals,
}

/// What differs between the machines of a measurement.
struct Guest<'a> {
    kernel: &'a std::path::Path,
    net: &'a str,
    /// That it gives itself; `None` where the network gives one.
    address: Option<&'a str>,
}

impl Terms<'_> {
    /// Starts the server of a path, unless it is the host's, which runs all the time.
    pub fn server(&self, path: &Path) -> anyhow::Result<Option<Running>> {
        let Some((net, address)) = path.server_guest() else {
            return Ok(None);
        };
        let script = format!("{PLACE}/net serve {}", path.port());
        let mut command = Command::new(self.program()?);
        let guest = Guest {
            kernel: self.kernel,
            net,
            address: Some(address),
        };
        self.machine(&mut command, &guest, &script, SERVER_TIMEOUT);
        start(command).map(Some)
    }

    /// Measures a path once.
    pub fn measure(&self, path: &Path, lengths: Lengths) -> anyhow::Result<Turn> {
        let Lengths { trips, stream } = lengths;
        let words = format!(
            "client {} {} trip {trips} send {stream} receive {stream}",
            path.address(),
            path.port()
        );
        let mut command;
        match path.guest() {
            None => {
                let program = self.folder.join("net");
                command = match path.client {
                    Client::Apart => self.hosts.on_client_apart(program),
                    _ => self.hosts.on_client(program),
                };
                command.args(words.split(' '));
            }
            Some((net, address)) => {
                let own = self.program()?;
                let (program, kernel) = match path.client {
                    Client::Older(_) => self.older.context("no other build")?,
                    _ => (own.as_path(), self.kernel),
                };
                command = match path.client {
                    Client::Guest(_) | Client::Older(_) => self.hosts.on_client(program),
                    _ => Command::new(program),
                };
                let script = format!("{PLACE}/net {words}");
                let guest = Guest {
                    kernel,
                    net,
                    address,
                };
                self.machine(&mut command, &guest, &script, TIMEOUT);
            }
        }
        let mut reader = Reader::default();
        // All processes of this process-id namespace are the benchmark's. Work of the host's kernel
        // in interrupts counts for the process that was interrupted.
        program::run(command, self.signals, |line| {
            reader.line(line, cpu_time::of_all)
        })?;
        reader.turn()
    }

    fn program(&self) -> anyhow::Result<std::path::PathBuf> {
        std::env::current_exe().context("cannot find this program's file")
    }

    /// Adds the arguments of a machine that runs a script of the measuring program.
    fn machine(&self, command: &mut Command, guest: &Guest<'_>, script: &str, timeout: &str) {
        if let Some(bus) = self.bus {
            command.env("XDG_STATE_HOME", bus.state());
        }
        let mtu = self.mtu;
        let mut all = format!("ip link set eth0 mtu {mtu} || exit 9; ");
        if let Some(address) = guest.address {
            all += &format!("ip addr add {address}/24 dev eth0 && ip link set eth0 up || exit 9; ");
        }
        all += "exec ";
        all += script;
        let volume = format!("{}:{PLACE}:ro", self.folder.display());
        command.args(["run", "--net", guest.net, "--timeout", timeout]);
        // The measured back end is the same on every host.
        command.env("PARAVANE_HYPERVISOR", "process");
        command.args(["--cpus", &self.cpus.to_string()]);
        command.arg("--kernel").arg(guest.kernel);
        command.args(["--volume", &volume, "--", "sh", "-c", &all]);
    }
}

/// Reads the lines of a client.
#[derive(Debug, Default)]
struct Reader {
    turn: Turn,
    streams: Streams,
    seen: [bool; 3],
}

impl Reader {
    /// Takes a line. `cpu` is asked at the beginning and at the end of a stream.
    fn line(&mut self, line: &str, cpu: impl Fn() -> f64) -> anyhow::Result<()> {
        let (turn, number) = (&mut self.turn, |index| number(line, index));
        match line.split_whitespace().next() {
            Some("begin") => self.streams.begin(cpu()),
            Some("trip") => {
                turn.trip = number(1)? / 1e3;
                turn.trip_p99 = number(2)? / 1e3;
                turn.trip_mean = number(3)? / 1e3;
                self.seen[0] = true;
            }
            Some("send") => {
                turn.send = self.streams.end(line, cpu())? * 8e3;
                self.seen[1] = true;
            }
            Some("receive") => {
                turn.receive = self.streams.end(line, cpu())? * 8e3;
                self.seen[2] = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn turn(self) -> anyhow::Result<Turn> {
        if self.seen != [true; 3] {
            bail!("the client has printed too little");
        }
        let cpu = self.streams.cpu_for_gb();
        Ok(Turn { cpu, ..self.turn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_s_lines_become_figures() {
        let mut reader = Reader::default();
        let clock = std::cell::Cell::new(0.0);
        let cpu = || {
            clock.set(clock.get() + 0.5);
            clock.get()
        };
        for line in [
            "trip 20000 50000 25000",
            "begin send",
            "send 1000000000 1000000000",
            "begin receive",
            "receive 1000000000 2000000000",
        ] {
            reader.line(line, cpu).unwrap();
        }
        let turn = reader.turn().unwrap();
        let expected = Turn {
            trip: 20.0,
            trip_p99: 50.0,
            trip_mean: 25.0,
            send: 8000.0,
            receive: 4000.0,
            cpu: 0.5,
        };
        assert_eq!(turn, expected);
    }

    #[test]
    fn what_is_missing_or_wrong_is_an_error() {
        let mut reader = Reader::default();
        assert!(reader.line("trip 1 2", || 0.0).is_err());
        assert!(reader.line("trip 1 2 x", || 0.0).is_err());
        assert!(reader.line("send 1 1", || 0.0).is_err(), "no beginning");
        assert!(reader.line("noise of a console", || 0.0).is_ok());
        assert!(reader.turn().is_err());
    }
}
