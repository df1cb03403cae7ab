// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an application of `paravane bench apps` is: the files of `bench/apps/`, read and checked.

use super::super::turns::Named;
use super::promise::Promise;
use crate::arguments::Place;
use anyhow::{Context, bail};
use serde::Deserialize;
use std::collections::BTreeMap;

/// An application: programs of Debian, and what is measured of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct App {
    /// The name of its file.
    #[serde(skip)]
    pub name: String,
    /// A description for the user.
    pub about: String,
    /// The root file system that has its packages. Applications with the same name share one.
    pub root: String,
    /// The Debian packages that it needs.
    #[serde(default)]
    pub packages: Vec<String>,
    /// A file that the scripts find in `/mnt`.
    pub input: Option<Input>,
    /// Memory of the machine, MiB.
    #[serde(default = "memory")]
    pub memory: u32,
    /// Whether the scripts change to another user. An ordinary user of the host has only one.
    #[serde(default)]
    pub users: bool,
    /// Whether each turn has a new machine, in which each row is measured twice: cold and warm.
    #[serde(default)]
    pub fresh: bool,
    /// Whether the host forgets the contents of a machine's disk before each turn.
    #[serde(default)]
    pub uncached: bool,
    /// Whether its place `disk` is measured with the disk on the virtual bus, too.
    #[serde(default)]
    pub vblk: bool,
    /// A script that makes the files of the application in `/srv`.
    #[serde(default)]
    pub files: String,
    /// A script for each new machine, such as one that starts a server.
    #[serde(default)]
    pub start: String,
    /// The least geometric mean of its rows on the root. They are not part of the mean of all
    /// programs then.
    pub mean: Option<Promise>,
    /// What is measured.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// A measurement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The name by which the user selects it.
    pub name: String,
    /// A description for the user.
    pub about: String,
    /// The unit of the figure. Without one, the figure is the time that `run` takes, in seconds.
    pub unit: Option<String>,
    /// A script whose time does not count.
    #[serde(default)]
    pub before: String,
    /// The script that is measured. With a unit, its last line is the figure.
    pub run: String,
    /// Where `/srv` is.
    #[serde(default = "places")]
    pub places: Vec<Place>,
    /// Numbers of vCPUs.
    #[serde(default = "vcpus")]
    pub vcpus: Vec<u32>,
    /// Figures that the last line has after the first one.
    #[serde(default)]
    also: Vec<Also>,
    /// The least speed that is promised, where that of the host is 1, in each place that has one.
    #[serde(default)]
    pub bars: BTreeMap<Place, Promise>,
    /// The least speed over venet that is promised, where that over virtio-net is 1.
    pub beside_virtio_net: Option<f64>,
    /// Places where the row is not part of a mean, each with the reason.
    #[serde(default)]
    pub not_in_mean: BTreeMap<Place, String>,
    /// Words: the row stands for one row of each, whose name ends in the word and whose scripts
    /// know it as `$each`.
    #[serde(default)]
    each: Vec<String>,
    /// Other promises than `bars`, by the word of a row.
    #[serde(default)]
    except: BTreeMap<String, BTreeMap<Place, Promise>>,
}

/// A further figure of the same run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Also {
    /// Follows the row's name.
    name: String,
    about: String,
    unit: String,
}

/// One of the figures of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    pub name: String,
    pub about: String,
    pub unit: String,
    /// Whether it is the row's own, to which a bar applies, and not a further one.
    pub own: bool,
}

/// A file that is too large for a description.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    /// `linux.tar`: what a small kernel for x86 is built of.
    Linux,
}

impl Named for Row {
    fn name(&self) -> &str {
        &self.name
    }
}

fn memory() -> u32 {
    1024
}

fn places() -> Vec<Place> {
    vec![Place::Rootfs]
}

fn vcpus() -> Vec<u32> {
    vec![1, 2]
}

/// Units of which a smaller figure is the better one. All others end in `/s`.
const TIMES: [&str; 3] = ["s", "ms", "us"];

impl Figure {
    /// Whether a larger figure is the better one.
    pub fn is_rate(&self) -> bool {
        !TIMES.contains(&self.unit.as_str())
    }
}

impl Row {
    /// What a run measures, in the order of the words of its last line.
    pub fn figures(&self) -> Vec<Figure> {
        let own = Figure {
            name: self.name.clone(),
            about: self.about.clone(),
            unit: self.unit.as_deref().unwrap_or("s").to_string(),
            own: true,
        };
        let also = self.also.iter().map(|also| Figure {
            name: format!("{}-{}", self.name, also.name),
            about: format!("{}: {}", self.about, also.about),
            unit: also.unit.clone(),
            own: false,
        });
        [own].into_iter().chain(also).collect()
    }

    /// The rows that it stands for.
    fn expanded(self) -> Vec<Row> {
        if self.each.is_empty() {
            return vec![self];
        }
        let one = |word: &String| {
            let known = |script: &str| match script {
                "" => String::new(),
                script => format!("each={word}\n{script}"),
            };
            Row {
                name: format!("{}-{word}", self.name),
                about: format!("{}: {word}", self.about),
                before: known(&self.before),
                run: known(&self.run),
                bars: self.except.get(word).unwrap_or(&self.bars).clone(),
                each: Vec::new(),
                except: BTreeMap::new(),
                ..self.clone()
            }
        };
        self.each.iter().map(one).collect()
    }
}

/// All applications of this program, in the order of their names.
pub fn all() -> anyhow::Result<Vec<App>> {
    let mut apps = Vec::new();
    for (file, text) in paravane_blobs::BENCH_APPS {
        let Some(name) = file.strip_suffix(".toml").filter(|n| !n.contains('/')) else {
            continue;
        };
        apps.push(parse(name, text).with_context(|| format!("bench/apps/{file}"))?);
    }
    Ok(apps)
}

/// Reads the description of one application, and checks it.
fn parse(name: &str, text: &[u8]) -> anyhow::Result<App> {
    let mut app: App = toml::from_str(std::str::from_utf8(text)?)?;
    app.name = name.to_string();
    for row in &app.rows {
        if let Some(word) = row.except.keys().find(|word| !row.each.contains(word)) {
            bail!("row {}: except: {word} is no word of `each`", row.name);
        }
    }
    app.rows = app.rows.into_iter().flat_map(Row::expanded).collect();
    if app.rows.is_empty() {
        bail!("no row");
    }
    for row in &app.rows {
        let complain = |what: &str| bail!("row {}: {what}", row.name);
        for figure in row.figures() {
            if !plain(&figure.name) {
                return complain("its name has other characters than a-z, 0-9 and -");
            }
            if figure.is_rate() && !figure.unit.ends_with("/s") {
                return complain("its unit is neither s, ms or us nor a rate such as requests/s");
            }
        }
        if row.unit.is_none() && !row.also.is_empty() {
            return complain("without `unit` it prints no figures");
        }
        if row
            .bars
            .iter()
            .any(|(place, bar)| !row.places.contains(place) || !bar.is_speed())
        {
            return complain("a bar is not above 0, or in a place where it is not measured");
        }
        let over_venet = |bar: f64| bar > 0.0 && row.places.contains(&Place::Publish);
        if !row.beside_virtio_net.is_none_or(over_venet) {
            return complain("beside_virtio_net is not above 0, or it has no place publish");
        }
        let reasons = &row.not_in_mean;
        if reasons
            .iter()
            .any(|(place, why)| !row.places.contains(place) || why.is_empty())
        {
            return complain("not_in_mean has no reason, or a place where it is not measured");
        }
        if !app.fresh && row.bars.values().any(|bar| bar.has_states()) {
            return complain("without `fresh`, a bar cannot be of cold and warm runs");
        }
        if row.places.is_empty() || row.vcpus.is_empty() {
            return complain("it is measured nowhere");
        }
        if row.vcpus.iter().any(|&n| n == 0 || n > 64) {
            return complain("a number of vCPUs is not from 1 to 64");
        }
        // A new machine has the old root again, without the files.
        let keeps = |place: &Place| [Place::Disk, Place::Volume].contains(place);
        if app.uncached && row.places != [Place::Disk] {
            return complain("with `uncached`, its place can only be disk");
        }
        if app.fresh && !row.places.iter().all(keeps) {
            return complain("with `fresh`, its places can only be disk and volume");
        }
    }
    let mean = app
        .mean
        .filter(|mean| !mean.is_speed() || mean.has_states());
    if mean.is_some() {
        bail!("mean: it is not above 0, or of cold and warm runs");
    }
    if !plain(&app.root) {
        bail!(
            "root = {:?}: its characters can be a-z, 0-9 and -",
            app.root
        );
    }
    Ok(app)
}

/// Whether a word can be part of a name of a file and of a row.
fn plain(word: &str) -> bool {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !word.is_empty() && word.chars().all(known)
}

#[cfg(test)]
mod tests {
    use super::super::figures::STATES;
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::process::Command;

    const SMALL: &str =
        "about = 'a'\nroot = 'small'\n[[row]]\nname = 'x'\nabout = 'b'\nrun = ':'\n";

    #[test]
    fn what_this_program_has_is_right() {
        let apps = all().unwrap();
        assert!(apps.len() > 4, "{}", apps.len());
        let rows: Vec<String> = apps
            .iter()
            .flat_map(|a| &a.rows)
            .flat_map(Row::figures)
            .map(|figure| figure.name)
            .collect();
        let different: BTreeSet<&String> = rows.iter().collect();
        assert_eq!(rows.len(), different.len(), "a name occurs twice: {rows:?}");
        for app in &apps {
            let own = |row: &str| row == app.name || row.starts_with(&format!("{}-", app.name));
            assert!(app.rows.iter().all(|row| own(&row.name)), "{}", app.name);
        }
    }

    /// Programs that read from a pipe and end before its end. What writes there then fails, or not,
    /// by chance.
    fn early_readers(script: &str) -> Vec<&str> {
        let readers = script.split('|').skip(1).map(str::trim_start);
        readers
            .filter(|reader| {
                let mut words = reader.split_whitespace();
                match (words.next(), words.next()) {
                    (Some("head"), _) => true,
                    (Some("sed"), Some(word)) => word.trim_matches(['"', '\'']).ends_with('q'),
                    (Some("grep"), Some(word)) => word.starts_with("-q") || word.starts_with("-m"),
                    _ => false,
                }
            })
            .collect()
    }

    #[test]
    fn no_writer_fails_because_its_reader_leaves() {
        assert_eq!(early_readers("a | sed 200q | b").len(), 1);
        assert_eq!(early_readers("a |\n\thead -n 1").len(), 1);
        assert!(early_readers("head -c 1 x | sed -n 1,2p | grep a || exit 1").is_empty());
        for app in all().unwrap() {
            let rows = app.rows.iter().flat_map(|row| [&row.before, &row.run]);
            for script in rows.chain([&app.files, &app.start]) {
                assert_eq!(early_readers(script), [""; 0], "{}", app.name);
            }
        }
    }

    #[test]
    fn the_rest_has_defaults() {
        let app = parse("small", SMALL.as_bytes()).unwrap();
        assert_eq!((app.name.as_str(), app.memory), ("small", 1024));
        let row = &app.rows[0];
        let figures = row.figures();
        let figure = &figures[0];
        assert_eq!((figures.len(), figure.own), (1, true));
        assert_eq!((&*figure.unit, figure.is_rate()), ("s", false));
        assert_eq!(
            (&row.places[..], &row.vcpus[..]),
            (&[Place::Rootfs][..], &[1, 2][..])
        );
    }

    #[test]
    fn a_row_stands_for_one_of_each_word() {
        let text = format!("{SMALL}each = ['vm', 'cpu-load']\n");
        let app = parse("small", text.as_bytes()).unwrap();
        let rows: Vec<(&str, &str)> = app.rows.iter().map(|r| (&*r.name, &*r.run)).collect();
        assert_eq!(
            rows,
            [("x-vm", "each=vm\n:"), ("x-cpu-load", "each=cpu-load\n:")]
        );
        let bars = "bars = { rootfs = 0.8 }\nexcept = { vm = { rootfs = 0.2 } }\n";
        let app = parse("small", format!("{text}{bars}").as_bytes()).unwrap();
        let bars = app.rows.iter().map(|row| row.bars[&Place::Rootfs]);
        let bars: Vec<_> = bars.map(|bar| bar.of(1, "")).collect();
        assert_eq!(bars, [Some(0.2), Some(0.8)]);
        let text = format!("{SMALL}each = ['; rm -rf /']\n");
        assert!(parse("small", text.as_bytes()).is_err());
    }

    #[test]
    fn mistakes_are_named() {
        for (add, told) in [
            ("unit = 'requests'", "neither s, ms or us"),
            ("places = []", "measured nowhere"),
            ("vcpus = [0]", "not from 1 to 64"),
            ("places = ['memory']", "memory"),
            ("bars = { disk = 0.9 }", "where it is not measured"),
            ("bars = { rootfs = 0 }", "not above 0"),
            ("bars = { rootfs = { cold = 0.4 } }", "without `fresh`"),
            (
                "also = [{ name = 'p99', about = '99 %', unit = 'us' }]",
                "it prints no figures",
            ),
            (
                "unit = 'us'\nalso = [{ name = 'p99', about = '99 %', unit = 'x' }]",
                "neither s, ms or us",
            ),
            ("beside_virtio_net = 1", "it has no place publish"),
            (
                "places = ['publish']\nbeside_virtio_net = 0",
                "is not above 0",
            ),
            (
                "not_in_mean = { disk = 'a' }",
                "a place where it is not measured",
            ),
            ("not_in_mean = { rootfs = '' }", "has no reason"),
            ("colour = 'red'", "colour"),
            ("except = { vm = {} }", "vm is no word"),
        ] {
            let error = parse("small", format!("{SMALL}{add}\n").as_bytes()).unwrap_err();
            assert!(format!("{error:#}").contains(told), "{add}: {error:#}");
        }
        for (text, told) in [
            (SMALL.replace("'x'", "'X y'"), "other characters"),
            (SMALL.replace("'small'", "'../base'"), "can be a-z"),
            (format!("fresh = true\n{SMALL}"), "only be disk and volume"),
            (format!("mean = 0\n{SMALL}"), "mean: it is not above 0"),
        ] {
            let error = parse("small", text.as_bytes()).unwrap_err();
            assert!(format!("{error:#}").contains(told), "{text}: {error:#}");
        }
    }

    /// Removes the files of `folder-remove` as in two machines, one after the other.
    #[test]
    fn a_tree_that_is_removed_is_there_again() {
        let apps = all().unwrap();
        let rows = apps.iter().flat_map(|app| &app.rows);
        let row = rows.into_iter().find(|row| row.name == "folder-remove");
        let row = row.unwrap();
        for state in STATES {
            assert_eq!(row.bars[&Place::Volume].of(1, state), Some(0.33));
        }
        let folder = tempfile::tempdir().unwrap();
        let bash = |script: &str| {
            let mut bash = Command::new("bash");
            bash.args(["-euo", "pipefail", "-c", script]);
            assert!(bash.current_dir(&folder).status().unwrap().success());
        };
        let is = |name: &str| folder.path().join(name).exists();
        bash("mkdir -p linux/kernel; echo x >linux/kernel/x; cp -r linux/kernel next");
        for _machine in 0..2 {
            // Not by its inode number, which the next tree may get.
            fs::write(folder.path().join("next/older"), "").unwrap();
            for cold in [true, false] {
                bash(&row.before);
                // A tree that was not touched in this machine, and one that was just made.
                assert_eq!(is("gone/older"), cold);
                assert!(is("gone/x") && is("next") != cold);
                bash(&row.run);
                assert!(!is("gone"));
            }
        }
    }

    #[test]
    fn a_rate_is_better_when_it_is_larger() {
        let first = |unit: &str| {
            let text = format!("{SMALL}unit = '{unit}'\n");
            parse("small", text.as_bytes()).unwrap().rows[0].figures()[0].is_rate()
        };
        assert!(first("requests/s"));
        assert!(!first("us"));
    }

    #[test]
    fn a_run_can_have_several_figures() {
        let text = format!(
            "{SMALL}unit = 'requests/s'\nbars = {{ rootfs = 0.85 }}\n\
             also = [{{ name = 'p99', about = '99 %', unit = 'us' }}]\n"
        );
        let app = parse("small", text.as_bytes()).unwrap();
        let figures = app.rows[0].figures();
        let told: Vec<_> = figures
            .iter()
            .map(|figure| (&*figure.name, &*figure.unit, figure.own))
            .collect();
        assert_eq!(told, [("x", "requests/s", true), ("x-p99", "us", false)]);
        assert_eq!(app.rows[0].bars[&Place::Rootfs], Promise::Same(0.85));
    }
}
