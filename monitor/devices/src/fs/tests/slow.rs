// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests for which the host takes long: no other request waits for them.

use super::*;
use crate::fs::{AHEAD, READ, Sharing};
use crate::reactor::{Reactor, Wake};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender as Messages, channel};
use std::time::{Duration, Instant};

/// Less than a host takes by far that holds a file, and enough for a busy processor.
const SOON: Duration = Duration::from_millis(700);
/// In which an answer that comes has come.
const LONG: Duration = Duration::from_secs(15);

const O_RDONLY: u32 = libc::O_RDONLY.unsigned_abs();
const O_RDWR: u32 = libc::O_RDWR.unsigned_abs();
const O_TRUNC: u32 = libc::O_TRUNC.unsigned_abs();
const O_EXCL: u32 = libc::O_EXCL.unsigned_abs();
const O_NONBLOCK: u32 = libc::O_NONBLOCK.unsigned_abs();

struct Bell(Messages<()>);

impl Wake for Bell {
    fn wake(&self) {
        let _ = self.0.send(());
    }
}

/// A file that a program of the host has leased: a thread that opens it waits until this is
/// dropped, or for the 45 s that the host grants such a program.
struct Lease {
    _file: fs::File,
}

impl Lease {
    fn new(path: &Path) -> Self {
        let file = fs::File::open(path).unwrap();
        let set = |command, value: i32| {
            // SAFETY: changes this file's lease and the signal that tells of its end.
            let done = unsafe { libc::fcntl(file.as_raw_fd(), command, value) };
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        };
        // Otherwise SIGIO would end this program.
        set(10, libc::SIGURG); // F_SETSIG
        set(libc::F_SETLEASE, libc::F_WRLCK);
        Lease { _file: file }
    }
}

/// A device with workers, on its own thread.
struct Slow {
    sender: Sender,
    rung: Receiver<()>,
    sent: u64,
}

impl Slow {
    /// Sends a request and does not wait for the answer. Returns the answer's address.
    fn send(&mut self, operation: u32, node: u64, body: &[u8]) -> u64 {
        let at = FREE + (2 << 20) + self.sent % 32 * (32 << 10);
        self.sent += 1;
        let guest = &mut self.sender.guest;
        let (length, answer) = request::put(guest, at, operation, node, body);
        guest.offer(1, &[(at, length, false), (answer, 8192, true)]);
        let Sender { fs, driver, .. } = &mut self.sender;
        let begun = Instant::now();
        fs.notified(driver, 1).unwrap();
        let held = begun.elapsed();
        assert!(held < SOON, "{operation} held the thread for {held:?}");
        answer
    }

    /// Sends a request for each node at once. Returns how many answers there are when the device's
    /// thread is free again: those of workers come later.
    fn send_together(&mut self, operation: u32, nodes: &[u64], body: &[u8]) -> usize {
        let guest = &mut self.sender.guest;
        for (node, number) in nodes.iter().zip(0..32) {
            let at = FREE + (2 << 20) + number * (32 << 10);
            let length = u32::try_from(40 + body.len()).unwrap();
            let mut header = bytes(&[length, operation, 7, 0]);
            header.extend(node.to_le_bytes());
            header.extend([0; 16]);
            guest.put(at, &header);
            guest.put(at + 64, body);
            let buffers = [(at, 40, false), (at + 64, length - 40, false)];
            let answer = (at + (16 << 10), 8192, true);
            guest.offer(1, &[buffers[0], buffers[1], answer]);
        }
        let Sender { fs, driver, guest } = &mut self.sender;
        fs.notified(driver, 1).unwrap();
        guest.used(1).len()
    }

    /// The number of answers that come within a time.
    fn answers(&mut self, wanted: usize, within: Duration) -> usize {
        let deadline = Instant::now() + within;
        let mut seen = 0;
        loop {
            let Sender { fs, driver, guest } = &mut self.sender;
            fs.woken(driver).unwrap();
            seen += guest.used(1).len();
            let left = deadline.saturating_duration_since(Instant::now());
            if seen >= wanted || self.rung.recv_timeout(left).is_err() {
                return seen;
            }
        }
    }

    fn lookup(&mut self, name: &str) -> u64 {
        let answer = self.send(LOOKUP, ROOT, &named(&[], name));
        assert_eq!(self.answers(1, LONG), 1);
        long(&self.sender.guest.get(answer + 16, 8), 0)
    }

    fn error(&self, answer: u64) -> i32 {
        self.sender.guest.read(answer + 4)
    }
}

fn on_device<T: Send>(
    folder: &Path,
    sharing: Sharing,
    body: impl FnOnce(&mut Slow) -> T + Send,
) -> T {
    let mut fs = Fs::new(folder, "test", sharing).unwrap();
    let (ring, rung) = channel();
    let waker = Reactor::new().unwrap().waker(0, Arc::new(Bell(ring)));
    fs.start(&waker).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            confine::enter(&fs.name(), &fs.files()).unwrap();
            let sender = Sender::new(fs);
            body(&mut Slow {
                sender,
                rung,
                sent: 0,
            })
        });
        thread.join().unwrap()
    })
}

/// A way to use a file: its request's operation and body, by the name; and what is in the file
/// afterwards. `None`: another node than the file's, and its name.
struct Use {
    what: &'static str,
    operation: u32,
    by_name: bool,
    body: fn(&str) -> Vec<u8>,
    left: &'static str,
}

const USES: [Use; 7] = [
    Use {
        what: "open for reading",
        operation: OPEN,
        by_name: false,
        body: |_| bytes(&[O_RDONLY, 0]),
        left: "old",
    },
    Use {
        what: "read without a handle",
        operation: READ,
        by_name: false,
        body: |_| bytes(&[0, 0, 0, 0, 16, 0, 0, 0, 0, 0]),
        left: "old",
    },
    Use {
        what: "open for writing",
        operation: OPEN,
        by_name: false,
        body: |_| bytes(&[O_RDWR, 0]),
        left: "old",
    },
    Use {
        what: "open and truncate",
        operation: OPEN,
        by_name: false,
        body: |_| bytes(&[O_WRONLY | O_TRUNC, 0]),
        left: "",
    },
    Use {
        what: "set the size",
        operation: SETATTR,
        by_name: false,
        body: |_| attributes(SIZE, 0, 2, None),
        left: "ol",
    },
    Use {
        what: "create what exists",
        operation: CREATE,
        by_name: true,
        body: |name| named(&[O_RDWR | O_CREAT, 0o644, 0, 0], name),
        left: "old",
    },
    Use {
        what: "create and truncate",
        operation: CREATE,
        by_name: true,
        body: |name| named(&[O_RDWR | O_CREAT | O_TRUNC, 0o644, 0, 0], name),
        left: "",
    },
];

/// A thread that opens a file which a program of the host holds waits for it; the device's thread,
/// and so all other requests, do not. The program has as long as on the host itself, and then the
/// request does what it should, once.
#[test]
fn a_file_that_the_host_holds_delays_no_other() {
    let steps = host_thread();
    for workers in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("free"), "x").unwrap();
        for (number, _) in USES.iter().enumerate() {
            fs::write(folder.path().join(number.to_string()), "old").unwrap();
        }
        let sharing = Sharing {
            workers,
            ..Access::Write.into()
        };
        let path = |name: &str| folder.path().join(name);
        on_device(folder.path(), sharing, |slow| {
            for (number, way) in USES.iter().enumerate() {
                let what = way.what;
                let name = number.to_string();
                let node = slow.lookup(&name);
                let (end, ended) = sync_channel::<()>(0);
                let held = path(&name);
                on_host(&steps, move || {
                    let lease = Lease::new(&held);
                    std::thread::spawn(move || {
                        let _ = ended.recv();
                        drop(lease);
                    });
                });
                // On a busy processor something may have seemed slow.
                slow.sender.fs.places = Places::new(!workers);
                let at = if way.by_name { ROOT } else { node };
                let answer = slow.send(way.operation, at, &(way.body)(&name));
                assert_eq!(slow.answers(1, SOON / 4), 0, "{what}: nobody waited");
                slow.lookup("free");
                drop(end);
                assert_eq!(slow.answers(1, LONG), 1, "{what}");
                assert_eq!(slow.error(answer), 0, "{what}");
                let file = path(&name);
                let (tell, told) = sync_channel(1);
                on_host(&steps, move || {
                    tell.send(fs::read_to_string(file).unwrap()).unwrap();
                });
                assert_eq!(told.recv().unwrap(), way.left, "{what}");
            }
        });
    }
}

/// A request that must not wait gets its answer at once.
#[test]
fn a_request_that_does_not_want_to_wait_does_not() {
    let steps = host_thread();
    let folder = tempfile::tempdir().unwrap();
    let held = folder.path().join("held");
    fs::write(&held, "old").unwrap();
    for workers in [false, true] {
        let sharing = Sharing {
            workers,
            ..Sharing::from(Access::Write)
        };
        let lease = held.clone();
        on_device(folder.path(), sharing, |slow| {
            let node = slow.lookup("held");
            let (end, ended) = sync_channel::<()>(0);
            on_host(&steps, move || {
                let lease = Lease::new(&lease);
                std::thread::spawn(move || {
                    let _ = ended.recv();
                    drop(lease);
                });
            });
            for flags in [O_RDONLY, O_RDWR] {
                let answer = slow.send(OPEN, node, &bytes(&[flags | O_NONBLOCK, 0]));
                assert_eq!(slow.answers(1, LONG), 1);
                assert_eq!(slow.error(answer), -libc::EAGAIN);
            }
            let exclusive = [O_RDWR | O_CREAT | O_EXCL, 0o644, 0, 0];
            let answer = slow.send(CREATE, ROOT, &named(&exclusive, "held"));
            assert_eq!(slow.answers(1, LONG), 1);
            assert_eq!(slow.error(answer), -libc::EEXIST);
            // And a new file is made once, with any flags.
            for (name, flags) in [("new", O_RDWR | O_CREAT), ("newer", exclusive[0])] {
                let answer = slow.send(CREATE, ROOT, &named(&[flags, 0o644, 0, 0], name));
                assert_eq!(slow.answers(1, LONG), 1);
                assert_eq!(slow.error(answer), 0, "{name}");
                let at = slow.sender.guest.get(answer + 16 + 128, 8);
                assert_ne!(long(&at, 0), 0, "{name}: no handle");
            }
            drop(end);
        });
        for name in ["new", "newer"] {
            fs::remove_file(folder.path().join(name)).unwrap();
        }
    }
}

/// Of requests that come together, the device's thread leaves some to workers. Reads of small files
/// that the guest has marked it serves itself.
#[test]
fn small_reads_that_come_together_need_no_worker() {
    const FILES: usize = 12;
    let folder = tempfile::tempdir().unwrap();
    for number in 0..FILES {
        fs::write(folder.path().join(number.to_string()), "text").unwrap();
    }
    on_device(folder.path(), Sharing::from(Access::Write), |slow| {
        let nodes: Vec<_> = (0..FILES).map(|n| slow.lookup(&n.to_string())).collect();
        for (flags, most) in [(AHEAD, FILES), (0, FILES - 1)] {
            // On a busy processor something may have seemed slow.
            slow.sender.fs.places = Places::new(true);
            let read = bytes(&[0, 0, 0, 0, 16, flags, 0, 0, 0, 0]);
            let now = slow.send_together(READ, &nodes, &read);
            let later = slow.answers(FILES - now, LONG);
            assert_eq!(now + later, FILES, "{flags:x}");
            assert!(now <= most, "{now} with {flags:x}");
            if flags == AHEAD {
                assert_eq!(now, FILES);
                let text = slow.sender.guest.get(FREE + (2 << 20) + (16 << 10) + 16, 4);
                assert_eq!(text, b"text");
            }
        }
    });
}

/// How many descriptors of this program are of a file: one is the crate's own.
fn descriptors(host: &SyncSender<Step>, path: &Path) -> usize {
    let (count, counted) = channel();
    let path = path.to_path_buf();
    on_host(host, move || {
        let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let of = |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|to| to == path);
        count.send(all.filter(of).count()).unwrap();
    });
    counted.recv().unwrap()
}

/// A guest that has all of a file seldom reads it again. A file that it does read again stays open,
/// as does a file of which it has read a part.
#[test]
fn what_was_read_as_a_whole_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let host = host_thread();
    let reads = [("small", 4000, [1, 2, 2]), ("large", 4096, [2, 2, 2])];
    for (name, size, _) in reads {
        fs::write(folder.path().join(name), vec![b'x'; size]).unwrap();
    }
    let real = folder.path().canonicalize().unwrap();
    let paths = reads.map(|(name, ..)| real.join(name));
    on_device(folder.path(), Sharing::from(Access::Write), |slow| {
        for ((name, size, open), path) in reads.into_iter().zip(&paths) {
            let node = slow.lookup(name);
            for wanted in open {
                let answer = slow.send(READ, node, &bytes(&[0, 0, 0, 0, 4096, 0, 0, 0, 0, 0]));
                assert_eq!(slow.answers(1, LONG), 1);
                let length = slow.sender.guest.read::<u32>(answer);
                assert_eq!(length as usize, 16 + size, "{name}");
                assert_eq!(descriptors(&host, path), wanted, "{name}");
            }
        }
    });
}
