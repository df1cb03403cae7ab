// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The output of a run, for people and programs. The last line is always `N passed, N failed`.

use crate::arguments::Conformance;
use crate::tap::{Event, Summary, Test, TestResult};
use indicatif::{ProgressBar, ProgressStyle};
use paravane_hypervisor::Verdict;
use paravane_user_io::text;
use std::io::{self, Write};
use std::time::{Duration, Instant};

enum Mode {
    /// The guest's own lines.
    Tap,
    /// Sections with counts, and failures in full.
    Summary { verbose: bool },
}

/// Prints a run while it is in progress.
pub struct Report<W> {
    out: W,
    mode: Mode,
    title: String,
    bar: ProgressBar,
    section: Section,
    failed: Vec<String>,
    /// The version line has come.
    started: bool,
    /// Comments belong to a failed test.
    in_failure: bool,
    /// Comments before the version line, which must be the first line of TAP.
    held: Vec<String>,
}

/// Consecutive tests with the same part of the name before the dot.
struct Section {
    name: String,
    passed: usize,
    failed: usize,
    skipped: usize,
    since: Instant,
}

impl Section {
    fn new(name: &str) -> Self {
        Section {
            name: name.to_string(),
            passed: 0,
            failed: 0,
            skipped: 0,
            since: Instant::now(),
        }
    }
}

impl<W: Write> Report<W> {
    pub fn new(args: &Conformance, hypervisor: &str, layer: &str, out: W) -> Self {
        let mode = if args.tap {
            Mode::Tap
        } else {
            Mode::Summary {
                verbose: args.verbose,
            }
        };
        let cpus = text::count(args.cpus as usize, "vCPU");
        Report {
            out,
            mode,
            title: format!("Conformance on {hypervisor}, layer {layer}, {cpus}"),
            bar: ProgressBar::hidden(),
            section: Section::new(""),
            failed: Vec::new(),
            started: false,
            in_failure: false,
            held: Vec::new(),
        }
    }

    /// Called before the first line.
    pub fn start(&mut self) -> io::Result<()> {
        if let Mode::Summary { .. } = self.mode {
            writeln!(self.out, "{}", self.title)?;
            // Draws nothing unless stderr is a terminal.
            self.bar = ProgressBar::new_spinner().with_message("booting");
            self.bar.enable_steady_tick(Duration::from_millis(100));
        }
        self.out.flush()
    }

    /// Handles a line and its meaning.
    pub fn event(&mut self, event: &Event, line: &str) -> io::Result<()> {
        match self.mode {
            Mode::Tap => self.tap_event(event, line),
            Mode::Summary { verbose } => self.summary_event(event, line, verbose),
        }
    }

    fn tap_event(&mut self, event: &Event, line: &str) -> io::Result<()> {
        match event {
            Event::Preamble => return Ok(()),
            Event::Comment(_) if !self.started => {
                self.held.push(line.to_string());
                return Ok(());
            }
            // Firmware may have printed something before the version on this line.
            Event::Version => writeln!(self.out, "TAP version 14")?,
            _ => writeln!(self.out, "{line}")?,
        }
        self.started = true;
        for line in self.held.drain(..) {
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }

    /// Prints a line. The progress bar is hidden during that, so that the two never share a line.
    fn print(&mut self, line: &str) -> io::Result<()> {
        let out = &mut self.out;
        self.bar.suspend(|| {
            writeln!(out, "{line}")?;
            out.flush()
        })
    }

    fn summary_event(&mut self, event: &Event, line: &str, verbose: bool) -> io::Result<()> {
        match event {
            Event::Plan(planned) => {
                self.bar.set_length(*planned as u64);
                // The template is a valid constant. The default bar is an acceptable fallback.
                if let Ok(style) = ProgressStyle::with_template("  {bar:32} {pos}/{len} {msg}") {
                    self.bar.set_style(style);
                }
            }
            Event::Version => self.started = true,
            Event::Test(test) => return self.test(test, verbose),
            Event::Comment(comment) if !self.started => return self.print(&format!("  {comment}")),
            Event::Comment(comment) if self.in_failure => {
                return self.print(&format!("            {comment}"));
            }
            Event::Preamble | Event::Comment(_) if verbose && !line.is_empty() => {
                return self.print(&format!("    | {line}"));
            }
            Event::BailOut(_) | Event::Violation(_) => return self.print(&format!("    ! {line}")),
            Event::Preamble | Event::Comment(_) => {}
        }
        Ok(())
    }

    fn test(&mut self, test: &Test, verbose: bool) -> io::Result<()> {
        let section = test.name.split('.').next().unwrap_or_default();
        if section != self.section.name {
            self.end_section()?;
            self.section = Section::new(section);
        }
        self.bar.inc(1);
        self.in_failure = test.result == TestResult::Failed;
        self.bar.set_message(test.name.clone());
        match &test.result {
            TestResult::Passed => {
                self.section.passed += 1;
                if verbose {
                    self.print(&format!("    ok      {}", test.name))?;
                }
            }
            TestResult::Skipped(reason) => {
                self.section.skipped += 1;
                if verbose {
                    self.print(&format!("    skipped {}: {reason}", test.name))?;
                }
            }
            TestResult::Failed => {
                self.section.failed += 1;
                self.failed.push(test.name.clone());
                self.print(&format!("    FAILED  {}", test.name))?;
            }
        }
        Ok(())
    }

    fn end_section(&mut self) -> io::Result<()> {
        let s = &self.section;
        if s.name.is_empty() {
            return Ok(());
        }
        let mut counts = format!("{:>4} passed", s.passed);
        for (n, what) in [(s.failed, "failed"), (s.skipped, "skipped")] {
            if n > 0 {
                counts.push_str(&format!(", {n} {what}"));
            }
        }
        self.print(&format!(
            "  {:<10} {counts}  ({:.1} s)",
            s.name,
            s.since.elapsed().as_secs_f64()
        ))
    }

    /// Called after the last line.
    pub fn finish(
        &mut self,
        summary: &Summary,
        verdict: &Verdict,
        last_lines: &[String],
    ) -> io::Result<()> {
        self.bar.finish_and_clear();
        match self.mode {
            Mode::Tap => {
                for line in &self.held {
                    writeln!(self.out, "{line}")?;
                }
                for problem in &summary.problems {
                    writeln!(self.out, "# paravane: {problem}")?;
                }
            }
            Mode::Summary { .. } => {
                self.end_section()?;
                self.problems(summary, verdict, last_lines)?;
            }
        }
        write!(
            self.out,
            "{} passed, {} failed",
            summary.passed, summary.failed
        )?;
        if summary.skipped > 0 {
            write!(self.out, ", {} skipped", summary.skipped)?;
        }
        writeln!(self.out)?;
        self.out.flush()
    }

    fn problems(
        &mut self,
        summary: &Summary,
        verdict: &Verdict,
        last_lines: &[String],
    ) -> io::Result<()> {
        if self.failed.len() > 1 {
            writeln!(self.out, "Failed: {}", self.failed.join(", "))?;
        }
        for problem in &summary.problems {
            writeln!(self.out, "Problem: {problem}")?;
        }
        if let Verdict::Crashed(_) = verdict {
            writeln!(self.out, "Last lines of the guest:")?;
            for line in last_lines {
                writeln!(self.out, "    | {line}")?;
            }
            if last_lines.is_empty() {
                writeln!(self.out, "    (it printed nothing)")?;
            }
        }
        Ok(())
    }
}
