// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guarantees for a real-time client: sending and receiving allocate nothing, make no host call but
//! a notification, and end after a bounded number of steps, whatever the other side does.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Daemon, Ends, PATIENCE, soon};
use paravane_vbus_client::bus::{ConnectionId, Interface, Kind};
use paravane_vbus_client::protocol::{Reply, Request, decode, encode, receive, send};
use paravane_vbus_client::{Client, Error, Options};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    listen, socket_with, socketpair,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// Counts what each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn allocations() -> u64 {
    ALLOCATIONS.get()
}

// SAFETY: all of it is the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Sends packets to an echo and receives them, without a wait.
fn exchange(client: &mut Client, rounds: u32) {
    let mut packet = [0; 2048];
    for _ in 0..rounds {
        let mut sent = 0;
        while sent < 32 && client.post(&[7; 100]).unwrap() {
            sent += 1;
        }
        client.flush();
        let mut spins = 0u32;
        while sent > 0 {
            if client.receive(&mut packet).unwrap() == Some(100) {
                sent -= 1;
            }
            // The test counts, because a clock could make a host call.
            spins += 1;
            assert!(spins < 1 << 30, "{sent} packets do not come back");
            std::hint::spin_loop();
        }
    }
    client.reclaim().unwrap();
}

/// In the kernel's strict mode, a thread that makes another host call than `read` and `write` dies.
#[test]
fn packets_pass_without_allocations_and_host_calls() {
    let daemon = Daemon::with("echo");
    let mut client = daemon.client();
    client.set_priority(3).unwrap();
    let allocated = Arc::new(AtomicU64::new(u64::MAX));
    let done = Arc::new(AtomicBool::new(false));
    let (count, over) = (Arc::clone(&allocated), Arc::clone(&done));
    thread::spawn(move || {
        exchange(&mut client, 10);
        // SAFETY: it is for this thread alone.
        let entered = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
        assert_eq!(entered, 0);
        let before = allocations();
        exchange(&mut client, 50);
        count.store(allocations() - before, Ordering::SeqCst);
        over.store(true, Ordering::SeqCst);
        // The ordinary end of a thread would make other calls.
        // SAFETY: no thread waits for this one, and what it has stays.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    });
    soon("the thread has made a host call", || {
        done.load(Ordering::SeqCst)
    });
    assert_eq!(allocated.load(Ordering::SeqCst), 0);
}

/// The test above can fail: an allocation is counted.
#[test]
fn an_allocation_is_counted() {
    let before = allocations();
    drop(std::hint::black_box(vec![0u8; 100]));
    assert_eq!(allocations() - before, 1);
}

#[test]
fn memory_is_locked_and_priorities_are_few() {
    let mut daemon = Daemon::with("echo");
    let mut client = daemon.client();
    client.lock_memory().unwrap();
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let field = |own: &str, name: &str| {
        let line = own.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().to_string()
    };
    // Other tests have such memory, too.
    let mut all = maps.split("/memfd:vbus").skip(1);
    let locked = all.find(|own| field(own, "VmFlags:").split(' ').any(|flag| flag == "lo"));
    let locked = locked.unwrap();
    assert_eq!(field(locked, "Rss:"), field(locked, "Size:"));
    client.set_priority(0).unwrap();
    let Err(Error::Refused(error)) = client.set_priority(4) else {
        unreachable!("there is no priority 4");
    };
    assert_eq!(error.kind(), Kind::Invalid);
    let before = allocations();
    for _ in 0..20 {
        client.wait(Some(Duration::ZERO), true).unwrap();
        let _ = client.rest(true);
        client.drain().unwrap();
        client.watch();
    }
    assert_eq!(allocations(), before, "waiting allocates");
    daemon.restart();
    client.reconnect(Duration::from_secs(20)).unwrap();
    exchange(&mut client, 1);
}

/// A vbusd that takes every client, and gives their memory away.
fn accept_all(listener: &OwnedFd, memory: &Sender<File>) {
    let mut kept = Vec::new();
    while let Ok(socket) = accept(listener) {
        let mut packet = vec![0; 64 << 10];
        while let Ok((len, files)) = receive(socket.as_fd(), &mut packet, RecvFlags::empty()) {
            let mut theirs = Vec::new();
            let reply = match decode::<Request>(&packet[..len]).unwrap() {
                Request::Interfaces => Reply::Interfaces(vec![Interface {
                    id: 1,
                    name: "dev".to_string(),
                    interface: "echo".to_string(),
                    version: 1,
                }]),
                Request::Open { .. } => {
                    memory
                        .send(files.into_iter().next().unwrap().into())
                        .unwrap();
                    let flags = SocketFlags::CLOEXEC;
                    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
                    let (ours, bell) = pair.unwrap();
                    kept.push(ours);
                    theirs = vec![eventfd(0, EventfdFlags::CLOEXEC).unwrap(), bell];
                    Reply::Opened(ConnectionId(1))
                }
                _ => Reply::Done,
            };
            let files: Vec<_> = theirs.iter().map(AsFd::as_fd).collect();
            let packet = encode(&reply).unwrap();
            send(socket.as_fd(), &packet, &files, SendFlags::empty()).unwrap();
        }
    }
}

/// The device writes whatever it likes into the rings, all the time.
#[test]
fn every_call_ends_whatever_the_device_writes() {
    const CLIENTS: usize = 100;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let listener = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 8).unwrap();
    let (sender, memories) = channel();
    thread::spawn(move || accept_all(&listener, &sender));
    let (mut breaches, mut taken) = (0, 0);
    for number in 0..CLIENTS {
        let options = Options {
            socket: path.clone(),
            bus: "lan".to_string(),
            device: "dev".to_string(),
            count: 64,
            buffer: 256,
        };
        let mut client = Client::connect(options).unwrap();
        let memory: File = memories.recv_timeout(PATIENCE).unwrap();
        let end = AtomicBool::new(false);
        thread::scope(|scope| {
            let (end, _ends) = (&end, Ends(&end));
            scope.spawn(move || {
                let mut state = 0x9e37_79b9_7f4a_7c15_u64 + number as u64;
                while !end.load(Ordering::SeqCst) {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    // A word of the rings: few values, so that some make sense.
                    let at = (state >> 8) % (4096 / 4) * 4;
                    let value = match state & 7 {
                        0 => u32::try_from(state >> 32).unwrap(),
                        few => u32::try_from((state >> 40) % 64).unwrap() * u32::from(few > 2),
                    };
                    memory.write_all_at(&value.to_le_bytes(), at).unwrap();
                }
            });
            let mut packet = [0; 256];
            let before = allocations();
            for _ in 0..2000 {
                let results = [
                    client.post(&[1; 256]).map(|_| ()),
                    client
                        .receive(&mut packet)
                        .map(|got| taken += u64::from(got.is_some())),
                    client.reclaim().map(|_| ()),
                ];
                client.flush();
                client.watch();
                breaches += results.iter().filter(|result| result.is_err()).count();
            }
            assert_eq!(allocations(), before);
        });
    }
    // Otherwise nothing was tried.
    assert!(
        breaches > 0,
        "no device broke a rule, and {taken} packets came"
    );
}
