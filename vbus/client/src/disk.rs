// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client of a disk on the bus: reads, writes and flushes, one request at a time.

use crate::control::{Error, wait};
use crate::link::{PAUSE, may_come_back};
use crate::requests::{PART, Requests, SECTOR, Wish};
use paravane_vbus::devices::block::Geometry;
use rustix::event::{PollFd, PollFlags};
use std::path::Path;
use std::time::{Duration, Instant};

/// A disk. It belongs to one thread at a time.
///
/// If vbusd dies or the device is reset while a request is under way, the disk connects again and
/// makes the request again, within the time that it was given. Data that [`Disk::flush`] has
/// acknowledged survives that, and a power failure.
#[derive(Debug)]
pub struct Disk {
    requests: Requests,
    /// The connection has not ended.
    connected: bool,
    patience: Duration,
}

/// A request, or a part of one.
enum Part<'a> {
    Read(u64, &'a mut [u8]),
    Write(u64, &'a [u8]),
    Flush,
}

impl Disk {
    /// Joins a bus and opens a disk on it. `patience`: how long a request waits for another vbusd,
    /// or for the device.
    ///
    /// # Errors
    /// vbusd cannot be reached or refuses, or the device is no disk.
    pub fn connect(
        socket: &Path,
        bus: &str,
        device: &str,
        patience: Duration,
    ) -> Result<Self, Error> {
        Ok(Disk {
            requests: Requests::connect(socket, bus, device, 1)?,
            connected: true,
            patience,
        })
    }

    /// Its size, in sectors, when it was connected to last.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.geometry().sectors
    }

    /// Whether it cannot be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.geometry().read_only
    }

    /// What disk it is.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        self.requests.geometry()
    }

    /// Reads whole sectors, from the one of this number on.
    ///
    /// # Errors
    /// Not whole sectors, outside of the disk, the host cannot read them, or the patience is over.
    pub fn read(&mut self, sector: u64, to: &mut [u8]) -> Result<(), Error> {
        self.check(sector, to.len())?;
        let mut at = sector;
        for part in to.chunks_mut(PART) {
            let sectors = (part.len() / SECTOR) as u64;
            self.request(Part::Read(at, part))?;
            at += sectors;
        }
        Ok(())
    }

    /// Writes whole sectors, from the one of this number on.
    ///
    /// # Errors
    /// As [`Disk::read`]. A part of them may be written.
    pub fn write(&mut self, sector: u64, from: &[u8]) -> Result<(), Error> {
        self.check(sector, from.len())?;
        let mut at = sector;
        for part in from.chunks(PART) {
            self.request(Part::Write(at, part))?;
            at += (part.len() / SECTOR) as u64;
        }
        Ok(())
    }

    /// Makes durable what was written before.
    ///
    /// # Errors
    /// The host cannot, or the patience is over.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.request(Part::Flush)
    }

    fn check(&self, sector: u64, bytes: usize) -> Result<(), Error> {
        let end = sector.checked_add((bytes / SECTOR) as u64);
        if !bytes.is_multiple_of(SECTOR) || end.is_none_or(|end| end > self.sectors()) {
            let text = format!(
                "{bytes} bytes from sector {sector} on are not whole sectors of a disk of {}",
                self.sectors()
            );
            return Err(Error::Invalid(text));
        }
        Ok(())
    }

    /// Makes a request until it is done.
    fn request(&mut self, mut part: Part<'_>) -> Result<(), Error> {
        let deadline = Instant::now() + self.patience;
        loop {
            let error = match self.attempt(&mut part) {
                Ok(()) => return Ok(()),
                Err(Error::Failed) => return Err(Error::Failed),
                Err(error) => error,
            };
            // Its memory may still have the request, so nothing is posted there again.
            self.connected = false;
            if !may_come_back(&error) || Instant::now() + PAUSE > deadline {
                return Err(error);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn attempt(&mut self, part: &mut Part<'_>) -> Result<(), Error> {
        if !self.connected {
            self.requests = self.requests.again()?;
            self.connected = true;
        }
        let requests = &mut self.requests;
        let (wish, to) = match part {
            Part::Read(sector, to) => (Wish::Read(*sector, to.len()), &mut **to),
            Part::Write(sector, from) => (Wish::Write(*sector, from), &mut [][..]),
            Part::Flush => (Wish::Flush, &mut [][..]),
        };
        requests.post(0, wish)?;
        requests.flush();
        loop {
            if let Some(finished) = requests.finished(to)? {
                return if finished.done {
                    Ok(())
                } else {
                    Err(Error::Failed)
                };
            }
            while requests.event()?.is_some() {}
            if requests.rest() {
                let file = |file| PollFd::from_borrowed_fd(file, PollFlags::IN);
                wait(&mut requests.files().map(file), None)?;
                requests.drain()?;
            }
            requests.watch();
        }
    }
}
