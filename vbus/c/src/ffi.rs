// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of C: `include/paravane/vbus.h`, which documents each function.
//!
//! Every pointer is the caller's promise, as C's are. A panic cannot cross the border: the
//! functions call nothing that panics, and a lack of memory aborts.

use crate::held::Held;
use paravane_vbus_client::{Client, Error, Options, Terms};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

const FULL: c_int = 0;
const LOST: c_int = -1;
const BREACH: c_int = -2;
pub const INVALID: c_int = -3;
const REFUSED: c_int = -4;
const HOST: c_int = -5;
const FAILED: c_int = -6;

pub fn number(error: &Error) -> c_int {
    match error {
        Error::Lost(_) | Error::Unreachable(..) => LOST,
        Error::Breach(_) => BREACH,
        Error::Invalid(_) => INVALID,
        Error::Refused(_) => REFUSED,
        Error::Host(..) | Error::Protocol(_) => HOST,
        Error::Failed => FAILED,
    }
}

/// # Safety
/// A string of C, or null.
pub unsafe fn text(from: *const c_char) -> Option<String> {
    if from.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().ok().map(ToString::to_string)
}

/// The socket of this name, or of this user's vbusd.
///
/// # Safety
/// A string of C, or null.
pub unsafe fn place(socket: *const c_char) -> Option<PathBuf> {
    if socket.is_null() {
        let folder = paravane_vbus_client::protocol::default_folder();
        return folder.map(|folder| folder.join(paravane_vbus_client::protocol::SOCKET));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(socket) }.to_bytes();
    Some(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// # Safety
/// `to` has `len` bytes, or is null.
pub unsafe fn explain(error: &Error, to: *mut c_char, len: usize) {
    let text = error.to_string();
    let Some(most) = len.checked_sub(1) else {
        return;
    };
    if to.is_null() {
        return;
    }
    let count = text.len().min(most);
    // SAFETY: `count` + 1 bytes are at most `len`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), count);
        *to.add(count) = 0;
    }
}

/// The bytes of a caller; `None` for bytes at null. No bytes may be at null.
///
/// # Safety
/// `from` has `len` bytes that do not change during `'a`, or is null.
pub unsafe fn bytes<'a>(from: *const u8, len: usize) -> Option<&'a [u8]> {
    match (from.is_null(), len) {
        (_, 0) => Some(&[]),
        (true, _) => None,
        // SAFETY: the caller's promise.
        (false, _) => Some(unsafe { std::slice::from_raw_parts(from, len) }),
    }
}

/// The bytes of a caller, for writing; `None` for bytes at null.
///
/// # Safety
/// `to` has `len` writable bytes to which there is no other reference during `'a`, or is null.
pub unsafe fn room<'a>(to: *mut u8, len: usize) -> Option<&'a mut [u8]> {
    match (to.is_null(), len) {
        (_, 0) => Some(&mut []),
        (true, _) => None,
        // SAFETY: the caller's promise.
        (false, _) => Some(unsafe { std::slice::from_raw_parts_mut(to, len) }),
    }
}

/// See vbus.h.
///
/// # Safety
/// The strings are C's or null, and `error` has `error_len` bytes or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_connect(
    socket: *const c_char,
    bus: *const c_char,
    device: *const c_char,
    count: u32,
    buffer: u32,
    error: *mut c_char,
    error_len: usize,
) -> *mut Held {
    // SAFETY: the caller's promise.
    unsafe { vbus_connect_pairs(socket, bus, device, count, buffer, 1, error, error_len) }
}

/// See vbus.h.
///
/// # Safety
/// As `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_connect_pairs(
    socket: *const c_char,
    bus: *const c_char,
    device: *const c_char,
    count: u32,
    buffer: u32,
    pairs: u32,
    error: *mut c_char,
    error_len: usize,
) -> *mut Held {
    // SAFETY: the caller's promise.
    let options = unsafe { options(socket, bus, device, [count, buffer]) };
    let made = options.and_then(|options| Client::connect_pairs(options, 0, pairs));
    // SAFETY: the caller's promise.
    unsafe { held(made, error, error_len) }
}

/// See vbus.h.
///
/// # Safety
/// As `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_connect_hearing(
    socket: *const c_char,
    bus: *const c_char,
    device: *const c_char,
    count: u32,
    buffer: u32,
    error: *mut c_char,
    error_len: usize,
) -> *mut Held {
    // SAFETY: the caller's promise.
    let options = unsafe { options(socket, bus, device, [count, buffer]) };
    let made = options.and_then(|options| Client::connect_hearing(options, 0));
    // SAFETY: the caller's promise.
    unsafe { held(made, error, error_len) }
}

/// See vbus.h.
///
/// # Safety
/// As `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_connect_sharing(
    socket: *const c_char,
    bus: *const c_char,
    device: *const c_char,
    count: u32,
    buffer: u32,
    error: *mut c_char,
    error_len: usize,
) -> *mut Held {
    // SAFETY: the caller's promise.
    let options = unsafe { options(socket, bus, device, [count, buffer]) };
    let terms = Terms {
        sharing: true,
        ..Terms::default()
    };
    let made = options.and_then(|options| Client::connect_on(options, terms));
    // SAFETY: the caller's promise.
    unsafe { held(made, error, error_len) }
}

/// What a client is to connect to.
///
/// # Safety
/// The strings are C's or null.
unsafe fn options(
    socket: *const c_char,
    bus: *const c_char,
    device: *const c_char,
    [count, buffer]: [u32; 2],
) -> Result<Options, Error> {
    // SAFETY: the caller's promise.
    let words = unsafe { (place(socket), text(bus), text(device)) };
    let (Some(socket), Some(bus), Some(device)) = words else {
        return Err(Error::Invalid("a name is missing, or is no UTF-8".into()));
    };
    Ok(Options {
        socket,
        bus,
        device,
        count,
        buffer,
    })
}

/// A client in the form for C, or null and the reason why there is none.
///
/// # Safety
/// `error` has `error_len` bytes or is null.
unsafe fn held(made: Result<Client, Error>, error: *mut c_char, error_len: usize) -> *mut Held {
    match made {
        Ok(client) => Box::into_raw(Box::new(Held::new(client))),
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
/// `client` is from `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_pairs(client: *const Held) -> u32 {
    // SAFETY: the caller's promise.
    let held = unsafe { &*client };
    u32::try_from(held.client.pairs()).unwrap_or(u32::MAX)
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_shares(client: *const Held) -> c_int {
    // SAFETY: the caller's promise.
    c_int::from(unsafe { &*client }.client.shares())
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_link(client: *mut Held) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { &mut *client }.client.link() {
        Ok(up) => c_int::from(up),
        Err(error) => number(&error),
    }
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect` and is not used again, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_close(client: *mut Held) {
    if !client.is_null() {
        // SAFETY: `vbus_connect` has made it so.
        drop(unsafe { Box::from_raw(client) });
    }
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`; `packet` has `len` bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_send(client: *mut Held, packet: *const u8, len: usize) -> c_int {
    // SAFETY: the caller's promise.
    let (held, packet) = unsafe { (&mut *client, bytes(packet, len)) };
    let Some(packet) = packet else {
        return INVALID;
    };
    match held.client.send(packet) {
        Ok(true) => 1,
        Ok(false) => FULL,
        Err(error) => number(&error),
    }
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`; `to` has `len` writable bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_receive(client: *mut Held, to: *mut u8, len: usize) -> i64 {
    // SAFETY: the caller's promise.
    let (held, to) = unsafe { (&mut *client, room(to, len)) };
    let Some(to) = to else {
        return INVALID.into();
    };
    match held.client.receive(to) {
        Ok(Some(len)) => i64::try_from(len).unwrap_or(i64::MAX),
        Ok(None) => i64::from(c_int::MIN),
        Err(error) => number(&error).into(),
    }
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_wait(client: *mut Held, milliseconds: c_int, room: c_int) -> c_int {
    let time = u64::try_from(milliseconds).ok().map(Duration::from_millis);
    // SAFETY: the caller's promise.
    match unsafe { &mut *client }.wait(time, room != 0) {
        Ok(true) => 1,
        Ok(false) => 0,
        Err(error) => number(&error),
    }
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_undelivered(client: *mut Held) -> i64 {
    // SAFETY: the caller's promise.
    match unsafe { &mut *client }.client.reclaim() {
        Ok(count) => count.into(),
        Err(error) => number(&error).into(),
    }
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_reconnect(client: *mut Held, milliseconds: u32) -> c_int {
    let time = Duration::from_millis(milliseconds.into());
    // SAFETY: the caller's promise.
    match unsafe { &mut *client }.client.reconnect(time) {
        Ok(()) => 1,
        Err(error) => number(&error),
    }
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_set_priority(client: *mut Held, priority: c_int) -> c_int {
    let Ok(priority) = u8::try_from(priority) else {
        return INVALID;
    };
    // SAFETY: the caller's promise.
    match unsafe { &mut *client }.client.set_priority(priority) {
        Ok(()) => 1,
        Err(error) => number(&error),
    }
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_lock_memory(client: *const Held) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { &*client }.client.lock_memory() {
        Ok(()) => 1,
        Err(error) => number(&error),
    }
}

/// See vbus.h.
///
/// # Safety
/// `client` is from `vbus_connect`; `to` has 6 writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vbus_mac(client: *const Held, to: *mut u8) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { &*client }.client.mac() {
        Some(mac) => {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(mac.as_ptr(), to, mac.len()) };
            1
        }
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn no_bytes_may_be_at_null() {
        let mut some = [1, 2];
        // SAFETY: `some` has two bytes.
        unsafe {
            assert_eq!(bytes(ptr::null(), 0), Some(&[][..]));
            assert_eq!(bytes(ptr::null(), 1), None);
            assert_eq!(bytes(some.as_ptr(), 2), Some(&[1, 2][..]));
            assert_eq!(room(ptr::null_mut(), 0), Some(&mut [][..]));
            assert_eq!(room(ptr::null_mut(), 1), None);
            assert_eq!(room(some.as_mut_ptr(), 2), Some(&mut [1, 2][..]));
        }
    }
}
