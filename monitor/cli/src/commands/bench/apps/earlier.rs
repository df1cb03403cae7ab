// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rounds of an earlier run (`--add`), which count as those of this run do.

use super::super::turns::Pairs;
use super::description::App;
use super::figures::STATES;
use super::guesses;
use super::measured::{Measured, Turns};
use super::peers::System;
use super::plan::Group;
use crate::arguments::{BenchApps, Place};
use anyhow::{Context, bail};
use paravane_kernel as kernel;
use paravane_user_io::text::hex;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// What measured, and how. Rounds of two origins are not of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The SHA-256 of this program.
    build: String,
    settings: Settings,
}

/// What changes figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    quick: bool,
    /// The SHA-256 of the kernel, if it is not this program's own.
    kernel: Option<String>,
    root: Option<PathBuf>,
    options: Vec<String>,
    against: Vec<String>,
    ablate: Vec<String>,
    beside_one_vcpu: bool,
    /// Of the host, for this program.
    processors: usize,
}

impl Origin {
    /// That of this run.
    pub fn new(args: &BenchApps, processors: usize) -> anyhow::Result<Self> {
        let kernel = args.kernel.as_deref().map(sum).transpose()?;
        let root = args.root.as_deref();
        let root = root.map(|folder| fs::canonicalize(folder).unwrap_or(folder.to_path_buf()));
        let against = args.against.iter().map(|peer| System::Peer(*peer).name());
        let ablate = guesses::chosen(&args.ablate)?.into_iter();
        Ok(Origin {
            // The file that runs, even if it has been replaced.
            build: sum(Path::new("/proc/self/exe"))?,
            settings: Settings {
                quick: args.quick,
                kernel,
                root,
                options: args.option.clone(),
                against: against.map(str::to_string).collect(),
                ablate: ablate.map(|guess| guess.name.to_string()).collect(),
                beside_one_vcpu: args.beside_one_vcpu,
                processors,
            },
        })
    }
}

impl Settings {
    /// The names of those that differ.
    fn differences(&self, other: &Settings) -> Vec<&'static str> {
        let all = [
            ("--quick", self.quick == other.quick),
            ("--kernel", self.kernel == other.kernel),
            ("--root", self.root == other.root),
            ("--option", self.options == other.options),
            ("--against", self.against == other.against),
            ("--ablate", self.ablate == other.ablate),
            (
                "--beside-one-vcpu",
                self.beside_one_vcpu == other.beside_one_vcpu,
            ),
            (
                "the number of processors",
                self.processors == other.processors,
            ),
        ];
        let others = all.into_iter().filter(|(_, same)| !same);
        others.map(|(name, _)| name).collect()
    }
}

/// The SHA-256 of a file.
fn sum(file: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    Ok(hex(&kernel::digest(&bytes)))
}

/// What counts of an earlier run's report.
#[derive(Deserialize)]
struct Printed {
    #[serde(flatten)]
    origin: Origin,
    rows: Vec<PrintedRow>,
}

#[derive(Deserialize)]
struct PrintedRow {
    name: String,
    system: String,
    place: Place,
    vcpus: u32,
    turns: Turns,
}

/// The rows that a run of the same origin has printed.
pub fn read(file: &Path, origin: &Origin, apps: &[App]) -> anyhow::Result<Vec<Measured>> {
    let name = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("--add {name}"))?;
    let json: serde_json::Value = serde_json::from_str(&text)
        .with_context(|| format!("--add {name}: not what bench apps --json prints"))?;
    // Before the rest, of which another build may have another idea.
    if json.get("build").and_then(|build| build.as_str()) != Some(&origin.build) {
        bail!("--add {name}: measured by another build, or not what bench apps --json prints");
    }
    let printed: Printed = serde_json::from_value(json)
        .with_context(|| format!("--add {name}: not what bench apps --json prints"))?;
    let others = origin.settings.differences(&printed.origin.settings);
    if !others.is_empty() {
        let others = others.join(", ");
        bail!("--add {name}: measured with other settings than this run: {others}");
    }
    let mut rows: Vec<Measured> = Vec::new();
    for row in &printed.rows {
        let found = row.measured(apps).filter(|_| row.turns.are_right());
        match found.filter(|row| !rows.iter().any(|other| other.is_same(row))) {
            Some(row) => rows.push(row),
            None => bail!("--add {name}: the row {} is not right", row.name),
        }
    }
    Ok(rows)
}

impl PrintedRow {
    /// The row that this program computes from these rounds.
    fn measured(&self, apps: &[App]) -> Option<Measured> {
        let system = System::of_name(&self.system)?;
        let (place, vcpus) = (self.place, self.vcpus);
        for app in apps {
            let states = if app.fresh { &STATES[..] } else { &[""] };
            for row in &app.rows {
                if !row.places.contains(&place) || !row.vcpus.contains(&vcpus) {
                    continue;
                }
                for figure in row.figures() {
                    let named = |state: &&&str| format!("{}{state}", figure.name) == self.name;
                    let Some(state) = states.iter().find(named) else {
                        continue;
                    };
                    let rows = vec![row];
                    let group = Group {
                        app,
                        place,
                        vcpus,
                        rows,
                    };
                    let none = Pairs::default();
                    let mut measured = Measured::new(&group, row, &figure, state, system, &none);
                    measured.add(&self.turns);
                    return Some(measured);
                }
            }
        }
        None
    }
}

/// Rows of an earlier run and of this one. A row that both have measured becomes one.
pub fn join(earlier: Vec<Measured>, measured: Vec<Measured>) -> Vec<Measured> {
    let mut all = earlier;
    for mut row in measured {
        match all.iter_mut().find(|other| other.is_same(&row)) {
            Some(other) => {
                row.add(&other.turns);
                *other = row;
            }
            None => all.push(row),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::description;
    use super::super::report::Report;
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchApps,
    }

    fn origin(words: &[&str]) -> Origin {
        let line = Line::parse_from(["apps"].iter().chain(words));
        Origin::new(&line.args, 2).unwrap()
    }

    /// A row of an application with these figures of guest and host.
    fn row(apps: &[App], name: &str, turns: &[(f64, f64)]) -> Measured {
        let app = apps.iter().find(|app| app.name == name).unwrap();
        let row = &app.rows[0];
        let group = Group::of(apps, name, row.places[0], 1);
        let mut pairs = Pairs::default();
        turns
            .iter()
            .for_each(|&(guest, host)| pairs.add(guest, host));
        let state = if app.fresh { STATES[1] } else { "" };
        let figure = &row.figures()[0];
        Measured::new(&group, row, figure, state, System::Paravane, &pairs)
    }

    /// Writes a report of rows into a file.
    fn write(file: &Path, rows: Vec<Measured>, origin: &Origin, apps: &[App]) {
        let mut report = Report::new(rows, vec![], None, apps);
        report.origin = Some(origin.clone());
        fs::write(file, serde_json::to_string(&report).unwrap()).unwrap();
    }

    #[test]
    fn rows_of_several_runs_have_one_mean() {
        let apps = description::all().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("earlier.json");
        let origin = origin(&[]);
        let rows = vec![
            row(&apps, "python", &[(2.0, 1.0); 3]),
            row(&apps, "folder", &[(4.0, 1.0); 3]),
            row(&apps, "redis", &[(2.0, 1.0); 6]),
        ];
        write(&file, rows, &origin, &apps);
        let earlier = read(&file, &origin, &apps).unwrap();
        let python = row(&apps, "python", &[(4.0, 4.0); 3]);
        let text = row(&apps, "text", &[(1.0, 0.5); 6]);
        let all = join(earlier, vec![python, text]);
        let told: Vec<_> = all
            .iter()
            .map(|row| (&*row.name, &row.speeds[..], row.bar))
            .collect();
        let expected: [(&str, &[f64], Option<f64>); 4] = [
            ("python", &[0.5, 0.5, 0.5, 1.0, 1.0, 1.0], Some(0.85)),
            ("folder-find-warm", &[0.25; 3], None),
            ("redis-plain", &[2.0; 6], Some(0.85)),
            ("text", &[0.5; 6], Some(0.85)),
        ];
        assert_eq!(told, expected);
        assert_eq!((all[0].ratio, all[0].low, all[0].high), (0.75, 0.5, 1.0));
        let json = serde_json::to_value(Report::new(all, vec![], None, &apps)).unwrap();
        let mean = &json["means"][0];
        assert_eq!((&mean["rows"], &mean["rounds"]), (&3.into(), &6.into()));
        // Joined rows can be joined again.
        let again = read(&file, &origin, &apps).unwrap();
        write(&file, join(again.clone(), again), &origin, &apps);
        assert_eq!(read(&file, &origin, &apps).unwrap()[0].rounds, 6);
    }

    #[test]
    fn other_runs_are_refused() {
        let apps = description::all().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("earlier.json");
        let own = origin(&[]);
        let refused = || {
            let error = read(&file, &own, &apps).unwrap_err().to_string();
            let start = format!("--add {}: ", file.display());
            error.strip_prefix(&start).unwrap().to_string()
        };
        let rows = || vec![row(&apps, "python", &[(2.0, 1.0); 3])];
        for (words, told) in [
            (&["--quick", "--option=--append=x"][..], "--quick, --option"),
            (&["--root", "/"], "--root"),
            (&["--kernel", "/proc/self/exe"], "--kernel"),
            (&["--against", "uml"], "--against"),
            (&["--ablate=costs"], "--ablate"),
            (&["--beside-one-vcpu"], "--beside-one-vcpu"),
        ] {
            write(&file, rows(), &origin(words), &apps);
            let expected = format!("measured with other settings than this run: {told}");
            assert_eq!(refused(), expected);
        }
        let mut other = own.clone();
        other.settings.processors = 3;
        write(&file, rows(), &other, &apps);
        assert!(refused().ends_with(": the number of processors"));
        other.build.push('0');
        write(&file, rows(), &other, &apps);
        let build = "measured by another build, or not what bench apps --json prints";
        assert_eq!(refused(), build);
        // Older builds do not say what they are.
        fs::write(&file, "{\"rows\": []}").unwrap();
        assert_eq!(refused(), build);
        fs::write(&file, "| row |").unwrap();
        assert_eq!(refused(), "not what bench apps --json prints");
        for bad in [vec![row(&apps, "python", &[])], [rows(), rows()].concat()] {
            write(&file, bad, &own, &apps);
            assert_eq!(refused(), "the row python is not right");
        }
    }
}
