// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads that do work which may take long for the threads of cards.
//!
//! One opens, configures and closes taps.
//! Each of these host calls takes the lock of all the host's networks (RTNL), which other programs
//! may hold for seconds. The thread that moves frames makes none of them, so its cards go on.
//!
//! All orders for the cards of taps pass this thread, which keeps their order: a client's calls
//! come after its card was made, and a tap is opened after the end of the client that had it. This
//! thread waits for the cards' thread, and never the other way round.
//!
//! The other thread has passt started for cards on networks, and waits for its first answer. It
//! carries out orders in order, too: a passt ends before the next one of its device is started.

use crate::confined;
use paravane_confine::Files;
use paravane_net::tap::{self, Offload};
use paravane_vbus_cards::Offloads;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use tracing::warn;

/// Something to do on the thread.
type Job = Box<dyn FnOnce() + Send>;

/// The thread, as the others see it. It ends with the last of these.
#[derive(Clone, Debug)]
pub struct Keeper {
    jobs: Sender<Job>,
}

impl Keeper {
    /// Starts the thread of taps, which confines itself.
    ///
    /// # Errors
    /// The host has no thread for it, or refuses the policy.
    pub fn of_taps() -> anyhow::Result<Self> {
        Keeper::start("tap-keeper", "vbusd-tap-keeper", Files::taps())
    }

    /// Starts the thread of networks, which confines itself.
    ///
    /// # Errors
    /// As those of [`of_taps`](Keeper::of_taps).
    pub fn of_networks() -> anyhow::Result<Self> {
        Keeper::start("net-keeper", "vbusd-network-keeper", Files::none())
    }

    fn start(name: &str, policy: &'static str, files: Files) -> anyhow::Result<Self> {
        let (jobs, queue) = channel::<Job>();
        confined::start(name, policy, files, move || {
            while let Ok(job) = queue.recv() {
                job();
            }
        })?;
        Ok(Keeper { jobs })
    }

    /// Has something done, after all that was given before. Does not wait.
    pub fn give(&self, job: impl FnOnce() + Send + 'static) {
        // Fails only after a panic of the thread, which ends vbusd.
        let _ = self.jobs.send(Box::new(job));
    }

    /// What sets the offloads of a tap on this thread. There are none at first, and in the end: a
    /// tap that stays when it is closed keeps them for the next program that opens it. To be called
    /// and dropped on this thread.
    ///
    /// # Errors
    /// The host has no descriptor for it.
    pub fn offloads(&self, tap: impl AsFd) -> io::Result<Box<dyn Offloads>> {
        // By rustix: musl makes a second call, which the policy does not admit.
        let tap = rustix::io::fcntl_dupfd_cloexec(tap.as_fd(), 3)?;
        set(&tap, Offload::default());
        Ok(Box::new(Later {
            keeper: self.clone(),
            tap: Arc::new(tap),
        }))
    }
}

/// Sets the offloads of a tap on the keeper's thread.
#[derive(Debug)]
struct Later {
    keeper: Keeper,
    tap: Arc<OwnedFd>,
}

fn set(tap: &OwnedFd, offload: Offload) {
    if let Err(error) = tap::set_offload(tap, offload) {
        warn!("network: the host keeps its offloads: {error}");
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        set(&self.tap, Offload::default());
    }
}

impl Offloads for Later {
    fn set(&self, offload: Offload) {
        // The card is dropped on the keeper's thread, too. A job that comes after that must not
        // keep the tap open: another client may open it.
        let tap = Arc::downgrade(&self.tap);
        self.keeper.give(move || {
            if let Some(tap) = tap.upgrade() {
                set(&tap, offload);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A failed setup fails the test.

    use super::*;
    use std::sync::mpsc;

    /// A tap is closed with its card, also if its offloads are still to be set.
    #[test]
    fn a_job_keeps_no_tap_open() {
        let keeper = Keeper::of_taps().unwrap();
        let (go, wait) = mpsc::channel::<()>();
        keeper.give(move || {
            // Ends when the sender is dropped.
            let _ = wait.recv();
        });
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let offloads = keeper.offloads(&writer).unwrap();
        drop(writer);
        offloads.set(Offload::default());
        drop(offloads);
        // No write end is open any more.
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0));
        drop(go);
    }
}
