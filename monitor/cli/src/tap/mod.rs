// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reader for the Test Anything Protocol, version 14, as the conformance kernel writes it.
//!
//! The reader is strict: a run that loses a line, counts wrongly or runs a test twice has not
//! passed, whatever its other lines say. It takes one line at a time, so that a summary can be
//! printed while the guest runs.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

/// The meaning of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Not TAP: firmware output before the version line.
    Preamble,
    /// The version line.
    Version,
    /// The plan: the number of tests that follow.
    Plan(usize),
    /// A test. Its diagnostics follow it as comments.
    Test(Test),
    /// A comment or diagnostic line: about the preceding test, or before the version line about the
    /// boot.
    Comment(String),
    /// The guest gave up, for this reason.
    BailOut(String),
    /// A violation of the protocol, with an explanation.
    Violation(String),
}

/// One test point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    pub name: String,
    pub result: TestResult,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestResult {
    Passed,
    Failed,
    /// The reason for which the test was skipped.
    Skipped(String),
}

/// Counts, and all problems of the run as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub planned: Option<usize>,
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
    pub problems: Vec<String>,
}

/// More tests than any suite has. A plan above it is an error.
const MAX_PLAN: usize = 100_000;

/// Reads TAP line by line.
#[derive(Debug, Default)]
pub struct Reader {
    started: bool,
    bailed_out: bool,
    names: HashSet<String>,
    summary: Summary,
}

impl Reader {
    pub fn new() -> Self {
        Reader::default()
    }

    /// Reads the next line, without its line end.
    pub fn line(&mut self, line: &str) -> Event {
        let line = line.trim_end();
        if !self.started {
            return self.preamble(line);
        }
        match self.tap_line(line) {
            Ok(event) => event,
            Err(problem) => self.violation(problem),
        }
    }

    /// The number of tests read so far.
    pub fn tests_seen(&self) -> usize {
        self.summary.passed + self.summary.failed + self.summary.skipped
    }

    /// Finishes. Planned tests that are missing have failed.
    pub fn finish(mut self) -> Summary {
        let seen = self.tests_seen();
        match self.summary.planned {
            Some(planned) if seen < planned => {
                self.summary.failed += planned - seen;
                let (missing, tests) = (
                    planned - seen,
                    if planned - seen == 1 { "test" } else { "tests" },
                );
                self.summary
                    .problems
                    .push(format!("{missing} of {planned} {tests} did not run"));
            }
            Some(_) => {}
            None if self.bailed_out => {}
            None if !self.started => self
                .summary
                .problems
                .push("the guest never said `TAP version 14`".into()),
            None => self
                .summary
                .problems
                .push("there was no plan (`1..N`)".into()),
        }
        self.summary
    }

    fn bail_out(&mut self, reason: &str) -> Event {
        let reason = reason.trim().to_string();
        // Every vCPU may report it. The first report is the cause.
        if !std::mem::replace(&mut self.bailed_out, true) {
            self.summary
                .problems
                .push(format!("the guest gave up: {reason}"));
        }
        Event::BailOut(reason)
    }

    fn preamble(&mut self, line: &str) -> Event {
        if let Some(reason) = line.strip_prefix("Bail out!") {
            return self.bail_out(reason);
        }
        // Firmware does not always end its last line.
        let Some(at) = line.find("TAP version ") else {
            return line
                .strip_prefix('#')
                .map_or(Event::Preamble, |c| Event::Comment(c.trim().to_string()));
        };
        self.started = true;
        match &line[at..] {
            "TAP version 14" => Event::Version,
            other => self.violation(format!("`{other}`, `TAP version 14` was expected")),
        }
    }

    fn violation(&mut self, problem: String) -> Event {
        self.summary.problems.push(problem.clone());
        Event::Violation(problem)
    }

    fn tap_line(&mut self, line: &str) -> Result<Event, String> {
        if let Some(reason) = line.strip_prefix("Bail out!") {
            return Ok(self.bail_out(reason));
        }
        if self.bailed_out {
            return Err(format!("after `Bail out!`: `{line}`"));
        }
        if line.is_empty() {
            return Ok(Event::Comment(String::new()));
        }
        if let Some(comment) = line.strip_prefix('#') {
            return Ok(Event::Comment(comment.trim().to_string()));
        }
        // A YAML diagnostic block is indented by two. It is only shown to people.
        if let Some(diagnostic) = line.strip_prefix("  ") {
            return Ok(Event::Comment(diagnostic.to_string()));
        }
        if line.starts_with("1..") {
            return self.plan(line);
        }
        if let Some(rest) = line.strip_prefix("not ok") {
            return self.test(rest, false, line);
        }
        if let Some(rest) = line.strip_prefix("ok") {
            return self.test(rest, true, line);
        }
        Err(format!("not a line of TAP: `{line}`"))
    }

    fn plan(&mut self, line: &str) -> Result<Event, String> {
        if self.summary.planned.is_some() {
            return Err(format!("a second plan: `{line}`"));
        }
        if self.tests_seen() > 0 {
            return Err(format!("the plan came after a test: `{line}`"));
        }
        let number = line
            .trim_start_matches("1..")
            .split('#')
            .next()
            .unwrap_or_default()
            .trim();
        let planned = decimal(number).filter(|&n| n <= MAX_PLAN);
        let planned = planned.ok_or_else(|| format!("not a plan: `{line}`"))?;
        self.summary.planned = Some(planned);
        Ok(Event::Plan(planned))
    }

    fn test(&mut self, rest: &str, ok: bool, line: &str) -> Result<Event, String> {
        let (number, name, directive) =
            split_test(rest).ok_or_else(|| format!("not a test line: `{line}`"))?;
        let planned = self
            .summary
            .planned
            .ok_or_else(|| format!("a test before the plan: `{line}`"))?;
        let expected = self.tests_seen() + 1;
        let result = match directive {
            None if ok => TestResult::Passed,
            None => TestResult::Failed,
            Some(d) => match d.split_once(char::is_whitespace).unwrap_or((d, "")) {
                (word, reason) if ok && word.eq_ignore_ascii_case("SKIP") => {
                    TestResult::Skipped(reason.trim().to_string())
                }
                // This suite allows no TODO, and no failure that claims to be skipped.
                _ => return Err(format!("a directive that is not allowed here: `{line}`")),
            },
        };
        // Count first: a wrong number must not make every later one wrong, too.
        match result {
            TestResult::Passed => self.summary.passed += 1,
            TestResult::Failed => self.summary.failed += 1,
            TestResult::Skipped(_) => self.summary.skipped += 1,
        }
        let problem = if number != expected {
            Some(format!("test {expected} was expected, `{line}` came"))
        } else if expected > planned {
            Some(format!(
                "more tests than the {planned} that were planned: `{line}`"
            ))
        } else if !self.names.insert(name.to_string()) {
            Some(format!("a test ran twice: `{line}`"))
        } else {
            None
        };
        self.summary.problems.extend(problem);
        Ok(Event::Test(Test {
            name: name.to_string(),
            result,
        }))
    }
}

/// Splits ` 12 - cpu.halt.wakes # SKIP no reason` into number, name and directive.
fn split_test(rest: &str) -> Option<(usize, &str, Option<&str>)> {
    let rest = rest.strip_prefix(' ')?;
    let (number, rest) = rest.split_once(" - ")?;
    let number = decimal(number)?;
    let (name, directive) = match rest.split_once(" # ") {
        Some((name, directive)) => (name, Some(directive.trim())),
        None => (rest, None),
    };
    let name = name.trim();
    (!name.is_empty()).then_some((number, name, directive))
}

/// A plain decimal number without a sign, which `parse` would allow.
fn decimal(text: &str) -> Option<usize> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}
