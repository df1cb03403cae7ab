// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the file of a disk is read and written: through a ring of io_uring or not, and the outcome
//! of requests whose clients end.
#![allow(clippy::unwrap_used)]

mod common;

use common::disks::{SECTORS, content, create, daemon, disk, furnished, path, set, value};
use common::{Daemon, link, name, soon, spawn_by, vbusd};
use paravane_vbus_client::bus::Kind;
use paravane_vbus_client::protocol::Request;
use paravane_vbus_client::{Disk, Error, PART, Requests, SECTOR, Wish};
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

with_engines!(
    what_is_not_in_the_page_cache_is_read,
    requests_whose_client_has_ended_come_before_those_of_the_next,
    clients_that_end_leave_nothing,
);

/// Requests of a connection to the disk.
fn requests(daemon: &Daemon) -> Requests {
    Requests::connect(&daemon.socket(), "lan", "disk", 8).unwrap()
}

/// Waits for the next result.
fn finished(requests: &mut Requests, to: &mut [u8]) -> u64 {
    let mut found = None;
    soon("no request is done", || {
        found = requests.finished(to).unwrap();
        found.is_some()
    });
    let found = found.unwrap();
    assert!(found.done, "request {}", found.number);
    found.number
}

/// Whether the kernel has a thread that waits for requests of a ring of vbusd.
fn has_ring_worker(daemon: &Daemon) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    let mut workers = names.filter(|name| name.starts_with("iou-wrk"));
    workers.next().is_some()
}

#[test]
fn each_engine_does_its_work_its_way() {
    for (engine, used) in [("auto", "uring"), ("uring", "uring"), ("pread", "pread")] {
        let daemon = daemon(engine);
        assert_eq!(value(&daemon, "engine"), engine);
        assert_eq!(value(&daemon, "engine-used"), used);
        let mut disk = disk(&daemon);
        disk.write(1, &[9; SECTOR]).unwrap();
        disk.flush().unwrap();
        // A flush waits for the disk, so a ring leaves it to such a thread.
        assert_eq!(has_ring_worker(&daemon), used == "uring", "{engine}");
        // No other process could use the ring.
        let files = fs::read_dir(format!("/proc/{}/fd", daemon.child.id())).unwrap();
        let mut links = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
        assert!(!links.any(|link| link.to_string_lossy().contains("io_uring")));
    }
}

#[test]
fn an_engine_is_chosen_while_nobody_is_connected_and_kept() {
    let mut daemon = daemon("auto");
    let Err(Error::Refused(error)) = set(&daemon, "engine", "fast") else {
        unreachable!("an engine that does not exist");
    };
    let text = error.to_string();
    assert!(text.contains("auto, uring, pread are"), "{text}");
    let client = disk(&daemon);
    let busy = set(&daemon, "engine", "pread");
    assert!(matches!(busy, Err(Error::Refused(error)) if error.kind() == Kind::Busy));
    drop(client);
    soon("the client is still there", || {
        set(&daemon, "engine", "pread").is_ok()
    });
    daemon.restart();
    assert_eq!(value(&daemon, "engine"), "pread");
    assert!(set(&daemon, "engine-used", "uring").is_err());
}

/// Starts vbusd where a filter refuses rings, as those of containers do. Its output goes to a file.
fn without_rings(folder: &Path) -> Child {
    let said = File::create(folder.join("said")).unwrap();
    let mut command = vbusd(folder);
    command.stderr(said);
    // SAFETY: the function makes two host calls, with memory of its own stack.
    unsafe { command.pre_exec(refuse_rings) };
    spawn_by(&mut command, folder)
}

fn refuse_rings() -> std::io::Result<()> {
    let instruction = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        // The number of the call; if it is io_uring_setup: EPERM; otherwise it is made.
        instruction(0x20, 0, 0, 0),
        instruction(0x15, 0, 1, u32::try_from(libc::SYS_io_uring_setup).unwrap()),
        instruction(0x06, 0, 0, libc::SECCOMP_RET_ERRNO | 1),
        instruction(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: changes this process, which has one thread; the filter outlives the call.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    if done {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    let Err(Error::Refused(error)) = result else {
        unreachable!("{result:?}");
    };
    error.to_string()
}

#[test]
fn a_host_without_rings_has_disks_all_the_same_and_vbusd_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let child = without_rings(folder.path());
    let daemon = furnished(Daemon { child, folder }, "auto");
    let said = fs::read_to_string(daemon.folder.path().join("said")).unwrap();
    let lines: Vec<_> = said.lines().collect();
    assert!(
        lines.len() == 1 && lines[0].contains("io_uring_setup: Operation not permitted"),
        "{said}"
    );
    assert_eq!(value(&daemon, "engine-used"), "pread");
    let mut disk = disk(&daemon);
    disk.write(3, &[8; SECTOR]).unwrap();
    disk.flush().unwrap();
    assert_eq!(content(&daemon)[3 * SECTOR], 8);
    drop(disk);
    let mut text = String::new();
    soon("the client is still there", || {
        text = refusal(set(&daemon, "engine", "uring"));
        !text.contains("in use")
    });
    assert!(text.contains("the host refuses io_uring"), "{text}");
    let text = refusal(create(&daemon, "other", &[("engine", "uring")]));
    assert!(text.contains("the host refuses io_uring"), "{text}");
    let said = fs::read_to_string(daemon.folder.path().join("said")).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// A disk that wants a ring, after a start without: it takes no clients, and nothing else suffers.
#[test]
fn a_disk_that_wants_a_ring_waits_for_one() {
    let mut daemon = daemon("uring");
    fs::write(path(&daemon, "second"), vec![1; SECTORS * SECTOR]).unwrap();
    create(&daemon, "second", &[("file", "second")]).unwrap();
    link(&mut daemon.control(), "lan", "second");
    disk(&daemon).write(0, &[2; SECTOR]).unwrap();
    daemon.kill();
    daemon.child = without_rings(daemon.folder.path());
    assert_eq!(value(&daemon, "engine"), "uring");
    assert_eq!(value(&daemon, "engine-used"), "none");
    let text = refusal(Disk::connect(
        &daemon.socket(),
        "lan",
        "disk",
        Duration::ZERO,
    ));
    assert!(text.contains("the host refuses io_uring"), "{text}");
    let second = Disk::connect(&daemon.socket(), "lan", "second", Duration::ZERO);
    second.unwrap().read(0, &mut [0; SECTOR]).unwrap();
    set(&daemon, "engine", "auto").unwrap();
    let mut sector = [0; SECTOR];
    disk(&daemon).read(0, &mut sector).unwrap();
    assert_eq!(sector, [2; SECTOR]);
}

fn what_is_not_in_the_page_cache_is_read(engine: &str) {
    let daemon = daemon(engine);
    let len = SECTORS * SECTOR;
    let byte = |at: usize| u8::try_from((at ^ (at >> 8) ^ (at >> 16)) & 0xff).unwrap();
    let expected: Vec<u8> = (0..len).map(byte).collect();
    let file = File::options().write(true).open(path(&daemon, "image"));
    let file = file.unwrap();
    file.write_all_at(&expected, 0).unwrap();
    file.sync_all().unwrap();
    let mut requests = requests(&daemon);
    let parts = u64::try_from(len / PART).unwrap();
    let sectors = u64::try_from(PART / SECTOR).unwrap();
    for round in 0..5 {
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let (mut posted, mut done) = (0, 0);
        let mut part = vec![0; PART];
        while done < parts {
            while posted < parts && requests.has_room() {
                // Not in order, so that the kernel does not read them ahead.
                let number = posted * 7 % parts;
                let wish = Wish::Read(number * sectors, PART);
                requests.post(number, wish).unwrap();
                posted += 1;
            }
            requests.flush();
            let number = usize::try_from(finished(&mut requests, &mut part)).unwrap();
            assert!(
                part == expected[number * PART..][..PART],
                "{round} {number}"
            );
            done += 1;
        }
    }
}

/// Connections end with requests under way, by their clients or by a reset. A client that connects
/// then finds each of them done, or never done, but not done later.
fn requests_whose_client_has_ended_come_before_those_of_the_next(engine: &str) {
    let daemon = daemon(engine);
    let sectors = u64::try_from(PART / SECTOR).unwrap();
    let rounds = 60;
    for round in 0..rounds {
        let (old, new) = (vec![2 * round + 1; PART], vec![2 * round + 2; 4 * PART]);
        let mut ends = requests(&daemon);
        for number in 0..8 {
            // Eight requests for four ranges, so each range is written twice, at the odd numbers
            // first.
            let sector = number % 4 * sectors + number / 4;
            let wish = Wish::Write(sector, &old[..PART - SECTOR]);
            ends.post(number, wish).unwrap();
        }
        ends.flush();
        if round % 2 == 0 {
            drop(ends);
        } else {
            let device = name("disk");
            daemon.control().ask(&Request::Reset { device }).unwrap();
        }
        let mut next = disk(&daemon);
        next.write(0, &new).unwrap();
        next.flush().unwrap();
        let mut found = vec![0; new.len()];
        next.read(0, &mut found).unwrap();
        assert!(found == new, "{round}");
        assert!(content(&daemon)[..new.len()] == new, "{round}");
    }
    // Four writes, a flush and four reads of each round are the others.
    let taken = daemon.attribute("disk", "requests") - u64::from(rounds) * 9;
    assert!(taken > 0, "no request was under way");
    assert_eq!(daemon.attribute("disk", "failed"), 0);
}

/// KiB of vbusd's own memory.
fn memory(daemon: &Daemon) -> u64 {
    let status = daemon.status("RssAnon");
    status.split(' ').next().unwrap().parse().unwrap()
}

fn clients_that_end_leave_nothing(engine: &str) {
    let daemon = daemon(engine);
    let end_one = |rounds: u64| {
        for round in 0..rounds {
            let mut requests = requests(&daemon);
            let bytes = [3; PART];
            for number in 0..8 {
                let wish = match (round + number) % 3 {
                    0 => Wish::Read(number, PART),
                    1 => Wish::Write(number, &bytes),
                    _ => Wish::Flush,
                };
                requests.post(number, wish).unwrap();
            }
            requests.flush();
            if round % 4 == 0 {
                finished(&mut requests, &mut []);
            }
        }
    };
    let settled = || {
        soon("connections are left", || {
            daemon.attribute("disk", "connections") == 0
        });
        let mut disk = disk(&daemon);
        disk.flush().unwrap();
        disk.read(0, &mut vec![0; SECTORS * SECTOR]).unwrap();
    };
    end_one(40);
    settled();
    let (files, before) = (daemon.files(), memory(&daemon));
    end_one(160);
    settled();
    soon("descriptors are left", || daemon.files() <= files);
    let after = memory(&daemon);
    assert!(after <= before + 4096, "{before} KiB, then {after}");
    // A disk that has another file has none of this one, also if a ring had both.
    soon("the client is still there", || {
        set(&daemon, "file", "").is_ok()
    });
    soon("the file is locked", || {
        let other = create(&daemon, "other", &[("file", "image")]);
        let locked = |text: &str| text.contains("another disk or program uses it");
        assert!(
            other
                .as_ref()
                .map_or_else(|e| locked(&e.to_string()), |()| true)
        );
        other.is_ok()
    });
}
