// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench vbus`: packets between two processes over a virtual bus, beside a Unix socket
//! pair and pipes; round trips, and a stream in one direction. The ways take turns.
//!
//! On the bus two processes exchange frames by a switch in vbusd, which is a third process. The row
//! `bus-device` has one process and a device in vbusd, so as many processes as a socket pair.

mod paths;

use super::stats::{interval, median};
use crate::arguments::{BenchVbus, BenchVbusPeer};
use anyhow::{Context, bail};
use paravane_user_io::outcome::Outcome;
use paravane_vbus_client::bus::Name;
use paravane_vbus_client::protocol::{Reply, Request};
use paravane_vbus_client::{Client, Control, Options};
use paths::{Bus, DATA, ECHO, End, Stream, serve};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde_json::json;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bytes of a packet for round trips, and of one of a stream.
const SMALL: usize = 64;
const LARGE: usize = 1500;
pub const BUS: &str = "bench";
/// The folder of a user's vbusd in the folder for states.
const FOLDER: &str = "paravane/vbus";

/// The ways, the comparison first.
const WAYS: [&str; 4] = ["socketpair", "pipe", "bus", "bus-device"];

/// A process that ends with the value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn this_program() -> anyhow::Result<Command> {
    Ok(Command::new(
        std::env::current_exe().context("the program")?,
    ))
}

/// vbusd with the bus `bench` and three devices, which have the names of their classes.
pub struct Daemon {
    process: Process,
    state: TempDir,
}

impl Daemon {
    /// Starts it and waits until it listens.
    pub fn start() -> anyhow::Result<Self> {
        Daemon::start_in(None)
    }

    /// Starts it with its files in this folder, or in that for temporary files.
    pub fn start_in(place: Option<&Path>) -> anyhow::Result<Self> {
        let state = match place {
            Some(place) => TempDir::new_in(place).with_context(|| place.display().to_string())?,
            None => tempfile::tempdir().context("a folder for vbusd")?,
        };
        let folder = state.path().join(FOLDER);
        let mut command = this_program()?;
        command.args(["vbus", "daemon", "--folder"]).arg(&folder);
        let process = Process(command.spawn().context("vbusd")?);
        let deadline = Instant::now() + Duration::from_secs(20);
        let path = folder.join("socket");
        let mut control = loop {
            match Control::connect(&path) {
                Ok(control) => break control,
                Err(error) if Instant::now() > deadline => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let bus = Name::new(BUS)?;
        let ask = |control: &mut Control, request: Request| control.ask(&request);
        ask(&mut control, Request::CreateBus { bus: bus.clone() })?;
        for class in ["venet-switch", "echo", "null"] {
            let device = Name::new(class)?;
            let attributes: &[&str] = match class {
                "venet-switch" => &["lossless", "share"],
                _ => &[],
            };
            let on = |name: &&str| (name.to_string(), "1".to_string());
            let request = Request::CreateDevice {
                device: device.clone(),
                class: class.to_string(),
                attributes: attributes.iter().map(on).collect(),
            };
            ask(&mut control, request)?;
            let bus = bus.clone();
            let Reply::Number(_) = ask(&mut control, Request::Link { bus, device })? else {
                bail!("vbusd gave an unexpected answer");
            };
        }
        Ok(Daemon { process, state })
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.process.0.id()
    }

    /// Its folder.
    pub fn folder(&self) -> PathBuf {
        self.state.path().join(FOLDER)
    }

    /// What a user's `XDG_STATE_HOME` must be so that machines find this vbusd.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.folder().join("socket")
    }
}

fn client(socket: &Path, device: &str) -> anyhow::Result<Client> {
    Ok(Client::connect(Options {
        socket: socket.to_path_buf(),
        bus: BUS.to_string(),
        device: device.to_string(),
        count: 256,
        buffer: 2048,
    })?)
}

/// The hidden command of the other process.
pub fn peer(args: &BenchVbusPeer) -> anyhow::Result<Outcome> {
    match &args.socket {
        Some(socket) => {
            let mut end = Bus::framed(client(socket, "venet-switch")?, false)?;
            serve(&mut end, args.size)?;
        }
        None => {
            let (from, to) = (rustix::stdio::stdin(), rustix::stdio::stdout());
            let from = File::from(rustix::io::dup(from)?);
            let to = File::from(rustix::io::dup(to)?);
            serve(&mut Stream { from, to }, args.size)?;
        }
    }
    Ok(Outcome::Passed)
}

/// A way with its other process.
struct Way {
    end: Box<dyn End>,
    _peer: Option<Process>,
}

fn open(way: &str, daemon: &Daemon, size: usize, stream: bool) -> anyhow::Result<Way> {
    let mut command = this_program()?;
    command.args(["bench", "vbus-peer"]).arg(size.to_string());
    let end: Box<dyn End>;
    let process;
    match way {
        "socketpair" => {
            let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
            let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
            let copy: OwnedFd = theirs.try_clone()?;
            command.stdin(Stdio::from(theirs)).stdout(Stdio::from(copy));
            process = Process(command.spawn().context("the other process")?);
            let to = File::from(ours.try_clone()?);
            let from = File::from(ours);
            end = Box::new(Stream { from, to });
        }
        "pipe" => {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().context("the other process")?;
            let (to, from) = (child.stdin.take(), child.stdout.take());
            process = Process(child);
            let (to, from) = to.zip(from).context("no pipes")?;
            end = Box::new(Stream { from, to });
        }
        "bus" => {
            command.arg("--socket").arg(daemon.socket());
            process = Process(command.spawn().context("the other process")?);
            let client = client(&daemon.socket(), "venet-switch")?;
            end = Box::new(Bus::framed(client, true)?);
        }
        _ => {
            let device = if stream { "null" } else { "echo" };
            let end = Box::new(Bus::plain(client(&daemon.socket(), device)?));
            return Ok(Way { end, _peer: None });
        }
    }
    Ok(Way {
        end,
        _peer: Some(process),
    })
}

/// Microseconds of each round trip.
fn round_trips(end: &mut dyn End, count: u32) -> anyhow::Result<Vec<f64>> {
    let mut packet = [ECHO; SMALL];
    let mut times = Vec::new();
    // The first ones warm up.
    for number in 0..count + count / 10 {
        let begun = Instant::now();
        end.send(&packet)?;
        if !end.receive(&mut packet)? {
            bail!("the other process has ended");
        }
        if number >= count / 10 {
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(times)
}

/// Megabytes per second of a stream.
fn stream(end: &mut dyn End, count: u32, device: bool) -> anyhow::Result<f64> {
    let mut packet = [DATA; LARGE];
    let begun = Instant::now();
    for _ in 1..count {
        end.send(&packet)?;
    }
    packet[0] = ECHO;
    end.send(&packet)?;
    // The last packet comes back, or a device has taken all of them.
    if device {
        end.settle()?;
    } else if !end.receive(&mut packet)? {
        bail!("the other process has ended");
    }
    let bytes = f64::from(count) * LARGE as f64;
    Ok(bytes / begun.elapsed().as_secs_f64() / 1e6)
}

#[derive(Default)]
struct Row {
    rtt: Vec<f64>,
    p99: Vec<f64>,
    rate: Vec<f64>,
}

/// Runs the command.
pub fn run(args: &BenchVbus) -> anyhow::Result<Outcome> {
    let (rounds, trips, packets) = if args.quick {
        (3, 500, 5_000)
    } else {
        (args.rounds, 10_000, 100_000)
    };
    let daemon = Daemon::start()?;
    let mut rows: [Row; WAYS.len()] = Default::default();
    for _ in 0..rounds {
        for (way, row) in WAYS.iter().zip(&mut rows) {
            let context = || format!("cannot measure {way}");
            let mut open_way = open(way, &daemon, SMALL, false).with_context(context)?;
            let mut times = round_trips(open_way.end.as_mut(), trips).with_context(context)?;
            drop(open_way);
            times.sort_by(f64::total_cmp);
            row.rtt.push(median(&times));
            row.p99.extend(times.get(times.len() * 99 / 100));
            let mut open_way = open(way, &daemon, LARGE, true).with_context(context)?;
            let device = *way == "bus-device";
            let rate = stream(open_way.end.as_mut(), packets, device).with_context(context)?;
            row.rate.push(rate);
        }
    }
    let ratios = |values: &[f64], base: &[f64]| -> Vec<f64> {
        values
            .iter()
            .zip(base)
            .map(|(value, base)| value / base)
            .collect()
    };
    if args.json {
        let row = |(way, row): (&&str, &Row)| {
            let ratio = ratios(&row.rtt, &rows[0].rtt);
            json!({
                "path": way,
                "rtt_us": median(&row.rtt),
                "rtt_p99_us": median(&row.p99),
                "rtt_ratio": median(&ratio),
                "rtt_ratio_95": interval(&ratio),
                "tput_mb_s": median(&row.rate),
                "tput_ratio": median(&ratios(&row.rate, &rows[0].rate)),
            })
        };
        let all: Vec<_> = WAYS.iter().zip(&rows).map(row).collect();
        let text = serde_json::to_string_pretty(&json!({ "rows": all }))?;
        writeln!(io::stdout(), "{text}").context(crate::commands::OUTPUT)?;
        return Ok(Outcome::Passed);
    }
    let mut text = String::from(
        "| path | round trip, us | p99, us | ratio (95 %) | MB/s | ratio |\n\
         | --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (way, row) in WAYS.iter().zip(&rows) {
        let ratio = ratios(&row.rtt, &rows[0].rtt);
        let [low, high] = interval(&ratio);
        let rate = ratios(&row.rate, &rows[0].rate);
        writeln!(
            text,
            "| {way} | {:.1} | {:.1} | {:.2} ({low:.2} to {high:.2}) | {:.0} | {:.2} |",
            median(&row.rtt),
            median(&row.p99),
            median(&ratio),
            median(&row.rate),
            median(&rate),
        )?;
    }
    write!(io::stdout(), "{text}").context(crate::commands::OUTPUT)?;
    Ok(Outcome::Passed)
}
