// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's side of the rows, each in a process of its own. `paravane bench vmi-host WHAT OPS
//! BATCHES` prints nanoseconds per operation, the median over the batches; for `fork` it prints the
//! CPU time of all processes.
//!
//! The process inherits its CPUs from its parent: one, or two for rows that need two.
//!
//! It is a hidden command and no program of its own: a small static program forks a fifth faster or
//! more, and the ratios of the row `fork` would no longer compare with earlier ones.

use super::cpus;
use super::raw;
use super::stats;
use anyhow::{Context, bail};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

const PAGE: usize = 4096;
/// Pages that a forked child writes to.
const CHILD_PAGES: usize = 32;
const FUTEX_WAIT: usize = 128; // with FUTEX_PRIVATE_FLAG
const FUTEX_WAKE: usize = 129;

/// Measures one row.
pub fn measure(what: &str, ops: u32, batches: u32) -> anyhow::Result<f64> {
    if ops == 0 || batches == 0 {
        bail!("bench vmi-host: at least one operation is needed");
    }
    let count = u64::from(ops);
    match what {
        "getppid" => Ok(time(ops, batches, || raw::getppid_loop(count))),
        "signal" => signal(ops, batches),
        "pipe" => pipe(ops, batches),
        "first_touch" => pages(ops, batches, |region| region.touch()),
        "munmap" => munmap(ops, batches),
        "fork" => fork(ops, batches),
        "signal_other" => signal_other(ops, batches),
        "futex" => futex(ops, batches),
        _ => bail!("bench vmi-host: there is no `{what}`"),
    }
}

/// Nanoseconds per operation of `batch`: the median over the batches, after one that is not
/// counted.
fn time(ops: u32, batches: u32, batch: impl FnMut()) -> f64 {
    let mut batch = batch;
    timed(ops, batches, || {
        let start = raw::tsc();
        batch();
        raw::tsc() - start
    })
}

/// Nanoseconds per operation of a batch that reads the counter itself.
#[allow(clippy::cast_precision_loss)] // counts of milliseconds
fn timed(ops: u32, batches: u32, mut batch: impl FnMut() -> u64) -> f64 {
    let (clock, counter) = (Instant::now(), raw::tsc());
    batch();
    let cycles: Vec<f64> = (0..batches).map(|_| batch() as f64).collect();
    let nanoseconds = clock.elapsed().as_nanos() as f64 / (raw::tsc() - counter) as f64;
    stats::median(&cycles) * nanoseconds / f64::from(ops)
}

static TAKEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn handler(_signal: libc::c_int) {
    TAKEN.fetch_add(1, Ordering::SeqCst);
}

fn install_handler() -> anyhow::Result<()> {
    // SAFETY: the handler only adds to an atomic. The structure is valid when zeroed.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut())
    };
    if result != 0 {
        return Err(std::io::Error::last_os_error()).context("cannot install a signal handler");
    }
    Ok(())
}

fn thread_id() -> anyhow::Result<usize> {
    // SAFETY: gettid has no effect.
    Ok(usize::try_from(unsafe {
        raw::call(libc::SYS_gettid, [0; 4])
    })?)
}

fn send_signal(thread: usize) {
    // SAFETY: SIGURG has the handler above, which only touches an atomic.
    unsafe {
        raw::call(
            libc::SYS_tgkill,
            [
                process_id(),
                thread,
                libc::SIGURG.unsigned_abs() as usize,
                0,
            ],
        );
    }
}

fn process_id() -> usize {
    std::process::id() as usize
}

fn signal(ops: u32, batches: u32) -> anyhow::Result<f64> {
    install_handler()?;
    let (process, thread) = (process_id(), thread_id()?);
    Ok(time(ops, batches, || {
        for _ in 0..ops {
            // SAFETY: as in `send_signal`.
            unsafe {
                raw::call(
                    libc::SYS_tgkill,
                    [process, thread, libc::SIGURG.unsigned_abs() as usize, 0],
                );
            }
        }
    }))
}

/// Signals a thread that spins on the other CPU. The answer is its handler's counter.
fn signal_other(ops: u32, batches: u32) -> anyhow::Result<f64> {
    install_handler()?;
    let allowed = cpus::allowed();
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    let (stop_there, there) = (Arc::clone(&stop), cpus::second(&allowed));
    let partner = thread::spawn(move || {
        cpus::pin(&there);
        // Fails only if the receiver has ended.
        let _ = sender.send(thread_id());
        while !stop_there.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    let thread = receiver.recv().context("the other thread ended")??;
    cpus::pin(&cpus::first(&allowed));
    let result = time(ops, batches, || {
        for _ in 0..ops {
            let before = TAKEN.load(Ordering::SeqCst);
            send_signal(thread);
            while TAKEN.load(Ordering::SeqCst) == before {
                std::hint::spin_loop();
            }
        }
    });
    stop.store(true, Ordering::Relaxed);
    let _ = partner.join();
    Ok(result)
}

fn futex_set(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::SeqCst);
    // SAFETY: the word is borrowed, so it is mapped; the call only reads it.
    unsafe {
        raw::call(libc::SYS_futex, [word.as_ptr() as usize, FUTEX_WAKE, 1, 0]);
    }
}

fn futex_wait_for(word: &AtomicU32, value: u32) {
    loop {
        let now = word.load(Ordering::SeqCst);
        if now == value {
            return;
        }
        // SAFETY: as above, without a timeout.
        unsafe {
            raw::call(
                libc::SYS_futex,
                [word.as_ptr() as usize, FUTEX_WAIT, now as usize, 0],
            );
        }
    }
}

fn futex(ops: u32, batches: u32) -> anyhow::Result<f64> {
    let allowed = cpus::allowed();
    // One word for each direction. The last value ends the thread.
    let words = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    let rounds = ops
        .checked_mul(batches + 1)
        .context("too many operations")?;
    let (words_there, there) = (Arc::clone(&words), cpus::second(&allowed));
    let partner = thread::spawn(move || {
        cpus::pin(&there);
        for round in 1..=rounds {
            futex_wait_for(&words_there[0], round);
            futex_set(&words_there[1], round);
        }
    });
    cpus::pin(&cpus::first(&allowed));
    let mut round = 0;
    let result = time(ops, batches, || {
        for _ in 0..ops {
            round += 1;
            futex_set(&words[0], round);
            futex_wait_for(&words[1], round);
        }
    });
    let _ = partner.join();
    Ok(result)
}

/// Forks without the C library's work.
///
/// # Safety
/// The child may only make raw system calls and touch memory, and must end with [`leave`].
unsafe fn fork_raw() -> libc::c_long {
    // SAFETY: as a fork without library work before and after it.
    unsafe {
        raw::call(
            libc::SYS_clone,
            [libc::SIGCHLD.unsigned_abs() as usize, 0, 0, 0],
        )
    }
}

/// Ends a forked child.
fn leave() -> ! {
    loop {
        // SAFETY: does not return.
        unsafe {
            raw::call(libc::SYS_exit_group, [0; 4]);
        }
    }
}

fn wait_for(child: usize) {
    let mut status = 0i32;
    // SAFETY: writes to the local status.
    unsafe {
        raw::call(libc::SYS_wait4, [child, (&raw mut status) as usize, 0, 0]);
    }
}

/// Two processes on one CPU. An operation is a switch in one direction.
fn pipe(ops: u32, batches: u32) -> anyhow::Result<f64> {
    let mut ends = [[0i32; 2]; 2];
    for pair in &mut ends {
        // SAFETY: writes two descriptors into the array.
        if unsafe { libc::pipe2(pair.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(std::io::Error::last_os_error()).context("cannot make a pipe");
        }
    }
    let mut byte = 0u8;
    let place = (&raw mut byte) as usize;
    let move_byte = |call: libc::c_long, end: i32| {
        // SAFETY: reads or writes the one byte above.
        unsafe { raw::call(call, [end.unsigned_abs() as usize, place, 1, 0]) }
    };
    let [[there_read, there_write], [back_read, back_write]] = ends;
    // SAFETY: the child reads and writes its byte until its pipe is closed, and ends with `leave`.
    let child = unsafe { fork_raw() };
    if child == 0 {
        // SAFETY: closes the child's copy of the parent's end, so that the parent's close is the
        // last.
        unsafe {
            raw::call(
                libc::SYS_close,
                [there_write.unsigned_abs() as usize, 0, 0, 0],
            );
        }
        while move_byte(libc::SYS_read, there_read) == 1 {
            move_byte(libc::SYS_write, back_write);
        }
        leave();
    }
    if child < 0 {
        bail!("cannot fork");
    }
    let result = time(ops, batches, || {
        for _ in 0..ops {
            move_byte(libc::SYS_write, there_write);
            move_byte(libc::SYS_read, back_read);
        }
    });
    // SAFETY: this process owns these descriptors. Closing them ends the child.
    unsafe {
        libc::close(there_write);
    }
    wait_for(usize::try_from(child)?);
    Ok(result / 2.0)
}

/// Anonymous private memory in small pages, not touched yet.
struct Region {
    base: NonNull<u8>,
    pages: usize,
}

impl Region {
    fn new(pages: usize) -> anyhow::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), pages * PAGE, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()).context("cannot map memory");
        }
        // SAFETY: advice for the new mapping. A kernel without huge pages refuses it, and does not
        // need it.
        unsafe {
            libc::madvise(base, pages * PAGE, libc::MADV_NOHUGEPAGE);
        }
        let base = NonNull::new(base.cast()).context("mmap returned null")?;
        Ok(Region { base, pages })
    }

    /// Writes one word into each page.
    fn touch(&self) {
        for page in 0..self.pages {
            // SAFETY: inside of the mapping. The write is volatile, so that the compiler keeps it.
            unsafe {
                self.base.add(page * PAGE).cast::<u64>().write_volatile(1);
            }
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range contains only what `new` mapped.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), self.pages * PAGE);
        }
    }
}

/// Times an action on fresh pages. An operation is a page.
fn pages(count: u32, batches: u32, act: impl Fn(&Region)) -> anyhow::Result<f64> {
    let fresh = || Region::new(count as usize);
    // Reports an error of mmap here and not in the middle of a measurement.
    drop(fresh()?);
    Ok(timed(count, batches, || {
        let Ok(region) = fresh() else { return 0 };
        let start = raw::tsc();
        act(&region);
        raw::tsc() - start
    }))
}

fn munmap(count: u32, batches: u32) -> anyhow::Result<f64> {
    drop(Region::new(count as usize)?);
    Ok(timed(count, batches, || {
        let Ok(region) = Region::new(count as usize) else {
            return 0;
        };
        region.touch();
        let start = raw::tsc();
        for page in 0..region.pages {
            // SAFETY: a page of the region, which is not used again.
            unsafe {
                raw::call(
                    libc::SYS_munmap,
                    [region.base.as_ptr() as usize + page * PAGE, PAGE, 0, 0],
                );
            }
        }
        let cycles = raw::tsc() - start;
        // All pages are unmapped, and their addresses may be in use again.
        std::mem::forget(region);
        cycles
    }))
}

/// CPU time of this process and of its children that have ended, in ns.
fn cpu_time() -> f64 {
    let mut own = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to the local structure.
    unsafe {
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut own);
    }
    #[allow(clippy::cast_precision_loss)] // seconds
    let own = own.tv_sec as f64 * 1e9 + own.tv_nsec as f64;
    own + cpus::usage(libc::RUSAGE_CHILDREN).cpu_ns
}

fn fork(ops: u32, batches: u32) -> anyhow::Result<f64> {
    let region = Region::new(CHILD_PAGES)?;
    let total = ops.checked_mul(batches).context("too many operations")?;
    let start = cpu_time();
    for _ in 0..total {
        // SAFETY: the child writes to its own copy of the region and ends with `leave`.
        let child = unsafe { fork_raw() };
        if child == 0 {
            region.touch();
            leave();
        }
        if child < 0 {
            bail!("cannot fork");
        }
        wait_for(usize::try_from(child)?);
    }
    Ok((cpu_time() - start) / f64::from(total))
}
