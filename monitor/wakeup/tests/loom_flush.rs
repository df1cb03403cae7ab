// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The flushes of what other vCPUs have loaded, in every order that the memory model allows. See
//! loom.rs.
#![cfg(loom)]

use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// `flush_elsewhere()` of `vcpu/remote_flush.c` and `pool_get()`, `mm_sync()`: a vCPU that enters
/// the process sees that a flush is wanted, or the vCPU that flushes sees it and asks it.
#[test]
fn a_remote_flush_reaches_every_vcpu() {
    loom::model(|| {
        let (wanted, loaded) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let comes = thread::spawn({
            let (wanted, loaded) = (Arc::clone(&wanted), Arc::clone(&loaded));
            move || {
                loaded.store(1, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                wanted.load(Ordering::SeqCst) != 0
            }
        });
        wanted.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let asked = loaded.load(Ordering::SeqCst) != 0;
        assert!(comes.join().unwrap() || asked);
    });
}

/// `kernel_flush()` of `vcpu/remote_flush.c` and `pool_get()`, `mm_sync()`: a process that is
/// skipped because no vCPU has it loaded compares the kernel's range when one comes in.
#[test]
fn a_kernel_flush_reaches_every_process() {
    loom::model(|| {
        let (generation, loaded) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let comes = thread::spawn({
            let (generation, loaded) = (Arc::clone(&generation), Arc::clone(&loaded));
            move || {
                loaded.store(1, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                generation.load(Ordering::SeqCst) != 0
            }
        });
        generation.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let asked = loaded.load(Ordering::SeqCst) != 0;
        assert!(comes.join().unwrap() || asked);
    });
}

/// `wanted_of()` of `mm/sync.c`: when a flush is reported as done, the kernel's range and the user
/// range that were wanted have been compared, whichever thread did it and for whichever vCPU.
#[test]
fn a_flush_that_is_done_has_compared_what_was_wanted() {
    struct Process {
        wanted: AtomicU32,
        user: AtomicU32,
        kernel: AtomicU32,
        /// The flushes that are done, and for which changes of both ranges.
        done: Mutex<(u32, u32, u32)>,
    }
    fn serve(process: &Process) {
        let mut done = process.done.lock().unwrap();
        let wanted = process.wanted.load(Ordering::SeqCst);
        let user = process.user.load(Ordering::SeqCst);
        let kernel = process.kernel.load(Ordering::SeqCst);
        *done = (wanted, user, kernel);
    }
    loom::model(|| {
        let process = Arc::new(Process {
            wanted: AtomicU32::new(0),
            user: AtomicU32::new(0),
            kernel: AtomicU32::new(0),
            done: Mutex::new((0, 0, 0)),
        });
        let asks_for_user = thread::spawn({
            let process = Arc::clone(&process);
            move || {
                process.user.fetch_add(1, Ordering::SeqCst);
                let mine = process.wanted.fetch_add(1, Ordering::SeqCst) + 1;
                let (done, user, _) = *process.done.lock().unwrap();
                assert!(done < mine || user == 1);
            }
        });
        let serves = thread::spawn({
            let process = Arc::clone(&process);
            move || serve(&process)
        });
        process.kernel.fetch_add(1, Ordering::SeqCst);
        let mine = process.wanted.fetch_add(1, Ordering::SeqCst) + 1;
        let (done, _, kernel) = *process.done.lock().unwrap();
        assert!(done < mine || kernel == 1);
        serve(&process);
        asks_for_user.join().unwrap();
        serves.join().unwrap();
    });
}
