// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Views: rows that stand for those of a published table, and a table of both.

use super::measured::Measured;
use crate::arguments::Place;
use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The folder of the views among the descriptions.
const FOLDER: &str = "views/";

/// A view.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// What was published.
    pub about: String,
    #[serde(rename = "row")]
    rows: Vec<Shown>,
}

/// A row of the published table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    title: String,
    row: String,
    place: Place,
    vcpus: u32,
    /// The published figure: the guest's speed, where that of native Linux is 1.
    paper: f64,
}

/// A row of the published table with what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    title: String,
    paper: f64,
    #[serde(flatten)]
    measured: Measured,
}

/// The view of this name.
pub fn find(name: &str) -> anyhow::Result<View> {
    let files = || {
        paravane_blobs::BENCH_APPS
            .iter()
            .filter_map(|(file, text)| {
                let name = file.strip_prefix(FOLDER)?.strip_suffix(".toml")?;
                Some((name, *text))
            })
    };
    match files().find(|(known, _)| *known == name) {
        Some((_, text)) => toml::from_str(std::str::from_utf8(text)?)
            .with_context(|| format!("bench/apps/{FOLDER}{name}.toml")),
        None => {
            let known: Vec<&str> = files().map(|(known, _)| known).collect();
            bail!("no view {name}: there are {}", known.join(", "))
        }
    }
}

impl View {
    /// Whether it shows this row.
    pub fn shows(&self, row: &str, place: Place, vcpus: u32) -> bool {
        self.rows.iter().any(|shown| shown.is(row, place, vcpus))
    }

    /// Its rows of which there are figures.
    pub fn lines(&self, measured: &[Measured]) -> Vec<Line> {
        self.rows
            .iter()
            .flat_map(|shown| {
                let same = |row: &&Measured| shown.is(&row.name, row.place, row.vcpus);
                measured.iter().filter(same).map(|row| Line {
                    title: shown.title.clone(),
                    paper: shown.paper,
                    measured: row.clone(),
                })
            })
            .collect()
    }
}

impl Shown {
    fn is(&self, row: &str, place: Place, vcpus: u32) -> bool {
        (self.row.as_str(), self.place, self.vcpus) == (row, place, vcpus)
    }
}

/// The table of a view.
pub fn markdown(lines: &[Line]) -> String {
    let mut out = "| published as | there | here | 95 % | measured here |\n\
        | --- | ---: | ---: | ---: | --- |\n"
        .to_string();
    for Line {
        title,
        paper,
        measured: row,
    } in lines
    {
        let _ = writeln!(
            out,
            "| {title} | {paper:.2} | {:.2} | {} | {}, {}, {}, {} vCPUs |",
            row.ratio,
            row.interval(),
            row.name,
            row.system,
            row.place,
            row.vcpus
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::description;
    use super::*;

    #[test]
    fn views_show_rows_that_exist() {
        let apps = description::all().unwrap();
        let view = find("seed").unwrap();
        assert_eq!(view.rows.len(), 7);
        for shown in &view.rows {
            let exists = apps.iter().flat_map(|app| &app.rows).any(|row| {
                row.name == shown.row
                    && row.places.contains(&shown.place)
                    && row.vcpus.contains(&shown.vcpus)
            });
            assert!(exists, "{}", shown.title);
            assert!(view.shows(&shown.row, shown.place, shown.vcpus));
        }
        assert!(!view.shows("python", Place::Rootfs, 1));
        let error = find("paper").unwrap_err().to_string();
        assert_eq!(error, "no view paper: there are seed");
    }
}
