// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes packets of peers, with every file that comes beside them.
//!
//! A file that does not fit into the control buffer would be closed by the kernel, on vbusd's
//! thread (see [`crate::closer`]). So there is room for as many files as a packet can have.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Files of a packet: the kernel's limit (`SCM_MAX_FD`).
const FILES: usize = 253;
/// Room for them and for the sender's credentials, in words.
const WORDS: usize = 160;
/// Bytes of the credentials.
#[allow(clippy::cast_possible_truncation, reason = "12 bytes")]
const CREDENTIALS: u32 = size_of::<libc::ucred>() as u32;
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

/// What comes next, which stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The other side sends no more, and there is nothing.
    End,
    /// A packet without files.
    Bytes,
    /// A packet with files.
    Files,
}

/// Looks at the next packet without waiting, and takes none of its files.
///
/// # Errors
/// As for [`receive`].
pub fn next(socket: &OwnedFd) -> io::Result<Next> {
    // Room for the credentials alone: files do not fit, and the kernel reports that.
    // SAFETY: only computes a length.
    let space = unsafe { libc::CMSG_SPACE(CREDENTIALS) } as usize;
    let mut control = [0u64; WORDS];
    let control = control.get_mut(..space / 8).unwrap_or(&mut []);
    let (len, message) = receive_with(socket, &mut [], control, libc::MSG_PEEK)?;
    Ok(if message.msg_flags & libc::MSG_CTRUNC != 0 {
        Next::Files
    } else if len == 0 && message.msg_controllen == 0 {
        Next::End
    } else {
        Next::Bytes
    })
}

/// Takes the next packet without waiting. The socket has `SO_PASSCRED`, so the kernel adds the
/// sender to each packet, which distinguishes an empty packet from the end.
///
/// # Errors
/// The socket's; [`io::ErrorKind::WouldBlock`]: there is none.
pub fn receive(socket: &OwnedFd, packet: &mut [u8]) -> io::Result<Received> {
    let mut control = [0u64; WORDS];
    let (len, message) = receive_with(socket, packet, &mut control, 0)?;
    Ok(Received {
        end: len == 0 && message.msg_controllen == 0,
        len,
        whole: message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0,
        files: files(&message),
    })
}

/// The message refers to `packet` and `control`.
fn receive_with(
    socket: &OwnedFd,
    packet: &mut [u8],
    control: &mut [u64],
    flags: libc::c_int,
) -> io::Result<(usize, libc::msghdr)> {
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
    let room = size_of_val(control).try_into().unwrap_or(0);
    message.msg_controllen = room;
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
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
    Ok((len, message))
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
