// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks in the interface of C. Every pointer is the caller's promise, as in `ffi`.

use crate::ffi::{INVALID, bytes, explain, number, place, room, text};
use paravane_vbus_client::{Disk, Error};
use std::ffi::{c_char, c_int};
use std::time::Duration;

/// See vbus.h.
///
/// # Safety
/// The strings are strings of C or null; `error` has `error_len` bytes or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_disk_open(
    socket: *const c_char,
    bus: *const c_char,
    device: *const c_char,
    milliseconds: u32,
    error: *mut c_char,
    error_len: usize,
) -> *mut Disk {
    // SAFETY: the caller's promise.
    let (socket, bus, device) = unsafe { (place(socket), text(bus), text(device)) };
    let socket = socket.unwrap_or_default();
    let patience = Duration::from_millis(milliseconds.into());
    let (bus, device) = (bus.unwrap_or_default(), device.unwrap_or_default());
    match Disk::connect(&socket, &bus, &device, patience) {
        Ok(disk) => Box::into_raw(Box::new(disk)),
        Err(why) => {
            // SAFETY: the caller's promise.
            unsafe { explain(&why, error, error_len) };
            std::ptr::null_mut()
        }
    }
}

/// See vbus.h.
///
/// # Safety
/// `disk` is from `vbus_disk_open`, and not used after.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_disk_close(disk: *mut Disk) {
    if !disk.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(disk) });
    }
}

/// See vbus.h.
///
/// # Safety
/// `disk` is from `vbus_disk_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_disk_sectors(disk: *const Disk) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*disk }.sectors()
}

fn result(done: Result<(), Error>) -> c_int {
    match done {
        Ok(()) => 1,
        Err(error) => number(&error),
    }
}

/// See vbus.h.
///
/// # Safety
/// `disk` is from `vbus_disk_open`; `to` has `len` writable bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_disk_read(
    disk: *mut Disk,
    sector: u64,
    to: *mut u8,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { room(to, len) } {
        // SAFETY: the caller's promise.
        Some(to) => result(unsafe { &mut *disk }.read(sector, to)),
        None => INVALID,
    }
}

/// See vbus.h.
///
/// # Safety
/// `disk` is from `vbus_disk_open`; `from` has `len` bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_disk_write(
    disk: *mut Disk,
    sector: u64,
    from: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { bytes(from, len) } {
        // SAFETY: the caller's promise.
        Some(from) => result(unsafe { &mut *disk }.write(sector, from)),
        None => INVALID,
    }
}

/// See vbus.h.
///
/// # Safety
/// `disk` is from `vbus_disk_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_disk_flush(disk: *mut Disk) -> c_int {
    // SAFETY: the caller's promise.
    result(unsafe { &mut *disk }.flush())
}
