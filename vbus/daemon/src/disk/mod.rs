// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The class `vblk`: a file as a disk, for any client of the bus.
//!
//! The device is `virtual-block`, as the disks of machines are. All connections share the file. A
//! request is done by another thread, as if in the order in which it came (`order`); its
//! descriptors go back in the order of the queue.

mod at_once;
mod direct;
mod engine;
mod file;
mod order;
mod pool;
mod port;
mod predecessor;
#[expect(unsafe_code, reason = "shares memory with the kernel")]
mod ring;
mod worker;
#[cfg(test)]
mod worker_tests;

pub use pool::Pool;

use engine::Engine;
use file::{Image, is_open};
use paravane_vbus::devices::block::{self, Geometry, Wanted};
use paravane_vbus::{
    Attribute, Broken, Class, ConnectionId, Device, Endpoint, Error, Kind, Name, QueueKind, Round,
    Work, devices, flag,
};
use paravane_vbus_shm::{Role, layout};
use pool::{Action, Done, Job, Ticket};
use port::Port;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The folder of the files, in vbusd's.
pub const FOLDER: &str = "disks";
/// Most requests of a connection under way, and most bytes of one.
const DEPTH: usize = 8;
const MOST: usize = 256 << 10;
/// Most bytes of all connections to a disk under way, those that have ended included, and the bytes
/// for which a request counts at least: it takes some memory, and a flush has no data.
const MOST_OF_ALL: usize = 16 << 20;
const LEAST: usize = 4096;
/// Attributes.
const FILE: &str = "file";
const READ_ONLY: &str = "read-only";
const ENGINE: &str = "engine";
const ENGINE_USED: &str = "engine-used";

const QUEUES: &[QueueKind] = &[QueueKind {
    number: devices::TX,
    role: Role::Transmit,
}];

/// Makes [`Disk`].
#[derive(Debug)]
pub struct DiskClass {
    folder: PathBuf,
    pool: Arc<Pool>,
    restores: Arc<AtomicBool>,
}

impl DiskClass {
    /// With files in the folder `disks` of this one.
    ///
    /// While it `restores` what was configured, no file is opened: a disk opens its file when a
    /// client connects.
    pub fn new(folder: &Path, pool: &Arc<Pool>, restores: &Arc<AtomicBool>) -> Self {
        DiskClass {
            folder: folder.join(FOLDER),
            pool: Arc::clone(pool),
            restores: Arc::clone(restores),
        }
    }
}

impl Class for DiskClass {
    fn name(&self) -> &'static str {
        "vblk"
    }

    fn create(&self, name: &Name) -> Box<dyn Device> {
        Box::new(Disk {
            name: name.clone(),
            folder: self.folder.clone(),
            pool: Arc::clone(&self.pool),
            restores: Arc::clone(&self.restores),
            file: None,
            read_only: false,
            engine: Engine::default(),
            image: None,
            geometry: Geometry::new(0, false, name.as_str()),
            ports: BTreeMap::new(),
            under_way: 0,
            requests: 0,
            failed: 0,
            at_once: 0,
            slow: 0,
        })
    }
}

/// The device.
#[derive(Debug)]
struct Disk {
    name: Name,
    folder: PathBuf,
    pool: Arc<Pool>,
    restores: Arc<AtomicBool>,
    file: Option<Name>,
    read_only: bool,
    engine: Engine,
    /// Of the file, once a client needed it.
    image: Option<Arc<Image>>,
    geometry: Geometry,
    ports: BTreeMap<ConnectionId, Port>,
    /// Bytes that the other thread has, by the weights of requests.
    under_way: usize,
    requests: u64,
    failed: u64,
    /// Those that the thread has done without a wait, and those for which it has waited although it
    /// meant not to.
    at_once: u64,
    slow: u64,
}

impl Disk {
    fn check_idle(&self) -> Result<(), Error> {
        if !self.ports.is_empty() {
            let text = "the disk is in use: its clients must leave first";
            return Err(Error::new(Kind::Busy, text));
        }
        Ok(())
    }

    /// Opens the file, which takes the place of the one before.
    fn open(&mut self, file: Option<Name>, read_only: bool) -> Result<(), Error> {
        self.check_idle()?;
        // Its lock would refuse the next one.
        self.image = None;
        if !self.restores.load(Ordering::SeqCst) {
            let thread = self.pool.mail();
            let open = |name: &Name| Image::open(&self.folder, name, read_only, thread);
            let image = file.as_ref().map(open).transpose();
            let locked = matches!(&image, Err(error) if error.kind() == Kind::Busy);
            let ours = |name: &Name| is_open(&self.folder, name);
            if locked && !file.as_ref().is_some_and(ours) {
                self.pool.predecessor().meet();
            }
            self.image = image?.map(Arc::new);
        }
        (self.file, self.read_only) = (file, read_only);
        Ok(())
    }

    /// Whether this host has what an engine needs.
    fn check_engine(&self, engine: Engine) -> Result<(), Error> {
        match self.pool.refusal() {
            Some(why) if engine == Engine::Uring => {
                let text = format!("the host refuses io_uring ({why}): `{ENGINE}` can be pread");
                Err(Error::new(Kind::Host, text))
            }
            _ => Ok(()),
        }
    }

    fn set_engine(&mut self, value: &str) -> Result<(), Error> {
        let Some(engine) = Engine::of(value) else {
            let all = Engine::ALL.map(Engine::name).join(", ");
            let text = format!("{value:.40?} is no value of {ENGINE}: {all} are");
            return Err(Error::new(Kind::Invalid, text));
        };
        self.check_idle()?;
        if !self.restores.load(Ordering::SeqCst) {
            self.check_engine(engine)?;
        }
        self.engine = engine;
        Ok(())
    }

    /// Opens the file, unless that was done, and reads its size if no client uses the disk.
    fn ready(&mut self) -> Result<(), Error> {
        self.check_engine(self.engine)?;
        if self.image.is_none() && self.file.is_some() {
            self.open(self.file.clone(), self.read_only)?;
        }
        let Some(image) = &self.image else {
            let text = format!("the disk has no file: set its attribute `{FILE}`");
            return Err(Error::new(Kind::NotFound, text));
        };
        if self.ports.is_empty() {
            self.geometry.sectors = image.sectors()?;
            self.geometry.read_only = self.read_only;
        }
        Ok(())
    }

    /// Gives results to the clients that still wait for them.
    fn deliver(&mut self, round: &mut Round) {
        let was_full = self.is_full_for_all();
        for done in self.pool.done(&self.name) {
            let Done {
                ticket,
                way,
                result,
            } = done;
            let (id, number) = (ticket.id, ticket.number);
            self.under_way = self.under_way.saturating_sub(ticket.weight);
            self.at_once += u64::from(way.at_once);
            self.slow += u64::from(way.slow);
            let Some(port) = self.ports.get_mut(&id) else {
                continue;
            };
            let status = match &result {
                Some(_) => layout::VBUS_BLOCK_DONE,
                None => layout::VBUS_BLOCK_FAILED,
            };
            self.failed += u64::from(result.is_none());
            if let Err(broken) = port.finish(number, status, &result.unwrap_or_default()) {
                round.broken.push((id, broken));
            }
            round.also.push(id);
        }
        if was_full {
            // Others may wait for the room, and this may be the last that is heard of it.
            round.also.extend(self.ports.keys());
        }
    }

    /// Whether all connections together have as much under way as is possible.
    fn is_full_for_all(&self) -> bool {
        self.under_way > MOST_OF_ALL - MOST
    }

    /// Whether a request of this connection would have to wait for others.
    fn is_full(&self, id: ConnectionId) -> bool {
        let port = self.ports.get(&id);
        self.is_full_for_all() || port.is_none_or(|port| port.taken() == DEPTH)
    }

    /// Takes requests. Returns whether it took some, and whether there may be more.
    fn take(&mut self, id: ConnectionId, budget: u32) -> Result<(bool, bool), Broken> {
        let mut some = false;
        for _ in 0..budget {
            if self.is_full(id) {
                // More is taken when one is done.
                return Ok((some, false));
            }
            let (Some(port), Some(image)) = (self.ports.get_mut(&id), &self.image) else {
                return Ok((some, false));
            };
            let Some(parts) = port.next()? else {
                return Ok((some, false));
            };
            some = true;
            self.requests += 1;
            let (wanted, bytes) = (parts.wanted(&self.geometry, MOST), parts.bytes());
            let number = port.take(parts);
            let (sector, action) = match wanted {
                Wanted::Read(sector) => (sector, Action::Read(bytes)),
                Wanted::Write(sector) => (sector, Action::Write(port.written(number)?)),
                Wanted::Flush => (0, Action::Flush),
                Wanted::Refused(status) => {
                    self.failed += 1;
                    port.finish(number, status, &[])?;
                    continue;
                }
            };
            let weight = bytes.max(LEAST);
            self.under_way += weight;
            self.pool.begin(Job {
                ticket: Ticket {
                    device: self.name.clone(),
                    id,
                    number,
                    weight,
                },
                image: Arc::clone(image),
                engine: self.engine,
                offset: sector * block::SECTOR,
                action,
            });
        }
        Ok((some, true))
    }
}

impl Device for Disk {
    fn interface(&self) -> &'static str {
        block::TYPE
    }

    fn attributes(&self) -> Vec<Attribute> {
        let file = self.file.as_ref().map(ToString::to_string);
        let used = self.engine.used(self.pool.refusal().is_none());
        let lost = self.image.as_ref().is_some_and(|image| image.has_lost());
        vec![
            Attribute::setting(FILE, file.unwrap_or_default()),
            Attribute::setting(READ_ONLY, u8::from(self.read_only).to_string()),
            Attribute::setting(ENGINE, self.engine.to_string()),
            Attribute {
                name: ENGINE_USED.to_string(),
                value: used.to_string(),
                writable: false,
            },
            Attribute::figure("connections", self.ports.len() as u64),
            Attribute::figure("requests", self.requests),
            Attribute::figure("failed", self.failed),
            Attribute::figure("at-once", self.at_once),
            Attribute::figure("slow", self.slow),
            Attribute::figure("lost", u64::from(lost)),
        ]
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        match (name, value) {
            (FILE, "") => self.open(None, self.read_only),
            (FILE, _) => self.open(Some(Name::new(value)?), self.read_only),
            (READ_ONLY, _) => self.open(self.file.clone(), flag(name, value)?),
            (ENGINE, _) => self.set_engine(value),
            _ => Err(paravane_vbus::no_attribute(name)),
        }
    }

    fn queues(&self) -> &'static [QueueKind] {
        QUEUES
    }

    fn connect(&mut self, id: ConnectionId) -> Result<(), Error> {
        self.ready()?;
        self.ports.insert(id, Port::default());
        Ok(())
    }

    fn disconnect(&mut self, id: ConnectionId) {
        self.ports.remove(&id);
    }

    fn call(
        &mut self,
        _: ConnectionId,
        call: u32,
        _: &[u8],
        result: &mut [u8],
    ) -> Result<usize, Error> {
        block::call(call, &self.geometry.encode(), result)
    }

    fn share(&mut self, id: ConnectionId, _: u32, endpoint: Endpoint) -> Result<(), Error> {
        match self.ports.get_mut(&id) {
            Some(port) => port.share(endpoint),
            None => Err(Error::new(Kind::NotFound, "there is no connection")),
        }
    }

    fn work(&mut self, id: ConnectionId, budget: u32, round: &mut Round) -> Work {
        self.deliver(round);
        if let Some(port) = self.ports.get(&id) {
            port.begin();
        }
        let taken = self.take(id, budget);
        for port in self.ports.values_mut() {
            port.signal();
        }
        match taken {
            Ok((some, more)) => Work::of(some, more),
            Err(broken) => {
                round.broken.push((id, broken));
                Work::Nothing
            }
        }
    }

    fn polls(&mut self, _: ConnectionId) -> bool {
        // The CPU is for the programs that wait for the disk.
        false
    }

    fn adapts(&self) -> bool {
        false
    }

    fn rest(&mut self, id: ConnectionId) -> bool {
        !self.is_full(id) && self.ports.get(&id).is_some_and(Port::rest)
    }

    fn woken(&mut self) {
        if self.ports.is_empty() {
            // No client waits for it, and no client makes the device work.
            self.deliver(&mut Round::default());
        }
    }
}
