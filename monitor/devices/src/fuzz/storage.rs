// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks and shared folders.

use super::{Request, Target, play, sizes, start};
use crate::Device;
use crate::blk::{Block, Flush, Mode};
use crate::fs::{Access, Fs};
use paravane_confine as confine;
use paravane_fuzz::{Input, fuzz};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

struct Disk(Block);

impl Target for Disk {
    fn queues(&self) -> usize {
        1
    }

    fn device(&mut self) -> &mut dyn Device {
        &mut self.0
    }

    fn request(&mut self, _: usize, input: &mut Input<'_>) -> Request {
        // Read, write, flush, identity, discard, zeroes; and others.
        let kind = input.pick(&[0u32, 1, 4, 8, 11, 13, 0xff]);
        let kind = if kind == 0xff { input.u32() } else { kind };
        let mut out = kind.to_le_bytes().to_vec();
        out.extend([0; 4]);
        out.extend(input.size().to_le_bytes());
        if matches!(kind, 11 | 13) {
            for _ in 0..input.u8() % 4 {
                out.extend(input.size().to_le_bytes());
                out.extend(
                    u32::try_from(input.size() & 0xffff_ffff)
                        .unwrap_or(0)
                        .to_le_bytes(),
                );
                out.extend(u32::from(input.u8() % 4).to_le_bytes());
            }
        } else if kind == 1 {
            let length = usize::from(input.u8() % 4) * 512 + usize::from(input.u8() % 32 / 30);
            out.extend([7; 2048].iter().take(length));
        }
        let mut room = sizes(input);
        if kind == 0 {
            room.iter_mut().for_each(|size| *size = *size % 9 * 512);
        }
        room.push(1);
        Request { out, room }
    }

    fn host(&mut self, _: &mut Input<'_>) {}
}

#[test]
fn blk() {
    fuzz("blk", || {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[5; 64 * 512]).unwrap();
        move |bytes| {
            let mode = match bytes.first() {
                Some(first) if first % 8 == 0 => Mode::ReadOnly,
                Some(first) if first % 8 == 1 => Mode::Write,
                Some(first) if first % 8 == 2 => Mode::Cut(Flush::Honoured),
                _ => Mode::Snapshot,
            };
            let written = matches!(mode, Mode::Write | Mode::Cut(_));
            // A child that another test has just forked can hold the lock of the previous disk for
            // a moment.
            let deadline = Instant::now() + Duration::from_secs(5);
            let mut device = loop {
                match Block::new(file.path(), mode, "fuzz") {
                    Ok(device) => break device,
                    Err(error) => assert!(Instant::now() < deadline, "{error:#}"),
                }
                std::thread::yield_now();
            };
            start(&mut device);
            play(&mut Disk(device), bytes.get(1..).unwrap_or_default());
            // The disk keeps its length, and changes only if it is writable.
            let content = fs::read(file.path()).unwrap();
            assert!(content.len() == 64 * 512, "the disk's size has changed");
            assert!(
                written || content == [5; 64 * 512],
                "written to what is not"
            );
            if content != [5; 64 * 512] {
                fs::write(file.path(), [5; 64 * 512]).unwrap();
            }
        }
    });
}

struct Folder(Fs);

impl Target for Folder {
    fn queues(&self) -> usize {
        2
    }

    fn device(&mut self) -> &mut dyn Device {
        &mut self.0
    }

    /// A FUSE request: a header, and a body that names existing things or is arbitrary.
    fn request(&mut self, _: usize, input: &mut Input<'_>) -> Request {
        let opcode = match input.u8() {
            known @ 0..=60 => u32::from(known),
            61..=0x80 => 1,
            _ => input.pick(&[26u32, 3, 14, 15, 16, 27, 28, 35, 44, 9, 42]),
        };
        let mut body = Vec::new();
        for _ in 0..input.u8() % 6 {
            match input.u8() % 5 {
                0 => body.extend(input.u64().to_le_bytes()),
                1 => body.extend(u64::from(input.u8() % 8).to_le_bytes()),
                2 => body.extend(input.pick(&[
                    &b"file\0"[..],
                    b"sub\0",
                    b"..\0",
                    b".\0",
                    b"/etc/passwd\0",
                    b"link\0",
                    b"a/b\0",
                    b"new\0",
                    b"",
                ])),
                3 => body.extend(u32::from(input.u8()).to_le_bytes()),
                _ => body.extend(input.bytes(24)),
            }
        }
        let node = if input.u8().is_multiple_of(8) {
            input.u64()
        } else {
            u64::from(input.u8() % 6)
        };
        let length = 40 + u32::try_from(body.len()).unwrap_or(0);
        let length = if input.u8().is_multiple_of(16) {
            input.u32()
        } else {
            length
        };
        let mut out = length.to_le_bytes().to_vec();
        out.extend(opcode.to_le_bytes());
        out.extend(input.u8().to_le_bytes());
        out.extend([0; 7]);
        out.extend(node.to_le_bytes());
        out.extend([0; 16]);
        out.extend(body);
        Request {
            out,
            room: vec![input.pick(&[4096, 16, 15, 80, 144, 70_000])],
        }
    }

    fn host(&mut self, _: &mut Input<'_>) {}
}

/// Removes what is in a folder, whatever its modes are. Nothing in it may give its caller rights.
/// This is never through a link.
fn empty(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        let mode = metadata.mode();
        assert!(mode & 0o6000 == 0, "{}: mode {mode:o}", path.display());
        if metadata.is_dir() {
            empty(&path);
            fs::remove_dir(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
    }
}

/// Restores the folder.
fn fill(folder: &Path) {
    empty(folder);
    fs::create_dir(folder.join("sub")).unwrap();
    fs::write(folder.join("file"), "content").unwrap();
    std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
}

/// Runs under the policy of the device's thread, with the shared folder's files alone: an escape
/// ends the test.
#[test]
fn fs_() {
    let outer = tempfile::tempdir().unwrap();
    let shared = outer.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::write(outer.path().join("secret"), "x").unwrap();
    let device = Fs::new(&shared, "fuzz", Access::Write).unwrap();
    fuzz("fs", || {
        // A thread that may do so restores the folder.
        let ((ask, asked), (done, made)) = (channel::<()>(), channel());
        let folder = shared.clone();
        std::thread::spawn(move || {
            for () in asked {
                fill(&folder);
                done.send(()).unwrap();
            }
        });
        confine::enter("fs", &device.files()).unwrap();
        let mut target = Folder(device);
        move |bytes| {
            ask.send(()).unwrap();
            made.recv().unwrap();
            play(&mut target, bytes);
        }
    });
    assert_eq!(
        fs::read_to_string(outer.path().join("secret")).unwrap(),
        "x"
    );
    let names: Vec<_> = fs::read_dir(outer.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
}
