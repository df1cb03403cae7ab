// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a ring does, and what the kernel refuses it.

use super::*;
use rustix::event::{EventfdFlags, eventfd};
use std::ffi::c_void;
use std::io::Write;
use std::ptr;

/// Runs a test with a ring on a thread of its own: a thread has one ring.
fn with_ring<R: Send>(depth: u32, body: impl FnOnce(Ring<u32>) -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| body(Ring::new(depth, 4).unwrap()));
        thread.join().unwrap()
    })
}

fn finished(ring: &mut Ring<u32>) -> Finished<u32> {
    loop {
        ring.enter(true).unwrap();
        if let Some(finished) = ring.finished() {
            return finished;
        }
    }
}

fn request(operation: Operation, offset: u64, buffer: &[u8], from: usize) -> Request {
    Request {
        operation,
        file: 1,
        offset,
        buffer: buffer.to_vec(),
        from,
        waits: false,
    }
}

#[test]
fn files_of_the_table_are_written_and_read() {
    with_ring(8, |mut ring| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 1000]).unwrap();
        ring.set_file(1, Some(file.as_fd())).unwrap();
        ring.begin(request(Operation::Write, 100, &[7; 50], 10), 5)
            .unwrap();
        let done = finished(&mut ring);
        assert_eq!(
            (done.tag, done.result, done.buffer),
            (5, Ok(40), vec![7; 50])
        );
        ring.begin(request(Operation::Flush, 0, &[], 0), 6).unwrap();
        assert_eq!(finished(&mut ring).result, Ok(0));
        // After the first bytes, which are done, and up to the end of the file.
        ring.begin(request(Operation::Read, 98, &[0; 2000], 2), 7)
            .unwrap();
        let done = finished(&mut ring);
        assert_eq!((done.tag, done.result), (7, Ok(900)));
        let expected = [&[0; 2][..], &[1; 10], &[7; 40], &[1; 850], &[0; 1098]];
        assert_eq!(done.buffer, expected.concat());
        ring.begin(request(Operation::Read, 1000, &[0; 10], 0), 8)
            .unwrap();
        assert_eq!(finished(&mut ring).result, Ok(0));
        // A file that has left.
        ring.set_file(1, None).unwrap();
        ring.begin(request(Operation::Read, 0, &[0; 10], 0), 9)
            .unwrap();
        assert_eq!(finished(&mut ring).result, Err(Errno::BADF));
        assert!(ring.set_file(4, Some(file.as_fd())).is_err());
    });
}

#[test]
fn it_is_full_when_all_entries_are_under_way() {
    with_ring(8, |mut ring| {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE).unwrap();
        ring.set_file(1, Some(event.as_fd())).unwrap();
        for round in 0..3 {
            let mut seen: Vec<u32> = Vec::new();
            for tag in 0..8 {
                assert!(ring.has_room());
                ring.begin(request(Operation::Read, 0, &[0; 8], 0), tag)
                    .unwrap();
            }
            assert!(!ring.has_room());
            let more = ring.begin(request(Operation::Read, 0, &[0; 8], 0), 8);
            assert_eq!(more, Err(Full), "{round}");
            ring.enter(false).unwrap();
            assert!(ring.finished().is_none());
            rustix::io::write(&event, &8u64.to_ne_bytes()).unwrap();
            while seen.len() < 8 {
                let done = finished(&mut ring);
                assert_eq!((done.result, &done.buffer[..1]), (Ok(8), &[1][..]));
                seen.push(done.tag);
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..8).collect::<Vec<_>>());
        }
    });
}

/// The kernel lets the ring do only its permitted operations, whatever is written into its entries.
#[test]
fn what_it_was_not_made_for_is_refused() {
    with_ring(8, |mut ring| {
        let file = tempfile::tempfile().unwrap();
        ring.set_file(1, Some(file.as_fd())).unwrap();
        let mut play = |opcode: u8, flags: u8, file: i32| {
            let number = ring.free.pop().unwrap();
            let place = &mut ring.under_way[number as usize];
            *place = Some(UnderWay {
                buffer: vec![],
                tag: 0,
            });
            ring.push(Entry {
                opcode,
                flags,
                file,
                user_data: u64::from(number),
                ..Entry::default()
            });
            finished(&mut ring).result
        };
        let admitted = [abi::OP_READ, abi::OP_WRITE, abi::OP_FSYNC];
        // To IORING_OP_SENDMSG_ZC, the last of Linux 6.3: no operations that open, close, connect,
        // send, wait for others or change the table, and no reads into other buffers.
        for opcode in 0..=48 {
            let expected = if admitted.contains(&opcode) {
                Ok(0)
            } else {
                Err(Errno::ACCESS)
            };
            let found = play(opcode, abi::SQE_FIXED_FILE, 1);
            assert_eq!(found, expected, "operation {opcode}");
        }
        // A thread of the kernel.
        for opcode in admitted {
            assert_eq!(play(opcode, abi::SQE_FIXED_FILE | abi::SQE_ASYNC, 1), Ok(0));
        }
        // A descriptor of the process; IOSQE_IO_DRAIN, IOSQE_IO_LINK, IOSQE_IO_HARDLINK.
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
        for opcode in admitted {
            for (flags, file) in [
                (0, descriptor),
                (1 | 1 << 1, 1),
                (1 | 1 << 2, 1),
                (1 | 1 << 3, 1),
            ] {
                let found = play(opcode, flags, file);
                assert_eq!(found, Err(Errno::ACCESS), "{opcode}, flags {flags}");
            }
        }
    });
}

#[test]
fn it_changes_in_its_table_of_files_only_and_for_its_thread_only() {
    with_ring(8, |ring| {
        let register = |change: u32| {
            let operation = change | abi::REGISTER_USE_REGISTERED_RING;
            let nothing: *const c_void = ptr::null();
            // SAFETY: no operation reads or writes at the null address.
            unsafe { calls::register(calls::NUMBER, operation, nothing, 0) }
        };
        // To IORING_REGISTER_FILE_ALLOC_RANGE of Linux 6.0.
        for change in (0..=25).filter(|&change| change != abi::REGISTER_FILES_UPDATE) {
            assert_eq!(register(change), Err(Errno::ACCESS), "{change}");
        }
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                // SAFETY: no entries, and no wait.
                let entered = unsafe { calls::enter(0, false) };
                let changed = calls::set_file(1, None);
                assert!(
                    entered.is_err() && changed.is_err(),
                    "{entered:?} {changed:?}"
                );
            });
            other.join().unwrap();
        });
        ring.set_file(1, None).unwrap();
    });
}
