// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread of disks with a ring, without vbusd.

use super::engine::Engine;
use super::file::Image;
use super::pool::{Action, Done, Inbox, Job, Mail, Message, Outbox, Ticket, plain};
use super::ring::Ring;
use super::worker::{self, Worker};
use paravane_vbus::{ConnectionId, Name};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIZE: usize = 64 << 10;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// What clients have of the thread.
struct Client<'a> {
    mail: Mail,
    outbox: Outbox,
    folder: &'a Path,
}

impl Client<'_> {
    fn open(&self) -> Arc<Image> {
        let image = Image::open(self.folder, &name("image"), false, &self.mail);
        Arc::new(image.unwrap())
    }

    fn begin(&self, image: &Arc<Image>, engine: Engine, number: u64, offset: u64, action: Action) {
        self.mail.send(Message::Job(Job {
            ticket: Ticket {
                device: name("disk"),
                id: ConnectionId(1),
                number,
                weight: 0,
            },
            image: Arc::clone(image),
            engine,
            offset,
            action,
        }));
    }

    /// Waits for `count` results.
    fn results(&self, count: usize) -> Vec<Done> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut all = Vec::new();
        while all.len() < count {
            assert!(Instant::now() < deadline, "{} of {count}", all.len());
            all.extend(self.outbox.take(&name("disk")));
            std::thread::sleep(Duration::from_micros(50));
        }
        all
    }
}

/// Runs a thread of disks, and returns what it returns.
fn with_thread<R: Send + 'static>(
    run: impl FnOnce(Inbox, Outbox) -> R + Send + 'static,
    body: impl FnOnce(&Client<'_>),
) -> R {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("image"), vec![0; SIZE]).unwrap();
    let (mail, inbox) = Inbox::new().unwrap();
    let client = Client {
        mail,
        outbox: Outbox::new().unwrap(),
        folder: folder.path(),
    };
    let outbox = client.outbox.clone();
    let thread = std::thread::spawn(move || run(inbox, outbox));
    body(&client);
    client.mail.send(Message::End);
    thread.join().unwrap()
}

/// Runs a thread with a ring, and returns how many files its ring has at the end.
fn with_worker(body: impl FnOnce(&Client<'_>)) -> usize {
    let run = |inbox, outbox| {
        let ring = Ring::new(worker::DEPTH, worker::FILES).unwrap();
        let mut worker = Worker::new(ring, inbox, outbox);
        worker.run();
        worker.files()
    };
    with_thread(run, body)
}

/// Writes, reads and flushes at once, by all engines in turn: each read finds what was written
/// last before it.
fn mixed_requests(client: &Client<'_>) {
    let image = client.open();
    let mut number = 0;
    for round in 0..60_u8 {
        let mut expected = Vec::new();
        for step in 0..20_u8 {
            let engine = Engine::ALL[usize::from(round + step / 7) % 3];
            let byte = round.wrapping_mul(20).wrapping_add(step);
            // Whole pages and parts of pages, one on top of the other.
            let (offset, len) = (u64::from(step % 3) * 512, 4096 << (step % 2));
            number += 3;
            let write = Action::Write(vec![byte; len]);
            client.begin(&image, engine, number, offset, write);
            client.begin(&image, engine, number + 1, offset, Action::Read(len));
            client.begin(&image, engine, number + 2, 0, Action::Flush);
            expected.push((number + 1, vec![byte; len]));
        }
        let results = client.results(60);
        assert!(results.iter().all(|done| done.result.is_some()));
        for (number, bytes) in expected {
            let mut found = results.iter().filter(|done| done.ticket.number == number);
            assert_eq!(found.next().unwrap().result.as_ref(), Some(&bytes));
        }
    }
}

#[test]
fn requests_at_once_have_the_outcome_of_one_after_the_other() {
    assert_eq!(with_worker(mixed_requests), 0);
}

#[test]
fn a_thread_without_a_ring_has_the_same_outcome() {
    with_thread(|inbox, outbox| plain(&inbox, &outbox), mixed_requests);
}

/// More files than the ring has places come and go. The lock of each ends with it, although the
/// ring has the file, too.
#[test]
fn a_file_that_is_closed_gives_back_its_place_and_lock() {
    let left = with_worker(|client| {
        for turn in 0..worker::FILES as u64 + 50 {
            let image = client.open();
            let refused = Image::open(client.folder, &name("image"), false, &client.mail);
            assert!(refused.is_err(), "two have the lock");
            client.begin(&image, Engine::Uring, turn, 0, Action::Write(vec![1; 512]));
            let done = client.results(1);
            assert!(done[0].result.is_some());
            // The thread is done with it a moment later.
            let deadline = Instant::now() + Duration::from_secs(20);
            while Arc::strong_count(&image) > 1 {
                assert!(Instant::now() < deadline);
                std::thread::yield_now();
            }
        }
        let image = client.open();
        client.begin(&image, Engine::Uring, 1, 0, Action::Flush);
        client.results(1);
    });
    assert_eq!(left, 0);
}

#[test]
fn the_end_of_a_file_fails_with_each_engine() {
    with_worker(|client| {
        let image = client.open();
        for engine in Engine::ALL {
            for (offset, whole) in [(0, true), (SIZE as u64 - 512, false), (SIZE as u64, false)] {
                client.begin(&image, engine, 1, offset, Action::Read(1024));
                let done = client.results(1).remove(0);
                assert_eq!(done.result.is_some(), whole, "{engine} {offset}");
            }
        }
    });
}
