// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets: the header, and sending and receiving with descriptors.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Version of the protocol.
pub const VERSION: u16 = 1;
/// Largest packet in bytes.
pub const MAX: usize = 32 << 10;
/// Most descriptors of a packet.
pub const MAX_FILES: usize = 4;

const HEADER: usize = 4;
const MAGIC: [u8; 2] = *b"VB";

/// What is wrong with a packet, or with the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The other side is not vbusd, or not a client of it.
    #[error("the other side does not speak the protocol of vbusd")]
    Magic,
    /// The other side is older or newer.
    #[error("the other side speaks version {0} of the protocol, this one version {VERSION}")]
    Version(u16),
    /// The packet is longer than [`MAX`], or has too many descriptors.
    #[error("a packet is too long")]
    Long,
    /// The content is no message.
    #[error("malformed message")]
    Message,
    /// The other side has closed the socket.
    #[error("the other side has closed the connection")]
    Closed,
    /// The socket would block.
    #[error("the other side does not read")]
    Full,
    /// Another error of the host.
    #[error("socket: {0}")]
    Host(Errno),
}

impl From<Errno> for Error {
    fn from(error: Errno) -> Self {
        match error {
            Errno::AGAIN => Error::Full,
            Errno::PIPE | Errno::CONNRESET => Error::Closed,
            error => Error::Host(error),
        }
    }
}

/// A packet with a message.
///
/// # Errors
/// [`Error::Long`].
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, Error> {
    let mut packet = MAGIC.to_vec();
    packet.extend(VERSION.to_le_bytes());
    let packet = postcard::to_extend(message, packet).map_err(|_| Error::Message)?;
    if packet.len() > MAX {
        return Err(Error::Long);
    }
    Ok(packet)
}

/// The message of a packet.
///
/// # Errors
/// Another magic number or version, or no message of this type.
pub fn decode<M: DeserializeOwned>(packet: &[u8]) -> Result<M, Error> {
    let (header, content) = packet.split_at_checked(HEADER).ok_or(Error::Magic)?;
    if header[..2] != MAGIC {
        return Err(Error::Magic);
    }
    let version = u16::from_le_bytes([header[2], header[3]]);
    if version != VERSION {
        return Err(Error::Version(version));
    }
    if packet.len() > MAX {
        return Err(Error::Long);
    }
    match postcard::take_from_bytes(content) {
        Ok((message, [])) => Ok(message),
        _ => Err(Error::Message),
    }
}

/// Sends a packet, with descriptors.
///
/// # Errors
/// The socket's. [`Error::Full`] only if it, or `flags`, says not to wait.
pub fn send(
    socket: BorrowedFd<'_>,
    packet: &[u8],
    files: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Error> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(Error::Long);
    }
    let packet = [IoSlice::new(packet)];
    let flags = flags | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendmsg(socket, &packet, &mut control, flags))?;
    Ok(())
}

/// Receives a packet into `buffer`. Returns its length, and its descriptors.
///
/// # Errors
/// The socket's; [`Error::Long`] if the packet is longer than the buffer or has more than
/// [`MAX_FILES`] descriptors.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>), Error> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        let mut buffers = [IoSliceMut::new(buffer)];
        match recvmsg(socket, &mut buffers, &mut control, flags) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(Error::Long);
    }
    if received.bytes == 0 {
        return Err(Error::Closed);
    }
    Ok((received.bytes, files))
}
