// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The numbers of a machine's processes and threads: those of the host, and those that the layer
//! has for them.
//!
//! They are the same, except in a namespace of process ids ([`super::signal_scope::SignalScope::PidNamespace`]).
//! The monitor uses the host's; what stands in memory that a guest can write is the layer's, and
//! means something only if it is known here.

use super::procfs;
use anyhow::{Context, bail};

/// A process of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The host's id.
    pub pid: u32,
    /// The layer's.
    pub layer_pid: u32,
    /// The host's and the layer's id of each thread; none where they are the same.
    threads: Option<Vec<(u32, u32)>>,
}

impl Process {
    /// One that has the host's numbers.
    pub fn of_host(pid: u32) -> Self {
        Process {
            pid,
            layer_pid: pid,
            threads: None,
        }
    }

    /// One in a namespace, all of whose threads are there.
    ///
    /// # Errors
    /// The host does not say what its threads are called inside, or it is another process.
    pub fn inside(pid: u32, layer_pid: u32) -> anyhow::Result<Self> {
        let threads =
            procfs::threads(pid).with_context(|| format!("the thread ids of process {pid}"))?;
        // It may have ended since it said so, and another program may have its number.
        if !threads.contains(&(pid, layer_pid)) {
            bail!("process {pid} is not the one that calls itself {layer_pid}");
        }
        Ok(Process {
            pid,
            layer_pid,
            threads: Some(threads),
        })
    }

    /// The host's id of a thread. Where it is the layer's the host still has to say whether it is
    /// one of this process.
    pub fn thread(&self, layer_tid: u32) -> Option<u32> {
        match &self.threads {
            None => Some(layer_tid),
            Some(threads) => threads
                .iter()
                .find(|(_, inside)| *inside == layer_tid)
                .map(|(host, _)| *host),
        }
    }
}

#[cfg(test)]
impl Process {
    /// One with these threads.
    pub fn known(pid: u32, layer_pid: u32, threads: &[(u32, u32)]) -> Self {
        Process {
            pid,
            layer_pid,
            threads: Some(threads.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_only_what_is_known_is_a_thread() {
        let process = Process::known(1000, 2, &[(1000, 2), (1001, 3)]);
        assert_eq!(process.thread(3), Some(1001));
        for other in [0, 1, 4, 1000, 1001, u32::MAX] {
            assert_eq!(process.thread(other), None);
        }
        assert_eq!(Process::of_host(5).thread(6), Some(6));
    }

    #[test]
    fn the_host_says_what_threads_are_called() {
        let me = std::process::id();
        let process = Process::inside(me, me).unwrap();
        // Without a namespace in between, both numbers are the same.
        assert_eq!(process.thread(me), Some(me));
        assert!(Process::inside(0, 1).is_err());
        assert!(
            Process::inside(me, me + 1).is_err(),
            "the number of another process"
        );
    }
}
