// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applies a root's tmpfiles.d(5), which lists the files that a boot creates, above all directories
//! in /run. On a system with systemd, `systemd-tmpfiles` does this.
//!
//! The agent does not run the `systemd-tmpfiles` of the root: container images do not have it, and
//! every start would wait for it. It applies lines that create or adjust files. It ignores removal,
//! cleanup, extended attributes and access control lists.
//!
//! A hostile root can only harm its own machine, but must not keep the agent from serving. So the
//! number of files, lines, visited entries and copied bytes is bounded.

mod act;
mod config;
pub mod copy;
mod line;
mod specifier;
mod tree;

pub use copy::Budget;
pub use tree::Tree;

use crate::user::Accounts;
use act::Actor;
use config::Origin;
use line::Line;
use specifier::Specifiers;
use std::collections::HashSet;

/// Failures that are reported one by one.
const MAX_COMPLAINTS: usize = 16;
/// Characters of a report.
const MAX_COMPLAINT: usize = 400;
/// Limits for all lines together.
const BUDGET: Budget = Budget {
    entries: 64 << 10,
    bytes: 64 << 20,
};
/// Paths that only systemd may create. The first one means that it is process 1 (sd_booted(3)); the
/// second one forbids logins until systemd removes it.
const SYSTEMD_ONLY: [&str; 2] = ["/run/systemd/system", "/run/nologin"];

/// Applies all lines of the root. Returns one line of text for each failure.
pub fn apply(tree: &Tree, accounts: &Accounts) -> Vec<String> {
    let specifiers = Specifiers::of(tree);
    let mut complaints = Complaints::default();
    let mut lines = Vec::new();
    for (origin, text) in config::lines(tree, &mut complaints) {
        match line::parse(&text, &specifiers) {
            Ok(Some(line)) => {
                if !SYSTEMD_ONLY.iter().any(|path| line.path.starts_with(path)) {
                    lines.push((origin, line));
                }
            }
            Ok(None) => {}
            Err(why) => complaints.add(&origin, &why),
        }
    }
    let lines = in_order(lines);
    let mut actor = Actor::new(tree, accounts, BUDGET);
    for (origin, line) in &lines {
        if let Err(error) = actor.apply(line) {
            if !line.may_fail {
                complaints.add(origin, &format!("{}: {error}", line.path.display()));
            }
        }
    }
    complaints.finish()
}

/// Sorts lines into the order in which they apply: first lines that create files, parents before
/// children, then lines that adjust files. Of lines that create the same path, the first one
/// counts.
fn in_order(lines: Vec<(Origin, Line)>) -> Vec<(Origin, Line)> {
    let (adjust, mut create): (Vec<_>, Vec<_>) = lines
        .into_iter()
        .partition(|(_, line)| line.kind.takes_pattern());
    // Debian overrides lines of systemd's files by a file with an earlier name.
    let mut seen = HashSet::new();
    create.retain(|(_, line)| seen.insert(line.path.clone()));
    // Stable: lines for paths of the same depth stay in the order of the files.
    create.sort_by_key(|(_, line)| line.path.components().count());
    create.extend(adjust);
    create
}

/// Reports of failures. Keeps the first ones and counts the others.
#[derive(Debug, Default)]
struct Complaints {
    texts: Vec<String>,
    more: usize,
}

impl Complaints {
    fn add(&mut self, origin: &Origin, why: &str) {
        if self.texts.len() < MAX_COMPLAINTS {
            // The text goes to a console and contains paths of the root.
            let text = format!("{origin}: {why}");
            let plain = |c: char| if c.is_control() { '?' } else { c };
            self.texts
                .push(text.chars().take(MAX_COMPLAINT).map(plain).collect());
        } else {
            self.more += 1;
        }
    }

    fn finish(mut self) -> Vec<String> {
        if self.more > 0 {
            let text = format!("tmpfiles.d: {} more lines could not be applied", self.more);
            self.texts.push(text);
        }
        self.texts
    }
}

#[cfg(test)]
mod tests;
