// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! The C files of this folder, `signal.c` and `ioq.c`, for tests against the Rust side.
//!
//! A kernel compiles the C files itself, with `vbus/include`. This crate wraps them so that the
//! model of `paravane-vbus-shm` can drive them. In their place it can use copies with mistakes
//! ([`plant`]).

#[path = "../faults.rs"]
mod faults;

pub use faults::FAULTS;

use paravane_vbus_shm::layout;
use paravane_vbus_shm::north::{Buffer, Posted, Refused, Returned};
use paravane_vbus_shm::ring::{Breach, Role};
use paravane_vbus_shm::signal::Left;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CPosted {
    cookie: u64,
    len: u32,
    reserved: u32,
}

#[repr(C)]
struct CBuffer {
    cookie: u64,
    ptr: u64,
    len: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct CReturned {
    cookie: u64,
    len: u32,
    used: u32,
    flags: u32,
    reserved: u32,
}

#[repr(C)]
struct CNorth {
    ioq: *mut u8,
    descriptors: *mut u8,
    posted: *mut CPosted,
    count: u32,
    role: u32,
    head: u32,
    tail: u32,
    seen: u32,
    breach: i32,
}

/// The functions of the C files, or of a copy with a mistake.
struct Code {
    begin: unsafe extern "C" fn(*mut CNorth, *mut u8, u64, u32, u32, *mut CPosted, u32) -> i32,
    post: unsafe extern "C" fn(*mut CNorth, *const CBuffer) -> i32,
    take: unsafe extern "C" fn(*mut CNorth, *mut CReturned) -> i32,
    inject: unsafe extern "C" fn(*const layout::Side) -> i32,
    enable: unsafe extern "C" fn(*const layout::Side) -> i32,
    disable: unsafe extern "C" fn(*const layout::Side),
    look: unsafe extern "C" fn(*const layout::Side),
    rest: unsafe extern "C" fn(*const layout::Side) -> i32,
    wake_up: unsafe extern "C" fn(*const layout::Side, u32, Work, *mut c_void) -> i32,
}

/// What a wake-up calls.
type Work = unsafe extern "C" fn(*mut c_void);

macro_rules! code {
    (
        $begin:ident $post:ident $take:ident
        $inject:ident $enable:ident $disable:ident $look:ident $rest:ident $wake_up:ident
    ) => {{
        unsafe extern "C" {
            fn $begin(
                north: *mut CNorth,
                memory: *mut u8,
                len: u64,
                count: u32,
                role: u32,
                posted: *mut CPosted,
                start: u32,
            ) -> i32;
            fn $post(north: *mut CNorth, buffer: *const CBuffer) -> i32;
            fn $take(north: *mut CNorth, returned: *mut CReturned) -> i32;
            fn $inject(side: *const layout::Side) -> i32;
            fn $enable(side: *const layout::Side) -> i32;
            fn $disable(side: *const layout::Side);
            fn $look(side: *const layout::Side);
            fn $rest(side: *const layout::Side) -> i32;
            fn $wake_up(
                side: *const layout::Side,
                rounds: u32,
                work: Work,
                data: *mut c_void,
            ) -> i32;
        }
        Code {
            begin: $begin,
            post: $post,
            take: $take,
            inject: $inject,
            enable: $enable,
            disable: $disable,
            look: $look,
            rest: $rest,
            wake_up: $wake_up,
        }
    }};
}

/// The C files, and then their copies in the order of [`FAULTS`].
static CODES: &[Code] = include!(concat!(env!("OUT_DIR"), "/codes.rs"));
/// The one in use.
static USED: AtomicUsize = AtomicUsize::new(0);

fn code() -> &'static Code {
    &CODES[USED.load(Ordering::Relaxed)]
}

/// Plants the fault of this name, or none, in the whole process.
///
/// # Panics
/// There is no such fault.
pub fn plant(fault: Option<&str>) {
    let number = fault.map_or(0, |name| {
        let found = FAULTS.iter().position(|fault| fault.name == name);
        assert!(found.is_some(), "there is no fault {name}");
        found.map_or(0, |number| number + 1)
    });
    USED.store(number, Ordering::SeqCst);
}

/// The C north of an ioq.
#[derive(Debug)]
pub struct North<'a> {
    north: Box<CNorth>,
    _posted: Box<[CPosted]>,
    memory: PhantomData<&'a ()>,
}

impl std::fmt::Debug for CNorth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..{} of {}", self.head, self.tail, self.count)
    }
}

impl std::fmt::Debug for CPosted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} bytes", self.cookie, self.len)
    }
}

impl North<'_> {
    /// Makes an ioq, as [`paravane_vbus_shm::memory::Queue::make`] and
    /// [`paravane_vbus_shm::north::North::begin`] do.
    ///
    /// # Safety
    /// As for those.
    #[must_use]
    pub unsafe fn begin(
        memory: NonNull<u8>,
        len: usize,
        count: u32,
        role: Role,
        start: u32,
    ) -> Option<Self> {
        let role = match role {
            Role::Transmit => 1,
            Role::Receive => 2,
        };
        let mut posted = vec![CPosted::default(); count as usize].into_boxed_slice();
        let mut north = Box::new(CNorth {
            ioq: std::ptr::null_mut(),
            descriptors: std::ptr::null_mut(),
            posted: std::ptr::null_mut(),
            count: 0,
            role: 0,
            head: 0,
            tail: 0,
            seen: 0,
            breach: 0,
        });
        // SAFETY: `posted` has `count` elements and lives as long as `north`; the rest is the
        // caller's promise.
        let done = unsafe {
            (code().begin)(
                &raw mut *north,
                memory.as_ptr(),
                len as u64,
                count,
                role,
                posted.as_mut_ptr(),
                start,
            )
        };
        (done == 0).then_some(North {
            north,
            _posted: posted,
            memory: PhantomData,
        })
    }

    /// See [`paravane_vbus_shm::north::North::post`].
    ///
    /// # Errors
    /// As there. The fields of a breach are 0: C reports its kind only.
    pub fn post(&mut self, buffer: Buffer) -> Result<(), Refused> {
        let buffer = CBuffer {
            cookie: buffer.cookie,
            ptr: buffer.ptr,
            len: buffer.len,
            flags: buffer.flags,
        };
        // SAFETY: `begin` has filled `north`.
        match unsafe { (code().post)(&raw mut *self.north, &raw const buffer) } {
            0 => Ok(()),
            -1 => Err(Refused::Full),
            error => Err(Refused::Breach(breach(error))),
        }
    }

    /// See [`paravane_vbus_shm::north::North::take`].
    ///
    /// # Errors
    /// As there. The fields of a breach are 0: C reports its kind only.
    pub fn take(&mut self) -> Result<Option<Returned>, Breach> {
        let mut returned = CReturned::default();
        // SAFETY: `begin` has filled `north`.
        match unsafe { (code().take)(&raw mut *self.north, &raw mut returned) } {
            0 => Ok(None),
            1 => Ok(Some(Returned {
                cookie: returned.cookie,
                len: returned.len,
                used: returned.used,
                flags: returned.flags,
            })),
            error => Err(breach(error)),
        }
    }

    /// Number of buffers that are posted and have not come back.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.north.tail.wrapping_sub(self.north.head)
    }
}

fn breach(error: i32) -> Breach {
    match error {
        -2 => Breach::Owner { slot: 0, value: 0 },
        -3 => Breach::Index { slot: 0, value: 0 },
        -4 => Breach::Length {
            slot: 0,
            used: 0,
            posted: 0,
        },
        _ => Breach::Head {
            field: "error of C",
            value: error.unsigned_abs(),
        },
    }
}

/// The C functions of a side: see [`paravane_vbus_shm::signal::Side`].
#[derive(Clone, Copy, Debug)]
pub struct Side<'a>(pub &'a layout::Side);

/// Keeps `Posted` of the Rust side as small as that of C.
const _: () = assert!(size_of::<Posted>() == size_of::<CPosted>());

impl Side<'_> {
    /// The other side has stored work. Returns whether the caller must notify this side.
    #[must_use]
    pub fn inject(self) -> bool {
        // SAFETY: the words are atomics, which C accesses by atomic operations only.
        unsafe { (code().inject)(self.0) != 0 }
    }

    /// Asks for notifications.
    pub fn enable(self) -> Left {
        // SAFETY: as in `inject`.
        left(unsafe { (code().enable)(self.0) })
    }

    /// Stops notifications.
    pub fn disable(self) {
        // SAFETY: as in `inject`.
        unsafe { (code().disable)(self.0) }
    }

    /// Forgets what was announced until now.
    pub fn look(self) {
        // SAFETY: as in `inject`.
        unsafe { (code().look)(self.0) }
    }

    /// Clears `pending` and enables.
    pub fn rest(self) -> Left {
        // SAFETY: as in `inject`.
        left(unsafe { (code().rest)(self.0) })
    }

    /// Does what a notification asks for.
    pub fn wake_up<F: FnMut()>(self, rounds: u32, mut work: F) -> Left {
        unsafe extern "C" fn call<F: FnMut()>(data: *mut c_void) {
            // SAFETY: `data` is the `work` of the call below, which lasts longer.
            unsafe { (*data.cast::<F>())() }
        }
        // SAFETY: as in `inject`; `work` outlives the call, and does not unwind.
        left(unsafe { (code().wake_up)(self.0, rounds, call::<F>, (&raw mut work).cast()) })
    }
}

fn left(answer: i32) -> Left {
    if answer == 0 {
        Left::Nothing
    } else {
        Left::More
    }
}
