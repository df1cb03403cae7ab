// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of the monitor that a machine has, from their start to their end.

use anyhow::Context;
use paravane_confine::{self as confine, Files};
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The threads of one machine.
#[derive(Debug, Default)]
pub struct Threads(Vec<JoinHandle<()>>);

impl Threads {
    /// Starts a thread. If it panics, it calls `fail` with the reason: others may wait for it.
    ///
    /// # Errors
    /// The host gives no thread.
    pub fn start(
        &mut self,
        name: &str,
        fail: impl Fn(String) + Send + 'static,
        body: impl FnOnce() + Send + 'static,
    ) -> anyhow::Result<()> {
        let thread = Builder::new().name(name.to_string()).spawn(move || {
            let _guard = TellsOfPanic(fail);
            body();
        });
        self.0.push(thread.context("cannot start a thread")?);
        Ok(())
    }

    /// Starts a thread under a policy. Returns when the policy is in force.
    ///
    /// # Errors
    /// The host gives no thread, or the policy cannot be entered.
    pub fn start_confined(
        &mut self,
        name: &str,
        policy: &str,
        files: Files,
        fail: impl Fn(String) + Send + 'static,
        body: impl FnOnce() + Send + 'static,
    ) -> anyhow::Result<()> {
        let (tell, told) = channel();
        let policy = policy.to_string();
        self.start(name, fail, move || {
            let entered = confine::enter(&policy, &files);
            let go = entered.is_ok();
            // Fails only if the caller no longer waits.
            let _ = tell.send(entered);
            if go {
                body();
            }
        })?;
        told.recv().context("a thread ended")?
    }

    /// Waits for the end of the threads. `wake` lets each of them look whether it must end, again
    /// and again. Those that still run when `late` says so, by their names, end with this process
    /// at the latest.
    pub fn end(&mut self, mut late: impl FnMut(&[&str]) -> bool, wake: impl Fn()) {
        loop {
            let names = self.running();
            if names.is_empty() {
                break;
            }
            if late(&names) {
                tracing::warn!(
                    threads = names.join(" "),
                    "the machine has ended before its threads"
                );
                break;
            }
            std::thread::sleep(Duration::from_micros(500));
            wake();
        }
        for thread in self.0.drain(..).filter(JoinHandle::is_finished) {
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }

    /// The names of the threads that have not ended.
    fn running(&self) -> Vec<&str> {
        let running = self.0.iter().filter(|thread| !thread.is_finished());
        running
            .map(|thread| thread.thread().name().unwrap_or_default())
            .collect()
    }
}

/// Tells if the thread that holds this panics.
struct TellsOfPanic<F: Fn(String)>(F);

impl<F: Fn(String)> Drop for TellsOfPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default();
            (self.0)(format!("the monitor's thread {name} has panicked"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_panic_is_told() {
        let (tell, told) = channel();
        let mut threads = Threads::default();
        let fail = move |why| tell.send(why).unwrap();
        threads.start("disk", fail, || panic!("planted")).unwrap();
        let why = told.recv().unwrap();
        assert_eq!(why, "the monitor's thread disk has panicked");
        threads.end(|_| false, || {});
    }

    #[test]
    fn threads_are_woken_until_they_end_or_are_late() {
        let over = Arc::new(AtomicBool::new(false));
        let mut threads = Threads::default();
        let seen = Arc::clone(&over);
        let body = move || {
            while !seen.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        };
        threads.start("ends", drop, body).unwrap();
        let (_tell, told) = channel::<()>();
        let body = move || {
            let _ = told.recv();
        };
        threads.start("stays", drop, body).unwrap();
        let late = |names: &[&str]| names == ["stays"];
        threads.end(late, || over.store(true, Ordering::SeqCst));
        assert!(over.load(Ordering::SeqCst) && threads.0.is_empty());
    }
}
