// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What vbusd, its administrators and its clients say to each other, over a Unix socket.
//!
//! The socket keeps packets apart (`SOCK_SEQPACKET`). A packet is a header of four bytes, `VB` and
//! the version of the protocol, and one message in postcard's encoding, at most [`MAX`] bytes
//! together. File descriptors travel beside it. A client sends a [`Request`] and waits for its
//! [`Reply`]; [`Reply::Event`] comes at any time.

#![forbid(unsafe_code)]

mod message;
mod packet;

pub use message::{Reply, Request, Shared};
pub use packet::{Error, MAX, MAX_FILES, VERSION, decode, encode, receive, send};

use std::path::PathBuf;

/// The folder of this user's vbusd, with its socket: below `$XDG_STATE_HOME` or `~/.local/state`.
/// `None`: neither variable is an absolute path.
#[must_use]
pub fn default_folder() -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_STATE_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".local/state")))
        .map(|base| base.join("paravane/vbus"))
}

/// Name of the socket in that folder.
pub const SOCKET: &str = "socket";
