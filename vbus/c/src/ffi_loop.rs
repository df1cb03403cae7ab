// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of C for programs with a loop of their own: the steps of the functions of `ffi`,
//! and events. Every pointer is the caller's promise, as there.

use crate::ffi::{INVALID, bytes, number, room};
use crate::held::Held;
use paravane_vbus_client::bus::Event;
use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;

/// Bytes of a name, with the 0 at its end.
const NAME: usize = 64;
const ADDED: u32 = 1;
const DROPPED: u32 = 2;
const MISSED: u32 = 3;

/// `struct vbus_event` of vbus.h.
#[repr(C)]
#[derive(Debug)]
pub struct CEvent {
    kind: u32,
    interface: u32,
    name: [c_char; NAME],
    of: [c_char; NAME],
}

/// `struct vbus_statistics` of vbus.h.
#[repr(C)]
#[derive(Debug)]
pub struct CStatistics {
    sent: u64,
    delivered: u64,
    received: u64,
    notified: u64,
    slept: u64,
}

/// As much of a text as fits, and zeros.
fn name(text: &str) -> [c_char; NAME] {
    let mut name = [0; NAME];
    for (to, from) in name.iter_mut().take(NAME - 1).zip(text.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    name
}

/// `None`: it is about another connection, which a client of C does not have, or for the library.
fn event(from: &Event) -> Option<CEvent> {
    let (kind, interface, text, of) = match from {
        Event::Added {
            id,
            name,
            interface,
        } => (ADDED, *id, name.as_str(), interface.as_str()),
        Event::Dropped { id } => (DROPPED, *id, "", ""),
        Event::Lost => (MISSED, 0, "", ""),
        Event::Closed { .. } | Event::Removed | Event::Lends { .. } | Event::Withdrawn { .. } => {
            return None;
        }
    };
    Some(CEvent {
        kind,
        interface,
        name: name(text),
        of: name(of),
    })
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`; `packet` has `len` bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_post(client: *mut Held, packet: *const u8, len: usize) -> c_int {
    // SAFETY: the caller's promise.
    let (held, packet) = unsafe { (&mut *client, bytes(packet, len)) };
    let Some(packet) = packet else {
        return INVALID;
    };
    match held.client.post(packet) {
        Ok(posted) => c_int::from(posted),
        Err(error) => number(&error),
    }
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_flush(client: *mut Held) {
    // SAFETY: the caller's promise.
    unsafe { &mut *client }.client.flush();
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_rest(client: *mut Held, room: c_int) -> c_int {
    // SAFETY: the caller's promise.
    c_int::from(unsafe { &mut *client }.client.rest(room != 0))
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_watch(client: *mut Held) {
    // SAFETY: the caller's promise.
    unsafe { &mut *client }.client.watch();
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`; `to` has room for two numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_fds(client: *const Held, to: *mut c_int) {
    // SAFETY: the caller's promise.
    let files = unsafe { &*client }.client.files();
    let numbers = files.map(|file| file.as_raw_fd());
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(numbers.as_ptr(), to, numbers.len()) }
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_drain(client: *const Held) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { &*client }.client.drain() {
        Ok(()) => 1,
        Err(error) => number(&error),
    }
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`; `to` has room for an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_event(client: *mut Held, to: *mut CEvent) -> c_int {
    // SAFETY: the caller's promise.
    let held = unsafe { &mut *client };
    loop {
        match held.event() {
            Ok(Some(found)) => {
                if let Some(found) = event(&found) {
                    // SAFETY: the caller's promise.
                    unsafe { to.write(found) };
                    return 1;
                }
            }
            Ok(None) => return 0,
            Err(error) => return number(&error),
        }
    }
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`; `argument` has `argument_len` bytes, or is null; `to` has `len`
/// writable bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_call(
    client: *mut Held,
    call: u32,
    argument: *const u8,
    argument_len: usize,
    to: *mut u8,
    len: usize,
) -> i64 {
    // SAFETY: the caller's promise.
    let (held, argument, to) =
        unsafe { (&mut *client, bytes(argument, argument_len), room(to, len)) };
    let (Some(argument), Some(to)) = (argument, to) else {
        return INVALID.into();
    };
    match held.client.call(call, argument) {
        Ok(result) => {
            for (to, from) in to.iter_mut().zip(&result) {
                *to = *from;
            }
            i64::try_from(result.len()).unwrap_or(i64::MAX)
        }
        Err(error) => number(&error).into(),
    }
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`; `to` has room for the figures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_statistics(client: *const Held, to: *mut CStatistics) {
    // SAFETY: the caller's promise.
    let from = unsafe { &*client }.client.statistics;
    let figures = CStatistics {
        sent: from.sent,
        delivered: from.delivered,
        received: from.received,
        notified: from.notified,
        slept: from.slept,
    };
    // SAFETY: the caller's promise.
    unsafe { to.write(figures) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn names_end_in_time() {
        for (text, expected) in [("", 0), ("lan", 3), (&"x".repeat(200)[..], NAME - 1)] {
            let name = name(text);
            // SAFETY: its last byte is 0.
            let read = unsafe { CStr::from_ptr(name.as_ptr()) };
            assert_eq!(read.to_bytes(), &text.as_bytes()[..expected]);
        }
    }
}
