// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane conformance`: boots the conformance kernel, reads its TAP, and reports whether the
//! layer follows the VMI.

use super::conformance_report::Report;
use super::hypervisor;
use crate::arguments::{Conformance, HypervisorKind};
use crate::layer_file::LayerFile;
use crate::tap::{self, Summary};
use anyhow::{Context, bail};
use paravane_hypervisor::KernelFile;
use paravane_hypervisor::Layer;
use paravane_hypervisor::{Event, Machine, Running, Verdict};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::outlet::{self, Bounded};
use paravane_user_io::signals::Signals;
use paravane_user_io::worker::Limit;
use std::collections::VecDeque;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Memory of the machine, in MiB.
pub const MEMORY_MIB: u32 = 256;
/// How many of the last lines are shown after an unexpected end.
const LAST_LINES: usize = 12;
/// How long after the deadline a slow reader can still get the end of the report.
const GRACE: Duration = Duration::from_secs(5);

/// Runs the command.
pub fn run(args: &Conformance) -> anyhow::Result<Outcome> {
    let guest = Arc::new(KernelFile::load(args.guest.as_deref())?);
    let layer = layer(args)?;
    let command_line = command_line(args, &layer.expect)?;
    let hypervisor = hypervisor(args)?;
    let machine = Machine {
        guest: &guest,
        layer: layer.rom.as_deref(),
        command_line,
        cpus: args.cpus,
        memory_mib: args.memory,
        count_instructions: false,
        devices: paravane_bridge::suite,
    };
    let signals = Signals::install().context("cannot handle signals")?;
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    let limit = Limit {
        signals: Some(&signals),
        deadline,
    };
    let mut session = Session {
        running: hypervisor.start(&machine, &limit)?,
        signals: signals.clone(),
        deadline,
        timeout: args.timeout,
        last_lines: VecDeque::new(),
    };
    if args.list {
        return list(&mut session, args.filter.as_deref());
    }
    let mut report = Report::new(
        args,
        &hypervisor.describe(),
        &layer.expect,
        output(&signals, deadline),
    );
    report.start().map_err(outlet::error)?;
    let mut reader = tap::Reader::new();
    let end = session.run(|line| report.event(&reader.line(line), line))?;
    let last_lines: Vec<String> = session.last_lines.iter().cloned().collect();
    // The machine ends before the last message is printed.
    drop(session);
    let verdict = match end {
        End::Verdict(verdict) => verdict,
        End::Interrupted(signal) => return Ok(Outcome::Interrupted(signal)),
    };
    let summary = judge(reader.finish(), &verdict);
    if summary.planned == Some(0) && !matches!(verdict, Verdict::Crashed(_)) {
        if let Some(filter) = &args.filter {
            bail!("{}", no_such_test(filter));
        }
    }
    let finished = report.finish(&summary, &verdict, &last_lines);
    finished.map_err(outlet::error)?;
    Ok(if summary.failed == 0 {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}

/// Standard output. Its reader may stop to read: it must not keep the command beyond its time, or
/// after a signal.
fn output(signals: &Signals, deadline: Instant) -> BufWriter<Bounded<'_>> {
    BufWriter::new(Bounded(Limit {
        signals: Some(signals),
        deadline: deadline + GRACE,
    }))
}

fn no_such_test(filter: &str) -> String {
    format!(
        "no test matches the filter `{filter}`: --list without a filter prints the names of all"
    )
}

/// Prints the names of the tests, which the guest reports as lines `# test NAME`.
fn list(session: &mut Session, filter: Option<&str>) -> anyhow::Result<Outcome> {
    let mut names = Vec::new();
    let end = session.run(|line| {
        names.extend(line.trim().strip_prefix("# test ").map(String::from));
        Ok(())
    })?;
    match (end, filter) {
        (End::Interrupted(signal), _) => return Ok(Outcome::Interrupted(signal)),
        (End::Verdict(Verdict::Crashed(why)), _) => bail!("the guest ended without a list: {why}"),
        (_, Some(filter)) if names.is_empty() => bail!("{}", no_such_test(filter)),
        _ if names.is_empty() => bail!("the guest has no tests"),
        _ => {}
    }
    let mut out = output(&session.signals, session.deadline);
    let all = names
        .into_iter()
        .try_for_each(|name| writeln!(out, "{name}"));
    all.and_then(|()| out.flush()).map_err(outlet::error)?;
    Ok(Outcome::Passed)
}

/// A running guest and its deadline.
struct Session {
    running: Box<dyn Running>,
    signals: Signals,
    deadline: Instant,
    timeout: u64,
    last_lines: VecDeque<String>,
}

enum End {
    Verdict(Verdict),
    Interrupted(u8),
}

impl Session {
    /// Passes every line to `line` until the guest has ended or must be ended.
    fn run(&mut self, mut line: impl FnMut(&str) -> io::Result<()>) -> anyhow::Result<End> {
        loop {
            match self.running.next(self.deadline, &self.signals) {
                Event::Line(text) => {
                    line(&text).map_err(outlet::error)?;
                    if self.last_lines.len() == LAST_LINES {
                        self.last_lines.pop_front();
                    }
                    self.last_lines.push_back(text);
                }
                Event::Ended(verdict) => return Ok(End::Verdict(verdict)),
                Event::Interrupted(signal) => return Ok(End::Interrupted(signal)),
                Event::TimedOut => {
                    let why = format!(
                        "it had not ended after {} s: it hangs, or needs a longer --timeout",
                        self.timeout
                    );
                    return Ok(End::Verdict(Verdict::Crashed(why)));
                }
            }
        }
    }
}

fn layer(args: &Conformance) -> anyhow::Result<LayerFile> {
    if args.hypervisor == HypervisorKind::Process {
        // Its layer is part of it. Another build of the same layer can replace it.
        return match (&args.rom, args.layer) {
            (_, Some(layer)) if layer.program().is_none() => bail!(
                "--layer {} does not run on --hypervisor process",
                layer.name()
            ),
            (None, layer) => Ok(LayerFile::built_in(layer.unwrap_or(Layer::Process))),
            (Some(path), layer) => {
                LayerFile::load_unchecked(path, Some(layer.unwrap_or(Layer::Process)))
            }
        };
    }
    match (&args.rom, args.layer) {
        (_, Some(layer)) if layer.program().is_some() => {
            bail!("--layer {} only runs on --hypervisor process", layer.name())
        }
        (Some(path), layer) if args.unchecked_rom => LayerFile::load_unchecked(path, layer),
        (Some(path), layer) => LayerFile::load(path, layer),
        (None, Some(layer)) => Ok(LayerFile::built_in(layer)),
        (None, None) => Ok(LayerFile::built_in(Layer::None)),
    }
}

/// The guest's command line: words separated by spaces.
fn command_line(args: &Conformance, layer: &str) -> anyhow::Result<String> {
    let mut words = vec![format!("layer={layer}")];
    // The guest's clock must show this date, a little later. Without a date it is not tested.
    if let Ok(date) = SystemTime::now().duration_since(UNIX_EPOCH) {
        words.push(format!("date={}", date.as_secs()));
    }
    if let Some(filter) = &args.filter {
        if filter.is_empty() || !filter.bytes().all(|b| b.is_ascii_graphic()) {
            bail!(
                "--filter `{}`: a pattern is made of printable ASCII characters without spaces",
                filter.escape_debug()
            );
        }
        words.push(format!("filter={filter}"));
    }
    if args.list {
        words.push("list".to_string());
    }
    for word in &args.append {
        if word.is_empty() || !word.bytes().all(|b| b.is_ascii_graphic()) {
            bail!(
                "--append `{}`: a word is made of printable ASCII characters without spaces",
                word.escape_debug()
            );
        }
        words.push(word.clone());
    }
    Ok(words.join(" "))
}

/// Combines the guest's results with its end: a run that ended badly has failed, whatever the guest
/// printed. The truncated output is then not reported as a second problem.
fn judge(mut summary: Summary, verdict: &Verdict) -> Summary {
    match verdict {
        Verdict::Crashed(why) => {
            let missing = summary
                .problems
                .iter()
                .find(|problem| problem.ends_with("did not run"));
            let line = missing.map_or(why.clone(), |missing| format!("{why}; {missing}"));
            summary.problems = vec![line];
        }
        Verdict::Passed if summary.failed > 0 => {
            summary
                .problems
                .push("the guest says that all passed, its tests do not".to_string());
        }
        Verdict::Failed if summary.failed == 0 && summary.problems.is_empty() => {
            summary.problems.push(
                "the guest says that a test failed, none of those that it printed did".to_string(),
            );
        }
        _ => {}
    }
    if summary.planned == Some(0) && summary.problems.is_empty() {
        summary.problems.push("the guest ran no test".to_string());
    }
    if !summary.problems.is_empty() && summary.failed == 0 {
        summary.failed = 1;
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(passed: usize, failed: usize) -> Summary {
        Summary {
            planned: Some(passed + failed),
            passed,
            failed,
            ..Summary::default()
        }
    }

    #[test]
    fn words_and_end_must_agree() {
        assert!(judge(summary(3, 0), &Verdict::Passed).problems.is_empty());
        assert!(judge(summary(3, 1), &Verdict::Failed).problems.is_empty());
        let mut unfinished = summary(3, 0);
        unfinished.problems = vec![
            "5 of 8 tests did not run".into(),
            "not a line of TAP".into(),
        ];
        let judged = judge(unfinished, &Verdict::Crashed("it was killed".into()));
        let line = "it was killed; 5 of 8 tests did not run".to_string();
        assert_eq!((judged.problems, judged.failed), (vec![line], 1));
        for (passed, failed, verdict) in [
            (3, 1, Verdict::Passed),
            (3, 0, Verdict::Failed),
            (3, 0, Verdict::Crashed("x".into())),
            (0, 0, Verdict::Passed),
        ] {
            let judged = judge(summary(passed, failed), &verdict);
            assert_eq!(
                (judged.problems.len(), judged.failed),
                (1, 1),
                "{verdict:?}"
            );
        }
    }
}
