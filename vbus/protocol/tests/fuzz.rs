// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: the decoders of both sides on arbitrary packets, and on packets with a right
//! header.

#![allow(clippy::unwrap_used)] // A target fails by panicking.

use paravane_fuzz::{Input, fuzz};
use paravane_vbus_protocol::{Error, MAX, Reply, Request, VERSION, decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

fn check<M: Serialize + DeserializeOwned + Debug + PartialEq>(packet: &[u8]) {
    let Ok(message) = decode::<M>(packet) else {
        return;
    };
    // A decoded message encodes to bytes that decode to the same message. A number may have been
    // encoded in more bytes than it needs.
    let again = encode(&message).unwrap();
    assert!(again.len() <= packet.len());
    assert_eq!(decode::<M>(&again), Ok(message));
}

#[test]
fn vbus_protocol() {
    fuzz("vbus_protocol", || {
        |bytes| {
            let mut input = Input::new(bytes);
            let mut packet = Vec::new();
            if !input.u8().is_multiple_of(4) {
                packet.extend(*b"VB");
                packet.extend(VERSION.to_le_bytes());
            }
            packet.extend(input.bytes(bytes.len()));
            check::<Request>(&packet);
            check::<Reply>(&packet);
        }
    });
}

#[test]
fn other_versions_and_long_packets_are_refused() {
    let mut packet = encode(&Request::Classes).unwrap();
    assert_eq!(decode(&packet), Ok(Request::Classes));
    packet.push(0);
    assert_eq!(decode::<Request>(&packet), Err(Error::Message));
    packet[2] += 1;
    assert_eq!(decode::<Request>(&packet), Err(Error::Version(VERSION + 1)));
    packet[0] = b'X';
    assert_eq!(decode::<Request>(&packet), Err(Error::Magic));
    assert_eq!(decode::<Request>(b"VB"), Err(Error::Magic));
    let names = Reply::Names(vec!["x".repeat(1000); MAX / 1000 + 1]);
    assert_eq!(encode(&names), Err(Error::Long));
}
