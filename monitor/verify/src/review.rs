// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reviewed list (`guest/linux/privileged.toml`): sensitive instructions of VMI-Linux, and why
//! each is harmless.

use super::alternatives::Features;
use super::instructions::{Found, Site};
use anyhow::{Context, bail};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The built-in list.
pub const LIST: &str = include_str!("../../../guest/linux/privileged.toml");

/// The contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Features that every layer sets or hides.
    feature: Vec<Feature>,
    entry: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Feature {
    name: String,
    /// The feature's number: word and bit, as in cpufeatures.h.
    word: u16,
    bit: u16,
    /// Whether the feature is present under a layer.
    on: bool,
    why: String,
}

/// Instructions in functions, and why they are harmless.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    instructions: Vec<String>,
    /// Names; a `*` at the end matches any rest. Without names the entry applies everywhere.
    #[serde(default)]
    symbols: Vec<String>,
    /// Symbols and instructions that a configuration may lack.
    #[serde(default)]
    optional: bool,
    why: String,
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Instructions that no entry lists, with the first address of each.
    pub unexpected: Vec<(Site, u64)>,
    /// Entries that match nothing in the kernel: `symbol: instruction`.
    pub stale: Vec<String>,
    /// Number of instructions that the list explains.
    pub explained: usize,
}

impl List {
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let list: List = toml::from_str(text).context("the list of reviewed instructions")?;
        for (what, why) in list
            .feature
            .iter()
            .map(|f| (f.name.as_str(), &f.why))
            .chain(
                list.entry
                    .iter()
                    .map(|e| (e.instructions.first().map_or("", |i| i), &e.why)),
            )
        {
            if why.trim().is_empty() || what.is_empty() {
                bail!("the list of reviewed instructions: {what:?} has no reason");
            }
        }
        Ok(list)
    }

    pub fn features(&self) -> Features {
        self.feature
            .iter()
            .map(|f| (f.word * 32 + f.bit, f.on))
            .collect()
    }

    /// Compares the result of a scan with the list.
    pub fn judge(&self, found: &Found) -> Verdict {
        let mut verdict = Verdict::default();
        // (entry, symbol, instruction) -> matches
        let mut used: BTreeMap<(usize, usize, usize), usize> = BTreeMap::new();
        for ((symbol, instruction), places) in &found.sites {
            let mut explained = false;
            for (index, entry) in self.entry.iter().enumerate() {
                let Some(what) = entry.instructions.iter().position(|i| i == instruction) else {
                    continue;
                };
                let who = if entry.symbols.is_empty() {
                    Some(0)
                } else {
                    entry
                        .symbols
                        .iter()
                        .position(|pattern| fits(pattern, symbol))
                };
                if let Some(who) = who {
                    *used.entry((index, who, what)).or_default() += places.len();
                    explained = true;
                }
            }
            if explained {
                verdict.explained += places.len();
            } else {
                let site = (symbol.clone(), instruction.clone());
                verdict
                    .unexpected
                    .push((site, places.first().copied().unwrap_or(0)));
            }
        }
        for (index, entry) in self.entry.iter().enumerate().filter(|(_, e)| !e.optional) {
            for (who, symbol) in entry.symbols.iter().enumerate() {
                if !used.keys().any(|&(i, w, _)| (i, w) == (index, who)) {
                    verdict
                        .stale
                        .push(format!("{symbol}: {}", entry.instructions.join(", ")));
                }
            }
            for (what, instruction) in entry.instructions.iter().enumerate() {
                if !used.keys().any(|&(i, _, w)| (i, w) == (index, what)) {
                    let symbols = if entry.symbols.is_empty() {
                        "anywhere".to_string()
                    } else {
                        entry.symbols.join(", ")
                    };
                    verdict.stale.push(format!("{symbols}: {instruction}"));
                }
            }
        }
        verdict
    }
}

fn fits(pattern: &str, symbol: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => symbol.starts_with(start),
        None => pattern == symbol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        feature = [{ name = "X", word = 8, bit = 23, on = true, why = "set" }]
        [[entry]]
        instructions = ["cli", "sti"]
        symbols = ["native_*", "go"]
        why = "never called"
        [[entry]]
        instructions = ["in"]
        why = "emulated"
    "#;

    fn found(sites: &[(&str, &str)]) -> Found {
        let mut found = Found::default();
        for (symbol, instruction) in sites {
            let site = (symbol.to_string(), instruction.to_string());
            found.sites.entry(site).or_default().push(16);
        }
        found
    }

    #[test]
    fn everything_fits() {
        let list = List::parse(TEXT).unwrap();
        assert!(list.features()[&279]);
        let verdict = list.judge(&found(&[
            ("native_a", "cli"),
            ("go", "sti"),
            ("x", "in"),
            ("y", "in"),
        ]));
        assert!(
            verdict.unexpected.is_empty() && verdict.stale.is_empty() && verdict.explained == 4,
            "{verdict:?}"
        );
    }

    #[test]
    fn what_is_on_no_list_and_what_is_on_it_for_nothing() {
        let list = List::parse(TEXT).unwrap();
        let verdict = list.judge(&found(&[
            ("native_a", "cli"),
            ("x", "in"),
            ("x", "cli"),
            ("native_a", "hlt"),
        ]));
        let names: Vec<_> = verdict
            .unexpected
            .iter()
            .map(|((s, i), _)| format!("{s} {i}"))
            .collect();
        assert_eq!(names, ["native_a hlt", "x cli"]);
        assert_eq!(verdict.stale, ["go: cli, sti", "native_*, go: sti"]);
    }

    #[test]
    fn no_reason_no_entry() {
        let text = TEXT.replace("emulated", " ");
        assert!(List::parse(&text).is_err());
    }

    #[test]
    fn the_list_is_well_formed() {
        List::parse(LIST).unwrap();
    }
}
