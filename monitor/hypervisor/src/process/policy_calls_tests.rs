// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The filter at work: children under the filter execute the host-call instruction with registers
//! of all kinds, some hundred thousand times. Whatever happens to them, nothing outside of them
//! changes.

use super::*;
use std::arch::asm;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The number for `make test-release`.
const LONG: &str = "PARAVANE_TEST_LONG";
/// Descriptors of guest memory in a child.
const RAM_FIRST: libc::c_int = 5;
const RAM_LAST: libc::c_int = 6;
const RAM_SIZE: u64 = 4 << 20;
const PAGE: usize = 4096;
/// How long a child may wait for something that never comes, in µs.
const LIFE: libc::suseconds_t = 30_000;
/// How long the test waits for the end of a child.
const PATIENCE: Duration = Duration::from_secs(60);

/// What children share with the test: the first word counts calls, the rest must not change.
struct Stage {
    /// A page with `syscall; ret`.
    code: *mut u8,
    /// Calls made, including those of children.
    count: *mut u8,
    /// A page that the children must not change.
    sentinel: *mut u8,
    ram: OwnedFd,
    filter: BpfProgram,
    /// A process of the same user.
    sleeper: Child,
}

fn page(flags: libc::c_int) -> *mut u8 {
    let (none, protection) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping at an address that the host chooses.
    let page = unsafe { libc::mmap(none, PAGE, protection, flags | libc::MAP_ANONYMOUS, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page.cast()
}

impl Stage {
    fn new() -> Self {
        let code = page(libc::MAP_PRIVATE);
        // SAFETY: the page is ours and writable, then executable.
        unsafe {
            code.copy_from_nonoverlapping([0x0f, 0x05, 0xc3].as_ptr(), 3);
            libc::mprotect(code.cast(), PAGE, libc::PROT_READ | libc::PROT_EXEC);
        }
        let sentinel = page(libc::MAP_SHARED);
        // SAFETY: the page is ours and writable.
        unsafe { sentinel.write_bytes(0x5e, PAGE) };
        let ram = rustix::fs::memfd_create("ram", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&ram, RAM_SIZE).unwrap();
        let parameters = Parameters {
            host_call: code.addr() as u64 + 2,
            ram_first: u64::try_from(RAM_FIRST).unwrap(),
            ram_last: u64::try_from(RAM_LAST).unwrap(),
            signal_scope: SignalScope::Landlock,
        };
        Stage {
            code,
            count: page(libc::MAP_SHARED),
            sentinel,
            ram,
            filter: compile(ADDRESS_SPACE, &parameters).unwrap(),
            sleeper: Command::new("sleep")
                .arg("3600")
                .stdin(Stdio::null())
                .spawn()
                .unwrap(),
        }
    }

    fn count(&self) -> &AtomicU64 {
        // SAFETY: the page is aligned and stays mapped as long as the stage.
        unsafe { AtomicU64::from_ptr(self.count.cast()) }
    }

    /// Forks a child that makes calls until it dies. Returns how it ended.
    fn child(&self, seed: u64) -> i32 {
        let parent = std::process::id();
        // SAFETY: the child makes only system calls and touches only memory that exists.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            self.act(seed, parent);
        }
        // The child may block the signal that ends its life.
        let deadline = Instant::now() + PATIENCE;
        let mut status = 0;
        loop {
            // SAFETY: waits for our own child.
            match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
                0 if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
                0 => break,
                ended => {
                    assert_eq!(ended, pid);
                    return status;
                }
            }
        }
        // SAFETY: ends our own child, which was not waited for.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, &raw mut status, 0);
        }
        panic!("seed {seed}: the child does not end");
    }

    /// The child. It must not allocate.
    fn act(&self, seed: u64, parent: u32) -> ! {
        let program = libc::sock_fprog {
            len: u16::try_from(self.filter.len()).unwrap_or(0),
            filter: self.filter.as_ptr().cast_mut().cast(),
        };
        let life = libc::itimerval {
            it_interval: libc::timeval {
                tv_sec: 0,
                tv_usec: LIFE,
            },
            it_value: libc::timeval {
                tv_sec: 0,
                tv_usec: LIFE,
            },
        };
        let no_core = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: system calls with plain numbers and pointers to live values.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
            // Signals that the test's run-time catches must kill here.
            for signal in [libc::SIGSEGV, libc::SIGBUS] {
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::munmap(self.sentinel.cast(), PAGE);
            let ram = self.ram.as_raw_fd();
            let high = libc::fcntl(ram, libc::F_DUPFD, 100);
            for file in RAM_FIRST..=RAM_LAST {
                libc::dup2(high, file);
            }
            libc::syscall(libc::SYS_close_range, 0, RAM_FIRST - 1, 0);
            libc::syscall(libc::SYS_close_range, RAM_LAST + 1, u32::MAX, 0);
            libc::setitimer(libc::ITIMER_REAL, &raw const life, std::ptr::null_mut());
            let failed = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::syscall(libc::SYS_seccomp, 1, 0, &raw const program) != 0;
            if failed {
                libc::abort();
            }
        }
        let mut random = Random(seed);
        let pids = [
            u64::from(parent),
            u64::from(self.sleeper.id()),
            0,
            1,
            u64::MAX,
        ];
        let places = [
            self.code.addr() as u64,
            self.count.addr() as u64 + 2048,
            self.sentinel.addr() as u64,
            std::ptr::from_ref(&random).addr() as u64,
        ];
        loop {
            let (number, arguments) = random.call(&pids, &places);
            self.count().fetch_add(1, Ordering::Relaxed);
            enter(self.code, number, &arguments);
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.sleeper.kill();
        let _ = self.sleeper.wait();
        // SAFETY: nothing refers to these pages any more.
        unsafe {
            for page in [self.code, self.count, self.sentinel] {
                libc::munmap(page.cast(), PAGE);
            }
        }
    }
}

/// Executes the instruction, as guest code can.
fn enter(code: *mut u8, number: u64, arguments: &[u64; 6]) {
    let [a, b, c, d, e, f] = *arguments;
    // SAFETY: none. The call may do to this process whatever the filter admits; the test is about
    // that, and the child has no other purpose.
    unsafe {
        asm!(
            "call {code}", code = in(reg) code, inout("rax") number => _,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            out("rcx") _, out("r11") _,
        );
    }
}

struct Random(u64);

/// The calls that the policy names.
const ADMITTED: [u64; 11] = [202, 9, 10, 11, 234, 228, 15, 28, 24, 219, 231];
/// The worst calls: files, processes, memory of others, privileges, namespaces, programs.
const DANGEROUS: [u64; 40] = [
    0, 1, 2, 3, 13, 16, 25, 29, 32, 33, 39, 41, 42, 46, 56, 57, 59, 61, 62, 72, 82, 87, 90, 101,
    105, 109, 129, 155, 157, 165, 186, 200, 257, 272, 297, 310, 311, 317, 424, 435,
];

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn of(&mut self, list: &[u64]) -> u64 {
        let index = (self.next() >> 8) % list.len() as u64;
        list.get(usize::try_from(index).unwrap_or(0))
            .copied()
            .unwrap_or(0)
    }

    fn any(&mut self, places: &[u64]) -> u64 {
        match self.next() >> 60 {
            0 | 1 => self.next(),
            2..=4 => self.next() & 0xfff,
            5 => self.next() & 0x7fff_ffff_f000,
            6..=8 => self.of(places),
            9 => self.of(places) & !0xfff,
            10..=13 => 0x6000_0000_0000 + (self.next() & 0xff_f000),
            _ => self.of(&[
                0,
                1,
                4096,
                1 << 21,
                0x7f00_0000,
                u64::MAX,
                1 << 63,
                1 << 47,
                u64::MAX << 12,
            ]),
        }
    }

    fn call(&mut self, pids: &[u64], places: &[u64]) -> (u64, [u64; 6]) {
        let number = match self.next() >> 56 {
            0..=3 => self.next(),
            4..=7 => self.next() & 0x3ff,
            8..=15 => self.of(&DANGEROUS),
            // Few calls that certainly end the child.
            16..=239 => self.of(&ADMITTED[..6]),
            _ => self.of(&ADMITTED),
        };
        let mut a = [0; 6];
        for argument in &mut a {
            *argument = self.any(places);
        }
        // Most have the checked arguments right, so that the test goes beyond the check; the upper
        // halves are not checked.
        if self.next() >> 60 != 0 {
            let upper = if self.next() >> 62 == 0 {
                self.next() << 32
            } else {
                0
            };
            match number {
                202 => {
                    a[1] = self.of(&[0, 1, 9]) | upper;
                    // A wait for the present value would be the child's last call.
                    a[2] = if a[1] & 1 == 0 || self.next() >> 61 == 0 {
                        u64::MAX
                    } else {
                        a[2]
                    };
                }
                9 => {
                    a[0] = if self.next() >> 60 == 0 {
                        a[0]
                    } else {
                        0x6000_0000_0000 + (self.next() & 0xff_f000)
                    };
                    a[1] = if self.next() >> 61 == 0 {
                        a[1]
                    } else {
                        self.next() & 0x3f_f000
                    };
                    a[3] = self.of(&[0x11, 0x8011]) | upper;
                    a[4] = self.of(&[5, 6]) | upper;
                }
                10 | 11 if self.next() >> 59 != 0 => {
                    a[0] = 0x6000_0000_0000 + (self.next() & 0xff_f000);
                    a[1] = self.next() & 0x3f_f000;
                }
                28 => a[2] = self.of(&[4, 22, 23]) | upper,
                228 => {
                    a[0] = self.of(&[1, 3]) | upper;
                    a[1] = 0x6000_0000_0000 + (self.next() & 0xff_ffff);
                }
                234 => {
                    (a[0], a[1]) = (self.of(pids), self.of(pids));
                    a[2] = 23 | upper;
                }
                _ => {}
            }
        }
        (number, a)
    }
}

fn own_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn calls_of_all_kinds_change_nothing_outside() {
    let wanted = if std::env::var_os(LONG).is_some() {
        1_000_000
    } else {
        20_000
    };
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "as it was").unwrap();
    let (mut ends, mut seed, mut made) = (BTreeMap::new(), 0x9e37_79b9_7f4a_7c15_u64, 0);
    while made < wanted {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        stage.count().store(0, Ordering::Relaxed);
        let status = stage.child(seed | 1);
        // The count is in memory that the child can write, so an impossible count is not believed.
        made += stage.count().load(Ordering::Relaxed).min(100_000);
        *ends.entry(status).or_insert(0u64) += 1;
        assert_ne!(
            status & 0x7f,
            libc::SIGABRT,
            "the filter cannot be installed"
        );
    }
    println!("{made} calls; wait statuses and how often: {ends:?}");
    assert!(ends.contains_key(&libc::SIGSYS), "the filter never killed");
    assert_eq!(fs::read_to_string(&file).unwrap(), "as it was");
    let status = fs::read_to_string(format!("/proc/{}/status", stage.sleeper.id())).unwrap();
    assert!(
        status.contains("State:\tS") && status.contains("SigPnd:\t0000000000000000"),
        "{status}"
    );
    // SAFETY: the page is ours and mapped.
    let sentinel = unsafe { std::slice::from_raw_parts(stage.sentinel, PAGE) };
    assert!(sentinel.iter().all(|&byte| byte == 0x5e));
    // Other tests of this program open files too: none of ours may be missing, and each must still
    // be the same file.
    assert!(own_files() > 3);
    assert_eq!(
        rustix::fs::fstat(&stage.ram).unwrap().st_size,
        i64::try_from(RAM_SIZE).unwrap()
    );
}
