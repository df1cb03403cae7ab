// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: the decoders of both sides on arbitrary bytes.

#![allow(clippy::unwrap_used)] // A target fails by panicking.

use paravane_agent_protocol::frame::{
    MAX_DATA, MAX_FROM_AGENT, MAX_TO_AGENT, put_data, put_message,
};
use paravane_agent_protocol::{Decoder, Frame, FromAgent, ToAgent};
use paravane_fuzz::{Input, fuzz};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Decodes bytes that arrive in pieces of these lengths (0: all at once). Returns all frames, and
/// whether decoding ended with an error.
fn frames<M: DeserializeOwned>(bytes: &[u8], pieces: &[u8], most: usize) -> (Vec<Frame<M>>, bool) {
    let mut decoder = Decoder::new(most);
    let (mut all, mut rest) = (Vec::new(), bytes);
    let mut lengths = pieces.iter().copied().cycle();
    loop {
        let length = match lengths.next() {
            None | Some(0) => rest.len(),
            Some(length) => rest.len().min(length.into()),
        };
        let (piece, later) = rest.split_at(length);
        decoder.add(piece);
        rest = later;
        loop {
            match decoder.next() {
                Ok(Some(frame)) => all.push(frame),
                Ok(None) => break,
                Err(_) => return (all, true),
            }
        }
        if rest.is_empty() {
            return (all, false);
        }
    }
}

fn check<M: Serialize + DeserializeOwned + Debug + PartialEq + Clone>(
    bytes: &[u8],
    pieces: &[u8],
    most: usize,
) {
    let at_once = frames::<M>(bytes, &[], most);
    assert_eq!(
        at_once,
        frames::<M>(bytes, pieces, most),
        "the result depends on the pieces"
    );
    let mut again = Vec::new();
    for frame in &at_once.0 {
        match frame {
            Frame::Message(message) => put_message(&mut again, message, most).unwrap(),
            Frame::Data(stream, data) => {
                assert!((1..=MAX_DATA).contains(&data.len()));
                put_data(&mut again, *stream, data);
            }
        }
    }
    assert_eq!(
        frames::<M>(&again, &[], most),
        (at_once.0, false),
        "decoded frames encode again"
    );
}

#[test]
fn agent() {
    fuzz("agent", || {
        |bytes| {
            let mut input = Input::new(bytes);
            let count = usize::from(input.u8() % 4);
            let pieces = input.bytes(count);
            // Raw bytes, or frames with correct lengths.
            let mut stream = Vec::new();
            if input.u8().is_multiple_of(2) {
                stream = input.bytes(bytes.len()).to_vec();
            }
            while !input.is_empty() {
                let (kind, length) = (input.u8() % 5, usize::from(input.u8()));
                let content = input.bytes(length);
                stream.push(kind);
                stream.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
                stream.extend(content);
            }
            check::<ToAgent>(&stream, pieces, MAX_TO_AGENT);
            check::<FromAgent>(&stream, pieces, MAX_FROM_AGENT);
        }
    });
}
