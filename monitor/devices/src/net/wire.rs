// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network of a card, which may be started when the guest first sends something.

use crate::Waker;
use anyhow::Context;
use paravane_confine::{self as confine, Files};
use paravane_net::Link;
use paravane_net::user::Network;
use std::fmt;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// A network that runs.
#[derive(Debug)]
pub enum Wire {
    /// Another process, or an interface of the host.
    Link(Link),
    /// The stack in this process.
    Stack(Box<Network>),
}

/// A network that does not run yet.
pub struct Later {
    /// The largest IP packet that it takes, in bytes.
    pub mtu: u16,
    /// Starts it. May take a while; called on a thread of its own.
    pub open: Box<dyn FnOnce() -> Wire + Send>,
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later")
            .field("mtu", &self.mtu)
            .finish_non_exhaustive()
    }
}

/// The state of the network.
#[derive(Debug)]
pub enum Stage {
    /// It runs.
    Up(Wire),
    /// The machine has not started.
    Later(Later),
    /// Nothing has needed it yet.
    Asleep(Sender<()>, Receiver<Wire>),
    /// It is being started.
    Opening(Receiver<Wire>),
    /// It has ended.
    Down,
}

impl Stage {
    /// Creates the thread that will start the network, while that is still allowed. The waker is
    /// called when the network runs.
    ///
    /// # Errors
    /// The thread cannot be created or confined.
    pub fn prepare(&mut self, waker: &Waker) -> anyhow::Result<()> {
        let Stage::Later(_) = self else { return Ok(()) };
        let Stage::Later(later) = std::mem::replace(self, Stage::Down) else {
            return Ok(());
        };
        let ((go, wait), (done, result)) = (channel::<()>(), channel());
        let (confined, tell) = channel();
        let waker = waker.clone();
        let work = move || {
            let entered = confine::enter("net-open", &Files::none());
            let goes_on = entered.is_ok();
            let _ = confined.send(entered);
            // Fails when the card is dropped without having needed the network.
            if goes_on && wait.recv().is_ok() {
                let _ = done.send((later.open)());
                waker.wake();
            }
        };
        let thread = std::thread::Builder::new().name("net-open".to_string());
        thread
            .spawn(work)
            .context("cannot make the network's thread")?;
        tell.recv().context("the network's thread has ended")??;
        *self = Stage::Asleep(go, result);
        Ok(())
    }

    /// Starts the network, unless that was done.
    pub fn open(&mut self) {
        *self = match std::mem::replace(self, Stage::Down) {
            Stage::Asleep(go, result) => {
                // `look` notices if the thread has ended.
                let _ = go.send(());
                Stage::Opening(result)
            }
            other => other,
        }
    }

    /// Checks whether the network runs now, which it did not before.
    ///
    /// # Errors
    /// It will never run.
    pub fn look(&mut self) -> Result<bool, &'static str> {
        let Stage::Opening(result) = self else {
            return Ok(false);
        };
        match result.try_recv() {
            Err(TryRecvError::Empty) => Ok(false),
            Err(TryRecvError::Disconnected) => {
                *self = Stage::Down;
                Err("it was not started")
            }
            Ok(wire) => {
                *self = Stage::Up(wire);
                Ok(true)
            }
        }
    }
}

/// Whether the sender of this frame waits for an answer. The frames that every new card sends (its
/// groups, the check that its IPv6 address is unique) are no reason to start a network.
pub fn wants_answer(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        // From the unspecified address to a group.
        Some([0x86, 0xdd]) => {
            let from = frame.get(22..38).unwrap_or_default();
            let group = frame.get(38) == Some(&0xff);
            // Hop-by-hop options precede reports of groups, and nothing else that matters here.
            let report = frame.get(20) == Some(&0);
            !(group && (report || from.iter().all(|&b| b == 0)))
        }
        Some([0x08, 0x00]) => frame.get(23) != Some(&2),
        Some([0x08, 0x06]) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_talk_starts_nothing() {
        let ether = |kind: u16| [&[0; 12][..], &kind.to_be_bytes()].concat();
        let v6 = |next: u8, from: u8, to: u8| {
            let mut packet = ether(0x86dd);
            packet.extend([0x60, 0, 0, 0, 0, 0, next, 255]);
            packet.extend([[from; 16], [to; 16]].concat());
            packet
        };
        assert!(wants_answer(&ether(0x0806)));
        assert!(!wants_answer(&ether(0x88cc)));
        assert!(
            !wants_answer(&v6(58, 0, 0xff)),
            "duplicate address detection"
        );
        assert!(!wants_answer(&v6(0, 0xfe, 0xff)), "group membership");
        assert!(wants_answer(&v6(58, 0xfe, 0xff)), "where is a router?");
        assert!(wants_answer(&v6(6, 0xfe, 0xfe)));
        let mut igmp = ether(0x0800);
        igmp.extend([0x45, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert!(!wants_answer(&igmp));
        igmp[23] = 17;
        assert!(wants_answer(&igmp));
    }
}
