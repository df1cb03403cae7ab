// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes packets of peers, with every file that comes beside them.
//!
//! A file that does not fit into the control buffer would be closed by the kernel, on vbusd's
//! thread (see [`crate::closer`]). So there is room for as many as a packet can have.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Files of a packet: the kernel's limit (`SCM_MAX_FD`).
const FILES: usize = 253;
/// Room for them and for the sender's credentials, in words.
const WORDS: usize = 160;
const _: () = assert!(WORDS * 8 >= FILES * size_of::<RawFd>() + 64);

/// What came.
#[derive(Debug)]
pub struct Received {
    /// The other side sends no more, and there was nothing. Otherwise a packet came, perhaps an
    /// empty one.
    pub end: bool,
    /// Bytes of the packet.
    pub len: usize,
    /// All of the packet and all of its files are there.
    pub whole: bool,
    /// Its files.
    pub files: Vec<OwnedFd>,
}

/// Takes the next packet without waiting. The socket has `SO_PASSCRED`, so the kernel says of each
/// packet who sent it, which tells an empty one from the end.
///
/// # Errors
/// The socket's; [`io::ErrorKind::WouldBlock`]: there is none.
pub fn receive(socket: &OwnedFd, packet: &mut [u8]) -> io::Result<Received> {
    let mut control = [0u64; WORDS];
    let mut part = libc::iovec {
        iov_base: packet.as_mut_ptr().cast(),
        iov_len: packet.len(),
    };
    // SAFETY: all fields are numbers or pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    #[allow(
        clippy::useless_conversion,
        reason = "another type in other C libraries"
    )]
    let room = (WORDS * 8).try_into().unwrap_or(0);
    message.msg_controllen = room;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let len = loop {
        // SAFETY: the message has the addresses and lengths of `packet` and `control`.
        let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        match usize::try_from(len) {
            Ok(len) => break len,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    };
    Ok(Received {
        end: len == 0 && message.msg_controllen == 0,
        len,
        whole: message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0,
        files: files(&message),
    })
}

/// The files of a message.
fn files(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut all = Vec::new();
    // SAFETY: the kernel has written the control messages, and their length to the message. Their
    // buffer is aligned to 8.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: null at the end.
    while let Some(head) = unsafe { next.as_ref() } {
        if (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: only computes a length.
            let empty = unsafe { libc::CMSG_LEN(0) } as usize;
            #[allow(clippy::unnecessary_cast, reason = "another type in other C libraries")]
            let len = (head.cmsg_len as usize).saturating_sub(empty);
            for index in 0..len / size_of::<RawFd>() {
                // SAFETY: a message of this type has that many descriptors, which are this
                // process's own from now on.
                all.push(unsafe {
                    let first = libc::CMSG_DATA(head).cast::<RawFd>();
                    OwnedFd::from_raw_fd(first.add(index).read_unaligned())
                });
            }
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(message, head) };
    }
    all
}
