// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that joins a bus of vbusd: at first where the machine takes the whole bus, and again
//! when vbusd has ended. Only it connects sockets.

use crate::watch::{PAUSE, Watch};
use anyhow::Context;
use paravane_confine::{self as confine, Files};
use paravane_devices::Waker;
use paravane_vbus::Kind;
use paravane_vbus_client::{Client, Error, Requests};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The thread, and its policy.
const NAME: &str = "vbus-join";

/// A connection that has ended sooner was of no use.
const SHORT: Duration = Duration::from_secs(1);
/// Longest pause before an attempt to join.
const LONGEST: Duration = Duration::from_millis(1600);

/// A client whose connection has ended.
pub trait Rejoin: Sized + Send + 'static {
    /// Connects again. Does not wait for vbusd.
    ///
    /// # Errors
    /// Why not, with the client for another attempt.
    fn rejoin(self) -> Result<Self, (Self, Error)>;
}

impl Rejoin for Client {
    fn rejoin(mut self) -> Result<Self, (Self, Error)> {
        match self.reconnect(Duration::ZERO) {
            Ok(()) => Ok(self),
            Err(error) => Err((self, error)),
        }
    }
}

impl Rejoin for Requests {
    fn rejoin(self) -> Result<Self, (Self, Error)> {
        self.again().map_err(|error| (self, error))
    }
}

/// The work of the thread at each attempt until it is done.
trait Attempt: Send {
    /// Returns whether it is done.
    fn attempt(&mut self, waker: &Waker) -> bool;
}

/// The way to the thread, which ends with the last of these or with the machine.
#[derive(Clone, Debug)]
pub struct Joiner {
    jobs: Sender<Box<dyn Attempt>>,
    bell: Arc<OwnedFd>,
}

/// The way of one device to the thread.
#[derive(Debug)]
pub struct Join<T> {
    joiner: Joiner,
    sender: Sender<News<T>>,
    news: Receiver<News<T>>,
    /// The device is there.
    alive: Arc<()>,
    /// Since when it has its client, and how long the thread waited before it joined.
    joined: Instant,
    pause: Duration,
}

/// What the thread has found out.
#[derive(Debug)]
pub enum News<T> {
    /// The device is no longer on the bus. The thread waits for it.
    Gone,
    /// The client has joined again.
    Joined(Box<T>),
}

struct Lost<T> {
    client: Option<T>,
    sender: Sender<News<T>>,
    device: Weak<()>,
    /// No attempt before.
    due: Instant,
    told: bool,
    gone: bool,
}

impl<T: Rejoin> Attempt for Lost<T> {
    fn attempt(&mut self, waker: &Waker) -> bool {
        if Instant::now() < self.due && self.device.strong_count() > 0 {
            return false;
        }
        let Some(client) = self
            .client
            .take()
            .filter(|_| self.device.strong_count() > 0)
        else {
            return true;
        };
        let (client, error) = match client.rejoin() {
            Ok(client) => {
                info!("virtual bus: joined again");
                // The device may have ended.
                let _ = self.sender.send(News::Joined(Box::new(client)));
                waker.wake();
                return true;
            }
            Err(again) => again,
        };
        self.client = Some(client);
        if !std::mem::replace(&mut self.told, true) {
            warn!("virtual bus: {error}");
        }
        // Only a bus without the device answers so, or one whose device has no tap now.
        let missing = matches!(&error, Error::Refused(why) if why.kind() == Kind::NotFound);
        if missing && !std::mem::replace(&mut self.gone, true) {
            let _ = self.sender.send(News::Gone);
            waker.wake();
        }
        false
    }
}

impl Joiner {
    /// Starts the thread, and confines it. It follows a bus, too, if it is to `watch` one.
    ///
    /// # Errors
    /// The host's.
    pub fn start(waker: &Waker, watch: Option<Watch>) -> anyhow::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("eventfd")?;
        let bell = Arc::new(bell);
        let (jobs, receiver) = channel();
        let (confined, tell) = channel();
        let (waker, rings) = (waker.clone(), Arc::clone(&bell));
        let work = move || {
            let entered = confine::enter(NAME, &Files::none());
            let goes_on = entered.is_ok();
            let _ = confined.send(entered);
            if goes_on {
                run(&receiver, watch, &rings, &waker);
            }
        };
        let thread = thread::Builder::new().name(NAME.to_string());
        thread
            .spawn(work)
            .context("cannot make the thread that joins the bus")?;
        tell.recv()
            .context("the thread that joins the bus has ended")??;
        Ok(Joiner { jobs, bell })
    }

    /// For a device.
    pub fn device<T: Rejoin>(&self) -> Join<T> {
        let (sender, news) = channel();
        Join {
            joiner: self.clone(),
            sender,
            news,
            alive: Arc::default(),
            joined: Instant::now(),
            pause: Duration::ZERO,
        }
    }
}

impl<T: Rejoin> Join<T> {
    /// Gives a client away whose connection has ended: the thread joins again, at once if the
    /// connection was of use. Otherwise it waits, and the longer the more often that happens in a
    /// row if vbusd breaks the protocol.
    pub fn lose(&mut self, client: T, why: &Error) {
        self.pause = if self.joined.elapsed() >= SHORT {
            Duration::ZERO
        } else if matches!(why, Error::Lost(_)) {
            PAUSE
        } else {
            (2 * self.pause).clamp(PAUSE, LONGEST)
        };
        let lost = Lost {
            client: Some(client),
            sender: self.sender.clone(),
            device: Arc::downgrade(&self.alive),
            due: Instant::now() + self.pause,
            told: false,
            gone: false,
        };
        // The thread ends only with the machine.
        let _ = self.joiner.jobs.send(Box::new(lost));
        // Fails only if the counter is full, which also wakes the thread.
        let _ = rustix::io::write(&self.joiner.bell, &1u64.to_ne_bytes());
    }

    /// The news since the last call.
    pub fn news(&mut self) -> Option<News<T>> {
        let news = self.news.try_recv().ok();
        if matches!(news, Some(News::Joined(_))) {
            self.joined = Instant::now();
        }
        news
    }
}

fn run(
    receiver: &Receiver<Box<dyn Attempt>>,
    mut watch: Option<Watch>,
    bell: &OwnedFd,
    waker: &Waker,
) {
    let mut jobs: Vec<Box<dyn Attempt>> = Vec::new();
    while !waker.ending().begun() {
        let mut count = [0; 8];
        // Nothing may have rung.
        let _ = rustix::io::read(bell, &mut count);
        jobs.extend(receiver.try_iter());
        jobs.retain_mut(|job| !job.attempt(waker));
        let settled = watch.as_mut().is_none_or(|watch| watch.look(waker));
        let patience = (!settled || !jobs.is_empty()).then_some(PAUSE);
        let patience = patience.and_then(|time| Timespec::try_from(time).ok());
        let control = watch.as_ref().and_then(Watch::file);
        let file = |file| PollFd::from_borrowed_fd(file, PollFlags::IN);
        let mut files: Vec<_> = control
            .into_iter()
            .chain([bell.as_fd()])
            .map(file)
            .collect();
        // A signal only makes it look once more.
        let _ = poll(&mut files, patience.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Client;

    impl Rejoin for Client {
        fn rejoin(self) -> Result<Self, (Self, Error)> {
            Ok(self)
        }
    }

    /// A vbusd that breaks the protocol of each connection keeps no thread busy.
    #[test]
    fn connections_of_no_use_are_made_rarely() {
        let (jobs, _attempts) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let mut join: Join<Client> = Joiner { jobs, bell }.device();
        let mut pause = |age: Duration, why: &Error| {
            join.joined = Instant::now().checked_sub(age).unwrap();
            join.lose(Client, why);
            join.pause.as_millis()
        };
        let broken = Error::Protocol("nonsense".to_string());
        let lost = Error::Lost("vbusd has ended".to_string());
        let pauses = [0; 5].map(|_| pause(Duration::ZERO, &broken));
        assert_eq!(pauses, [200, 400, 800, 1600, 1600]);
        assert_eq!(pause(Duration::ZERO, &lost), 200);
        assert_eq!(pause(SHORT, &broken), 0);
        assert_eq!(pause(SHORT, &lost), 0);
    }
}
