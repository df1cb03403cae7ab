// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel and [`Ring`](super::Ring) share: the numbers and layouts of Linux's `io_uring.h`
//! that are used here. They belong to the interface between kernel and programs, so they do not
//! change.

use std::mem::offset_of;

/// Flags of `io_uring_setup`: the ring takes nothing before it is enabled (Linux 5.10).
pub const SETUP_DISABLED: u32 = 1 << 6;
/// A request that cannot be begun does not stop those after it (5.18).
pub const SETUP_SUBMIT_ALL: u32 = 1 << 7;
/// Only the thread that enables the ring uses it (6.0).
pub const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
/// The kernel finishes requests while that thread waits, and does not interrupt it (6.1).
pub const SETUP_DEFER_TASKRUN: u32 = 1 << 13;

/// One mapping has both queues.
pub const FEATURE_SINGLE_MMAP: u32 = 1 << 0;
/// Offsets in the ring's file: both queues, and the entries of requests.
pub const OFFSET_QUEUES: u64 = 0;
pub const OFFSET_ENTRIES: u64 = 0x1000_0000;

/// Flags of `io_uring_enter`: wait for completions; the descriptor is a number in the thread's
/// table of rings (5.18).
pub const ENTER_GETEVENTS: u32 = 1 << 0;
pub const ENTER_REGISTERED_RING: u32 = 1 << 4;

/// Operations of `io_uring_register`.
pub const REGISTER_FILES: u32 = 2;
pub const REGISTER_FILES_UPDATE: u32 = 6;
pub const REGISTER_RESTRICTIONS: u32 = 11;
pub const REGISTER_ENABLE_RINGS: u32 = 12;
pub const REGISTER_IOWQ_MAX_WORKERS: u32 = 19;
pub const REGISTER_RING_FDS: u32 = 20;
/// Beside an operation: the descriptor is a number in the thread's table of rings (6.3).
pub const REGISTER_USE_REGISTERED_RING: u32 = 1 << 31;

/// Kinds of restrictions.
pub const RESTRICTION_REGISTER_OP: u16 = 0;
pub const RESTRICTION_SQE_OP: u16 = 1;
pub const RESTRICTION_SQE_FLAGS_ALLOWED: u16 = 2;
pub const RESTRICTION_SQE_FLAGS_REQUIRED: u16 = 3;
/// [`REGISTER_FILES_UPDATE`] in a restriction.
pub const RESTRICTION_FILES_UPDATE: u8 = 6;
const _: () = assert!(RESTRICTION_FILES_UPDATE as u32 == REGISTER_FILES_UPDATE);

/// Operations of requests.
pub const OP_FSYNC: u8 = 3;
pub const OP_READ: u8 = 22;
pub const OP_WRITE: u8 = 23;

/// Flags of a request: its file is a number in the ring's table; a thread of the kernel does it.
pub const SQE_FIXED_FILE: u8 = 1 << 0;
pub const SQE_ASYNC: u8 = 1 << 4;
/// Flag of `OP_FSYNC`: `fdatasync`.
pub const FSYNC_DATASYNC: u32 = 1 << 0;

/// `struct io_sqring_offsets`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct SubmissionOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub flags: u32,
    pub dropped: u32,
    pub array: u32,
    pub reserved: u32,
    pub user_address: u64,
}

/// `struct io_cqring_offsets`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CompletionOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub overflow: u32,
    pub entries: u32,
    pub flags: u32,
    pub reserved: u32,
    pub user_address: u64,
}

/// `struct io_uring_params`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Parameters {
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub flags: u32,
    pub sq_thread_cpu: u32,
    pub sq_thread_idle: u32,
    pub features: u32,
    pub wq_fd: u32,
    pub reserved: [u32; 3],
    pub submissions: SubmissionOffsets,
    pub completions: CompletionOffsets,
}

/// `struct io_uring_sqe`: a request.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Entry {
    pub opcode: u8,
    pub flags: u8,
    pub priority: u16,
    pub file: i32,
    pub offset: u64,
    pub address: u64,
    pub len: u32,
    /// `rw_flags`, `fsync_flags` and the like.
    pub operation_flags: u32,
    pub user_data: u64,
    pub buffer_index: u16,
    pub personality: u16,
    pub other_file: i32,
    pub address3: u64,
    pub reserved: u64,
}

/// `struct io_uring_cqe`: the outcome of a request.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Completion {
    pub user_data: u64,
    pub result: i32,
    pub flags: u32,
}

/// `struct io_uring_restriction`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Restriction {
    pub kind: u16,
    /// An operation, or flags.
    pub value: u8,
    pub reserved: u8,
    pub reserved2: [u32; 3],
}

/// `struct io_uring_rsrc_update`: of the ring's table of files, or of the thread's table of rings.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Update {
    /// The first number that changes.
    pub offset: u32,
    pub reserved: u32,
    /// A descriptor, or the address of several.
    pub data: u64,
}

const _: () = {
    assert!(size_of::<Parameters>() == 120 && offset_of!(Parameters, completions) == 80);
    assert!(size_of::<Entry>() == 64 && offset_of!(Entry, user_data) == 32);
    assert!(size_of::<Completion>() == 16);
    assert!(size_of::<Restriction>() == 16 && offset_of!(Restriction, value) == 2);
    assert!(size_of::<Update>() == 16 && offset_of!(Update, data) == 8);
};
