// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: requests to a disk, from descriptors and headers of any content.

#![allow(clippy::unwrap_used)] // A target fails by panicking.

mod common;

use common::{Bell, Memory};
use paravane_fuzz::{Input, fuzz};
use paravane_vbus::devices::block::{Geometry, Parts, SECTOR, Wanted};
use paravane_vbus::{Endpoint, MemoryContext, Region};
use paravane_vbus_shm::layout;
use paravane_vbus_shm::memory::{Queue, size};
use paravane_vbus_shm::north::{Buffer, North, Posted};
use paravane_vbus_shm::ring::Role;
use std::sync::Arc;

const MEMORY: usize = 32 << 10;
const COUNT: u32 = 16;
/// Where headers and data may lie.
const HEADERS: u64 = 4096;
const DATA: u64 = 8192;
const MOST: usize = 8192;

/// A header that makes some sense.
fn header(input: &mut Input<'_>) -> Vec<u8> {
    let sector = match input.u8() % 4 {
        0 => input.u64(),
        _ => input.u64() % 20,
    };
    let sectors = u32::from(input.u8() % 8);
    [
        &u32::from(input.u8() % 6).to_le_bytes()[..],
        &input.u32().to_le_bytes(),
        &sector.to_le_bytes(),
        &sectors.to_le_bytes(),
        &u32::from(input.u8() / 200).to_le_bytes(),
        &[0; 8],
    ]
    .concat()
}

fn descriptor(input: &mut Input<'_>, first: bool) -> Buffer {
    let ptr = match input.u8() % 8 {
        0 => input.u64(),
        1 => input.u64() % (MEMORY as u64 + 64),
        2 => MEMORY as u64 - u64::from(input.u8()),
        _ if first => HEADERS + u64::from(input.u8() % 8) * 32,
        _ => DATA + u64::from(input.u8()) * 8,
    };
    let len = match input.u8() % 8 {
        0 => input.u32(),
        _ if first => 32,
        _ => u32::from(input.u8() % 8) * 256,
    };
    Buffer {
        cookie: 0,
        ptr,
        len,
        flags: u32::from(input.u8() % 4),
    }
}

#[test]
fn vbus_block() {
    fuzz("vbus_block", || {
        |bytes| {
            let mut input = Input::new(bytes);
            let memory = Memory::new(MEMORY);
            let (start, _) = memory.range();
            // SAFETY: within the memory, which stays as long as the rings.
            let queue: Queue<'_> =
                unsafe { Queue::make(start, size(COUNT), COUNT, Role::Transmit) }.unwrap();
            let posted = vec![Posted::default(); COUNT as usize];
            let mut north = North::begin(queue.ring, Role::Transmit, posted, 0).unwrap();
            for at in 0..8 {
                memory
                    .write(HEADERS + at * 32, &header(&mut input))
                    .unwrap();
            }
            let mut first = true;
            while !input.is_empty() && north.room() > 0 {
                let buffer = descriptor(&mut input, first);
                first = buffer.flags & 1 == 0;
                north.post(buffer).unwrap();
            }
            let mut endpoint = Endpoint::open(
                memory.clone(),
                0..size(COUNT) as u64,
                COUNT,
                Role::Transmit,
                memory.clone(),
                Arc::new(Bell::default()),
            )
            .unwrap();
            let disk = Geometry::new(16, input.u8().is_multiple_of(2), "fuzz");
            let mut parts = None;
            while let Ok(Some(request)) = Parts::next(&mut endpoint, &mut parts) {
                play(&endpoint, &request, &disk);
                endpoint.give_back(request.descriptors(), 0);
            }
        }
    });
}

/// A request stays within the disk, and copies as many bytes as it says.
fn play(endpoint: &Endpoint, request: &Parts, disk: &Geometry) {
    let wanted = request.wanted(disk, MOST);
    let bytes = match wanted {
        Wanted::Read(sector) | Wanted::Write(sector) => {
            let bytes = request.bytes();
            assert!(sector * SECTOR + bytes as u64 <= disk.sectors * SECTOR && bytes > 0);
            assert!(bytes <= MOST && bytes.is_multiple_of(512));
            bytes
        }
        Wanted::Flush => {
            assert_eq!(request.bytes(), 0);
            0
        }
        Wanted::Refused(status) => {
            assert_ne!(status, layout::VBUS_BLOCK_DONE);
            let _ = request.finish(endpoint, status);
            return;
        }
    };
    if let Wanted::Write(_) = wanted {
        assert!(!disk.read_only);
    }
    let mut whole = vec![1; bytes];
    if request.read(endpoint, 0, &mut whole).is_err() {
        return;
    }
    // Reads of the two halves give the bytes that one read gives.
    let (mut a, mut b) = (vec![2; bytes / 2], vec![3; bytes - bytes / 2]);
    request.read(endpoint, 0, &mut a).unwrap();
    request.read(endpoint, bytes / 2, &mut b).unwrap();
    assert_eq!([a, b].concat(), whole);
    request.write(endpoint, 0, &whole).unwrap();
    request.finish(endpoint, layout::VBUS_BLOCK_DONE).unwrap();
}
