// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One measurement of one path: starts the program and reads what it prints.

use super::super::cpu_time;
use super::super::program::{self, Streams, number};
use super::bus::Bus;
use anyhow::{Context, bail};
use paravane_user_io::signals::Signals;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// The longest time for a machine, in seconds.
const TIMEOUT: &str = "240";
/// Where a guest has the measuring program.
const PLACE: &str = "/bench";
/// Random reads at a time.
const DEPTHS: [u32; 2] = [1, 16];

/// A path: how the bytes of the file are reached.
#[derive(Debug)]
pub struct Route {
    pub name: &'static str,
    way: Way,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    /// By a program of the host.
    Host,
    /// By a machine: the options after the file in `--disk`, and the disk in the guest.
    Machine(&'static str, &'static str),
    /// By a machine whose disk is one of vbusd, with this engine.
    Bus(&'static str),
}

/// The disk of a bus in a guest.
const BUS_DISK: &str = "/dev/vbd0";

/// All paths but those by vbusd, the comparison first.
pub const ROUTES: [Route; 3] = [
    Route {
        name: "host",
        way: Way::Host,
    },
    Route {
        name: "virtio-blk",
        way: Way::Machine("", "/dev/vda"),
    },
    Route {
        name: "vblk",
        way: Way::Machine(":vbus", BUS_DISK),
    },
];

/// The paths by vbusd, the comparison first.
pub const BUS_ROUTES: [Route; 3] = [
    Route {
        name: "vbusd-pread",
        way: Way::Bus("pread"),
    },
    Route {
        name: "vbusd-uring",
        way: Way::Bus("uring"),
    },
    Route {
        name: "vbusd-auto",
        way: Way::Bus("auto"),
    },
];

/// Milliseconds for each of the four things that are measured.
#[derive(Clone, Copy, Debug)]
pub struct Lengths(u32);

impl Lengths {
    pub const QUICK: Lengths = Lengths(100);
    pub const FULL: Lengths = Lengths(1000);
}

/// What one turn has found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// Reads of 4 KiB each second, one at a time and 16 at a time.
    pub one: f64,
    pub many: f64,
    /// Median and 99th percentile of the time of a read, one at a time, in us.
    pub us: f64,
    pub p99: f64,
    /// Streams, in 10^6 bytes each second.
    pub read: f64,
    pub write: f64,
    /// CPU seconds for each 10^9 bytes of the streams.
    pub cpu: f64,
}

/// What measurements share.
pub struct Terms<'a> {
    pub kernel: &'a Path,
    /// The folder with the measuring program.
    pub folder: &'a Path,
    /// The file that is read and written.
    pub file: &'a Path,
    /// vbusd, for the paths that need it.
    pub bus: Option<&'a Bus>,
    pub cpus: u32,
    pub signals: &'a Signals,
}

impl Terms<'_> {
    /// Measures a path once.
    pub fn measure(&self, route: &Route, Lengths(ms): Lengths) -> anyhow::Result<Turn> {
        let [one, many] = DEPTHS;
        let words = format!("random {one} {ms} random {many} {ms} read {ms} write {ms}");
        let mut bus = None;
        let command = match route.way {
            Way::Host => {
                let mut command = Command::new(self.folder.join("block"));
                command.arg(self.file).args(words.split(' '));
                command
            }
            Way::Machine(options, disk) => {
                let mut file = self.file.as_os_str().to_os_string();
                file.push(options);
                self.machine(&file, disk, &words)?
            }
            Way::Bus(engine) => {
                let vbusd = self.bus.context("there is no vbusd")?;
                vbusd.serve(engine)?;
                bus = Some(vbusd);
                let mut command = self.machine(vbusd.option().as_ref(), BUS_DISK, &words)?;
                command.env("XDG_STATE_HOME", vbusd.state());
                command
            }
        };
        let vbusd = bus.map(Bus::process);
        let of = |process| cpu_time::of_tree(process) + vbusd.map_or(0.0, cpu_time::of_tree);
        let mut reader = Reader::default();
        program::run(command, self.signals, |line, process| {
            reader.line(line, || of(process))
        })?;
        if let Some(bus) = bus {
            bus.release()?;
        }
        reader.turn()
    }

    /// A machine that runs the measuring program on its disk.
    fn machine(&self, file: &OsStr, disk: &str, words: &str) -> anyhow::Result<Command> {
        let program = std::env::current_exe().context("cannot find this program's file")?;
        let mut command = Command::new(program);
        // What is measured is the same on every host.
        command.env("PARAVANE_HYPERVISOR", "process");
        let volume = format!("{}:{PLACE}:ro", self.folder.display());
        command.args(["run", "--net", "none", "--timeout", TIMEOUT]);
        command.args(["--cpus", &self.cpus.to_string()]);
        command.arg("--kernel").arg(self.kernel);
        command.arg("--disk").arg(file);
        command.args(["--volume", &volume, "--"]);
        command.arg(format!("{PLACE}/block")).arg(disk);
        command.args(words.split(' '));
        Ok(command)
    }
}

/// Reads the lines of the program.
#[derive(Debug, Default)]
struct Reader {
    turn: Turn,
    streams: Streams,
    seen: [bool; 4],
}

impl Reader {
    /// Takes a line. `cpu` is asked at the beginning and at the end of a stream.
    fn line(&mut self, line: &str, cpu: impl Fn() -> f64) -> anyhow::Result<()> {
        let (turn, number) = (&mut self.turn, |index| number(line, index));
        let mut words = line.split_whitespace();
        match words.next() {
            Some("begin") => self.streams.begin(cpu()),
            Some("random") => {
                let rate = number(2)? * 1e9 / number(3)?;
                if words.next() == Some("1") {
                    turn.one = rate;
                    turn.us = number(4)? / 1e3;
                    turn.p99 = number(5)? / 1e3;
                    self.seen[0] = true;
                } else {
                    turn.many = rate;
                    self.seen[1] = true;
                }
            }
            Some("read") => {
                turn.read = self.streams.end(line, cpu())? * 1e3;
                self.seen[2] = true;
            }
            Some("write") => {
                turn.write = self.streams.end(line, cpu())? * 1e3;
                self.seen[3] = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn turn(self) -> anyhow::Result<Turn> {
        if self.seen != [true; 4] {
            bail!("the program has printed too little");
        }
        let cpu = self.streams.cpu_for_gb();
        Ok(Turn { cpu, ..self.turn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_figures() {
        let mut reader = Reader::default();
        let clock = std::cell::Cell::new(0.0);
        let cpu = || {
            clock.set(clock.get() + 0.5);
            clock.get()
        };
        for line in [
            "random 1 20000 1000000000 40000 90000",
            "random 16 50000 500000000 1 1",
            "begin read",
            "read 1000000000 500000000",
            "begin write",
            "write 1000000000 1000000000",
        ] {
            reader.line(line, cpu).unwrap();
        }
        let expected = Turn {
            one: 20_000.0,
            many: 100_000.0,
            us: 40.0,
            p99: 90.0,
            read: 2000.0,
            write: 1000.0,
            cpu: 0.5,
        };
        assert_eq!(reader.turn().unwrap(), expected);
    }

    #[test]
    fn what_is_missing_or_wrong_is_an_error() {
        let mut reader = Reader::default();
        assert!(reader.line("random 1 2", || 0.0).is_err());
        assert!(reader.line("random 1 2 x 1 1", || 0.0).is_err());
        assert!(reader.line("read 1 1", || 0.0).is_err(), "no beginning");
        assert!(reader.line("noise of a console", || 0.0).is_ok());
        assert!(reader.turn().is_err());
    }
}
