// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks in vbusd whose files are on a host that is slow, full or broken.
//!
//! The tests run as root, since only root can mount such a file system.
#![allow(clippy::unwrap_used)]

mod common;

use common::disks::{create, disk, path, set};
use common::fuse::{Act, Call, Files, Mounted, What, with_mounts};
use common::{Daemon, create_bus, link, soon, spawn_by, vbusd};
use paravane_vbus_client::{Error, Finished, PART, Requests, SECTOR, Wish};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

with_engines!(
    data_that_was_lost_fails_every_flush_from_then_on,
    a_full_file_system_fails_what_needs_room_and_nothing_else,
    what_the_host_does_in_parts_is_whole,
    what_is_interrupted_for_ever_fails,
    a_limit_of_file_sizes_fails_writes_and_does_not_end_vbusd,
);

const PAGE: usize = 4096;
const LEN: usize = 1 << 20;
/// The file of the disk `disk`; the other one is that of `second`.
const IMAGE: usize = 0;

/// A bus `lan` with disks, each on the file of its name, or on `image`.
fn furnish(daemon: &Daemon, engine: &str, disks: &[&str]) {
    let mut control = daemon.control();
    create_bus(&mut control, "lan");
    for &disk in disks {
        let file = if disk == "disk" { "image" } else { disk };
        create(daemon, disk, &[("file", file), ("engine", engine)]).unwrap();
        link(&mut control, "lan", disk);
    }
}

/// Runs a test with two disks on files that do what it wants.
fn with_files(engine: &str, body: impl FnOnce(&Daemon, &Files) + Send) {
    with_mounts(|| {
        let daemon = Daemon::start();
        let folder = daemon.folder.path().join("disks");
        let files = Files::mount(&folder, &[("image", LEN), ("second", LEN)]);
        furnish(&daemon, engine, &["disk", "second"]);
        body(&daemon, &files);
    });
}

fn requests(daemon: &Daemon, disk: &str) -> Requests {
    Requests::connect(&daemon.socket(), "lan", disk, 8).unwrap()
}

/// The next result.
fn finished(requests: &mut Requests, to: &mut [u8]) -> Finished {
    let mut found = None;
    soon("no request is done", || {
        found = requests.finished(to).unwrap();
        found.is_some()
    });
    found.unwrap()
}

/// Makes a request, and returns whether it was done.
fn one(requests: &mut Requests, wish: Wish<'_>) -> bool {
    requests.post(0, wish).unwrap();
    requests.flush();
    finished(requests, &mut [0; PART]).done
}

/// One request of each kind waits for the host. Other requests to the same file, also those that
/// the thread might do itself, and those of another disk go on.
#[test]
fn a_request_that_waits_stops_no_other_disk() {
    for engine in ["auto", "uring"] {
        with_files(engine, |daemon, files| {
            let mut slow = requests(daemon, "disk");
            let mut second = requests(daemon, "second");
            let bytes = [3; SECTOR];
            for (what, wish) in [
                (What::Read, Wish::Read(1, SECTOR)),
                (What::Write, Wish::Write(1, &bytes)),
                (What::Flush, Wish::Flush),
            ] {
                let place = if what == What::Flush {
                    0
                } else {
                    SECTOR as u64
                };
                files.rule(move |call: &Call| {
                    let held = (call.file, call.what, call.offset) == (IMAGE, what, place);
                    if held { Act::Hold } else { Act::Serve }
                });
                slow.post(1, wish).unwrap();
                slow.flush();
                soon("it does not wait", || files.held() == 1);
                slow.post(2, Wish::Write(16, &[4; PAGE])).unwrap();
                slow.flush();
                for wish in [
                    Wish::Write(0, &[5; PAGE]),
                    Wish::Read(1, SECTOR),
                    Wish::Flush,
                ] {
                    assert!(one(&mut second, wish), "{engine} {what:?}");
                }
                assert!(slow.finished(&mut []).unwrap().is_none());
                files.release(None);
                for number in [1, 2] {
                    let found = finished(&mut slow, &mut []);
                    assert_eq!(
                        (found.number, found.done),
                        (number, true),
                        "{engine} {what:?}"
                    );
                }
            }
        });
    }
}

/// Several disks have as many requests under way as they may, and all wait for the host.
#[test]
fn slow_disks_leave_room_for_others() {
    const SLOW: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    with_mounts(|| {
        let daemon = Daemon::start();
        let all: Vec<_> = SLOW.into_iter().chain(["second"]).collect();
        let sizes: Vec<_> = all.iter().map(|name| (*name, LEN)).collect();
        let files = Files::mount(&daemon.folder.path().join("disks"), &sizes);
        furnish(&daemon, "auto", &all);
        files.rule(|call| match call.file < SLOW.len() {
            true => Act::Hold,
            false => Act::Serve,
        });
        let mut clients = Vec::new();
        for disk in SLOW {
            for _ in 0..2 {
                let mut client = requests(&daemon, disk);
                for number in 0..8 {
                    client.post(number, Wish::Read(number, SECTOR)).unwrap();
                }
                client.flush();
                clients.push(client);
            }
        }
        soon("not all wait", || files.held() == 16 * SLOW.len());
        let mut second = requests(&daemon, "second");
        for wish in [
            Wish::Write(0, &[5; PAGE]),
            Wish::Read(1, SECTOR),
            Wish::Flush,
        ] {
            assert!(one(&mut second, wish));
        }
        files.release(None);
        for client in &mut clients {
            assert!((0..8).all(|_| finished(client, &mut []).done));
        }
    });
}

/// A write that the thread does itself takes long. Then the ring waits in its place, for a while.
#[test]
fn after_a_slow_write_the_ring_has_them_for_a_while() {
    with_files("auto", |daemon, files| {
        let figures = || ["at-once", "slow"].map(|name| daemon.attribute("disk", name));
        let mut slow = requests(daemon, "disk");
        let mut second = requests(daemon, "second");
        let page = [3; PAGE];
        let time = Duration::from_millis(100);
        files.rule(move |_| Act::Late(time));
        assert!(one(&mut slow, Wish::Write(8, &page)));
        assert_eq!(figures(), [1, 1]);
        files.rule(|call| match call.file {
            IMAGE => Act::Hold,
            _ => Act::Serve,
        });
        slow.post(1, Wish::Write(8, &page)).unwrap();
        slow.flush();
        soon("it does not wait", || files.held() == 1);
        assert!(one(&mut second, Wish::Read(1, SECTOR)));
        files.rule(|_| Act::Serve);
        files.release(None);
        assert!(finished(&mut slow, &mut []).done);
        assert_eq!(figures(), [1, 1]);
        soon("the thread writes no more", || {
            assert!(one(&mut slow, Wish::Write(8, &page)));
            figures()[0] > 1
        });
    });
}

/// The host reports lost data once, to the next flush.
fn data_that_was_lost_fails_every_flush_from_then_on(engine: &str) {
    with_files(engine, |daemon, files| {
        let mut clients = [(); 3].map(|()| requests(daemon, "disk"));
        for client in &mut clients {
            assert!(one(client, Wish::Write(1, &[3; SECTOR])));
            assert!(one(client, Wish::Flush));
        }
        assert_eq!(daemon.attribute("disk", "lost"), 0);
        let mut first = true;
        files.rule(move |call| match call.what {
            What::Flush if std::mem::take(&mut first) => Act::Hold,
            _ => Act::Serve,
        });
        for client in &mut clients {
            client.post(1, Wish::Flush).unwrap();
            client.flush();
            soon("the flush does not wait", || files.held() == 1);
        }
        files.release(Some(Errno::IO));
        for client in &mut clients {
            assert!(!finished(client, &mut []).done);
            assert!(!one(client, Wish::Flush));
            // Sectors that the file has are read and written.
            assert!(one(client, Wish::Read(1, SECTOR)));
            assert!(one(client, Wish::Write(1, &[4; SECTOR])));
        }
        assert_eq!(daemon.attribute("disk", "lost"), 1);
        assert!(one(&mut requests(daemon, "second"), Wish::Flush));
        assert!(!one(&mut requests(daemon, "disk"), Wish::Flush));
        drop(clients);
        soon("the file is not opened anew", || {
            set(daemon, "file", "image").is_ok()
        });
        assert_eq!(daemon.attribute("disk", "lost"), 0);
        assert!(one(&mut requests(daemon, "disk"), Wish::Flush));
    });
}

/// Many clients flush at once, while the disk is slow: they delay no read, and the host
/// is not asked for each of them.
#[test]
fn many_flushes_stop_nobody_and_are_done_together() {
    const CLIENTS: usize = 40;
    for engine in ["auto", "uring"] {
        with_files(engine, |daemon, files| {
            files.rule(|call| match call.what {
                What::Flush => Act::Hold,
                _ => Act::Serve,
            });
            let mut clients: Vec<_> = (0..CLIENTS).map(|_| requests(daemon, "disk")).collect();
            for client in &mut clients {
                for number in 0..8 {
                    client.post(number, Wish::Flush).unwrap();
                }
                client.flush();
            }
            soon("not all have come", || {
                daemon.attribute("disk", "requests") == 8 * CLIENTS as u64
            });
            soon("the first does not wait", || files.held() == 1);
            let mut beside = requests(daemon, "disk");
            assert!(one(&mut beside, Wish::Read(9, SECTOR)), "{engine}");
            assert_eq!(files.flushes(), 1);
            files.rule(|_| Act::Serve);
            files.release(None);
            for client in &mut clients {
                assert!((0..8).all(|_| finished(client, &mut []).done));
            }
            // Those that came before the first began, and all others.
            assert!(files.flushes() <= 2, "{engine}: {}", files.flushes());
        });
    }
}

fn a_full_file_system_fails_what_needs_room_and_nothing_else(engine: &str) {
    with_mounts(|| {
        let daemon = Daemon::start();
        let folder = daemon.folder.path().join("disks");
        let _small = Mounted::new(&folder, "tmpfs", "size=1m");
        let file = File::create(path(&daemon, "image")).unwrap();
        file.set_len(4 << 20).unwrap();
        furnish(&daemon, engine, &["disk"]);
        let mut disk = disk(&daemon);
        let part = u64::try_from(PART / SECTOR).unwrap();
        let data = [7; PART];
        let mut written = Vec::new();
        for at in (0..64).map(|number| number * part) {
            match disk.write(at, &data) {
                Ok(()) => written.push(at),
                failed => assert_eq!(failed, Err(Error::Failed)),
            }
        }
        assert!((8..=16).contains(&written.len()), "{}", written.len());
        for &at in &written {
            let mut found = [0; PART];
            disk.read(at, &mut found).unwrap();
            assert!(found == data);
            disk.write(at, &data).unwrap();
        }
        disk.flush().unwrap();
        mount_remount(&folder, MountFlags::NOSUID | MountFlags::NODEV, "size=8m").unwrap();
        disk.write(63 * part, &data).unwrap();
    });
}

fn what_the_host_does_in_parts_is_whole(engine: &str) {
    with_files(engine, |daemon, files| {
        // A ring of Linux 6.18 goes on by itself after a part of a read, and at a wrong place if
        // the file is one of FUSE that has no page cache.
        let reads = engine == "pread";
        files.rule(move |call| match call.what {
            What::Read if !reads => Act::Serve,
            _ => Act::Part(1000),
        });
        let mut disk = requests(daemon, "disk");
        let byte = |at: usize| u8::try_from((at ^ (at >> 8)) & 0xff).unwrap();
        let data: Vec<u8> = (0..2 * PAGE).map(byte).collect();
        for sector in [8, 31] {
            assert!(one(&mut disk, Wish::Write(sector, &data)));
            let at = usize::try_from(sector).unwrap() * SECTOR;
            assert!(files.content(IMAGE)[at..at + data.len()] == data);
            disk.post(1, Wish::Read(sector, data.len())).unwrap();
            disk.flush();
            let mut found = vec![0; data.len()];
            assert!(finished(&mut disk, &mut found).done, "{engine} {sector}");
            let same = found.iter().zip(&data).take_while(|(a, b)| a == b);
            assert_eq!(same.count(), data.len(), "{engine} {sector}");
        }
    });
}

/// The files of disks are open without `O_NONBLOCK`, with which a ring waits for nothing.
#[test]
fn the_files_of_disks_may_be_waited_for() {
    for read_only in ["0", "1"] {
        let daemon = Daemon::start();
        fs::write(path(&daemon, "image"), vec![0; LEN]).unwrap();
        create(
            &daemon,
            "disk",
            &[("file", "image"), ("read-only", read_only)],
        )
        .unwrap();
        let process = PathBuf::from(format!("/proc/{}", daemon.child.id()));
        let image = path(&daemon, "image").canonicalize().unwrap();
        let files = fs::read_dir(process.join("fd")).unwrap();
        let mut files = files.map(|file| file.unwrap().path());
        let file = files.find(|file| fs::read_link(file).is_ok_and(|to| to == image));
        let number = file.unwrap().file_name().unwrap().to_os_string();
        let text = fs::read_to_string(process.join("fdinfo").join(number)).unwrap();
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = i32::from_str_radix(flags.unwrap().trim(), 8).unwrap();
        assert_eq!(flags & (libc::O_NONBLOCK | libc::O_APPEND), 0, "{flags:o}");
        let expected = if read_only == "1" {
            libc::O_RDONLY
        } else {
            libc::O_RDWR
        };
        assert_eq!(flags & libc::O_ACCMODE, expected);
    }
}

/// A file system that says each time that a signal came, or that the time is wrong.
fn what_is_interrupted_for_ever_fails(engine: &str) {
    with_files(engine, |daemon, files| {
        let mut disk = requests(daemon, "disk");
        let mut second = requests(daemon, "second");
        for error in [Errno::INTR, Errno::AGAIN] {
            files.rule(move |call| match (call.file, call.what) {
                (IMAGE, What::Read | What::Write) => Act::Fail(error),
                _ => Act::Serve,
            });
            for wish in [Wish::Read(1, SECTOR), Wish::Write(1, &[1; SECTOR])] {
                assert!(!one(&mut disk, wish), "{error}");
            }
            assert!(!one(&mut disk, Wish::Write(8, &[1; PAGE])), "{error}");
            assert!(one(&mut disk, Wish::Flush));
            assert!(one(&mut second, Wish::Read(1, SECTOR)));
        }
        // Once is nothing.
        let mut first = true;
        files.rule(move |_| match std::mem::take(&mut first) {
            true => Act::Fail(Errno::INTR),
            false => Act::Serve,
        });
        assert!(one(&mut disk, Wish::Read(1, SECTOR)));
    });
}

/// vbusd may write no file as large as the disk (`ulimit -f`).
fn a_limit_of_file_sizes_fails_writes_and_does_not_end_vbusd(engine: &str) {
    let mut daemon = Daemon::start();
    fs::write(path(&daemon, "image"), vec![0; LEN]).unwrap();
    furnish(&daemon, engine, &["disk"]);
    daemon.kill();
    let vbusd = vbusd(daemon.folder.path());
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "ulimit -f 512 && exec \"$0\" \"$@\""])
        .arg(vbusd.get_program())
        .args(vbusd.get_args());
    // In blocks of 512 bytes, as POSIX has it, or of 1024.
    daemon.child = spawn_by(&mut limited, daemon.folder.path());
    let mut disk = requests(&daemon, "disk");
    let most = LEN / SECTOR;
    let past = u64::try_from(most - 8).unwrap();
    assert!(one(&mut disk, Wish::Write(8, &[1; PAGE])));
    for _ in 0..3 {
        assert!(!one(&mut disk, Wish::Write(past, &[1; PAGE])));
        assert!(!one(&mut disk, Wish::Write(past + 1, &[1; SECTOR])));
    }
    assert!(one(&mut disk, Wish::Read(past, PAGE)));
    assert!(one(&mut disk, Wish::Flush));
    create_bus(&mut daemon.control(), "other");
}
