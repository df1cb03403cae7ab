// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host calls of a ring, with their arguments checked by types.

use super::abi::{self, Parameters, Restriction, Update};
use rustix::io::Errno;
use std::ffi::{c_long, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// The number of the ring in its thread's table of rings. The thread's policy
/// (`monitor/policies/monitor.json`) admits no other.
pub const NUMBER: u32 = 0;
/// The flags of each `io_uring_enter`. The policy admits no others.
const ENTER: u32 = abi::ENTER_GETEVENTS | abi::ENTER_REGISTERED_RING;

fn result(value: c_long) -> Result<u32, Errno> {
    let error = || {
        let code = std::io::Error::last_os_error().raw_os_error();
        Errno::from_raw_os_error(code.unwrap_or(0))
    };
    u32::try_from(value).map_err(|_| error())
}

/// Makes a ring that is not enabled.
pub fn setup(entries: u32, parameters: &mut Parameters) -> Result<OwnedFd, Errno> {
    // SAFETY: the kernel reads and writes a whole `io_uring_params` at this address.
    let made =
        unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, ptr::from_mut(parameters)) };
    let made = RawFd::try_from(result(made)?).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel has just made this descriptor for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// `io_uring_register` on a descriptor, or with [`abi::REGISTER_USE_REGISTERED_RING`] on the
/// thread's ring of that number.
///
/// # Safety
/// `argument` and `count` are what the operation expects.
pub unsafe fn register(
    ring: u32,
    operation: u32,
    argument: *const c_void,
    count: usize,
) -> Result<u32, Errno> {
    // SAFETY: the caller's promise. The kernel keeps no address after the call.
    result(unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring,
            operation,
            argument,
            count,
        )
    })
}

fn number(ring: BorrowedFd<'_>) -> u32 {
    // The kernel refuses a number that is none.
    u32::try_from(ring.as_raw_fd()).unwrap_or(u32::MAX)
}

/// Creates a table with room for `files` files.
pub fn make_table(ring: BorrowedFd<'_>, files: usize) -> Result<(), Errno> {
    let none: Vec<RawFd> = vec![-1; files];
    // SAFETY: an array of descriptors.
    unsafe {
        register(
            number(ring),
            abi::REGISTER_FILES,
            none.as_ptr().cast(),
            files,
        )
    }?;
    Ok(())
}

/// Limits the kernel's threads that wait for slow requests: to files, and to anything else.
pub fn limit_workers(ring: BorrowedFd<'_>, mut most: [u32; 2]) -> Result<(), Errno> {
    let (most, count) = (ptr::from_mut(&mut most), 2);
    // SAFETY: two numbers, which the kernel replaces by those before.
    unsafe {
        register(
            number(ring),
            abi::REGISTER_IOWQ_MAX_WORKERS,
            most.cast_const().cast(),
            count,
        )
    }?;
    Ok(())
}

/// Gives the ring [`NUMBER`] in this thread's table of rings.
pub fn name_ring(ring: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut update = Update {
        offset: NUMBER,
        reserved: 0,
        data: u64::from(number(ring)),
    };
    let update = ptr::from_mut(&mut update);
    // SAFETY: one `io_uring_rsrc_update`, in which the kernel may write.
    unsafe {
        register(
            number(ring),
            abi::REGISTER_RING_FDS,
            update.cast_const().cast(),
            1,
        )
    }?;
    Ok(())
}

/// What the ring will do, and nothing else, from [`enable`] on.
pub fn restrict(ring: BorrowedFd<'_>, restrictions: &[Restriction]) -> Result<(), Errno> {
    let (first, count) = (restrictions.as_ptr().cast(), restrictions.len());
    // SAFETY: an array of `io_uring_restriction`.
    unsafe { register(number(ring), abi::REGISTER_RESTRICTIONS, first, count) }?;
    Ok(())
}

/// The ring takes requests from now on, of this thread only.
pub fn enable(ring: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the operation has no argument.
    unsafe { register(number(ring), abi::REGISTER_ENABLE_RINGS, ptr::null(), 0) }?;
    Ok(())
}

/// Puts a file into the table of the thread's ring, or removes the one that is there.
pub fn set_file(index: u32, file: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let file: RawFd = file.map_or(-1, |file| file.as_raw_fd());
    let update = Update {
        offset: index,
        reserved: 0,
        data: ptr::from_ref(&file) as u64,
    };
    let operation = abi::REGISTER_FILES_UPDATE | abi::REGISTER_USE_REGISTERED_RING;
    // SAFETY: one `io_uring_rsrc_update` with the address of one descriptor.
    unsafe { register(NUMBER, operation, ptr::from_ref(&update).cast(), 1) }?;
    Ok(())
}

/// Hands `unsent` requests to the kernel, and waits until one or more are done if `wait`. Returns
/// how many it took.
///
/// # Safety
/// `unsent` entries before the tail are complete, and the memory that they name stays until they
/// are done.
pub unsafe fn enter(unsent: u32, wait: bool) -> Result<u32, Errno> {
    let none: *const c_void = ptr::null();
    // SAFETY: numbers, and no signal mask; the rest is the caller's promise.
    result(unsafe {
        libc::syscall(
            libc::SYS_io_uring_enter,
            NUMBER,
            unsent,
            u32::from(wait),
            ENTER,
            none,
            0usize,
        )
    })
}
