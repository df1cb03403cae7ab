// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread of disks on a host with rings: requests that wait for the disk do so in the ring, so
//! one does not wait for another without need.

use super::at_once::{self, AtOnce};
use super::direct::{self, TRIES};
use super::engine::Engine;
use super::file::Image;
use super::order::{Order, Started};
use super::pool::{Done, Inbox, Job, Message, Outbox, Ticket, Way};
use super::ring::{Finished, Operation, Request, Ring};
use paravane_vbus::limits;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most requests in the ring, the one that wakes the thread among them.
pub const DEPTH: u32 = 256;
/// Places of files in the ring's table: the one that wakes the thread, and two for each disk, since
/// one can get another file while requests to the first are under way.
pub const FILES: usize = 1 + 2 * limits::DEVICES;
/// The place of the file that wakes the thread.
const WAKE: u32 = 0;
/// Messages, and requests, that are taken before the thread looks at what the ring has done.
const TURN: usize = 16;

/// A request in the ring.
#[derive(Debug)]
pub enum Tag {
    /// A read of the file that wakes the thread.
    Wake,
    Running(Box<Running>),
}

/// A request to a file that runs.
#[derive(Debug)]
pub struct Running {
    ticket: Ticket,
    /// Of flushes that are done with this one.
    with: Vec<Ticket>,
    image: Arc<Image>,
    operation: Operation,
    offset: u64,
    /// Bytes that are done.
    from: usize,
    way: Way,
    /// How often the host said that it could not do it now.
    tries: u32,
    /// Its number in the order.
    started: u64,
}

/// A file in the ring's table.
#[derive(Debug)]
struct Place {
    index: u32,
    /// Requests in the ring.
    under_way: usize,
}

/// The thread.
pub struct Worker {
    ring: Ring<Tag>,
    inbox: Inbox,
    outbox: Outbox,
    order: Order<Job>,
    at_once: AtOnce,
    /// Places in the ring's table by the images there, and those that are free.
    places: BTreeMap<u64, Place>,
    free: Vec<u32>,
    ended: bool,
}

/// What the client gets of a request: what was read. `None`: it failed.
pub fn outcome(
    image: &Image,
    operation: Operation,
    buffer: Vec<u8>,
    done: bool,
) -> Option<Vec<u8>> {
    let done = image.settles(operation, done);
    let data = match operation {
        Operation::Read => buffer,
        Operation::Write | Operation::Flush => Vec::new(),
    };
    done.then_some(data)
}

/// Ends vbusd, which may end at any moment: one whose ring does not work would fail its clients for
/// ever.
fn give_up(what: &str, error: impl Display) -> ! {
    let _ = writeln!(std::io::stderr(), "vbusd: {what}: {error}");
    std::process::abort()
}

impl Worker {
    /// With a ring of this thread.
    pub fn new(ring: Ring<Tag>, inbox: Inbox, outbox: Outbox) -> Self {
        let places = 1..u32::try_from(FILES).unwrap_or(1);
        let mut worker = Worker {
            ring,
            inbox,
            outbox,
            order: Order::new(),
            at_once: AtOnce::default(),
            places: BTreeMap::new(),
            free: places.rev().collect(),
            ended: false,
        };
        let wake = worker.inbox.wake().as_fd();
        if let Err(error) = worker.ring.set_file(WAKE, Some(wake)) {
            give_up("the ring does not take an eventfd", error);
        }
        worker.listen(vec![0; size_of::<u64>()]);
        worker
    }

    /// Works until all is done after [`Message::End`].
    pub fn run(&mut self) {
        loop {
            let mut more = false;
            for turn in 0..TURN {
                let Some(message) = self.inbox.next() else {
                    break;
                };
                self.take(message);
                more = turn + 1 == TURN;
            }
            more |= self.start();
            if self.ended && self.order.is_empty() {
                return;
            }
            let sleeps = !more && self.rest();
            if let Err(error) = self.ring.enter(sleeps) {
                give_up("the ring does not work", error);
            }
            self.inbox.watch();
            while let Some(finished) = self.ring.finished() {
                self.finished(finished);
            }
        }
    }

    /// The number of files that the ring has for disks.
    #[cfg(test)]
    pub fn files(&mut self) -> usize {
        while let Some(message) = self.inbox.next() {
            self.take(message);
        }
        self.places.len()
    }

    /// Whether nothing has come, so that the thread waits.
    fn rest(&mut self) -> bool {
        match self.inbox.rest() {
            None => true,
            Some(message) => {
                self.take(message);
                false
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Job(job) => self.order.add(job.image.id, job.effect(), job),
            Message::Gone(image) => {
                self.order.forget(image);
                if let Some(place) = self.places.remove(&image) {
                    if let Err(error) = self.ring.set_file(place.index, None) {
                        give_up("the ring does not give a file back", error);
                    }
                    self.free.push(place.index);
                }
            }
            Message::End => self.ended = true,
        }
    }

    /// Starts what may run. Returns whether there may be more.
    fn start(&mut self) -> bool {
        for _ in 0..TURN {
            if !self.ring.has_room() {
                return false;
            }
            let Some(started) = self.order.next() else {
                return false;
            };
            self.execute(started);
        }
        true
    }

    /// The place of a file in the ring's table, for another request. `None`: there is none left.
    fn place(&mut self, image: &Image) -> Option<u32> {
        if let Some(place) = self.places.get_mut(&image.id) {
            place.under_way += 1;
            return Some(place.index);
        }
        let index = self.free.pop()?;
        // Before the ring has the file: from then on its lock does not end with the image.
        image.in_ring.store(true, Ordering::Release);
        if self.ring.set_file(index, Some(image.file.as_fd())).is_err() {
            // The host has no memory for it now.
            self.free.push(index);
            return None;
        }
        // The file may be of a disk that does not try.
        at_once::probe(image);
        let under_way = 1;
        self.places.insert(image.id, Place { index, under_way });
        Some(index)
    }

    fn execute(&mut self, started: Started<Job>) {
        let job = started.job;
        let (operation, mut buffer) = job.action.parts();
        let mut running = Box::new(Running {
            ticket: job.ticket,
            with: started.with.into_iter().map(|job| job.ticket).collect(),
            image: job.image,
            operation,
            offset: job.offset,
            from: 0,
            way: Way::default(),
            tries: 0,
            started: started.number,
        });
        if job.engine == Engine::Auto {
            let place = self.places.get(&running.image.id);
            let alone = place.is_none_or(|place| place.under_way == 0);
            let (image, offset) = (&running.image, job.offset);
            let attempt = self
                .at_once
                .attempt(image, operation, offset, &mut buffer, alone);
            running.from = attempt.bytes;
            running.way.slow = attempt.slow;
            if operation != Operation::Flush && running.from >= buffer.len() {
                running.way.at_once = true;
                return self.finish(*running, buffer, true);
            }
        }
        if job.engine == Engine::Pread {
            return self.finish_directly(*running, buffer);
        }
        self.submit(running, buffer);
    }

    /// Leaves the rest of a request to the ring.
    fn submit(&mut self, running: Box<Running>, buffer: Vec<u8>) {
        let Some(file) = self.place(&running.image) else {
            return self.finish_directly(*running, buffer);
        };
        let request = Request {
            operation: running.operation,
            file,
            offset: running.offset,
            buffer,
            from: running.from,
            waits: running.image.always_waits.load(Ordering::Relaxed),
        };
        self.begin(request, Tag::Running(running));
    }

    fn begin(&mut self, request: Request, tag: Tag) {
        if self.ring.begin(request, tag).is_err() {
            give_up("the ring", "it is full, and must not be");
        }
    }

    /// Waits for the file that wakes the thread.
    fn listen(&mut self, buffer: Vec<u8>) {
        let request = Request {
            operation: Operation::Read,
            file: WAKE,
            offset: 0,
            buffer,
            from: 0,
            waits: false,
        };
        self.begin(request, Tag::Wake);
    }

    /// Something that the ring has done.
    fn finished(&mut self, finished: Finished<Tag>) {
        let Finished {
            buffer,
            tag,
            result,
        } = finished;
        let mut running = match (tag, result) {
            (Tag::Running(running), _) => running,
            (Tag::Wake, Ok(_) | Err(Errno::INTR | Errno::AGAIN)) => return self.listen(buffer),
            (Tag::Wake, Err(error)) => give_up("an eventfd cannot be read", error),
        };
        if let Some(place) = self.places.get_mut(&running.image.id) {
            place.under_way = place.under_way.saturating_sub(1);
        }
        let left = buffer.len().saturating_sub(running.from);
        match progress(running.operation, left, result) {
            Progress::Whole => self.finish(*running, buffer, true),
            Progress::Part(bytes) => {
                running.from += bytes;
                self.submit(running, buffer);
            }
            Progress::NotNow if running.tries < TRIES => {
                running.tries += 1;
                self.submit(running, buffer);
            }
            Progress::NotNow | Progress::Failed => self.finish(*running, buffer, false),
        }
    }

    /// Does the rest of a request while the thread waits.
    fn finish_directly(&mut self, running: Running, mut buffer: Vec<u8>) {
        let Running {
            image,
            operation,
            offset,
            from,
            ..
        } = &running;
        let done = direct::whole(image, *operation, *offset, &mut buffer, *from);
        self.finish(running, buffer, done.is_ok());
    }

    fn finish(&mut self, running: Running, buffer: Vec<u8>, done: bool) {
        self.order.finish(running.image.id, running.started);
        let done = Done {
            ticket: running.ticket,
            way: running.way,
            result: outcome(&running.image, running.operation, buffer, done),
        };
        self.outbox.put(done, running.with);
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Whole,
    /// This number of further bytes.
    Part(usize),
    /// The host could not do it now. Its threads have waited already where that is of use, so this
    /// thread, which all disks need, does not.
    NotNow,
    Failed,
}

/// How far a request has come with this result of the ring, with `left` bytes left before.
fn progress(operation: Operation, left: usize, result: Result<usize, Errno>) -> Progress {
    match result {
        Ok(_) if operation == Operation::Flush => Progress::Whole,
        // The file has become shorter, or cannot grow.
        Ok(0) => Progress::Failed,
        Ok(bytes) if bytes >= left => Progress::Whole,
        Ok(bytes) => Progress::Part(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Progress::NotNow,
        Err(_) => Progress::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_result_goes_on_and_the_end_of_the_file_fails() {
        use Operation::{Flush, Read, Write};
        for (operation, left, result, expected) in [
            (Read, 4096, Ok(4096), Progress::Whole),
            (Read, 4096, Ok(512), Progress::Part(512)),
            (Write, 4096, Ok(4095), Progress::Part(4095)),
            (Read, 4096, Ok(0), Progress::Failed),
            (Write, 4096, Ok(0), Progress::Failed),
            (Flush, 0, Ok(0), Progress::Whole),
            (Flush, 0, Err(Errno::IO), Progress::Failed),
            (Write, 4096, Err(Errno::NOSPC), Progress::Failed),
            (Read, 4096, Err(Errno::AGAIN), Progress::NotNow),
        ] {
            let found = progress(operation, left, result);
            assert_eq!(found, expected, "{operation:?} {left} {result:?}");
        }
    }
}
