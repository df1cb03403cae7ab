// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process as a client of a virtual bus, for C: libraries for linking, whose header is
//! `include/paravane/vbus.h`.

#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "the interface of C")]
mod ffi;
#[expect(unsafe_code, reason = "the interface of C")]
mod ffi_disk;
#[expect(unsafe_code, reason = "the interface of C")]
mod ffi_loop;
mod held;
