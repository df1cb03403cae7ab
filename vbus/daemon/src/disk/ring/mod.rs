// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A ring of Linux (`io_uring`) that can do little: read, write and flush the files of its table,
//! for the thread that made it.
//!
//! [`Ring::new`] makes it before the thread enters its policy. The kernel enforces what the ring
//! may do (`IORING_REGISTER_RESTRICTIONS`): three operations, on files of the table only, and one
//! way to change the table. The ring's descriptor is closed at once; the thread names the ring by
//! its number in the thread's own table. So no other thread can use it, and the policy can say
//! which ring it admits.
//!
//! A buffer belongs to the ring until the kernel is done with it.

mod abi;
mod calls;
#[cfg(test)]
mod tests;

use abi::{Completion, Entry, Parameters, Restriction};
use anyhow::{Context, ensure};
use memmap2::{MmapOptions, MmapRaw};
use rustix::io::Errno;
use std::marker::PhantomData;
use std::mem::forget;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Most threads of the kernel that wait where a file has to (`io-wq`), and those for anything else:
/// the kernel does not look at the file of a request with [`abi::SQE_ASYNC`]. Each are enough for
/// every request of the ring, so those that wait keep no others from a thread.
const WORKERS: [u32; 2] = [256, 256];
/// How long the thread waits if the kernel has no memory for a request.
const PAUSE: Duration = Duration::from_millis(1);

/// All that the ring does.
const RESTRICTIONS: [(u16, u8); 6] = [
    (abi::RESTRICTION_SQE_OP, abi::OP_READ),
    (abi::RESTRICTION_SQE_OP, abi::OP_WRITE),
    (abi::RESTRICTION_SQE_OP, abi::OP_FSYNC),
    // Files of the table, and nothing that a flag could ask for but a thread of the kernel.
    (abi::RESTRICTION_SQE_FLAGS_REQUIRED, abi::SQE_FIXED_FILE),
    (
        abi::RESTRICTION_SQE_FLAGS_ALLOWED,
        abi::SQE_FIXED_FILE | abi::SQE_ASYNC,
    ),
    // Disks come and go.
    (abi::RESTRICTION_REGISTER_OP, abi::RESTRICTION_FILES_UPDATE),
];

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fills the buffer.
    Read,
    /// Writes it.
    Write,
    /// All that was written becomes durable. There is no buffer.
    Flush,
}

/// A request.
#[derive(Debug)]
pub struct Request {
    pub operation: Operation,
    /// The number of its file in the table.
    pub file: u32,
    /// Where the buffer begins in the file.
    pub offset: u64,
    pub buffer: Vec<u8>,
    /// Bytes of the buffer that are done already.
    pub from: usize,
    /// A thread of the kernel does it from the start. Elsewhere the kernel first tries to do it
    /// while the caller enters the ring, without waiting.
    pub waits: bool,
}

/// A request that the kernel is done with.
#[derive(Debug)]
pub struct Finished<T> {
    pub buffer: Vec<u8>,
    pub tag: T,
    /// Bytes after those that were done already.
    pub result: Result<usize, Errno>,
}

#[derive(Debug)]
struct UnderWay<T> {
    buffer: Vec<u8>,
    tag: T,
}

/// Where the queues are in their mapping, and the masks of their indices.
#[derive(Clone, Copy, Debug)]
struct Places {
    submission_tail: usize,
    submission_mask: u32,
    completion_head: usize,
    completion_tail: usize,
    completion_mask: u32,
    completions: usize,
}

/// A ring with what is under way in it: for each request a `T`.
#[derive(Debug)]
pub struct Ring<T> {
    queues: MmapRaw,
    entries: MmapRaw,
    places: Places,
    /// By the number of a request. As many as the queue has entries, so that it is never full.
    under_way: Vec<Option<UnderWay<T>>>,
    free: Vec<u32>,
    tail: u32,
    unsent: u32,
    /// The ring is its thread's.
    _thread: PhantomData<*const ()>,
}

impl<T> Ring<T> {
    /// Creates a ring for a number of requests at a time (a power of two), and of files. A thread
    /// has one.
    ///
    /// # Errors
    /// The host has no such rings (Linux 6.3 has), or refuses them.
    pub fn new(depth: u32, files: usize) -> anyhow::Result<Self> {
        let mut parameters = Parameters {
            flags: abi::SETUP_DISABLED
                | abi::SETUP_SUBMIT_ALL
                | abi::SETUP_SINGLE_ISSUER
                | abi::SETUP_DEFER_TASKRUN,
            ..Parameters::default()
        };
        let ring = calls::setup(depth, &mut parameters).context("io_uring_setup")?;
        let made = Ring::map(ring.as_fd(), &parameters)?;
        calls::make_table(ring.as_fd(), files).context("a table of files")?;
        calls::limit_workers(ring.as_fd(), WORKERS).context("a limit of workers")?;
        calls::name_ring(ring.as_fd()).context("a number for the ring")?;
        let all = RESTRICTIONS.map(|(kind, value)| Restriction {
            kind,
            value,
            ..Restriction::default()
        });
        calls::restrict(ring.as_fd(), &all).context("restrictions")?;
        calls::enable(ring.as_fd()).context("enabling the ring")?;
        // By its number, and within its restrictions: an older host cannot do that.
        calls::set_file(0, None).context("changing the table of files")?;
        Ok(made)
    }

    fn map(ring: BorrowedFd<'_>, parameters: &Parameters) -> anyhow::Result<Self> {
        let one = parameters.features & abi::FEATURE_SINGLE_MMAP != 0;
        ensure!(one, "the host's rings have two mappings");
        let (submissions, completions) = (&parameters.submissions, &parameters.completions);
        let (count, answers) = (
            parameters.sq_entries as usize,
            parameters.cq_entries as usize,
        );
        let array = submissions.array as usize;
        let end_of_array = array + count * size_of::<u32>();
        let first = completions.entries as usize;
        let end = end_of_array.max(first + answers * size_of::<Completion>());
        let map = |offset: u64, len: usize| {
            let mut options = MmapOptions::new();
            options.offset(offset).len(len).populate();
            options.map_raw(&ring).context("mmap of a ring")
        };
        let queues = map(abi::OFFSET_QUEUES, end)?;
        let entries = map(abi::OFFSET_ENTRIES, count * size_of::<Entry>())?;
        let places = Places {
            submission_tail: submissions.tail as usize,
            submission_mask: parameters.sq_entries - 1,
            completion_head: completions.head as usize,
            completion_tail: completions.tail as usize,
            completion_mask: parameters.cq_entries - 1,
            completions: first,
        };
        let words = [
            places.submission_tail,
            places.completion_head,
            places.completion_tail,
            array,
        ];
        let word = |at: &usize| at.is_multiple_of(align_of::<u32>()) && *at < end;
        let answer = first.is_multiple_of(align_of::<Completion>());
        ensure!(
            count.is_power_of_two() && answers >= count && answers.is_power_of_two(),
            "the host's rings have {count} and {answers} entries"
        );
        ensure!(answer && words.iter().all(word), "the host's rings are odd");
        let mut free = Vec::with_capacity(count);
        for number in (0..parameters.sq_entries).rev() {
            // Entry and place in the queue are the same.
            let at = array + number as usize * size_of::<u32>();
            // SAFETY: aligned, and within the mapping, as was just checked. The kernel reads it
            // only after the tail has moved.
            unsafe { queues.as_mut_ptr().add(at).cast::<u32>().write(number) };
            free.push(number);
        }
        Ok(Ring {
            queues,
            entries,
            places,
            under_way: (0..count).map(|_| None).collect(),
            free,
            tail: 0,
            unsent: 0,
            _thread: PhantomData,
        })
    }

    /// Whether it takes another request.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Puts a file into the table, or removes the one that is there. No request under way may be
    /// meant for the one before: such a request keeps the file that it has begun with.
    pub fn set_file(&self, index: u32, file: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        calls::set_file(index, file)
    }

    /// Adds a request, which [`Ring::enter`] begins.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn begin(&mut self, request: Request, tag: T) -> Result<(), Full> {
        let Request {
            operation,
            file,
            offset,
            mut buffer,
            from,
            waits,
        } = request;
        let number = self.free.pop().ok_or(Full)?;
        let rest = buffer.get_mut(from..).unwrap_or_default();
        let mut entry = Entry {
            flags: abi::SQE_FIXED_FILE | if waits { abi::SQE_ASYNC } else { 0 },
            file: file.cast_signed(),
            user_data: u64::from(number),
            ..Entry::default()
        };
        match operation {
            Operation::Flush => {
                entry.opcode = abi::OP_FSYNC;
                entry.operation_flags = abi::FSYNC_DATASYNC;
            }
            Operation::Read | Operation::Write => {
                entry.opcode = match operation {
                    Operation::Read => abi::OP_READ,
                    _ => abi::OP_WRITE,
                };
                entry.offset = offset + from as u64;
                entry.address = rest.as_mut_ptr() as u64;
                // Another request does the part that does not fit.
                entry.len = u32::try_from(rest.len()).unwrap_or(1 << 30);
            }
        }
        if let Some(place) = self.under_way.get_mut(number as usize) {
            *place = Some(UnderWay { buffer, tag });
        }
        self.push(entry);
        Ok(())
    }

    fn push(&mut self, entry: Entry) {
        let index = (self.tail & self.places.submission_mask) as usize;
        // SAFETY: the index is below the number of entries, which the mapping has. The kernel is
        // done with the entry: no more are under way than there are.
        unsafe {
            self.entries
                .as_mut_ptr()
                .cast::<Entry>()
                .add(index)
                .write(entry)
        };
        self.tail = self.tail.wrapping_add(1);
        self.word(self.places.submission_tail)
            .store(self.tail, Ordering::Release);
        self.unsent += 1;
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `map` has checked that the place is aligned and within the mapping, which lives
        // as long as the reference. The kernel uses the word atomically.
        unsafe { AtomicU32::from_ptr(self.queues.as_mut_ptr().add(at).cast()) }
    }

    /// Begins what was added. Waits for a completion if `wait`, or until a signal comes.
    ///
    /// # Errors
    /// The host's. There is none that a request could cause.
    pub fn enter(&mut self, wait: bool) -> Result<(), Errno> {
        // SAFETY: `push` has completed all entries. The memory that they name is that of
        // `under_way`, which keeps it until the kernel reports the end of the request.
        match unsafe { calls::enter(self.unsent, wait) } {
            Ok(taken) => self.unsent = self.unsent.saturating_sub(taken),
            Err(Errno::INTR) => {}
            // It has no memory, or too much to report: what is under way makes room.
            Err(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => std::thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A request that has ended.
    pub fn finished(&mut self) -> Option<Finished<T>> {
        loop {
            let head = self
                .word(self.places.completion_head)
                .load(Ordering::Relaxed);
            let tail = self
                .word(self.places.completion_tail)
                .load(Ordering::Acquire);
            if head == tail {
                return None;
            }
            let index = (head & self.places.completion_mask) as usize;
            let at = self.places.completions + index * size_of::<Completion>();
            // SAFETY: aligned, within the mapping, and written by the kernel before the tail, which
            // was read before.
            let Completion {
                user_data, result, ..
            } = unsafe { self.queues.as_ptr().add(at).cast::<Completion>().read() };
            self.word(self.places.completion_head)
                .store(head.wrapping_add(1), Ordering::Release);
            let number = u32::try_from(user_data).unwrap_or(u32::MAX);
            let place = self.under_way.get_mut(number as usize);
            let Some(UnderWay { buffer, tag }) = place.and_then(Option::take) else {
                continue;
            };
            self.free.push(number);
            let result = match usize::try_from(result) {
                Ok(bytes) => Ok(bytes),
                Err(_) => Err(Errno::from_raw_os_error(result.saturating_neg())),
            };
            return Some(Finished {
                buffer,
                tag,
                result,
            });
        }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // The kernel may still write to them.
        for UnderWay { buffer, .. } in self.under_way.drain(..).flatten() {
            forget(buffer);
        }
    }
}

/// There is no room for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;
