// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures a group: its sides are started once, and its rows take turns on them.

use super::super::cpus;
use super::super::turns;
use super::description::Row;
use super::figures::{STATES, Turns};
use super::peers::{self, System};
use super::plan::Group;
use super::report::{Failure, Measured};
use super::session::{Session, Terms, Wrong};
use super::sides::{self, Machine, Net, Root, Work};
use crate::arguments::{BenchApps, Place};
use anyhow::{Context, bail};
use paravane_images as images;
use paravane_user_io::text;
use rustix::fs::{Advice, fadvise, syncfs};
use std::fs::{self, File, Permissions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The size of a disk for the work, in bytes. Unused blocks take no space.
const DISK: u64 = 8 << 30;
/// Names of sides in error messages.
const HOST: &str = "the host's side";
const CLIENT: &str = "the client";
/// The port of a server in a machine.
const GUEST_PORT: u16 = 80;

/// What all groups share.
#[derive(Debug)]
pub struct Bench<'a> {
    pub args: &'a BenchApps,
    /// Where folders for the work are made.
    pub cache: &'a Path,
    pub cpus: &'a [usize],
    pub terms: Terms<'a>,
}

impl Bench<'_> {
    /// Measures the rows of a group. After a signal it returns the rows with a complete turn.
    pub fn group(
        &self,
        group: &Group<'_>,
        root: &Root,
        mnt: Option<&Path>,
    ) -> anyhow::Result<(Vec<Measured>, Vec<Failure>)> {
        // At a published port, the client is not part of the machine and needs a processor.
        let count = usize::try_from(group.vcpus)?;
        if group.place != Place::Publish {
            cpus::pin(self.cpus.get(..count).unwrap_or(self.cpus));
        }
        let result = self.measure(group, root, mnt);
        cpus::pin(self.cpus);
        result
    }

    fn measure(
        &self,
        group: &Group<'_>,
        root: &Root,
        mnt: Option<&Path>,
    ) -> anyhow::Result<(Vec<Measured>, Vec<Failure>)> {
        let folder = images::work(self.cache)?;
        let host = folder.path().join("host");
        make_folder(&host)?;
        let publish = group.place == Place::Publish;
        let ports = publish.then(free_ports).transpose()?;
        let run = Run {
            bench: self,
            group,
            root,
            mnt,
            folder: folder.path(),
            host,
            guest: guest_srv(folder.path(), group.place)?,
            ports,
        };
        let mut sides = run.start()?;
        let rows = group.rows.iter();
        let mut rows: Vec<Turns<'_>> = rows
            .map(|row| Turns::new(row, sides.guests.len(), run.states()))
            .collect();
        let vcpus = text::count(usize::try_from(group.vcpus)?, "vCPU");
        let what = format!(" {} ({}, {vcpus})", group.app.name, group.place);
        let (rounds, signals) = (self.args.rounds, self.terms.signals);
        let signal = turns::alternate(&what, &mut rows, rounds, signals, |row, round| {
            run.turn(&mut sides, row, round)
        })?;
        if signal.is_some() {
            rows.retain(Turns::any);
        }
        let mut all = Vec::new();
        let mut failures: Vec<Failure> = rows
            .iter()
            .filter_map(|row| row.host_failure(group))
            .collect();
        for (index, guest) in sides.guests.iter().enumerate() {
            if let Some(why) = &guest.failed {
                failures.push(Failure::of(group, guest.system, why));
                continue;
            }
            for row in &rows {
                match row.on(group, index, guest.system) {
                    Ok(figures) => all.extend(figures),
                    Err(failure) => failures.push(failure),
                }
            }
        }
        Ok((all, failures))
    }
}

/// A group that is measured.
struct Run<'a> {
    bench: &'a Bench<'a>,
    group: &'a Group<'a>,
    root: &'a Root,
    mnt: Option<&'a Path>,
    /// For everything that is written, on one file system.
    folder: &'a Path,
    /// The host's `/srv`.
    host: PathBuf,
    /// The machine's: a folder or a disk. Elsewhere it is on the machine's root.
    guest: PathBuf,
    /// The ports of the host's side and of the machines.
    ports: Option<[u16; 3]>,
}

/// The sides of a group.
struct Sides<'a> {
    host: Session<'a>,
    /// Runs the rows' scripts at published ports.
    client: Option<Session<'a>>,
    /// The machine, and those of other systems.
    guests: Vec<Guest<'a>>,
}

/// A guest.
struct Guest<'a> {
    system: System,
    /// `None`: it is started for each turn, or has failed.
    session: Option<Session<'a>>,
    /// Why it is not measured: another system need not run everything.
    failed: Option<String>,
}

impl<'a> Run<'a> {
    /// Starts all sides, and makes the files of the application there.
    fn start(&self) -> anyhow::Result<Sides<'a>> {
        let app = self.group.app;
        let net = self.ports.map_or(Net::Own, |_| Net::Host);
        let mut host = sides::host(HOST, &self.work(&self.host), net, self.bench.terms)?;
        let port = self.ports.map_or(GUEST_PORT, |[port, ..]| port);
        self.script(&mut host, port, &app.files)?;
        self.script(&mut host, port, &app.start)?;
        let client = self
            .ports
            .map(|_| sides::host(CLIENT, &self.work(&self.host), net, self.bench.terms))
            .transpose()?;
        if self.group.place == Place::Volume {
            // People have made these files on the host.
            let work = self.work(&self.guest);
            let mut other = sides::host(HOST, &work, Net::Own, self.bench.terms)?;
            self.script(&mut other, GUEST_PORT, &app.files)?;
            other.end()?;
        }
        let mut guests = Vec::new();
        for system in peers::systems(self.bench.args, self.group) {
            let result = self.prepare_guest(system);
            let (session, failed) = match result {
                Ok(session) => (session, None),
                Err(error) => (None, Some(self.excuse(system, error)?)),
            };
            guests.push(Guest {
                system,
                session,
                failed,
            });
        }
        Ok(Sides {
            host,
            client,
            guests,
        })
    }

    /// The reason for which a system is left out. The program itself is not.
    fn excuse(&self, system: System, error: anyhow::Error) -> anyhow::Result<String> {
        if system.is_own() || self.bench.terms.signals.pending().is_some() {
            return Err(error);
        }
        Ok(format!("{error:#}"))
    }

    /// Starts a guest and makes its files. `None`: it is started for each turn.
    fn prepare_guest(&self, system: System) -> anyhow::Result<Option<Session<'a>>> {
        let app = self.group.app;
        let mut session = self.start_guest(system)?;
        if self.group.place != Place::Volume {
            self.script(&mut session, GUEST_PORT, &app.files)?;
        }
        if app.fresh {
            self.script(&mut session, GUEST_PORT, "sync")?;
            session.end()?;
            return Ok(None);
        }
        self.script(&mut session, GUEST_PORT, &app.start)?;
        Ok(Some(session))
    }

    fn work<'b>(&'b self, srv: &'b Path) -> Work<'b> {
        Work {
            root: self.root,
            srv,
            mnt: self.mnt,
        }
    }

    fn start_guest(&self, system: System) -> anyhow::Result<Session<'a>> {
        let args = self.bench.args;
        let machine = Machine {
            kernel: args.kernel.as_deref(),
            options: &args.option,
            place: self.group.place,
            vcpus: self.group.vcpus,
            memory_mib: self.group.app.memory,
            port: self.ports.map(|[_, one, other]| match system {
                System::Venet => other,
                _ => one,
            }),
            venet: system == System::Venet,
            temporary: self.folder,
        };
        let work = self.work(&self.guest);
        match system {
            System::Paravane | System::Venet => sides::guest(&work, &machine, self.bench.terms),
            System::Peer(peer) => peers::start(peer, &work, &machine, self.bench.terms),
        }
    }

    /// Measures a row once on each side, in alternating order.
    fn turn(&self, sides: &mut Sides<'a>, turns: &mut Turns<'_>, round: u32) -> anyhow::Result<()> {
        let mut figures = vec![Vec::new(); 1 + sides.guests.len()];
        let mut order: Vec<usize> = (0..figures.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            if !turns.wants(index) {
                continue;
            }
            let measured = match self.side(sides, index, turns.row) {
                Ok(measured) => measured,
                // Its other rows may work there.
                Err(error) if error.is::<Wrong>() => {
                    turns.fail(index, format!("{error:#}"));
                    continue;
                }
                Err(error) => {
                    let guest = index.checked_sub(1).and_then(|i| sides.guests.get_mut(i));
                    let Some(guest) = guest else {
                        return Err(error);
                    };
                    guest.failed = Some(self.excuse(guest.system, error)?);
                    guest.session = None;
                    continue;
                }
            };
            if let Some(place) = figures.get_mut(index) {
                *place = measured;
            }
        }
        turns.add(&figures);
        Ok(())
    }

    /// The number of figures that a row has in a turn.
    fn states(&self) -> usize {
        if self.group.app.fresh {
            STATES.len()
        } else {
            1
        }
    }

    /// Measures a row on one side, in each state: 0 is the host, and the others are the guests.
    fn side(&self, sides: &mut Sides<'a>, index: usize, row: &Row) -> anyhow::Result<Vec<f64>> {
        if let Some(client) = &mut sides.client {
            let port = self.ports.and_then(|ports| ports.get(index).copied());
            let port = port.context("only a machine has a published port")?;
            return Ok(vec![self.figure(client, false, port, row)?]);
        }
        let states = self.states();
        let Some(guest) = index.checked_sub(1).and_then(|i| sides.guests.get_mut(i)) else {
            return (0..states)
                .map(|_| self.figure(&mut sides.host, false, GUEST_PORT, row))
                .collect();
        };
        if guest.failed.is_some() {
            return Ok(Vec::new());
        }
        if let Some(session) = &mut guest.session {
            return Ok(vec![self.figure(session, true, GUEST_PORT, row)?]);
        }
        let mut session = self.start_guest(guest.system)?;
        self.script(&mut session, GUEST_PORT, &self.group.app.start)?;
        let figures = (0..states)
            .map(|_| self.figure(&mut session, true, GUEST_PORT, row))
            .collect::<anyhow::Result<_>>()?;
        session.end()?;
        Ok(figures)
    }

    fn figure(
        &self,
        side: &mut Session<'_>,
        is_guest: bool,
        port: u16,
        row: &Row,
    ) -> anyhow::Result<f64> {
        self.script(side, port, &row.before)?;
        self.settle(side, is_guest)?;
        let answer = side.run(&format!("{}{}", self.variables(port), row.run))?;
        let figure = match row.unit {
            Some(_) => answer.line.trim().parse().ok(),
            None => Some(answer.seconds),
        };
        let figure = figure.filter(|figure: &f64| figure.is_finite() && *figure > 0.0);
        figure.ok_or_else(|| side.wrong(format!("a figure was expected, not {:?}", answer.line)))
    }

    /// Lets the disk come to rest: what a side has left to write must not take the other's time.
    fn settle(&self, side: &mut Session<'_>, is_guest: bool) -> anyhow::Result<()> {
        if is_guest {
            side.run("sync")?;
        }
        let complain = || self.folder.display().to_string();
        let folder = File::open(self.folder).with_context(complain)?;
        syncfs(&folder).with_context(complain)?;
        if is_guest && self.group.app.uncached {
            forget(&self.guest)?;
        }
        Ok(())
    }

    /// Runs a script whose time does not count.
    fn script(&self, side: &mut Session<'_>, port: u16, script: &str) -> anyhow::Result<()> {
        if !script.trim().is_empty() {
            side.run(&format!("{}{script}", self.variables(port)))?;
        }
        Ok(())
    }

    /// What scripts know.
    fn variables(&self, port: u16) -> String {
        let scale = if self.bench.args.quick { 1 } else { 10 };
        let Group { place, vcpus, .. } = self.group;
        // A server beside a machine is in the host's network, where it is for the client only.
        let address = match self.ports {
            Some([host, ..]) if host == port => Ipv4Addr::LOCALHOST,
            _ => Ipv4Addr::UNSPECIFIED,
        };
        format!("place={place} cpus={vcpus} scale={scale} address={address} port={port}\n")
    }
}

/// Makes what a machine's `/srv` is.
fn guest_srv(folder: &Path, place: Place) -> anyhow::Result<PathBuf> {
    let srv = folder.join("guest");
    let complain = || srv.display().to_string();
    match place {
        Place::Volume => make_folder(&srv)?,
        Place::Disk => {
            let made = File::create(&srv).and_then(|file| file.set_len(DISK));
            made.with_context(complain)?;
            let mut command = Command::new("mke2fs");
            // An ordinary user's PATH may lack the folders for system programs.
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
            command.args(["-q", "-F", "-t", "ext4", "-m", "1", "-E", "root_owner=0:0"]);
            command
                .args(["-E", "lazy_itable_init=1,lazy_journal_init=1"])
                .arg(&srv);
            let output = command.stdin(Stdio::null()).output();
            let output = output.context("cannot run mke2fs (Debian: package e2fsprogs)")?;
            if !output.status.success() {
                let said = text::one_line(&String::from_utf8_lossy(&output.stderr));
                bail!("mke2fs failed ({}): {said}", output.status);
            }
        }
        Place::Rootfs | Place::Publish => {}
    }
    Ok(srv)
}

/// Makes a folder for `/srv`, into which all users of a root can go.
fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let made = fs::create_dir(folder)
        // The umask may say otherwise.
        .and_then(|()| fs::set_permissions(folder, Permissions::from_mode(0o755)));
    made.with_context(|| folder.display().to_string())
}

/// Drops a file from the host's page cache, as far as it is on the disk.
fn forget(file: &Path) -> anyhow::Result<()> {
    let complain = || file.display().to_string();
    let file = File::open(file).with_context(complain)?;
    fadvise(&file, 0, None, Advice::DontNeed).with_context(complain)
}

/// Ports of the host that are free now.
fn free_ports() -> anyhow::Result<[u16; 3]> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port");
    // All at once, so that they are not the same.
    let bound = [bind()?, bind()?, bind()?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&bound) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
