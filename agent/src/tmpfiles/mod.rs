// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a root's tmpfiles.d asks a boot to create: directories in /run above all, which its own
//! systemd would create if it ran (tmpfiles.d(5)).
//!
//! The agent does this itself and does not run the root's `systemd-tmpfiles`: the roots that need
//! it most, container images, do not have that program, and a machine that is up in a fraction of a
//! second cannot wait for a program of the root that might hang. Lines that create or adjust are
//! applied; removal, cleanup, extended attributes and access control lists are not.
//!
//! The root may be hostile. It can only harm its own machine, but it must not keep the agent from
//! serving: files, lines, visited entries and copied bytes are bounded.

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
use std::collections::HashMap;
use std::path::PathBuf;

/// Lines that are reported one by one.
const MAX_COMPLAINTS: usize = 16;
/// Characters of a report.
const MAX_COMPLAINT: usize = 400;
/// What all lines together may visit and copy.
const BUDGET: Budget = Budget {
    entries: 64 << 10,
    bytes: 64 << 20,
};
/// What only a running systemd may create: the one says that it is process 1 (sd_booted(3)), the
/// other forbids logins until it removes it.
const SYSTEMD_ONLY: [&str; 2] = ["/run/systemd/system", "/run/nologin"];

/// Applies the root's lines. Returns what could not be done, one line of text each.
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
    let lines = in_order(lines, &mut complaints);
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

/// The order in which lines are applied: first those that create, a directory before what is in it;
/// then those that adjust what exists. Of several that create the same path, only the first counts.
fn in_order(lines: Vec<(Origin, Line)>, complaints: &mut Complaints) -> Vec<(Origin, Line)> {
    let (adjust, mut create): (Vec<_>, Vec<_>) = lines
        .into_iter()
        .partition(|(_, line)| line.kind.takes_pattern());
    let mut first: HashMap<PathBuf, Line> = HashMap::new();
    create.retain(|(origin, line)| match first.get(&line.path) {
        None => {
            first.insert(line.path.clone(), line.clone());
            true
        }
        Some(earlier) => {
            if earlier != line {
                let why = format!("{}: another line has this path", line.path.display());
                complaints.add(origin, &why);
            }
            false
        }
    });
    // Stable: lines for paths of the same depth stay in the order of the files.
    create.sort_by_key(|(_, line)| line.path.components().count());
    create.extend(adjust);
    create
}

/// What could not be done, of which only the first are kept.
#[derive(Debug, Default)]
struct Complaints {
    texts: Vec<String>,
    more: usize,
}

impl Complaints {
    fn add(&mut self, origin: &Origin, why: &str) {
        if self.texts.len() < MAX_COMPLAINTS {
            // It goes to a console, and most of it is the root's.
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
