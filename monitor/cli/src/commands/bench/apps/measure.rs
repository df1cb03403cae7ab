// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A group's sides, which are started once, and the turns of its rows on them.

use super::super::cpus;
use super::batch::Bench;
use super::description::Row;
use super::figures::{STATES, Turns};
use super::host_memory;
use super::peers::{self, System};
use super::plan::Group;
use super::session::{Session, Wrong};
use super::sides::{self, Machine, Net, Root, Work};
use crate::arguments::Place;
use anyhow::{Context, bail};
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
/// The number of the host's side. Its client is part of it.
const HOST_SIDE: usize = 0;

/// A group that is measured.
pub struct Run<'a> {
    bench: &'a Bench<'a>,
    group: &'a Group<'a>,
    root: &'a Root,
    mnt: Option<&'a Path>,
    /// For everything that is written, on one file system.
    folder: &'a Path,
    /// The host's `/srv`.
    host: PathBuf,
    /// Those of the machines, each a folder or a disk. Elsewhere they are on the machines' roots.
    guests: Vec<PathBuf>,
    /// The ports of the host's side and of the machines, if they are published.
    ports: Option<Vec<u16>>,
    systems: Vec<System>,
}

/// The sides of a group.
pub struct Sides<'a> {
    host: Session<'a>,
    /// Runs the rows' scripts at published ports.
    client: Option<Session<'a>>,
    /// The machine, and those of other systems.
    pub guests: Vec<Guest<'a>>,
}

/// A guest.
pub struct Guest<'a> {
    pub system: System,
    /// `None`: it is started for each turn, or has failed.
    session: Option<Session<'a>>,
    /// Why it is not measured: another system need not run everything.
    pub failed: Option<String>,
}

impl<'a> Run<'a> {
    /// Makes the places of all sides' files below `folder`, which is empty.
    pub fn new(
        bench: &'a Bench<'a>,
        group: &'a Group<'a>,
        root: &'a Root,
        mnt: Option<&'a Path>,
        folder: &'a Path,
    ) -> anyhow::Result<Self> {
        let host = folder.join("host");
        make_folder(&host)?;
        let publish = group.place == Place::Publish;
        let systems = peers::systems(bench.args, group)?;
        let ports = publish.then(|| free_ports(1 + systems.len())).transpose()?;
        let guests = (1..=systems.len()).map(|side| guest_srv(folder, group.place, side));
        Ok(Run {
            bench,
            group,
            root,
            mnt,
            folder,
            host,
            guests: guests.collect::<anyhow::Result<_>>()?,
            ports,
            systems,
        })
    }

    /// Binds this process, and what it starts from now on, to the processors of the group.
    fn pin(&self) {
        // At a published port, the client is not part of the machine and needs a processor.
        let count = match self.group.place {
            Place::Publish => None,
            _ => usize::try_from(self.group.vcpus).ok(),
        };
        let cpus = self.bench.cpus;
        cpus::pin(count.and_then(|count| cpus.get(..count)).unwrap_or(cpus));
    }

    /// The turns of all rows.
    pub fn rows(&self) -> Vec<Turns<'a>> {
        let turns = |row: &&'a Row| Turns::new(row, &self.systems, self.states());
        self.group.rows.iter().map(turns).collect()
    }

    /// Starts all sides, and makes the files of the application there.
    pub fn start(&self) -> anyhow::Result<Sides<'a>> {
        self.pin();
        let app = self.group.app;
        let net = self.ports.as_ref().map_or(Net::Own, |_| Net::Host);
        let mut host = sides::host(HOST, &self.work(&self.host), net, self.bench.terms)?;
        let port = self.port(0).unwrap_or(GUEST_PORT);
        self.script(&mut host, port, &app.files)?;
        self.script(&mut host, port, &app.start)?;
        let client = self
            .ports
            .as_ref()
            .map(|_| sides::host(CLIENT, &self.work(&self.host), net, self.bench.terms))
            .transpose()?;
        if self.group.place == Place::Volume {
            // People have made these files on the host.
            for srv in &self.guests {
                let mut other = sides::host(HOST, &self.work(srv), Net::Own, self.bench.terms)?;
                self.script(&mut other, GUEST_PORT, &app.files)?;
                other.end()?;
            }
        }
        let mut guests = Vec::new();
        for (number, &system) in self.systems.iter().enumerate() {
            let result = self.prepare_guest(system, number + 1);
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
    fn prepare_guest(&self, system: System, side: usize) -> anyhow::Result<Option<Session<'a>>> {
        let app = self.group.app;
        let mut session = self.start_guest(system, side)?;
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

    /// The published port of a side.
    fn port(&self, side: usize) -> Option<u16> {
        self.ports.as_ref()?.get(side).copied()
    }

    /// What is `/srv` in the guest of a side.
    fn srv(&self, side: usize) -> anyhow::Result<&Path> {
        let own = side.checked_sub(1).and_then(|index| self.guests.get(index));
        own.map(PathBuf::as_path).context("the host is no guest")
    }

    fn start_guest(&self, system: System, side: usize) -> anyhow::Result<Session<'a>> {
        let args = self.bench.args;
        let mut options = args.option.clone();
        let mut volume = None;
        if let System::Without(guess) = system {
            options.extend(guess.options.iter().map(ToString::to_string));
            volume = guess.volume;
        }
        let machine = Machine {
            kernel: args.kernel.as_deref(),
            options: &options,
            volume,
            place: self.group.place,
            vcpus: self.group.vcpus,
            memory_mib: self.group.app.memory,
            port: self.port(side),
            bus: system.has_bus(),
            temporary: self.folder,
            state: None,
        };
        let work = self.work(self.srv(side)?);
        match system {
            System::Paravane | System::Venet | System::Vblk | System::Without(_) => {
                sides::guest(&work, &machine, self.bench.terms)
            }
            System::Peer(peer) => peers::start(peer, &work, &machine, self.bench.terms),
        }
    }

    /// Measures a row once on each side, in alternating order.
    pub fn turn(
        &self,
        sides: &mut Sides<'a>,
        turns: &mut Turns<'_>,
        round: u32,
    ) -> anyhow::Result<()> {
        self.pin();
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
            let port = self.port(index);
            let port = port.context("only a machine has a published port")?;
            return self.figures(client, HOST_SIDE, port, row);
        }
        let Some(guest) = index.checked_sub(1).and_then(|i| sides.guests.get_mut(i)) else {
            return self.in_each_state(&mut sides.host, HOST_SIDE, row);
        };
        if guest.failed.is_some() {
            return Ok(Vec::new());
        }
        if let Some(session) = &mut guest.session {
            return self.figures(session, index, GUEST_PORT, row);
        }
        let mut session = self.start_guest(guest.system, index)?;
        self.script(&mut session, GUEST_PORT, &self.group.app.start)?;
        let figures = self.in_each_state(&mut session, index, row)?;
        session.end()?;
        Ok(figures)
    }

    /// The figures of a row in each state of a side, one state after the other.
    fn in_each_state(
        &self,
        session: &mut Session<'_>,
        side: usize,
        row: &Row,
    ) -> anyhow::Result<Vec<f64>> {
        let mut figures = Vec::new();
        for _ in 0..self.states() {
            figures.extend(self.figures(session, side, GUEST_PORT, row)?);
        }
        Ok(figures)
    }

    /// The figures of one run of a row.
    fn figures(
        &self,
        session: &mut Session<'_>,
        side: usize,
        port: u16,
        row: &Row,
    ) -> anyhow::Result<Vec<f64>> {
        self.script(session, port, &row.before)?;
        self.settle(session, side)?;
        host_memory::prefault(u64::from(self.group.app.memory) << 20)?;
        let answer = session.run(&format!("{}{}", self.variables(port), row.run))?;
        let figures = match row.unit {
            Some(_) => numbers(&answer.line),
            None => Some(vec![answer.seconds]),
        };
        let count = row.figures().len();
        let figures = figures.filter(|all| all.len() == count && all.iter().all(|one| *one > 0.0));
        figures.ok_or_else(|| {
            let expected = text::count(count, "figure");
            session.wrong(format!("{expected} expected, not {:?}", answer.line))
        })
    }

    /// Lets the disk come to rest: what a side has left to write must not take the other's time.
    fn settle(&self, session: &mut Session<'_>, side: usize) -> anyhow::Result<()> {
        if side != HOST_SIDE {
            session.run("sync")?;
        }
        let complain = || self.folder.display().to_string();
        let folder = File::open(self.folder).with_context(complain)?;
        syncfs(&folder).with_context(complain)?;
        if side != HOST_SIDE && self.group.app.uncached {
            forget(self.srv(side)?)?;
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
        let address = if self.port(0) == Some(port) {
            Ipv4Addr::LOCALHOST
        } else {
            Ipv4Addr::UNSPECIFIED
        };
        format!("place={place} cpus={vcpus} scale={scale} address={address} port={port}\n")
    }
}

/// The finite numbers of which a line consists, if it does.
fn numbers(line: &str) -> Option<Vec<f64>> {
    let number = |word: &str| word.parse().ok().filter(|number: &f64| number.is_finite());
    line.split_whitespace().map(number).collect()
}

/// Makes what the `/srv` of a side's machine is.
fn guest_srv(folder: &Path, place: Place, side: usize) -> anyhow::Result<PathBuf> {
    let srv = folder.join(match side {
        1 => "guest".to_string(),
        other => format!("guest-{other}"),
    });
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
fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port");
    // All at once, so that they are not the same.
    let bound: Vec<_> = (0..count).map(bind).collect::<anyhow::Result<_>>()?;
    let port = |listener: &TcpListener| Ok(listener.local_addr()?.port());
    bound.iter().map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_figures_are_read_strictly() {
        assert_eq!(numbers(" 1.5  2\t3e1 "), Some(vec![1.5, 2.0, 30.0]));
        assert_eq!(numbers(""), Some(vec![]));
        for bad in ["1 x", "inf", "1 NaN", "1,5"] {
            assert_eq!(numbers(bad), None, "{bad}");
        }
    }
}
