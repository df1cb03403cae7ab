// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A frame on its way from a client's memory to another's.

use super::segment::{self, Tcp};
use super::{Unfinished, flag};
use crate::content::{Content, Parts};
use crate::endpoint::Sent;
use crate::memory::{MemoryContext, Outside};

/// First bytes of a frame that are copied out of the client's memory, once: the device passes on
/// the bytes that it has checked. All places that flags can name are among them, and the headers of
/// TCP.
pub const HEAD: usize = 288;
/// Bytes of the two addresses and the type at the beginning of a frame.
const HEADER: usize = 14;

/// What is unfinished in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The frame is too short, or contradicts its flags.
    Malformed,
    /// Nothing.
    Finished,
    /// A checksum.
    Checksum {
        /// The first byte that counts.
        start: usize,
        /// Where the checksum is.
        at: usize,
    },
    /// A TCP segment that may be as long as several.
    Long(Tcp),
}

/// How a frame was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As it was.
    Whole,
    /// Its checksum was completed.
    Summed,
    /// A segment was cut off.
    Cut,
}

/// The outcome of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Whether the receiver has taken it, or the next segment of it.
    pub sent: Sent,
    /// How.
    pub way: Way,
    /// There are further segments: pass it again.
    pub more: bool,
}

/// The frame. It keeps its room for the next one.
#[derive(Debug, Default)]
pub struct Frame {
    /// Where it lies.
    pub parts: Parts,
    head: Vec<u8>,
    /// `None`: its headers were not read.
    form: Option<Form>,
    flags: u32,
    /// Bytes of its payload that were passed on as segments.
    cut: usize,
    /// A finished copy, or headers of a segment.
    space: Vec<u8>,
    /// `space` has the finished frame.
    finished: bool,
}

impl Frame {
    /// Reads the headers of a frame whose parts are all there. Of its flags those count that say
    /// what `may` be unfinished in it.
    ///
    /// # Errors
    /// Some of it is not in its client's memory.
    pub fn read(&mut self, memory: &dyn MemoryContext, may: Unfinished) -> Result<(), Outside> {
        self.parts.check(memory)?;
        self.head.resize(self.parts.len().min(HEAD), 0);
        self.parts.read(memory, 0, &mut self.head)?;
        (self.cut, self.finished) = (0, false);
        let flags = self.parts.flags();
        let checksum = may.checksum && flags & flag::CSUM != 0;
        let long = flag::long_over(flags).filter(|&ip| may.has_long(ip));
        let (start, at) = flag::checksum(flags);
        let len = self.parts.len();
        let form = if len < HEADER || (long.is_some() && !checksum) {
            Form::Malformed
        } else if let Some(ip) = long {
            let tcp = Tcp::read(&self.head, len, ip, flag::size(flags));
            let tcp = tcp.filter(|tcp| tcp.places() == (start, at));
            tcp.map_or(Form::Malformed, Form::Long)
        } else if !checksum {
            Form::Finished
        } else if start < HEADER || at + 2 > len {
            Form::Malformed
        } else {
            Form::Checksum { start, at }
        };
        self.flags = match form {
            Form::Malformed | Form::Finished => 0,
            Form::Checksum { .. } => flag::short(flags),
            Form::Long(_) => flag::long(flags),
        };
        self.form = Some(form);
        Ok(())
    }

    /// Forgets the frame.
    pub fn clear(&mut self) {
        self.parts.clear();
        self.form = None;
    }

    /// What is unfinished in it, if its headers were read.
    #[must_use]
    pub fn form(&self) -> Option<Form> {
        self.form
    }

    /// Its first bytes.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The addresses that it is for and from. `None`: it makes no sense.
    #[must_use]
    pub fn addresses(&self) -> Option<([u8; 6], [u8; 6])> {
        let sound = self.form.is_some_and(|form| form != Form::Malformed);
        let (to, rest) = self.head.split_first_chunk().filter(|_| sound)?;
        rest.first_chunk().map(|from| (*to, *from))
    }

    /// Passes the frame on, or the next segment of it, to a receiver. `takes` says which unfinished
    /// frames the receiver accepts. `give` is called at most once, with what the receiver gets, and
    /// its flags.
    ///
    /// A frame that has begun to be cut goes on to be. One that makes no sense is too long for
    /// every port.
    ///
    /// # Errors
    /// Those of `give`, and of the client's memory.
    pub fn pass<E: From<Outside>>(
        &mut self,
        memory: &dyn MemoryContext,
        takes: Unfinished,
        give: impl FnOnce(&Content<'_>, u32) -> Result<Sent, E>,
    ) -> Result<Passed, E> {
        let (sent, way) = match self.form {
            None | Some(Form::Malformed) => (Sent::TooLong, Way::Whole),
            Some(Form::Checksum { start, at }) if !takes.checksum => {
                self.finish(memory, start, at)?;
                (give(&Content::of(&self.space), 0)?, Way::Summed)
            }
            Some(Form::Long(tcp)) if self.cut > 0 || !takes.has_long(tcp.over()) => {
                return self.cut(memory, tcp, takes, give);
            }
            Some(_) => {
                let left = self.parts.len() - self.head.len();
                let body = (&self.parts, memory);
                let all = Content::with(&self.head, body, self.head.len(), left);
                (give(&all, self.flags)?, Way::Whole)
            }
        };
        let more = false;
        Ok(Passed { sent, way, more })
    }

    /// Makes a copy with a complete checksum.
    fn finish(
        &mut self,
        memory: &dyn MemoryContext,
        start: usize,
        at: usize,
    ) -> Result<(), Outside> {
        if !self.finished {
            self.copy(memory, self.head.len(), self.parts.len() - self.head.len())?;
            segment::complete(&mut self.space, start, at);
            self.finished = true;
        }
        Ok(())
    }

    /// Copies the headers, `head` bytes, and `len` bytes after them.
    fn copy(&mut self, memory: &dyn MemoryContext, head: usize, len: usize) -> Result<(), Outside> {
        self.space.clear();
        let head = self.head.get(..head).unwrap_or(&self.head);
        self.space.extend_from_slice(head);
        self.space.resize(head.len() + len, 0);
        let body = self.space.get_mut(head.len()..).unwrap_or_default();
        self.parts.read(memory, head.len(), body)
    }

    /// Passes on the next segment.
    fn cut<E: From<Outside>>(
        &mut self,
        memory: &dyn MemoryContext,
        tcp: Tcp,
        takes: Unfinished,
        give: impl FnOnce(&Content<'_>, u32) -> Result<Sent, E>,
    ) -> Result<Passed, E> {
        let (first, len, more) = tcp.payload(self.cut);
        let from = tcp.headers() + first;
        self.space.clear();
        let headers = self.head.get(..tcp.headers()).unwrap_or_default();
        self.space.extend_from_slice(headers);
        tcp.finish(&mut self.space, first, len);
        let (start, at) = tcp.places();
        let sent = if takes.checksum {
            let content = Content::with(&self.space, (&self.parts, memory), from, len);
            give(&content, flag::short(self.flags))?
        } else {
            self.space.resize(tcp.headers() + len, 0);
            let body = self.space.get_mut(tcp.headers()..).unwrap_or_default();
            self.parts.read(memory, from, body)?;
            segment::complete(&mut self.space, start, at);
            give(&Content::of(&self.space), 0)?
        };
        if sent != Sent::NoBuffer {
            self.cut = first + len;
        }
        let way = Way::Cut;
        Ok(Passed { sent, way, more })
    }
}
