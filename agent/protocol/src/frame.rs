// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames: a kind, a length, and content of that length.
//!
//! | bytes | |
//! | --- | --- |
//! | 1 | kind: 0 for a message, 1 to 3 for data of a [`Stream`] |
//! | 4 | length of the content in bytes, little-endian |

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;

/// Size of kind and length in bytes.
const HEADER: usize = 5;
/// The maximum content of a data frame in bytes.
pub const MAX_DATA: usize = 64 << 10;
/// The maximum size of a message to the agent in bytes. Linux accepts about 2 MiB of arguments and
/// environment.
pub const MAX_TO_AGENT: usize = 2 << 20;
/// The maximum size of a message from the agent in bytes.
pub const MAX_FROM_AGENT: usize = 16 << 10;

const MESSAGE: u8 = 0;

/// A standard stream of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard input.
    Input,
    /// Standard output; all output if the command has a terminal.
    Output,
    /// Standard error.
    Error,
}

impl Stream {
    fn kind(self) -> u8 {
        match self {
            Stream::Input => 1,
            Stream::Output => 2,
            Stream::Error => 3,
        }
    }

    fn of_kind(kind: u8) -> Option<Stream> {
        [Stream::Input, Stream::Output, Stream::Error]
            .into_iter()
            .find(|stream| stream.kind() == kind)
    }
}

/// A decoded frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<M> {
    /// A message.
    Message(M),
    /// Bytes of a stream, at least one.
    Data(Stream, Vec<u8>),
}

/// The other side violates the protocol. The connection cannot be used any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kind is neither a message nor a stream.
    #[error("frame of unknown kind {0}")]
    Kind(u8),
    /// A frame longer than the maximum, or a data frame without data.
    #[error("frame of {0} bytes")]
    Length(usize),
    /// The content does not decode, or is longer than the message.
    #[error("malformed message")]
    Message,
}

/// Appends a message as a frame.
///
/// # Errors
/// [`Error::Length`] if it is longer than `most`, the limit of the other side's decoder.
pub fn put_message<M: Serialize>(out: &mut Vec<u8>, message: &M, most: usize) -> Result<(), Error> {
    let bytes = postcard::to_allocvec(message).map_err(|_| Error::Message)?;
    if bytes.len() > most {
        return Err(Error::Length(bytes.len()));
    }
    put(out, MESSAGE, &bytes)
}

/// Appends data as one or more frames.
pub fn put_data(out: &mut Vec<u8>, stream: Stream, data: &[u8]) {
    for part in data.chunks(MAX_DATA) {
        // Cannot fail: the length is at most MAX_DATA.
        let _ = put(out, stream.kind(), part);
    }
}

fn put(out: &mut Vec<u8>, kind: u8, content: &[u8]) -> Result<(), Error> {
    let length = u32::try_from(content.len()).map_err(|_| Error::Length(content.len()))?;
    out.reserve(HEADER + content.len());
    out.push(kind);
    out.extend(length.to_le_bytes());
    out.extend(content);
    Ok(())
}

/// Decodes frames from pieces of any size. Stores at most one frame and one piece.
#[derive(Debug)]
pub struct Decoder<M> {
    bytes: Vec<u8>,
    /// Bytes of it that were decoded.
    used: usize,
    most: usize,
    message: PhantomData<fn() -> M>,
}

impl<M: DeserializeOwned> Decoder<M> {
    /// Creates a decoder for messages of at most `most` bytes: [`MAX_TO_AGENT`] or
    /// [`MAX_FROM_AGENT`].
    #[must_use]
    pub fn new(most: usize) -> Self {
        Decoder {
            bytes: Vec::new(),
            used: 0,
            most,
            message: PhantomData,
        }
    }

    /// Adds received bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.used);
        self.used = 0;
        self.bytes.extend(bytes);
    }

    /// The next complete frame, if there is one.
    ///
    /// # Errors
    /// If the bytes are not a frame. The decoder cannot be used after that.
    #[allow(clippy::should_implement_trait)] // Not an iterator: after None, more frames may follow.
    pub fn next(&mut self) -> Result<Option<Frame<M>>, Error> {
        let waiting = self.bytes.get(self.used..).unwrap_or_default();
        let Some((&[kind, a, b, c, d], rest)) = waiting.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let stream = Stream::of_kind(kind);
        let right = match stream {
            Some(_) => (1..=MAX_DATA).contains(&length),
            None if kind == MESSAGE => length <= self.most,
            None => return Err(Error::Kind(kind)),
        };
        if !right {
            return Err(Error::Length(length));
        }
        let Some(content) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = match stream {
            Some(stream) => Frame::Data(stream, content.to_vec()),
            None => match postcard::take_from_bytes(content) {
                Ok((message, [])) => Frame::Message(message),
                _ => return Err(Error::Message),
            },
        };
        self.used += HEADER + length;
        Ok(Some(frame))
    }

    /// Whether a frame is incomplete. At the end of a connection, the other side was interrupted.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.bytes.len() > self.used
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Exec, FromAgent, Size, ToAgent};
    use proptest::prelude::*;

    fn exec() -> impl Strategy<Value = ToAgent> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..20);
        (
            prop::collection::vec(bytes(), 0..4),
            prop::collection::vec((bytes(), bytes()), 0..4),
            prop::option::of(bytes()),
            prop::option::of(".{0,8}"),
            prop::option::of((any::<u16>(), any::<u16>())),
            any::<bool>(),
        )
            .prop_map(|(argv, env, cwd, user, size, input)| {
                ToAgent::Exec(Exec {
                    argv,
                    env,
                    cwd,
                    user,
                    terminal: size.map(|(columns, rows)| Size { columns, rows }),
                    input,
                })
            })
    }

    fn frame() -> impl Strategy<Value = Frame<ToAgent>> {
        let stream = prop_oneof![
            Just(Stream::Input),
            Just(Stream::Output),
            Just(Stream::Error)
        ];
        prop_oneof![
            exec().prop_map(Frame::Message),
            any::<i32>().prop_map(|n| Frame::Message(ToAgent::Signal(n))),
            Just(Frame::Message(ToAgent::EndOfInput)),
            (stream, prop::collection::vec(any::<u8>(), 1..2000))
                .prop_map(|(s, b)| Frame::Data(s, b)),
        ]
    }

    fn encode(frames: &[Frame<ToAgent>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for frame in frames {
            match frame {
                Frame::Message(message) => put_message(&mut bytes, message, MAX_TO_AGENT).unwrap(),
                Frame::Data(stream, data) => put_data(&mut bytes, *stream, data),
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn frames_survive_any_fragmentation(
            frames in prop::collection::vec(frame(), 0..8),
            cuts in prop::collection::vec(1usize..700, 1..20),
        ) {
            let bytes = encode(&frames);
            let mut decoder = Decoder::new(MAX_TO_AGENT);
            let (mut seen, mut at, mut cuts) = (Vec::new(), 0, cuts.iter().cycle());
            while at < bytes.len() {
                let end = (at + cuts.next().unwrap()).min(bytes.len());
                decoder.add(&bytes[at..end]);
                at = end;
                while let Some(frame) = decoder.next().unwrap() {
                    seen.push(frame);
                }
            }
            prop_assert_eq!(seen, frames);
            prop_assert!(!decoder.is_inside());
        }

        #[test]
        fn any_bytes_are_handled(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
            let mut to: Decoder<ToAgent> = Decoder::new(MAX_TO_AGENT);
            to.add(&bytes);
            while let Ok(Some(_)) = to.next() {}
            let mut from: Decoder<FromAgent> = Decoder::new(MAX_FROM_AGENT);
            from.add(&bytes);
            while let Ok(Some(_)) = from.next() {}
        }

        #[test]
        fn damaged_frames_are_handled(
            frames in prop::collection::vec(frame(), 1..4),
            at: prop::sample::Index,
            bit in 0u8..8,
        ) {
            let mut bytes = encode(&frames);
            *at.get_mut(&mut bytes) ^= 1 << bit;
            let mut decoder: Decoder<ToAgent> = Decoder::new(MAX_TO_AGENT);
            decoder.add(&bytes);
            while let Ok(Some(_)) = decoder.next() {}
        }
    }

    #[test]
    fn a_length_is_refused_before_the_bytes_are_there() {
        let next = |kind: u8, length: u32| {
            let mut decoder: Decoder<FromAgent> = Decoder::new(MAX_FROM_AGENT);
            decoder.add(&[kind]);
            assert_eq!(decoder.next(), Ok(None));
            decoder.add(&length.to_le_bytes());
            decoder.next()
        };
        assert_eq!(next(2, 0x1_0001), Err(Error::Length(0x1_0001)));
        assert_eq!(next(2, 0), Err(Error::Length(0)));
        assert_eq!(next(0, u32::MAX), Err(Error::Length(0xffff_ffff)));
        assert_eq!(next(4, 1), Err(Error::Kind(4)));
        assert_eq!(next(3, 0x1_0000), Ok(None));
    }

    #[test]
    fn a_message_that_is_too_long_is_not_sent() {
        let mut out = Vec::new();
        let message = FromAgent::Failed(crate::Failure {
            code: 127,
            why: "x".repeat(MAX_FROM_AGENT),
        });
        assert!(matches!(
            put_message(&mut out, &message, MAX_FROM_AGENT),
            Err(Error::Length(_))
        ));
        assert!(out.is_empty());
    }

    #[test]
    fn trailing_bytes_after_a_message_are_an_error() {
        let mut decoder: Decoder<ToAgent> = Decoder::new(MAX_TO_AGENT);
        let mut bytes = Vec::new();
        put_message(&mut bytes, &ToAgent::EndOfInput, MAX_TO_AGENT).unwrap();
        bytes[1] += 1;
        bytes.push(0);
        decoder.add(&bytes);
        assert_eq!(decoder.next(), Err(Error::Message));
    }
}
