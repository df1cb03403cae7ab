// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks in vbusd: files of its folder, for any client of a bus.
#![allow(clippy::unwrap_used)]

mod common;

use common::disks::{SECTORS, content, create, daemon, disk, path};
use common::{Ends, compiled, link, memory, name, send, soon, spawn};
use paravane_vbus_client::bus::Kind;
use paravane_vbus_client::protocol::{Reply, Request, decode, encode, receive};
use paravane_vbus_client::{Disk, Error, SECTOR};
use rustix::fs::{FlockOperation, flock};
use rustix::net::RecvFlags;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

with_engines!(
    clients_read_write_and_flush,
    nothing_acknowledged_is_lost_when_vbusd_dies,
    only_files_of_its_folder_are_served,
    a_disk_that_may_not_be_written_is_not_also_after_a_restart,
    vbusd_starts_without_a_file_and_finds_it_later,
    a_file_that_shrinks_fails_requests_and_nothing_else,
    a_file_that_grows_is_seen_after_a_reset,
    its_thread_is_confined,
    a_client_in_c_works,
);

fn clients_read_write_and_flush(engine: &str) {
    let daemon = daemon(engine);
    let (mut one, mut other) = (disk(&daemon), disk(&daemon));
    assert_eq!((one.sectors(), one.is_read_only()), (SECTORS as u64, false));
    let mut found = vec![0; SECTORS * SECTOR];
    one.read(0, &mut found).unwrap();
    assert!(found.iter().all(|&byte| byte == 0x5a));
    // More than a request holds, and not at its borders.
    let data: Vec<u8> = (0..300 * SECTOR)
        .map(|n: usize| u8::try_from((n ^ (n >> 9)) & 0xff).unwrap())
        .collect();
    one.write(7, &data).unwrap();
    one.flush().unwrap();
    let mut back = vec![0; data.len()];
    other.read(7, &mut back).unwrap();
    assert!(back == data);
    let mut expected = vec![0x5a; SECTORS * SECTOR];
    expected[7 * SECTOR..][..data.len()].copy_from_slice(&data);
    assert!(content(&daemon) == expected);
    for (sector, len) in [(SECTORS as u64, SECTOR), (u64::MAX, SECTOR), (0, 100)] {
        let done = one.write(sector, &vec![0; len]);
        assert!(matches!(done, Err(Error::Invalid(_))), "{sector} {len}");
    }
    assert!(content(&daemon) == expected);
}

/// A client writes numbers and flushes, and vbusd is killed at the same time: what was acknowledged
/// is there, and the client continues.
fn nothing_acknowledged_is_lost_when_vbusd_dies(engine: &str) {
    let mut daemon = daemon(engine);
    let (end, kept) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _ends = Ends(&end);
        let mut disk = disk(&daemon);
        let writer = scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                let number = kept.load(Ordering::Relaxed) + 1;
                let mut sector = [0; SECTOR];
                sector[..8].copy_from_slice(&number.to_le_bytes());
                disk.write(number % SECTORS as u64, &sector).unwrap();
                disk.flush().unwrap();
                kept.store(number, Ordering::Relaxed);
            }
            disk
        });
        for _ in 0..5 {
            let before = kept.load(Ordering::Relaxed);
            soon("nothing is written", || {
                kept.load(Ordering::Relaxed) > before + 20
            });
            daemon.kill();
            let file = File::open(path(&daemon, "image")).unwrap();
            check(&file, kept.load(Ordering::Relaxed));
            daemon.restart();
        }
        end.store(true, Ordering::Relaxed);
        drop(writer.join().unwrap());
    });
    check(
        &File::open(path(&daemon, "image")).unwrap(),
        kept.load(Ordering::Relaxed),
    );
}

/// All numbers up to this one that no later one has replaced are there.
fn check(file: &File, last: u64) {
    let sectors = SECTORS as u64;
    for number in last.saturating_sub(sectors) + 1..=last {
        let mut found = [0; 8];
        let at = number % sectors * SECTOR as u64;
        file.read_exact_at(&mut found, at).unwrap();
        let found = u64::from_le_bytes(found);
        assert!(
            found >= number && (found - number) % sectors == 0,
            "{number} of {last}: {found}"
        );
    }
}

fn only_files_of_its_folder_are_served(engine: &str) {
    let daemon = daemon(engine);
    let outside = daemon.folder.path().join("state.json");
    std::os::unix::fs::symlink(&outside, path(&daemon, "link")).unwrap();
    std::os::unix::fs::symlink("/etc", path(&daemon, "etc")).unwrap();
    fs::create_dir(path(&daemon, "folder")).unwrap();
    fs::write(path(&daemon, "odd"), [0; 700]).unwrap();
    fs::write(path(&daemon, "empty"), []).unwrap();
    let fifo = Command::new("mkfifo").arg(path(&daemon, "fifo")).status();
    assert!(fifo.unwrap().success());
    for bad in [
        "link",
        "etc/passwd",
        "../state.json",
        "/etc/passwd",
        "folder",
        "odd",
        "empty",
        "fifo",
        "none",
        ".",
        "..",
    ] {
        let refused = create(&daemon, "bad", &[("file", bad)]);
        let Err(Error::Refused(error)) = refused else {
            unreachable!("{bad}: {refused:?}");
        };
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
    // One without a file has no clients, and one in use keeps its file.
    create(&daemon, "bare", &[]).unwrap();
    let mut control = daemon.control();
    link(&mut control, "lan", "bare");
    let bare = Disk::connect(&daemon.socket(), "lan", "bare", Duration::ZERO);
    assert!(bare.unwrap_err().to_string().contains("has no file"));
    let _client = disk(&daemon);
    let set = control.ask(&Request::SetAttribute {
        device: name("disk"),
        attribute: "file".to_string(),
        value: "odd".to_string(),
    });
    assert!(matches!(set, Err(Error::Refused(error)) if error.kind() == Kind::Busy));
}

fn a_disk_that_may_not_be_written_is_not_also_after_a_restart(engine: &str) {
    let mut daemon = daemon(engine);
    let set = Request::SetAttribute {
        device: name("disk"),
        attribute: "read-only".to_string(),
        value: "1".to_string(),
    };
    daemon.control().ask(&set).unwrap();
    for _ in 0..2 {
        let mut disk = disk(&daemon);
        assert!(disk.is_read_only());
        assert_eq!(disk.write(3, &[1; SECTOR]), Err(Error::Failed));
        disk.read(3, &mut [0; SECTOR]).unwrap();
        disk.flush().unwrap();
        assert!(content(&daemon).iter().all(|&byte| byte == 0x5a));
        drop(disk);
        daemon.restart();
    }
}

/// A file that is missing keeps vbusd from nothing but its disk.
fn vbusd_starts_without_a_file_and_finds_it_later(engine: &str) {
    let mut daemon = daemon(engine);
    fs::rename(path(&daemon, "image"), path(&daemon, "away")).unwrap();
    daemon.restart();
    let early = Disk::connect(&daemon.socket(), "lan", "disk", Duration::ZERO);
    assert!(early.unwrap_err().to_string().contains("No such file"));
    fs::rename(path(&daemon, "away"), path(&daemon, "image")).unwrap();
    disk(&daemon).read(0, &mut [0; SECTOR]).unwrap();
}

/// A vbusd that starts finds a file locked, as by one that was killed and has not quite ended. The
/// file's client waits for its answer, and no other client does.
#[test]
fn a_file_that_is_locked_at_the_start_keeps_nobody_else_waiting() {
    let mut daemon = daemon("auto");
    fs::write(path(&daemon, "second"), vec![1; SECTORS * SECTOR]).unwrap();
    create(&daemon, "second", &[("file", "second")]).unwrap();
    link(&mut daemon.control(), "lan", "second");
    daemon.kill();
    let image = File::open(path(&daemon, "image")).unwrap();
    flock(&image, FlockOperation::LockExclusive).unwrap();
    daemon.child = spawn(daemon.folder.path());
    let [gone, waits] = [(); 2].map(|()| {
        let mut control = daemon.control();
        control.ask(&Request::Join { bus: name("lan") }).unwrap();
        let open = Request::Open {
            interface: 1,
            version: 1,
        };
        send(control.socket(), &encode(&open).unwrap(), &[memory(4096)]);
        control
    });
    drop(gone);
    let second = Disk::connect(&daemon.socket(), "lan", "second", Duration::ZERO);
    second.unwrap().read(0, &mut [0; SECTOR]).unwrap();
    drop(image);
    let mut packet = vec![0; 4096];
    let mut answer = None;
    soon("it gets no answer", || {
        answer = receive(waits.socket(), &mut packet, RecvFlags::DONTWAIT).ok();
        answer.is_some()
    });
    let (len, files) = answer.unwrap();
    let reply: Reply = decode(&packet[..len]).unwrap();
    assert!(matches!(reply, Reply::Opened(_)), "{reply:?}");
    assert_eq!(files.len(), 2);
    assert_eq!(daemon.attribute("disk", "connections"), 1);
}

fn a_file_that_shrinks_fails_requests_and_nothing_else(engine: &str) {
    let daemon = daemon(engine);
    let mut disk = disk(&daemon);
    let file = File::options().write(true).open(path(&daemon, "image"));
    file.unwrap().set_len(1024 * SECTOR as u64).unwrap();
    let mut sector = [0; SECTOR];
    assert_eq!(disk.read(2000, &mut sector), Err(Error::Failed));
    disk.read(1000, &mut sector).unwrap();
    assert_eq!(sector, [0x5a; SECTOR]);
}

/// A client that connects again sees a file that is larger now as a larger disk. Another disk does
/// not get the file, and fails at once.
fn a_file_that_grows_is_seen_after_a_reset(engine: &str) {
    let daemon = daemon(engine);
    let mut disk = disk(&daemon);
    let file = File::options()
        .read(true)
        .write(true)
        .open(path(&daemon, "image"));
    let file = file.unwrap();
    file.set_len(4096 * SECTOR as u64).unwrap();
    assert!(disk.write(4000, &[1; SECTOR]).is_err());
    let reset = Request::Reset {
        device: name("disk"),
    };
    assert_eq!(daemon.control().ask(&reset), Ok(Reply::Number(1)));
    disk.read(0, &mut [0; SECTOR]).unwrap();
    assert_eq!(disk.sectors(), 4096);
    disk.write(4000, &[1; SECTOR]).unwrap();
    let mut sector = [0; SECTOR];
    file.read_exact_at(&mut sector, 4000 * SECTOR as u64)
        .unwrap();
    assert_eq!(sector, [1; SECTOR]);
    let begun = Instant::now();
    let Err(Error::Refused(error)) = create(&daemon, "other", &[("file", "image")]) else {
        unreachable!("two disks on one file");
    };
    // A file of the vbusd before is waited for, up to 40 s after the start.
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(
        error
            .to_string()
            .contains("another disk or program uses it"),
        "{error}"
    );
}

/// The thread with the files has a policy, and never sees a client's memory.
fn its_thread_is_confined(engine: &str) {
    let daemon = daemon(engine);
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
    let found = tasks.filter(|task| {
        let folder = task.as_ref().unwrap().path();
        let status = fs::read_to_string(folder.join("status")).unwrap();
        status.contains("Name:\tdisks\n") && status.contains("Seccomp:\t2\n")
    });
    assert_eq!(found.count(), 1);
}

/// The C example writes the disk and finds what it wrote.
fn a_client_in_c_works(engine: &str) {
    let daemon = daemon(engine);
    let (_folder, program) = compiled("disk");
    let output = Command::new(program)
        .arg(daemon.socket())
        .args(["lan", "disk"])
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(content(&daemon).iter().all(|&byte| byte == 0xc3));
}
