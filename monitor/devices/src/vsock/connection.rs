// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection: a byte stream between a socket of the guest and one of the host, with the credit
//! of both ends.

use super::packet::{Header, SHUTDOWN_RECEIVE, SHUTDOWN_SEND};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;

/// Bytes that the guest may send before the host has taken them.
pub const BUFFER: u32 = 256 << 10;

/// The most pieces of a page that are discarded at an end. A socket of the host holds less.
const DISCARDED: u32 = 1024;

/// The result of reading from the host's end.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// This many bytes.
    Data(usize),
    /// Nothing now.
    Later,
    /// The host sends no more; true: it also receives no more.
    End(bool),
    /// The stream is unusable.
    Broken,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    /// Waits for the guest's answer to the connection request.
    pub answer: Option<Sender<io::Result<()>>>,
    /// From the guest, not yet taken by the host.
    buffer: VecDeque<u8>,
    /// Bytes from the guest modulo 2^32: received, taken by the host, last reported to the guest.
    received: u32,
    forwarded: u32,
    told: u32,
    /// Bytes to the guest modulo 2^32: sent; its buffer's size; taken by its program.
    sent: u32,
    peer_buffer: u32,
    peer_forwarded: u32,
    /// Whether the guest will receive more, and whether it will send more.
    pub peer_receives: bool,
    pub peer_sends: bool,
    /// The host's end may have something to read.
    pub readable: bool,
    /// The host's end sends no more.
    pub ended: bool,
    /// The connection is in the queue of those with something for the guest.
    pub queued: bool,
    /// The guest has no such connection any more. It exists until the host has what was sent.
    pub gone: bool,
}

impl Connection {
    /// A connection whose host's end is this stream.
    ///
    /// # Errors
    /// The stream cannot be made non-blocking.
    pub fn new(stream: UnixStream, answer: Option<Sender<io::Result<()>>>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            answer,
            buffer: VecDeque::new(),
            received: 0,
            forwarded: 0,
            told: 0,
            sent: 0,
            peer_buffer: 0,
            peer_forwarded: 0,
            peer_receives: true,
            peer_sends: true,
            readable: false,
            ended: false,
            queued: false,
            gone: false,
        })
    }

    /// The host's end, for waiting.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether both ends have agreed.
    pub fn open(&self) -> bool {
        self.answer.is_none()
    }

    /// Records the guest's buffer, which every packet of a connection reports.
    pub fn note_credit(&mut self, header: &Header) {
        self.peer_buffer = header.buffer_size;
        self.peer_forwarded = header.forwarded;
    }

    /// Bytes for which the guest has room.
    pub fn credit(&self) -> u32 {
        self.peer_buffer
            .saturating_sub(self.sent.wrapping_sub(self.peer_forwarded))
    }

    /// Whether there may be something to send to the guest, and it may be sent.
    pub fn has_output(&self) -> bool {
        self.open() && self.readable && !self.ended && self.peer_receives && self.credit() > 0
    }

    /// Fills in the report about this end's buffer.
    pub fn fill_credit(&mut self, header: &mut Header) {
        header.buffer_size = BUFFER;
        header.forwarded = self.forwarded;
        self.told = self.forwarded;
    }

    /// Whether to send the guest a message that there is room again.
    pub fn owes_credit(&self) -> bool {
        self.peer_sends && self.forwarded.wrapping_sub(self.told) >= BUFFER / 4
    }

    /// Takes data from the guest. False: the guest had no right to send it, or the host's end is
    /// closed.
    pub fn receive(&mut self, data: &[u8]) -> bool {
        let used = self.received.wrapping_sub(self.forwarded);
        let Ok(length) = u32::try_from(data.len()) else {
            return false;
        };
        if !self.open() || !self.peer_sends || length > BUFFER.saturating_sub(used) {
            return false;
        }
        self.received = self.received.wrapping_add(length);
        let mut rest = data;
        if self.buffer.is_empty() {
            match self.write(data) {
                Ok(written) => rest = &data[written..],
                Err(_) => return false,
            }
        }
        self.buffer.extend(rest);
        true
    }

    /// Writes waiting data to the host's end. False: that end is closed.
    pub fn flush(&mut self) -> bool {
        while !self.buffer.is_empty() {
            let (first, _) = self.buffer.as_slices();
            // The copy ends the borrow of the buffer; the parts are small.
            let part = first[..first.len().min(16 << 10)].to_vec();
            match self.write(&part) {
                Ok(0) => return true,
                Ok(written) => {
                    self.buffer.drain(..written);
                }
                Err(_) => return false,
            }
        }
        if !self.peer_sends {
            // Fails where the other end is closed, which needs no notice then.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        true
    }

    /// Whether data waits for the host.
    pub fn waits(&self) -> bool {
        !self.buffer.is_empty()
    }

    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < data.len() {
            match self.stream.write(&data[done..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let count = u32::try_from(done).map_err(io::Error::other)?;
        self.forwarded = self.forwarded.wrapping_add(count);
        Ok(done)
    }

    /// The guest will no longer send, or no longer receive.
    pub fn note_shutdown(&mut self, flags: u32) {
        self.peer_receives &= flags & SHUTDOWN_RECEIVE == 0;
        self.peer_sends &= flags & SHUTDOWN_SEND == 0;
    }

    /// Whether the connection exists after the guest has reset it. Linux resets one that it has
    /// closed when the host's end does not close within 8 s. All that the guest sent is then valid,
    /// and a slow reader still gets it.
    pub fn outlives(&self) -> bool {
        self.open() && !self.peer_sends && self.waits()
    }

    /// The guest has reset the connection, which outlives that.
    pub fn leave(&mut self) {
        self.peer_receives = false;
        self.gone = true;
    }

    /// Discards the input from the host. If a socket is closed with unread bytes, its other end
    /// gets an error in place of the end of the stream.
    pub fn discard(&mut self) {
        let mut bytes = [0; 4096];
        for _ in 0..DISCARDED {
            if !matches!(self.stream.read(&mut bytes), Ok(count) if count > 0) {
                return;
            }
        }
    }

    /// Reads what the host sends, at most what the guest has room for.
    pub fn read(&mut self, buffer: &mut [u8]) -> Input {
        let most = buffer
            .len()
            .min(usize::try_from(self.credit()).unwrap_or(0));
        loop {
            return match self.stream.read(&mut buffer[..most]) {
                Ok(0) => {
                    self.ended = true;
                    Input::End(self.hung_up())
                }
                Ok(count) => {
                    self.sent = self.sent.wrapping_add(u32::try_from(count).unwrap_or(0));
                    Input::Data(count)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    Input::Later
                }
                Err(_) => Input::Broken,
            };
        }
    }

    /// Whether the host's end is closed in both directions.
    pub fn hung_up(&self) -> bool {
        let mut file = [PollFd::new(&self.stream, PollFlags::empty())];
        let none = Timespec::default();
        poll(&mut file, Some(&none)).is_ok_and(|count| count > 0)
            && file[0].revents().contains(PollFlags::HUP)
    }
}
