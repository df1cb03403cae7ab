// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The progress of a long task, for its user: a bar on a terminal, lines on stderr elsewhere.
//!
//! A task that ends within [`FIRST`] prints nothing. A longer one prints a line then, and another
//! one every [`EVERY`].

use crate::stderr;
use indicatif::{ProgressBar, ProgressBarIter, ProgressStyle};
use std::io::{Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// From the start of a task or of a step to its first line.
const FIRST: Duration = Duration::from_millis(1500);
/// From a line to the next one.
const EVERY: Duration = Duration::from_secs(10);
/// Between two frames of the bar's spinner.
const TICK: Duration = Duration::from_millis(120);

/// The progress of a task. It disappears from the terminal when it is dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    shared: Arc<Shared>,
    /// Prints the lines; none on a terminal.
    printer: Option<JoinHandle<()>>,
}

/// What a step counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, printed as MB.
    Bytes,
    /// Things of this name, in the plural.
    Things(&'static str),
}

/// The number that a step counts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// To this number.
    Exact(u64),
    /// To about this number.
    About(u64),
    /// To a number that is not known.
    Unknown,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    over: bool,
    began: Instant,
    step: String,
    step_began: Instant,
    /// Whether the step has had a line.
    announced: bool,
    last_line: Option<Instant>,
    counted: Option<(Unit, Total)>,
}

impl Progress {
    /// Begins a task with its first step, such as `unpacking x.tar`.
    pub fn new(step: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        let now = Instant::now();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                over: false,
                began: now,
                step: step.to_string(),
                step_began: now,
                announced: false,
                last_line: None,
                counted: None,
            }),
            ended: Condvar::new(),
        });
        let printer = if bar.is_hidden() {
            let (bar, shared) = (bar.clone(), Arc::clone(&shared));
            Some(std::thread::spawn(move || print_lines(&shared, &bar)))
        } else {
            bar.enable_steady_tick(TICK);
            None
        };
        let progress = Progress {
            bar,
            shared,
            printer,
        };
        progress.step(step);
        progress
    }

    /// Begins the next step.
    pub fn step(&self, step: &str) {
        self.shared.lock().begin(step, Instant::now());
        self.bar.set_prefix(step.to_string());
        self.bar.set_message("");
        self.style("{spinner} {prefix} {msg} [{elapsed}]");
    }

    /// Prints a line that stays, such as a warning.
    pub fn say(&self, words: &str) {
        self.bar
            .suspend(|| stderr::say(&format!("paravane: {words}\n")));
    }

    /// Shows what the step works on, such as a file. Only the bar shows it, since it changes often.
    pub fn detail(&self, detail: String) {
        self.bar.set_message(detail);
    }

    /// Makes the step count from 0.
    pub fn count(&self, unit: Unit, total: Total) {
        self.shared.lock().counted = Some((unit, total));
        self.bar.set_position(0);
        match (unit, total) {
            (Unit::Bytes, Total::Unknown) => self.style("{spinner} {prefix} {bytes} [{elapsed}]"),
            (Unit::Things(_), Total::Unknown) => self.style("{spinner} {prefix} {pos} [{elapsed}]"),
            (Unit::Bytes, Total::Exact(total) | Total::About(total)) => {
                self.bar.set_length(total);
                self.style("{spinner} {prefix} {bytes}/{total_bytes} [{elapsed}]");
            }
            (Unit::Things(_), Total::Exact(total) | Total::About(total)) => {
                self.bar.set_length(total);
                self.style("{spinner} {prefix} {msg:30!} {wide_bar} {percent}% [{elapsed}]");
            }
        }
    }

    /// Sets how many are done.
    pub fn done(&self, count: u64) {
        self.bar.set_position(count);
        if self.bar.length().is_some_and(|total| total < count) {
            // The estimate was too low.
            self.bar.set_length(count);
        }
    }

    /// Counts the bytes that are read through the result.
    pub fn reading<R: Read>(&self, source: R) -> ProgressBarIter<R> {
        self.bar.wrap_read(source)
    }

    /// Counts the bytes that are written through the result.
    pub fn writing<W: Write>(&self, sink: W) -> ProgressBarIter<W> {
        self.bar.wrap_write(sink)
    }

    fn style(&self, template: &str) {
        // The templates are constants and right; without one the bar has its default style.
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("=> "));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.ended.notify_all();
        if let Some(printer) = self.printer.take() {
            // It does not panic.
            let _ = printer.join();
        }
        self.bar.finish_and_clear();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn begin(&mut self, step: &str, now: Instant) {
        self.step = step.to_string();
        self.step_began = now;
        self.announced = false;
        self.counted = None;
    }

    /// When the next line is due.
    fn due(&self) -> Instant {
        // A row of steps shorter than FIRST must not be silent for longer than one long step.
        let latest = self
            .last_line
            .map_or(self.began + FIRST, |line| line + EVERY);
        if self.announced {
            latest
        } else {
            latest.min(self.step_began + FIRST)
        }
    }

    /// The line that is due now.
    fn line(&mut self, position: u64, now: Instant) -> String {
        self.announced = true;
        self.last_line = Some(now);
        let time = time(now.duration_since(self.began));
        match self.counted {
            None => format!("{}, {time} so far", self.step),
            Some((unit, total)) => {
                let counted = counted(unit, total, position);
                format!("{}: {counted}, {time} so far", self.step)
            }
        }
    }
}

fn print_lines(shared: &Shared, bar: &ProgressBar) {
    let mut state = shared.lock();
    while !state.over {
        let now = Instant::now();
        let due = state.due();
        if now < due {
            let wait = shared.ended.wait_timeout(state, due - now);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        let line = state.line(bar.position(), now);
        // A slow reader of stderr must not block the task, which takes this lock.
        drop(state);
        stderr::say(&format!("paravane: {line}\n"));
        state = shared.lock();
    }
}

/// `12 of about 40 objects`
fn counted(unit: Unit, total: Total, position: u64) -> String {
    let (scale, name) = match unit {
        Unit::Bytes => (1_000_000, "MB"),
        Unit::Things(name) => (1, name),
    };
    let done = position / scale;
    match total {
        Total::Exact(total) => format!("{done} of {} {name}", total / scale),
        Total::About(total) if total >= position => {
            format!("{done} of about {} {name}", total / scale)
        }
        // The estimate was too low.
        Total::About(_) | Total::Unknown => format!("{done} {name}"),
    }
}

/// `45 s`, `3 min 20 s`, `1 h 2 min`
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(began: Instant) -> State {
        State {
            over: false,
            began,
            step: "fetching".to_string(),
            step_began: began,
            announced: false,
            last_line: None,
            counted: None,
        }
    }

    #[test]
    fn a_line_comes_soon_and_then_every_ten_seconds() {
        let start = Instant::now();
        let mut state = state(start);
        assert_eq!(state.due(), start + FIRST);
        let first = start + Duration::from_secs(2);
        assert_eq!(state.line(0, first), "fetching, 2 s so far");
        assert_eq!(state.due(), first + EVERY);
        // A new step has its line soon; short steps in a row do not put it off.
        state.begin("unpacking", first + Duration::from_secs(1));
        assert_eq!(state.due(), first + Duration::from_secs(1) + FIRST);
        state.begin("patching", first + Duration::from_secs(9));
        assert_eq!(state.due(), first + EVERY);
    }

    #[test]
    fn a_line_says_how_far_it_is() {
        let start = Instant::now();
        let mut state = state(start);
        state.begin("building Linux", start);
        state.counted = Some((Unit::Things("objects"), Total::About(2400)));
        let line = state.line(812, start + Duration::from_secs(200));
        assert_eq!(
            line,
            "building Linux: 812 of about 2400 objects, 3 min 20 s so far"
        );
        for (unit, total, position, text) in [
            (Unit::Bytes, Total::Unknown, 2_000_000, "2 MB"),
            (
                Unit::Bytes,
                Total::Exact(40_000_000),
                7_500_000,
                "7 of 40 MB",
            ),
            (Unit::Things("rounds"), Total::About(3), 4, "4 rounds"),
        ] {
            assert_eq!(counted(unit, total, position), text);
        }
    }

    #[test]
    fn times_have_two_units_at_most() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min 0 s"),
            (3599, "59 min 59 s"),
            (3720, "1 h 2 min"),
        ] {
            assert_eq!(time(Duration::from_secs(seconds)), text);
        }
    }
}
