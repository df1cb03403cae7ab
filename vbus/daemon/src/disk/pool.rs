// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that reads and writes the files of disks. It has no memory of a client: vbusd's first
//! thread copies the data of a write before, and the data of a read after it. So a client that
//! ends, or changes its memory, does not affect requests under way.

use super::engine::Engine;
use super::file::Image;
use super::order::{Effect, Order};
use super::predecessor::Predecessor;
use super::ring::{Operation, Ring};
use super::worker::{Tag, Worker};
use super::{direct, worker};
use crate::confined;
use anyhow::Context;
use paravane_confine::Files;
use paravane_vbus::{ConnectionId, Name};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// An operation on a file.
#[derive(Debug)]
pub enum Action {
    /// Reads this number of bytes.
    Read(usize),
    /// These bytes.
    Write(Vec<u8>),
    /// All that was written becomes durable.
    Flush,
}

impl Action {
    /// The operation and its buffer.
    pub fn parts(self) -> (Operation, Vec<u8>) {
        match self {
            Action::Read(len) => (Operation::Read, vec![0; len]),
            Action::Write(bytes) => (Operation::Write, bytes),
            Action::Flush => (Operation::Flush, Vec::new()),
        }
    }
}

/// The receiver of the result of a request.
#[derive(Debug)]
pub struct Ticket {
    /// The device, its connection and the number of the request there.
    pub device: Name,
    pub id: ConnectionId,
    pub number: u64,
    /// Bytes for which it counts while it is under way.
    pub weight: usize,
}

/// A request to a file.
#[derive(Debug)]
pub struct Job {
    pub ticket: Ticket,
    pub image: Arc<Image>,
    pub engine: Engine,
    /// In bytes.
    pub offset: u64,
    pub action: Action,
}

impl Job {
    /// What it does to its file.
    pub fn effect(&self) -> Effect {
        let end = |len: usize| self.offset.saturating_add(len as u64);
        match &self.action {
            Action::Read(len) => Effect::Read(self.offset, end(*len)),
            Action::Write(bytes) => Effect::Write(self.offset, end(bytes.len())),
            Action::Flush => Effect::Flush,
        }
    }
}

/// How the engine `auto` has done a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The thread has done all of it itself, without a wait for the disk.
    pub at_once: bool,
    /// It tried to, and has waited.
    pub slow: bool,
}

/// The outcome of a request.
#[derive(Debug)]
pub struct Done {
    pub ticket: Ticket,
    pub way: Way,
    /// The bytes that were read. `None`: the host could not do it.
    pub result: Option<Vec<u8>>,
}

/// A message to the thread.
#[derive(Debug)]
pub enum Message {
    Job(Job),
    /// The image of this id is closed.
    Gone(u64),
    /// It ends when all is done.
    End,
}

/// The way to the thread.
#[derive(Clone, Debug)]
pub struct Mail {
    messages: Sender<Message>,
    /// The thread waits for its ring, and `wake` ends that.
    asleep: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
}

impl Mail {
    /// Sends the thread a message.
    pub fn send(&self, message: Message) {
        // The thread ends after the pool only.
        let _ = self.messages.send(message);
        // Either this sees that the thread is asleep, or the thread sees the message.
        fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::Relaxed) {
            // It does not wait: the thread reads the counter each time.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}

/// The thread's end of [`Mail`].
#[derive(Debug)]
pub struct Inbox {
    messages: Receiver<Message>,
    asleep: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
}

impl Inbox {
    /// A way to a thread, and its end.
    ///
    /// # Errors
    /// The host has no eventfd.
    pub fn new() -> anyhow::Result<(Mail, Self)> {
        let (to, messages) = channel();
        let asleep = Arc::new(AtomicBool::new(false));
        // A read of it by the ring waits.
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).context("eventfd")?);
        let mail = Mail {
            messages: to,
            asleep: Arc::clone(&asleep),
            wake: Arc::clone(&wake),
        };
        let inbox = Inbox {
            messages,
            asleep,
            wake,
        };
        Ok((mail, inbox))
    }

    /// A message that has come.
    pub fn next(&self) -> Option<Message> {
        self.messages.try_recv().ok()
    }

    /// The next message.
    pub fn wait(&self) -> Option<Message> {
        self.messages.recv().ok()
    }

    /// The thread will wait for [`Inbox::wake`], unless this returns a message that has come.
    pub fn rest(&self) -> Option<Message> {
        self.asleep.store(true, Ordering::Relaxed);
        // See `send`.
        fence(Ordering::SeqCst);
        let message = self.next();
        if message.is_some() {
            self.watch();
        }
        message
    }

    /// It waits no longer.
    pub fn watch(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// An eventfd that becomes readable when a message comes after [`Inbox::rest`].
    pub fn wake(&self) -> &OwnedFd {
        &self.wake
    }
}

/// Where results go.
#[derive(Clone, Debug)]
pub struct Outbox {
    results: Results,
    bell: Arc<OwnedFd>,
}

type Results = Arc<Mutex<BTreeMap<Name, Vec<Done>>>>;

impl Outbox {
    /// Without a receiver yet.
    ///
    /// # Errors
    /// The host has no eventfd.
    pub fn new() -> anyhow::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Outbox {
            results: Results::default(),
            bell: Arc::new(eventfd(0, flags).context("eventfd")?),
        })
    }

    /// The outcome of a request, and of flushes that were done `with` it.
    pub fn put(&self, done: Done, with: Vec<Ticket>) {
        let covered = |ticket| Done {
            ticket,
            way: Way::default(),
            result: done.result.as_ref().map(|_| Vec::new()),
        };
        let covered: Vec<_> = with.into_iter().map(covered).collect();
        let mut all = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        for done in covered.into_iter().chain([done]) {
            all.entry(done.ticket.device.clone())
                .or_default()
                .push(done);
        }
        drop(all);
        // Fails only if the counter is full, which also wakes the thread.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// The results for a device.
    pub fn take(&self, device: &Name) -> Vec<Done> {
        let mut all = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(device).unwrap_or_default()
    }
}

/// The thread, as the first one sees it.
#[derive(Debug)]
pub struct Pool {
    mail: Mail,
    outbox: Outbox,
    /// Why there is no ring.
    refusal: Option<String>,
    predecessor: Predecessor,
}

impl Pool {
    /// Starts the thread, which makes its ring and confines itself.
    pub fn start() -> anyhow::Result<Arc<Self>> {
        let (mail, inbox) = Inbox::new()?;
        let outbox = Outbox::new()?;
        let refusal = Arc::new(OnceLock::new());
        let (theirs, why) = (outbox.clone(), Arc::clone(&refusal));
        let prepare = move || match Ring::<Tag>::new(worker::DEPTH, worker::FILES) {
            Ok(ring) => ("vbusd-disks-uring", Some(ring)),
            Err(error) => {
                let _ = why.set(format!("{error:#}"));
                ("vbusd-disks", None)
            }
        };
        confined::prepared("disks", Files::none(), prepare, move |ring| match ring {
            Some(ring) => Worker::new(ring, inbox, theirs).run(),
            None => plain(&inbox, &theirs),
        })?;
        let refusal = refusal.get().cloned();
        if let Some(why) = &refusal {
            // It may remain unread: the attribute `engine-used` of a disk says so, too.
            let _ = writeln!(
                std::io::stderr(),
                "vbusd: disks are read and written without io_uring, which the host refuses: {why}"
            );
        }
        Ok(Arc::new(Pool {
            mail,
            outbox,
            refusal,
            predecessor: Predecessor::new(),
        }))
    }

    /// Becomes readable, once for each edge, when requests are done.
    pub fn bell(&self) -> &OwnedFd {
        &self.outbox.bell
    }

    /// Why the thread has no ring, if it has none.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// The way to the thread.
    pub fn mail(&self) -> &Mail {
        &self.mail
    }

    /// Files that the previous vbusd may still have.
    pub fn predecessor(&self) -> &Predecessor {
        &self.predecessor
    }

    /// Begins a request.
    pub fn begin(&self, job: Job) {
        self.mail.send(Message::Job(job));
    }

    /// The devices with requests that are done, whose results were not taken.
    pub fn ready(&self) -> Vec<Name> {
        let all = self.outbox.results.lock();
        let all = all.unwrap_or_else(PoisonError::into_inner);
        all.keys().cloned().collect()
    }

    /// What has been done for a device.
    pub fn done(&self, device: &Name) -> Vec<Done> {
        self.outbox.take(device)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.mail.send(Message::End);
    }
}

/// Messages that are taken before the next request is done.
const TURN: usize = 16;

/// Work without a ring: one request after the other, and one flush for all that wait.
pub fn plain(inbox: &Inbox, outbox: &Outbox) {
    let mut order = Order::new();
    let mut ended = false;
    while !ended || !order.is_empty() {
        let first = match order.is_empty() {
            true => inbox.wait().or(Some(Message::End)),
            false => inbox.next(),
        };
        let others = std::iter::from_fn(|| inbox.next());
        for message in first.into_iter().chain(others.take(TURN)) {
            match message {
                Message::Job(job) => order.add(job.image.id, job.effect(), job),
                Message::Gone(image) => order.forget(image),
                Message::End => ended = true,
            }
        }
        if let Some(started) = order.next() {
            order.finish(started.file, started.number);
            let with = started.with.into_iter().map(|job| job.ticket).collect();
            let job = started.job;
            let (operation, mut buffer) = job.action.parts();
            let done = direct::whole(&job.image, operation, job.offset, &mut buffer, 0);
            let done = Done {
                ticket: job.ticket,
                way: Way::default(),
                result: worker::outcome(&job.image, operation, buffer, done.is_ok()),
            };
            outbox.put(done, with);
        }
    }
}
