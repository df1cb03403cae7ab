// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stands in for passt where passt is missing or too old: it exchanges frames with a machine on
//! descriptor 3, each after its length. It answers queries for the router's address, and pings. It
//! ends with the stream, or when the machine begins a connection by TCP.

#![allow(clippy::unwrap_used)] // A failure fails the test.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;

const ROUTER: [u8; 4] = [10, 0, 2, 2];
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ICMP: u8 = 1;
const TCP: u8 = 6;

fn main() {
    // SAFETY: the descriptor is this program's, and nothing else uses it.
    let mut stream = unsafe { File::from_raw_fd(3) };
    loop {
        let mut length = [0; 4];
        if stream.read_exact(&mut length).is_err() {
            return;
        }
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut frame).unwrap();
        let is = |at: usize, bytes: &[u8]| frame.get(at..at + bytes.len()) == Some(bytes);
        let ipv4 = is(12, &[8, 0, 0x45]);
        if ipv4 && is(23, &[TCP]) {
            return;
        }
        if is(12, &[8, 6]) && is(20, &[0, 1]) && is(38, &ROUTER) {
            let asked = frame[22..32].to_vec();
            frame[20..22].copy_from_slice(&[0, 2]);
            frame[22..28].copy_from_slice(&MAC);
            frame[28..32].copy_from_slice(&ROUTER);
            frame[32..42].copy_from_slice(&asked);
        } else if ipv4 && is(23, &[ICMP]) && is(30, &ROUTER) && is(34, &[8]) {
            let (from, to) = frame[26..34].split_at_mut(4);
            from.swap_with_slice(to);
            frame[34] = 0;
            let sum = u16::from_be_bytes([frame[36], frame[37]]);
            let (sum, carry) = sum.overflowing_add(8 << 8);
            frame[36..38].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        } else {
            continue;
        }
        frame.copy_within(6..12, 0);
        frame[6..12].copy_from_slice(&MAC);
        stream.write_all(&length).unwrap();
        stream.write_all(&frame).unwrap();
    }
}
