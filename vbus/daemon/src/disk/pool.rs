// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that reads and writes the files of disks. It has no memory of a client: what is
//! written was copied before, and what was read is copied after, by vbusd's first thread.

use super::file::Image;
use crate::confined;
use anyhow::Context;
use paravane_confine::Files;
use paravane_vbus::{ConnectionId, Name};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// What is to be done with a file.
#[derive(Debug)]
pub enum Action {
    /// So many bytes.
    Read(usize),
    /// These bytes.
    Write(Vec<u8>),
    /// All that was written becomes durable.
    Flush,
}

/// A request to a file.
#[derive(Debug)]
pub struct Job {
    /// The device, its connection and the number of the request there.
    pub device: Name,
    pub id: ConnectionId,
    pub number: u64,
    pub image: Arc<Image>,
    /// In bytes.
    pub offset: u64,
    pub bytes: usize,
    pub action: Action,
}

/// What became of a request.
#[derive(Debug)]
pub struct Done {
    pub id: ConnectionId,
    pub number: u64,
    /// Bytes that are no longer under way.
    pub bytes: usize,
    /// The bytes that were read. `None`: the host could not do it.
    pub result: Option<Vec<u8>>,
}

type Results = Arc<Mutex<BTreeMap<Name, Vec<Done>>>>;

/// The thread, as the first one sees it.
#[derive(Debug)]
pub struct Pool {
    jobs: Sender<Job>,
    results: Results,
    bell: Arc<OwnedFd>,
}

impl Pool {
    /// Starts the thread, which confines itself.
    pub fn start() -> anyhow::Result<Arc<Self>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Arc::new(eventfd(0, flags).context("eventfd")?);
        let (jobs, queue) = channel();
        let results = Results::default();
        let (theirs, rings) = (Arc::clone(&results), Arc::clone(&bell));
        confined::start("disks", "vbusd-disks", Files::none(), move || {
            run(&queue, &theirs, &rings);
        })?;
        Ok(Arc::new(Pool {
            jobs,
            results,
            bell,
        }))
    }

    /// Becomes readable, once for each edge, when requests are done.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Begins a request.
    pub fn begin(&self, job: Job) {
        // The thread ends with this value only.
        let _ = self.jobs.send(job);
    }

    /// The devices with requests that are done, whose results were not taken.
    pub fn ready(&self) -> Vec<Name> {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.keys().cloned().collect()
    }

    /// What has been done for a device.
    pub fn done(&self, device: &Name) -> Vec<Done> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.remove(device).unwrap_or_default()
    }
}

fn run(queue: &Receiver<Job>, results: &Results, bell: &OwnedFd) {
    while let Ok(job) = queue.recv() {
        let result = execute(&job.image, job.offset, job.action);
        let done = Done {
            id: job.id,
            number: job.number,
            bytes: job.bytes,
            result: result.ok(),
        };
        let mut all = results.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(job.device).or_default().push(done);
        drop(all);
        // Fails only if the counter is full, which wakes all the same.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

fn execute(image: &Image, offset: u64, action: Action) -> std::io::Result<Vec<u8>> {
    match action {
        Action::Read(len) => {
            let mut bytes = vec![0; len];
            image.file.read_exact_at(&mut bytes, offset)?;
            Ok(bytes)
        }
        Action::Write(bytes) => {
            image.file.write_all_at(&bytes, offset)?;
            Ok(Vec::new())
        }
        Action::Flush => {
            image.file.sync_data()?;
            Ok(Vec::new())
        }
    }
}
