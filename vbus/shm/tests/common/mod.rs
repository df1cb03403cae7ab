// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! What the tests of the Rust and of the C side share: memory, and a model of an ioq.
//!
//! The model drives a north and a south over the same memory, step by step, and compares each
//! result with queues of ordinary Rust.
#![allow(dead_code, clippy::unwrap_used)]

use paravane_vbus_shm::memory::{ALIGN, Queue, size};
use paravane_vbus_shm::north::{Buffer, Refused, Returned};
use paravane_vbus_shm::ring::{Breach, Role};
use paravane_vbus_shm::south::{Place, South};
use proptest::prelude::*;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Faults are planted in the whole process, so one test runs at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that two sides share.
pub struct Area {
    pub start: NonNull<u8>,
    pub len: usize,
}

// SAFETY: plain memory, which every user accesses by atomic operations.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// Memory for a ring of `count` descriptors.
    pub fn new(count: u32) -> Self {
        let len = size(count);
        let layout = Layout::from_size_align(len, ALIGN).unwrap();
        // SAFETY: the size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Area { start, len }
    }

    /// Its 32-bit word of this number, modulo their count.
    pub fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: within the memory, which lives as long as `self`; aligned and always valid.
        unsafe {
            self.start
                .cast::<AtomicU32>()
                .add(at % (self.len / 4))
                .as_ref()
        }
    }

    /// The ioq as the north makes it.
    pub fn make(&self, count: u32, role: Role) -> Queue<'_> {
        // SAFETY: the memory lives as long as `self`.
        unsafe { Queue::make(self.start, self.len, count, role) }.unwrap()
    }

    /// The ioq as the south opens it.
    pub fn open(&self, count: u32, role: Role) -> Result<Queue<'_>, Breach> {
        // SAFETY: the memory lives as long as `self`.
        unsafe { Queue::open(self.start, self.len, count, role) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.len, ALIGN).unwrap();
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), layout) }
    }
}

/// A north in Rust or in C.
pub trait AnyNorth {
    fn post(&mut self, buffer: Buffer) -> Result<(), Refused>;
    fn take(&mut self) -> Result<Option<Returned>, Breach>;
    fn outstanding(&self) -> u32;
}

/// A step of the model.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// The north posts a buffer of this length.
    Post(u32),
    /// The north takes a buffer back.
    Return,
    /// Transmit: the south takes a packet.
    Take,
    /// Transmit: it completes the oldest. Receive: it fills a buffer with so much.
    Done(u32),
    /// The south dies and another takes its place.
    Restart,
}

/// Many steps, most of which find something to do.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0u32..5000).prop_map(Step::Post),
        4 => Just(Step::Return),
        4 => Just(Step::Take),
        4 => (0u32..6000).prop_map(Step::Done),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..200)
}

/// The buffer that belongs to a cookie.
pub fn buffer(cookie: u64, len: u32) -> Buffer {
    Buffer {
        cookie,
        ptr: cookie.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        len,
        flags: u32::try_from(cookie % 1000).unwrap(),
    }
}

/// Runs the steps on both sides and on the model.
pub fn compare(area: &Area, count: u32, role: Role, north: &mut dyn AnyNorth, steps: &[Step]) {
    let queue = area.open(count, role).unwrap();
    let mut south = South::attach(queue.ring, role).unwrap();
    // Posted and not taken; taken and not done; done, with what was filled in.
    let (mut posted, mut taken) = (VecDeque::new(), VecDeque::new());
    let mut done: VecDeque<(Buffer, u32)> = VecDeque::new();
    let mut cookie = 0;
    for step in steps {
        match *step {
            Step::Post(len) => {
                cookie += 1;
                let full = posted.len() + taken.len() + done.len() == count as usize;
                let result = north.post(buffer(cookie, len));
                assert_eq!(result, if full { Err(Refused::Full) } else { Ok(()) });
                if !full {
                    posted.push_back(buffer(cookie, len));
                }
            }
            Step::Return => {
                let wanted = done.pop_front().map(|(buffer, used)| Returned {
                    cookie: buffer.cookie,
                    len: buffer.len,
                    used,
                    flags: if role == Role::Receive { used ^ 5 } else { 0 },
                });
                assert_eq!(north.take(), Ok(wanted));
            }
            Step::Take if role == Role::Transmit => {
                let next = posted.pop_front();
                assert_eq!(south.take(), Ok(next.map(place)));
                taken.extend(next);
            }
            Step::Take => assert_eq!(south.take(), Ok(posted.front().copied().map(place))),
            Step::Done(_) if role == Role::Transmit => {
                let next: Option<Buffer> = taken.pop_front();
                assert_eq!(south.complete(), next.is_some());
                done.extend(next.map(|buffer| (buffer, 0)));
            }
            Step::Done(used) => {
                if let Some(buffer) = south.take().unwrap() {
                    assert!(south.fill(&buffer, used, used.min(buffer.len) ^ 5));
                    let first: Buffer = posted.pop_front().unwrap();
                    done.push_back((first, used.min(buffer.len)));
                }
            }
            Step::Restart => {
                south = South::attach(queue.ring, role).unwrap();
                while let Some(last) = taken.pop_back() {
                    posted.push_front(last);
                }
            }
        }
        let outstanding = posted.len() + taken.len() + done.len();
        assert_eq!(north.outstanding() as usize, outstanding);
    }
}

fn place(buffer: Buffer) -> Place {
    Place {
        ptr: buffer.ptr,
        len: buffer.len,
        // A receiver of buffers gets no flags of use; they are the north's in this role too.
        flags: buffer.flags,
    }
}
