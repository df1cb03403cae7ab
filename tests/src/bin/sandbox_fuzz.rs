// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `sandbox_fuzz [--seconds N] [--seed N] [--once]`: runs one machine after the other, on every
//! kind of host that this user can have. Their guests attack the host at random, in every way that
//! they have. The program checks from outside that nothing forbidden happens. It reports the seed
//! of a machine that fails; `--seed N --once` runs that machine again, alone.

use paravane_tests::fuzz::{Findings, Machine, Surroundings};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The most findings before it stops.
const ENOUGH: usize = 8;

struct Options {
    time: Duration,
    seed: u64,
    once: bool,
}

fn options() -> Result<Options, String> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut options = Options {
        time: Duration::from_secs(20),
        seed: u64::from(now.subsec_nanos()) << 8,
        once: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            words
                .next()
                .and_then(|w| w.parse().ok())
                .ok_or(format!("{word}: a number is expected"))
        };
        match word.as_str() {
            "--seconds" => options.time = Duration::from_secs(number()?),
            "--seed" => options.seed = number()?,
            "--once" => options.once = true,
            _ => {
                return Err(format!(
                    "{word}: there are --seconds N, --seed N and --once"
                ));
            }
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(message) => {
            eprintln!("sandbox_fuzz: {message}");
            return ExitCode::from(2);
        }
    };
    println!("sandbox_fuzz: --seed {}", options.seed);
    let surroundings = Surroundings::new();
    let (start, mut all, mut machines) = (Instant::now(), Findings::default(), 0);
    let mut said = Instant::now();
    while machines == 0
        || (!options.once && start.elapsed() < options.time && all.wrong.len() < ENOUGH)
    {
        let machine = Machine::of(options.seed.wrapping_add(machines));
        machines += 1;
        all.add(surroundings.run(&machine));
        if said.elapsed() > Duration::from_secs(60) {
            println!("{machines} machines, {all}");
            said = Instant::now();
        }
    }
    all.wrong.extend(surroundings.end());
    println!("{machines} machines, {all}");
    for wrong in &all.wrong {
        println!("WRONG: {wrong}");
    }
    if all.wrong.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
