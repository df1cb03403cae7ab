// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a shared folder's requests are carried out: on the device's thread, or by a worker.
//!
//! A request that a worker carries out costs two more switches of threads, several times what the
//! host needs for it. So the device's thread does the work itself, unless that could delay other
//! requests:
//!
//! * A read is carried out there only if the host's memory has all of it. Otherwise it starts again
//!   on a worker.
//! * A file is opened there only if no program of the host has leased it ([`opening`]). Otherwise
//!   the request starts again on a worker.
//! * Requests that wait by nature (a flush, the allocation of space, a write to the disk itself) go
//!   to the workers.
//! * So does every request while more than [`QUEUE`] others are in the queue: workers then serve
//!   several at once. A read of a small file that the guest has sent together with others does not:
//!   to hand it over takes longer than to read it, and the guest waits once for all of them.
//! * After a request that took longer than [`SLOW`] and slept in it, all requests go to the workers
//!   for [`PAUSE`]. Each further slow request doubles that time, up to [`LONGEST`]. So on a host
//!   that is always slow, the others wait for one request in [`LONGEST`]. A request that took long
//!   without sleeping had work to do, or others had the processor: workers would be no faster.
//!   Whether it slept is not known of the first slow one of more than [`MEASURED`] requests.
//! * If a slow file system may be mounted in the folder, everything goes to the workers: each
//!   access waits for a silent server ([`mounts`](super::mounts)).
//!
//! The device's thread can still have to wait on a local file system of the host:
//!
//! | what | for how long |
//! |---|---|
//! | a name, attribute or list that is not in the host's memory; its journal | the disk's time |
//! | a write while too much is unwritten | the host's throttle, some 200 ms each |
//! | the last name or handle of a large file goes, or it is cut | until its blocks are free |
//! | a new file leased between its making and its opening (`Folder::make`) | 45 s |
//! | an NFS server of the host has promised a client to ask before a name changes | 45 s |
//! | a program of the host decides on each open (fanotify) | that program's |
//! | a frozen file system (`fsfreeze`, a snapshot) | until it is thawed |
//! | the request that meets what was mounted there a moment ago, and is far | its server's |
//!
//! 45 s is the host's `fs.lease-break-time`. Such a request delays only the others of its volume:
//! each device has its own thread, and the machine's end does not wait for it. Pipes, sockets and
//! devices of the host, which others could hold for ever, are never opened: the crate refuses all
//! but files and folders.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// The most other requests in the queue when one is carried out on the device's thread. virtiofsd
/// was measured with this number: a deeper queue is served faster by workers.
const QUEUE: u16 = 3;
/// A request that takes longer may have waited for the host's disk or network.
const SLOW: Duration = Duration::from_millis(1);
/// How long the workers serve all requests after a slow one.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest such time, after several slow requests in turn.
const LONGEST: Duration = Duration::from_millis(6400);
/// After a slow request, and at first, it is known of this many whether they sleep. To know it of
/// all would cost a host call for each.
const MEASURED: u32 = 4096;

// Operations (`enum fuse_opcode`).
const FORGET: u32 = 2;
const FSYNC: u32 = 20;
pub const INIT: u32 = 26;
const FSYNCDIR: u32 = 30;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;
const FALLOCATE: u32 = 43;
const LSEEK: u32 = 46;
const SYNCFS: u32 = 50;

/// A flag of open(): do not wait for a lease.
pub const NONBLOCK: u32 = libc::O_NONBLOCK.unsigned_abs();

/// Where a request is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the device's thread, unmeasured: it changes the monitor's tables and ends watches.
    AtOnce,
    /// On the device's thread, which measures how long it takes.
    Here,
    /// By a worker.
    Worker,
}

/// Decides on the place of each request.
#[derive(Debug)]
pub struct Places {
    /// Requests may be carried out on the device's thread.
    here: bool,
    /// The workers serve all requests until then.
    until: Option<Instant>,
    /// How long they do after the next slow request.
    pub(super) pause: Duration,
    /// Requests that are still measured.
    measured: u32,
}

impl Places {
    /// Without `here` the workers serve all requests that could wait.
    pub fn new(here: bool) -> Self {
        Places {
            here,
            until: None,
            pause: PAUSE,
            measured: MEASURED,
        }
    }

    /// How often the calling thread has slept, if the next request is measured.
    pub fn measure(&mut self) -> Option<i64> {
        self.measured = self.measured.checked_sub(1)?;
        Some(sleeps())
    }

    /// The place of a request, with this operation and number of others in its queue.
    pub fn of(&mut self, operation: u32, waiting: u16, now: Instant) -> Place {
        match operation {
            // They end watches, for which folders are opened.
            FORGET | BATCH_FORGET if !self.here => return Place::Worker,
            FORGET | INIT | INTERRUPT | DESTROY | BATCH_FORGET => return Place::AtOnce,
            FSYNC | FSYNCDIR | FALLOCATE | LSEEK | SYNCFS => return Place::Worker,
            _ => {}
        }
        if self.until.is_some_and(|until| now >= until) {
            self.until = None;
        }
        if self.here && waiting <= QUEUE && self.until.is_none() {
            Place::Here
        } else {
            Place::Worker
        }
    }

    /// A request was carried out on the device's thread. `slept` returns whether the thread slept
    /// in it, if that was measured; it is called only if the request took long.
    pub fn took(&mut self, begun: Instant, ended: Instant, slept: impl FnOnce() -> Option<bool>) {
        if ended.duration_since(begun) <= SLOW {
            self.pause = PAUSE;
            return;
        }
        let slept = slept();
        self.measured = MEASURED;
        if slept != Some(true) {
            self.pause = PAUSE;
            return;
        }
        self.until = Some(ended + self.pause);
        self.pause = (self.pause * 2).min(LONGEST);
    }
}

/// How often the calling thread has slept by now.
pub fn sleeps() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes the structure, which is valid if it was not written, too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nvcsw
}

thread_local! {
    /// Whether this thread may wait for the host's disk, and whether it would have had to.
    static WAITING: Cell<Waiting> = const { Cell::new(Waiting::Allowed) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Allowed,
    Refused,
    Needed,
}

/// Does something without waiting for a disk. `None`: it would have had to wait, and was given up.
pub fn without_waiting<T>(work: impl FnOnce() -> T) -> Option<T> {
    WAITING.set(Waiting::Refused);
    let done = work();
    (WAITING.replace(Waiting::Allowed) != Waiting::Needed).then_some(done)
}

/// To be called before what may wait.
///
/// # Errors
/// It must not; the request will start again where it may.
pub fn may_wait() -> io::Result<()> {
    if WAITING.get() == Waiting::Allowed {
        return Ok(());
    }
    WAITING.set(Waiting::Needed);
    Err(io::Error::from_raw_os_error(libc::EWOULDBLOCK))
}

/// Opens a file of the host; `open` gets the flags. Another program may have leased the file, and
/// then has 45 s (the host's `fs.lease-break-time`) to give it up. With `O_NONBLOCK` the host does
/// not wait for that. The flag stays in the file's status flags, where it has no effect on a file
/// of a disk, until the first read or write, with which the crate sets the guest's flags.
///
/// # Errors
/// The host's, or [`may_wait`]'s.
pub fn opening<T>(flags: u32, open: impl FnOnce(u32) -> io::Result<T>) -> io::Result<T> {
    // A guest that does not want to wait gets the host's answer.
    if is_patient() || flags & NONBLOCK != 0 {
        return open(flags);
    }
    open(flags | NONBLOCK).map_err(|error| {
        let leased = error.raw_os_error() == Some(libc::EWOULDBLOCK);
        let refused = leased.then(may_wait).and_then(Result::err);
        refused.unwrap_or(error)
    })
}

/// Whether this thread may wait.
pub fn is_patient() -> bool {
    WAITING.get() == Waiting::Allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKUP: u32 = 1;
    const MS: Duration = Duration::from_millis(1);

    /// The share of requests that others wait for is bounded, however slow the host is.
    #[test]
    fn a_slow_host_delays_others_rarely() {
        let begin = Instant::now();
        let (mut now, mut places) = (begin, Places::new(true));
        let mut here = Vec::new();
        while now < begin + 60_000 * MS {
            if places.of(LOOKUP, 0, now) == Place::Here {
                here.push(now);
                places.took(now, now + 20 * MS, || Some(true));
            }
            now += 20 * MS;
        }
        // 100, 200, ... 3200 ms are 6300 ms; then one in each 6400.
        assert!((13..=16).contains(&here.len()), "{}", here.len());
        for (pair, factor) in here.windows(2).zip([1, 2, 4, 8, 16, 32, 64, 64]) {
            assert!(pair[1] - pair[0] >= factor * PAUSE, "{here:?}");
        }
        // A host that is fast again is trusted as before.
        now += LONGEST;
        assert_eq!(places.of(LOOKUP, 0, now), Place::Here);
        places.took(now, now + MS / 10, || panic!("asked for a fast request"));
        places.took(now, now + 2 * MS, || Some(true));
        assert_eq!(places.of(LOOKUP, 0, now + PAUSE), Place::Worker);
        assert_eq!(places.of(LOOKUP, 0, now + 2 * MS + PAUSE), Place::Here);
    }

    /// A busy processor is no slow host: workers would have to share it, too.
    #[test]
    fn work_and_a_busy_processor_are_no_reason() {
        let now = Instant::now();
        let mut places = Places::new(true);
        places.took(now, now + 50 * MS, || Some(false));
        assert_eq!(places.of(LOOKUP, 0, now + 51 * MS), Place::Here);
        places.took(now, now + 50 * MS, || Some(true));
        assert_eq!(places.of(LOOKUP, 0, now + 51 * MS), Place::Worker);
    }

    /// On a fast host this is not known: to know it would cost a host call for each request.
    #[test]
    fn it_is_known_of_requests_after_a_slow_one_whether_they_slept() {
        let now = Instant::now();
        let mut places = Places::new(true);
        for _ in 0..MEASURED {
            assert!(places.measure().is_some());
        }
        assert_eq!(places.measure(), None);
        places.took(now, now + MS / 2, || panic!("asked for a fast request"));
        assert_eq!(places.measure(), None);
        places.took(now, now + 50 * MS, || None);
        assert_eq!(places.of(LOOKUP, 0, now + 51 * MS), Place::Here);
        assert!(places.measure().is_some());
        places.took(now, now + 50 * MS, || Some(true));
        assert_eq!(places.of(LOOKUP, 0, now + 51 * MS), Place::Worker);
    }

    #[test]
    fn a_thread_that_works_does_not_sleep() {
        let before = sleeps();
        std::thread::sleep(MS);
        let slept = sleeps();
        assert!(slept > before, "{before} {slept}");
        let begin = Instant::now();
        let mut sum = 0u64;
        while begin.elapsed() < 20 * MS {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert_eq!(sleeps(), slept, "{sum}");
    }

    #[test]
    fn workers_get_what_waits_and_deep_queues() {
        let now = Instant::now();
        let mut places = Places::new(true);
        for (operation, waiting, place) in [
            (LOOKUP, QUEUE, Place::Here),
            (LOOKUP, QUEUE + 1, Place::Worker),
            (FSYNC, 0, Place::Worker),
            (FALLOCATE, 0, Place::Worker),
            (FORGET, 100, Place::AtOnce),
        ] {
            assert_eq!(places.of(operation, waiting, now), place, "{operation}");
        }
        for operation in [LOOKUP, FORGET, BATCH_FORGET] {
            let place = Places::new(false).of(operation, 0, now);
            assert_eq!(place, Place::Worker, "{operation}");
        }
    }
}
