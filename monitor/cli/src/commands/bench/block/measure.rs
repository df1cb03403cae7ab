// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One turn of one path: fio runs each workload there.

use super::super::apps::session::{self, Session};
use super::super::apps::sides::{self, Machine, Net, Root, Work};
use super::super::cpu_time;
use super::bus::Bus;
use super::fio::{Figures, WORKLOADS};
use crate::arguments::Place;
use anyhow::Context;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Memory of a machine, in MiB.
const MEMORY: u32 = 512;
/// The name of the files in their folders.
pub const FILE: &str = "disk";
/// The folder of the file that the host reads and writes past its page cache.
pub const DIRECT: &str = "direct";

/// A path: how the bytes of the file are reached.
#[derive(Debug)]
pub struct Route {
    pub name: &'static str,
    way: Way,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    /// By fio on the host, in the page cache or, on a file of its own, past it.
    Host { direct: bool },
    /// By fio in a machine whose disk is the file: of virtio-blk, or on the virtual bus.
    Machine { bus: bool },
    /// By fio in a machine whose disk is one of vbusd, with this engine.
    Vbusd(&'static str),
}

/// The paths that are always measured, the comparison first.
pub const ROUTES: [Route; 3] = [
    Route {
        name: "host",
        way: Way::Host { direct: false },
    },
    Route {
        name: "virtio-blk",
        way: Way::Machine { bus: false },
    },
    Route {
        name: "vblk",
        way: Way::Machine { bus: true },
    },
];

/// The host past its page cache.
pub const HOST_DIRECT: Route = Route {
    name: "host-direct",
    way: Way::Host { direct: true },
};

/// The paths by vbusd, the comparison first.
pub const BUS_ROUTES: [Route; 3] = [
    Route {
        name: "vbusd-pread",
        way: Way::Vbusd("pread"),
    },
    Route {
        name: "vbusd-uring",
        way: Way::Vbusd("uring"),
    },
    Route {
        name: "vbusd-auto",
        way: Way::Vbusd("auto"),
    },
];

impl Route {
    /// Whether fio passes by the page cache of the kernel that it runs on.
    pub fn direct(&self) -> bool {
        !matches!(self.way, Way::Host { direct: false })
    }
}

/// What a turn has found of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    pub fio: Figures,
    /// CPU seconds of all processes of the path, without those that the start of fio takes.
    pub cpu: f64,
}

impl Measured {
    /// CPU seconds for each 10^9 bytes.
    pub fn cpu_for_gb(&self) -> f64 {
        self.cpu * 1e9 / self.fio.bytes
    }
}

/// What a turn has found, in the order of [`WORKLOADS`].
pub type Turn = [Measured; WORKLOADS.len()];

/// What measurements share.
pub struct Terms<'a> {
    pub kernel: &'a Path,
    pub root: &'a Root,
    /// A folder for what machines write to their roots, and with the folder [`DIRECT`].
    pub folder: &'a Path,
    /// The file that is read and written.
    pub file: &'a Path,
    /// vbusd, for the paths that need it.
    pub bus: Option<&'a Bus>,
    pub cpus: u32,
    /// Milliseconds for each workload.
    pub ms: u32,
    pub session: session::Terms<'a>,
}

/// A path on which fio can run.
struct Side<'a> {
    session: Session<'a>,
    /// The file of the host.
    file: PathBuf,
    /// The file or disk for fio.
    name: String,
    /// Its processes, besides those of the session.
    vbusd: Option<u32>,
}

impl<'a> Terms<'a> {
    /// Measures all workloads once on a path.
    pub fn measure(&self, route: &Route) -> anyhow::Result<Turn> {
        let mut side = match route.way {
            Way::Host { direct } => self.host(direct)?,
            Way::Machine { bus } => self.machine(bus)?,
            Way::Vbusd(engine) => self.vbusd(engine)?,
        };
        let mut turn = Turn::default();
        let begin = WORKLOADS[0].start(&side.name, route.direct());
        // The first one reads fio from the root.
        side.run(&begin)?;
        let (_, start) = side.run(&begin)?;
        for (workload, place) in WORKLOADS.iter().zip(&mut turn) {
            // The next workload must not wait for the data that this one has written.
            let flushed = File::open(&side.file).and_then(|file| file.sync_data());
            flushed.with_context(|| side.file.display().to_string())?;
            let script = workload.script(&side.name, route.direct(), self.ms);
            let found = side.run(&script).and_then(|(line, cpu)| {
                let fio = workload.figures(&line)?;
                let cpu = (cpu - start).max(0.0);
                Ok(Measured { fio, cpu })
            });
            *place = found.with_context(|| workload.name)?;
        }
        side.session.end()?;
        if let (Way::Vbusd(_), Some(bus)) = (route.way, self.bus) {
            bus.release()?;
        }
        Ok(turn)
    }

    fn host(&self, direct: bool) -> anyhow::Result<Side<'a>> {
        let file = if direct {
            self.folder.join(DIRECT).join(FILE)
        } else {
            self.file.to_path_buf()
        };
        let srv = file.parent().context("a file without a folder")?;
        let session = sides::host("the host's side", &self.work(srv), Net::Own, self.session)?;
        Ok(Side {
            session,
            name: format!("/srv/{FILE}"),
            vbusd: None,
            file,
        })
    }

    fn machine(&self, bus: bool) -> anyhow::Result<Side<'a>> {
        let mut option = self.file.to_str().map(str::to_string);
        if let (Some(option), true) = (&mut option, bus) {
            option.push_str(":vbus");
        }
        let name = self.file.display();
        let option = option.with_context(|| format!("{name}: the path of a disk is UTF-8 here"))?;
        self.guest(option, bus, None)
    }

    fn vbusd(&self, engine: &str) -> anyhow::Result<Side<'a>> {
        let bus = self.bus.context("there is no vbusd")?;
        bus.serve(engine)?;
        self.guest(bus.option(), true, Some(bus))
    }

    /// A machine with this disk besides its root.
    fn guest(&self, disk: String, bus: bool, vbusd: Option<&Bus>) -> anyhow::Result<Side<'a>> {
        let machine = Machine {
            kernel: Some(self.kernel),
            options: &["--disk".to_string(), disk],
            volume: None,
            place: Place::Rootfs,
            vcpus: self.cpus,
            memory_mib: MEMORY,
            port: None,
            bus: false,
            temporary: self.folder,
            state: vbusd.map(Bus::state),
        };
        Ok(Side {
            session: sides::guest(&self.work(self.folder), &machine, self.session)?,
            name: self.root.next_disk(bus).to_string(),
            vbusd: vbusd.map(Bus::process),
            file: self.file.to_path_buf(),
        })
    }

    fn work<'b>(&'b self, srv: &'b Path) -> Work<'b> {
        Work {
            root: self.root,
            srv,
            mnt: None,
        }
    }
}

impl Side<'_> {
    /// Runs a script. Returns the last line that it printed, and the CPU seconds that it took.
    fn run(&mut self, script: &str) -> anyhow::Result<(String, f64)> {
        let before = self.cpu();
        let answer = self.session.run(script)?;
        Ok((answer.line, self.cpu() - before))
    }

    /// CPU seconds of its processes.
    fn cpu(&self) -> f64 {
        let processes = [Some(self.session.id()), self.vbusd];
        let processes = processes.into_iter().flatten();
        processes.map(cpu_time::of_tree).sum()
    }
}
