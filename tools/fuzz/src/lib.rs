// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs fuzz targets with the stable compiler, as tests.
//!
//! A target is a function of bytes that panics when it finds an error. It runs with every input of
//! its corpus (`tests/corpus/TARGET`), then with mutated inputs for `PARAVANE_FUZZ_SECONDS`, one
//! second by default. An input that fails is left in `target/fuzz`, even if the process dies of it;
//! copy it to the corpus to reproduce the failure.
//!
//! Built with `RUSTFLAGS='-C instrument-coverage --cfg paravane_coverage'` ([`scripts/fuzz.sh`]),
//! inputs that reach something new are kept and mutated further. With `PARAVANE_FUZZ_KEEP`, those
//! that together reach everything become the corpus.
//!
//! This is not bolero, for two reasons. Its engines that use coverage need a nightly compiler. And
//! a target here runs on a new thread that may confine itself by a seccomp filter, with the input
//! that runs already on disk, since a confined thread cannot write it when it dies.
//!
//! [`scripts/fuzz.sh`]: ../../../scripts/fuzz.sh
#![allow(unexpected_cfgs)] // `paravane_coverage` is the script's.
#![allow(clippy::panic, clippy::expect_used)] // A panic fails the test.

mod coverage;
mod input;
mod mutate;

pub use input::Input;

use coverage::Coverage;
use mutate::Random;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The largest input, in bytes.
pub const MAX: usize = 2048;
/// The longest time for an input.
const PATIENCE: Duration = Duration::from_secs(20);
/// The most inputs of a corpus.
const KEPT: usize = 100;

/// Why a target failed.
struct Failure {
    input: Vec<u8>,
    why: String,
}

/// Runs a target on a new thread, which calls `setup` first and may confine itself there.
///
/// # Panics
/// When the target does.
pub fn fuzz<F: FnMut(&[u8])>(target: &str, setup: impl FnOnce() -> F + Send) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (corpus, failures) = (
        root.join("tests/corpus").join(target),
        root.join("target/fuzz"),
    );
    let mut inputs: Vec<Vec<u8>> = fs::read_dir(&corpus)
        .into_iter()
        .flatten()
        .map(|entry| {
            fs::read(entry.expect("a corpus that can be listed").path())
                .expect("an input that can be read")
        })
        .collect();
    assert!(
        !inputs.is_empty() || std::env::var_os("PARAVANE_FUZZ_KEEP").is_some(),
        "{}: no corpus",
        corpus.display()
    );
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    fs::create_dir_all(&failures).expect("target/fuzz");
    let current = failures.join(format!("{target}.{}", std::process::id()));
    let file = File::create(&current).expect("a file for the input that runs");
    let time = Duration::from_secs(number("PARAVANE_FUZZ_SECONDS").unwrap_or(1));
    let seed = number("PARAVANE_FUZZ_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| u64::from(now.subsec_nanos()) | 1)
    });
    let worked = std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().name(target.to_string());
        let worker = worker.spawn_scoped(scope, || {
            let body = setup();
            Run {
                body,
                file,
                coverage: Coverage::default(),
                inputs,
                count: 0,
            }
            .work(time, seed)
        });
        worker.expect("a thread").join()
    });
    match worked {
        Ok(Ok((count, kept))) => {
            let _ = fs::remove_file(&current);
            println!("{target}: {count} inputs, {} kept, seed {seed}", kept.len());
            if Coverage::THERE && std::env::var_os("PARAVANE_FUZZ_KEEP").is_some() {
                keep(&corpus, &kept);
            }
        }
        Ok(Err(failure)) => panic!(
            "{target}: {}\ninput of {} bytes in {}",
            failure.why,
            failure.input.len(),
            current.display()
        ),
        Err(_) => panic!("{target}: it could not be set up"),
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Replaces the corpus by these inputs.
fn keep(corpus: &PathBuf, inputs: &[Vec<u8>]) {
    let _ = fs::remove_dir_all(corpus);
    fs::create_dir_all(corpus).expect("a folder for the corpus");
    for input in inputs.iter().take(KEPT) {
        // FNV-1a: only a name.
        let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        fs::write(corpus.join(format!("{hash:016x}")), input)
            .expect("an input that can be written");
    }
}

struct Run<F> {
    body: F,
    /// The file with the input that runs.
    file: File,
    coverage: Coverage,
    inputs: Vec<Vec<u8>>,
    count: u64,
}

impl<F: FnMut(&[u8])> Run<F> {
    /// Returns the number of inputs, and those that together reach everything that was reached.
    fn work(mut self, time: Duration, seed: u64) -> Result<(u64, Vec<Vec<u8>>), Failure> {
        for input in self.inputs.clone() {
            self.one(&input)?;
        }
        let (begun, mut random) = (Instant::now(), Random::new(seed));
        while begun.elapsed() < time {
            let input = random.change(&self.inputs);
            if self.one(&input)? {
                self.inputs.push(input);
            }
        }
        let count = self.count;
        Ok((count, self.smallest()?))
    }

    /// Runs an input. True: it reached something new.
    fn one(&mut self, input: &[u8]) -> Result<bool, Failure> {
        let failure = |why: String| Failure {
            input: input.to_vec(),
            why,
        };
        self.file
            .set_len(input.len() as u64)
            .and_then(|()| self.file.write_all_at(input, 0))
            .map_err(|error| failure(format!("the input cannot be noted: {error}")))?;
        self.count += 1;
        self.coverage.begin();
        let begun = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| (self.body)(input)));
        if let Err(panic) = done {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            return Err(failure(text.unwrap_or_else(|| "panic".to_string())));
        }
        if begun.elapsed() > PATIENCE {
            return Err(failure(format!("it took {:?}", begun.elapsed())));
        }
        Ok(self.coverage.end())
    }

    /// From small to large, without inputs that add nothing.
    fn smallest(&mut self) -> Result<Vec<Vec<u8>>, Failure> {
        let mut inputs = std::mem::take(&mut self.inputs);
        inputs.sort_by_key(Vec::len);
        self.coverage = Coverage::default();
        let mut kept = Vec::new();
        for input in inputs {
            if self.one(&input)? {
                kept.push(input);
            }
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(body: impl FnMut(&[u8]), seconds: u64) -> Result<u64, String> {
        let folder =
            std::env::temp_dir().join(format!("paravane-fuzz-{}-{seconds}", std::process::id()));
        let run = Run {
            body,
            file: File::create(&folder).unwrap(),
            coverage: Coverage::default(),
            inputs: vec![b"abcdefgh".to_vec()],
            count: 0,
        };
        let done = run.work(Duration::from_secs(seconds), 7);
        fs::remove_file(folder).unwrap();
        done.map(|(count, _)| count).map_err(|failure| failure.why)
    }

    #[test]
    fn what_panics_is_found() {
        let found = run(
            |input| {
                if let [b'a', 0xff, ..] = input {
                    panic!("found");
                }
            },
            60,
        );
        assert_eq!(found, Err("found".to_string()));
    }

    #[test]
    fn what_does_not_is_run_until_the_time_is_over() {
        assert!(run(|_| (), 0).unwrap() >= 1);
        assert!(run(|input| assert!(input.len() <= MAX), 1).unwrap() > 100);
    }
}
