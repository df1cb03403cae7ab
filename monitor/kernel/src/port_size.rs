// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the port: lines that it adds, changes, moves and removes in Linux, without blank lines
//! and comments ("VMI: An Interface for Paravirtualization", OLS 2006, table 1).

use super::recipe::Recipe;
use serde::Serialize;
use std::collections::HashMap;

/// A part of the port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Component {
    /// The part's name.
    pub name: &'static str,
    /// Lines that Linux does not have.
    pub new: usize,
    /// Lines that replace others.
    pub changed: usize,
    /// Lines that were elsewhere before.
    pub moved: usize,
    /// Lines that were removed.
    pub removed: usize,
}

/// Parts, by prefixes of paths. The first match counts.
const PARTS: [(&str, &[&str]); 8] = [
    (
        "trap handlers and entry",
        &["arch/x86/vmi/entry.S", "arch/x86/vmi/traps.c"],
    ),
    ("timer code", &["arch/x86/vmi/time.c"]),
    ("system-call sites", &["arch/x86/vmi/usertext/"]),
    (
        "the rest of arch/x86/vmi",
        &["arch/x86/vmi/", "arch/x86/include/asm/vmi"],
    ),
    ("headers of arch/x86", &["arch/x86/include/"]),
    ("code of arch/x86", &["arch/x86/"]),
    (
        "virtual bus",
        &["drivers/vbus/", "include/linux/vbus_calls.h"],
    ),
    ("code of all architectures", &[""]),
];
/// Files that belong to the VMI, not to the port.
const SHARED: [&str; 6] = [
    "arch/x86/vmi/include/paravane/",
    "arch/x86/vmi/vmi_rom.c",
    "arch/x86/vmi/vmi_rom.h",
    "drivers/vbus/include/paravane/",
    "drivers/vbus/ioq.c",
    "drivers/vbus/signal.c",
];

/// Counts the lines of a recipe. The last entry is the total.
pub fn lines(recipe: &Recipe) -> Vec<Component> {
    let mut all: Vec<Component> = PARTS
        .iter()
        .map(|(name, _)| Component {
            name,
            ..Component::default()
        })
        .collect();
    for (path, bytes) in &recipe.overlay {
        if SHARED.iter().any(|shared| path.starts_with(shared)) {
            continue;
        }
        let text = String::from_utf8_lossy(bytes);
        if let Some(component) = part(path).and_then(|at| all.get_mut(at)) {
            component.new += code(text.lines()).len();
        }
    }
    let runs: Vec<Run> = recipe
        .patches
        .iter()
        .flat_map(|(_, bytes)| runs(&String::from_utf8_lossy(bytes)))
        .collect();
    // A line that is removed in one place and added in another has moved. Within one run of changed
    // lines it would not be a change.
    let mut gone: HashMap<&str, usize> = HashMap::new();
    for line in runs.iter().flat_map(|run| &run.removed) {
        *gone.entry(line).or_default() += 1;
    }
    let mut moved: HashMap<&str, usize> = HashMap::new();
    let mut counted: Vec<(usize, usize)> = Vec::new();
    for run in &runs {
        let mut added = 0;
        for line in &run.added {
            match gone.get_mut(line.as_str()) {
                Some(left) if *left > 0 && distinct(line) => {
                    *left -= 1;
                    *moved.entry(line).or_default() += 1;
                }
                _ => added += 1,
            }
        }
        counted.push((added, run.added.len() - added));
    }
    for (run, (added, came)) in runs.iter().zip(counted) {
        let mut removed = 0;
        for line in &run.removed {
            match moved.get_mut(line.as_str()) {
                Some(left) if *left > 0 => *left -= 1,
                _ => removed += 1,
            }
        }
        if let Some(component) = part(&run.path).and_then(|at| all.get_mut(at)) {
            let changed = added.min(removed);
            component.changed += changed;
            component.new += added - changed;
            component.removed += removed - changed;
            component.moved += came;
        }
    }
    let total = all.iter().fold(
        Component {
            name: "total",
            ..Component::default()
        },
        |sum, c| Component {
            name: sum.name,
            new: sum.new + c.new,
            changed: sum.changed + c.changed,
            moved: sum.moved + c.moved,
            removed: sum.removed + c.removed,
        },
    );
    all.push(total);
    all
}

fn part(path: &str) -> Option<usize> {
    PARTS
        .iter()
        .position(|(_, starts)| starts.iter().any(|start| path.starts_with(start)))
}

/// Reports whether a line is distinct enough to count as moved. A brace alone is not.
fn distinct(line: &str) -> bool {
    line.chars().filter(|c| c.is_alphanumeric()).count() >= 4
}

/// Consecutive changed lines of a patch, without context between them.
#[derive(Debug, Default)]
struct Run {
    path: String,
    removed: Vec<String>,
    added: Vec<String>,
}

fn runs(patch: &str) -> Vec<Run> {
    let mut all: Vec<Run> = Vec::new();
    let (mut path, mut removed, mut added) = (String::new(), Vec::new(), Vec::new());
    let mut in_hunk = false;
    // An additional line ends the last run.
    for line in patch.lines().chain(["diff"]) {
        let (kind, rest) = (line.chars().next(), line.get(1..).unwrap_or_default());
        if in_hunk && kind == Some('-') && !line.starts_with("-- ") {
            removed.push(rest);
            continue;
        }
        if in_hunk && kind == Some('+') {
            added.push(rest);
            continue;
        }
        if !removed.is_empty() || !added.is_empty() {
            all.push(Run {
                path: path.clone(),
                removed: code(removed.drain(..)),
                added: code(added.drain(..)),
            });
        }
        if let Some(name) = line.strip_prefix("+++ b/") {
            path = name.to_string();
        }
        in_hunk = line.starts_with("@@") || (in_hunk && matches!(kind, Some(' ') | None));
    }
    all
}

/// Lines that contain code, trimmed.
fn code<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut comment = false;
    let mut kept = Vec::new();
    for line in lines {
        let mut rest = line.trim();
        let mut found = String::new();
        while !rest.is_empty() {
            if comment {
                let end = rest.find("*/");
                comment = end.is_none();
                rest = end.and_then(|at| rest.get(at + 2..)).unwrap_or_default();
            } else if let Some(at) = rest.find("/*") {
                found.push_str(rest.get(..at).unwrap_or_default());
                rest = rest.get(at + 2..).unwrap_or_default();
                comment = true;
            } else {
                found.push_str(rest);
                rest = "";
            }
        }
        let found = found.split("//").next().unwrap_or_default().trim();
        // The rest of a comment that starts in the context, or a comment of a Makefile.
        let tail = found.starts_with("* ") || found == "*" || found.starts_with("# ");
        if !found.is_empty() && !tail {
            kept.push(found.to_string());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blank_lines_do_not_count() {
        let text = "/* a\n * b */ x = 1;\n\n  // c\n\ty = 2; /* d */\n * e\nz(\"/\");\n";
        assert_eq!(code(text.lines()), ["x = 1;", "y = 2;", "z(\"/\");"]);
    }

    #[test]
    fn new_changed_moved_removed() {
        let patch = "Why.\n\n--- a/arch/x86/mm/a.c\n+++ b/arch/x86/mm/a.c\n@@ -1,9 +1,9 @@\n one\n\
             -two\n+TWO\n+three\n four\n\
            -moved_away();\n five\n-gone();\n-\n@@ -20,2 +20,3 @@\n six\n+moved_away();\n \
             seven\n-- \n2.39.5\n";
        let recipe = Recipe {
            overlay: vec![
                ("arch/x86/vmi/time.c", b"/* x */\nint a;\n\nint b;\n"),
                ("arch/x86/vmi/vmi_rom.c", b"int c;\n"),
            ],
            patches: vec![("0001", patch.as_bytes())],
            config: Vec::new(),
            parts: None,
            unpatched: false,
        };
        let counted = lines(&recipe);
        let get = |name: &str| counted.iter().find(|c| c.name == name).unwrap().clone();
        assert_eq!(get("timer code").new, 2);
        let code = get("code of arch/x86");
        assert_eq!(
            (code.new, code.changed, code.moved, code.removed),
            (1, 1, 1, 1)
        );
        assert_eq!(get("total").new, 3);
    }
}
