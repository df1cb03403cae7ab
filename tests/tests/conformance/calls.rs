// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMI-Linux makes each call of the specification, or docs/vmi.md explains the call in the section
//! of calls that a kernel may do without. Any other call has no user and no stated purpose.

use crate::alone;
use libtest_mimic::{Failed, Trial};
use paravane_abi::SECTIONS;
use paravane_tests::source_root;
use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

/// Where VMI-Linux makes calls.
const LINUX: [&str; 2] = ["guest/linux/overlay", "guest/linux/patches"];
/// The headings of that section of docs/vmi.md and of the next one.
const EXPLAINED: (&str, &str) = ("\n## 12. Calls that a kernel may do without\n", "\n## 13. ");

pub fn trials() -> Vec<Trial> {
    vec![alone("calls::used_or_explained", used_or_explained)]
}

fn used_or_explained() -> Result<(), Failed> {
    let mut source = String::new();
    for folder in LINUX {
        read(&source_root().join(folder), &mut source)?;
    }
    let text = fs::read_to_string(source_root().join("docs/vmi.md"))?;
    let explained = explained(&text).ok_or("docs/vmi.md has no such section")?;
    let all = SECTIONS.iter().flat_map(|section| section.calls);
    let all: BTreeSet<&str> = all.map(|call| call.name).collect();
    let used = all.iter().filter(|name| makes(&source, name));
    let used: BTreeSet<&str> = used.copied().collect();
    let unknown: Vec<_> = explained.difference(&all).collect();
    let both: Vec<_> = explained.intersection(&used).collect();
    let missing = all.iter().filter(|&name| !used.contains(name));
    let missing: Vec<_> = missing.filter(|&name| !explained.contains(name)).collect();
    if used.is_empty() || !unknown.is_empty() || !both.is_empty() || !missing.is_empty() {
        return Err(format!(
            "VMI-Linux makes {} of {} calls; docs/vmi.md does not explain {missing:?}, explains \
             {both:?} although they are made, and {unknown:?}, which do not exist",
            used.len(),
            all.len(),
        )
        .into());
    }
    Ok(())
}

/// Appends the text of all files of a folder.
fn read(folder: &Path, text: &mut String) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, text)?;
        } else {
            text.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// Whether Linux takes the entry of a call from its table, `vmi.SECTION_CALL`.
fn makes(source: &str, name: &str) -> bool {
    let entry = format!("vmi.{}", name.replace('.', "_"));
    source.match_indices(&entry).any(|(at, _)| {
        let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let before = source[..at].chars().next_back();
        let after = source[at + entry.len()..].chars().next();
        !before.is_some_and(|c| part(c) || c == '.') && !after.is_some_and(part)
    })
}

/// The calls that the section explains: those before the colon of each item.
fn explained(text: &str) -> Option<BTreeSet<&str>> {
    let (_, section) = text.split_once(EXPLAINED.0)?;
    let (section, _) = section.split_once(EXPLAINED.1)?;
    let items = section.split("\n* ").skip(1);
    let heads = items.filter_map(|item| item.split_once(':'));
    Some(
        heads
            .flat_map(|(calls, _)| calls.split('`').skip(1).step_by(2))
            .collect(),
    )
}
