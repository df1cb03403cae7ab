// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ids of a machine's processes and threads: the host's ids, and the ids that the layer sees.
//!
//! Both are the same, except in a PID namespace
//! ([`super::signal_scope::SignalScope::PidNamespace`]). The monitor uses the host's ids. Ids in
//! memory that a guest can write are the layer's, and the monitor accepts only those that it knows.

use super::procfs;
use anyhow::{Context, bail};

/// A process of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The host's id.
    pub pid: u32,
    /// The layer's id.
    pub layer_pid: u32,
    /// The host's id and the layer's id of each thread; `None` where they are the same.
    threads: Option<Vec<(u32, u32)>>,
}

impl Process {
    /// A process outside PID namespaces.
    pub fn of_host(pid: u32) -> Self {
        Process {
            pid,
            layer_pid: pid,
            threads: None,
        }
    }

    /// A process in a PID namespace, after it has created all its threads.
    ///
    /// # Errors
    /// The host does not publish the ids inside the namespace, or the process is another one.
    pub fn inside(pid: u32, layer_pid: u32) -> anyhow::Result<Self> {
        let threads =
            procfs::threads(pid).with_context(|| format!("the thread ids of process {pid}"))?;
        // The process may have ended since its message, and another program may have got its id.
        if !threads.contains(&(pid, layer_pid)) {
            bail!("process {pid} does not have the id {layer_pid} in its namespace");
        }
        Ok(Process {
            pid,
            layer_pid,
            threads: Some(threads),
        })
    }

    /// The host's id of a thread. Where the ids are the same, the host itself checks whether the
    /// thread belongs to this process.
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
    /// A process with these threads.
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
        // Without a namespace in between, both ids are the same.
        assert_eq!(process.thread(me), Some(me));
        assert!(Process::inside(0, 1).is_err());
        assert!(
            Process::inside(me, me + 1).is_err(),
            "the number of another process"
        );
    }
}
