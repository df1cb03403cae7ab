// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of a machine's address-space processes: the only processes that the monitor signals.

use super::process_ids::Process;
use super::shared::Shared;
use crate::size::size;
use paravane_abi::process as ph;
use paravane_confine::Kept;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// The table. Processes are only added.
#[derive(Debug)]
pub struct Processes {
    /// Processes that have been created, also those that the layer does not know of yet.
    created: Vec<OnceLock<Process>>,
    /// Processes 0 to `count - 1` exist for the layer.
    count: AtomicU32,
    /// Their parent, once it runs: they end with it.
    zygote: OnceLock<Arc<Kept>>,
    /// The ids are the machine's: a process that has ended stays a zombie while its parent runs.
    owned: RwLock<bool>,
}

impl Processes {
    /// An empty table.
    pub fn new() -> Self {
        Processes {
            created: (0..ph::PHV_MAX_PROCS).map(|_| OnceLock::new()).collect(),
            count: AtomicU32::new(0),
            zygote: OnceLock::new(),
            owned: RwLock::new(true),
        }
    }

    /// Adds a process. The first one of an index stays.
    pub fn add(&self, index: usize, process: Process) {
        if let Some(entry) = self.created.get(index) {
            let _ = entry.set(process);
        }
    }

    /// Sets the number of processes, here and for the layer.
    pub fn publish(&self, shared: &Shared, count: u32) {
        self.count.store(count, Ordering::Release);
        shared.header().proc_count.store(count, Ordering::Release);
    }

    /// The number of processes that exist for the layer: 0 to this - 1.
    pub fn count(&self) -> usize {
        size(self.count.load(Ordering::Acquire).into())
    }

    /// The host's id of a process.
    pub fn pid(&self, index: usize) -> Option<u32> {
        self.get(index).map(|process| process.pid)
    }

    /// Calls `act` for processes that exist for the layer, with their indices, until it returns
    /// true. Their ids are the machine's during the call. From [`Processes::kill`] on there are
    /// none: the host may give their ids to other programs.
    ///
    /// Costs two atomic operations. `act` must not wait, and must not end the machine.
    pub fn act(&self, mut act: impl FnMut(usize, &Process) -> bool) {
        let owned = self.owned.read().unwrap_or_else(PoisonError::into_inner);
        if *owned {
            (0..self.count()).any(|index| self.get(index).is_some_and(|of| act(index, of)));
        }
    }

    /// All processes that were ever created.
    pub fn created(&self) -> impl Iterator<Item = &Process> + '_ {
        self.created.iter().filter_map(OnceLock::get)
    }

    fn get(&self, index: usize) -> Option<&Process> {
        self.created.get(index)?.get()
    }

    /// Sets the parent of all processes.
    pub fn set_zygote(&self, process: Arc<Kept>) {
        let _ = self.zygote.set(process);
    }

    /// Kills the parent, and with it all processes.
    pub fn kill(&self) {
        // Before the zygote ends: after it, its children are waited for.
        *self.owned.write().unwrap_or_else(PoisonError::into_inner) = false;
        if let Some(zygote) = self.zygote.get() {
            zygote.kill();
        }
    }
}
