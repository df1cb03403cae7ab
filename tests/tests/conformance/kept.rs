// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compatibility over time: a released guest runs on today's layers, and today's guest on released
//! layers.
//!
//! `tests/blobs/README.md` says how to add an image.

use crate::alone;
use crate::suite::{self, LAYERS};
use libtest_mimic::{Failed, Trial};
use paravane_tests::source_root;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

pub fn trials() -> Vec<Trial> {
    let folder = source_root().join("tests/blobs");
    let (listed, present) = match (listed(&folder), present(&folder)) {
        (Ok(listed), Ok(present)) => (listed, present),
        (Err(error), _) | (_, Err(error)) => {
            let message = format!("{}: {error}", folder.display());
            return vec![alone("kept::list", move || Err(message.into()))];
        }
    };
    let mut trials = Vec::new();
    for version in present.union(&listed) {
        let folder = folder.join(version);
        for layer in LAYERS {
            let guest = folder.join("conformance.elf");
            let name = format!("kept::{version}::old_guest::{layer}");
            trials.push(alone(name, move || old_guest(&guest, layer)));
            if layer != "none" {
                let rom = folder.join(format!("{layer}.rom"));
                let name = format!("kept::{version}::old_{layer}_rom");
                trials.push(alone(name, move || old_rom(&rom, layer)));
            }
        }
    }
    trials.push(alone("kept::list", move || same(&listed, &present)));
    trials
}

/// The versions that must exist: a lost folder must not make its tests disappear.
fn listed(folder: &Path) -> std::io::Result<BTreeSet<String>> {
    let text = fs::read_to_string(folder.join("versions.txt"))?;
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    Ok(lines.map(String::from).collect())
}

fn present(folder: &Path) -> std::io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("vmi-") {
            names.insert(name);
        }
    }
    Ok(names)
}

fn same(listed: &BTreeSet<String>, present: &BTreeSet<String>) -> Result<(), Failed> {
    if listed == present {
        return Ok(());
    }
    Err(format!("versions.txt lists {listed:?}, the folders are {present:?}").into())
}

fn old_guest(guest: &Path, layer: &str) -> Result<(), Failed> {
    let guest = guest.to_string_lossy();
    suite::passed(&suite::run(&[
        "--layer", layer, "--cpus", "2", "--guest", &guest,
    ]))
}

fn old_rom(rom: &Path, layer: &str) -> Result<(), Failed> {
    let rom = rom.to_string_lossy();
    suite::passed(&suite::run(&[
        "--layer", layer, "--cpus", "2", "--rom", &rom,
    ]))
}
