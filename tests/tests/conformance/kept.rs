// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compatibility over time: a released guest runs on today's layers, and today's guest on released
//! layers. The conformance suite is one guest, Linux the other.
//!
//! `tests/blobs/README.md` says how to add a version.

use crate::{alone, kept_linux, suite};
use libtest_mimic::{Failed, Trial};
use paravane_tests::skip::skip_named;
use paravane_tests::{bare, program, source_root};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const GUEST: &str = "conformance.elf";
/// Linux's files, which are too large for the repository.
const LINUX: [&str; 2] = ["vmlinux", "bzImage"];
/// The layers of the process hypervisor, which belong to its program.
const PROCESS: [&str; 2] = ["process", "process-stats"];
/// The layers that come as ROMs.
const ROMS: [&str; 3] = ["native", "native-stats", "kvm"];

/// The hash of each file that is kept, by `VERSION/NAME`.
type List = BTreeMap<String, String>;

pub fn trials(long: bool) -> Vec<Trial> {
    let folder = source_root().join("tests/blobs");
    let (listed, present) = match (listed(&folder), present(&folder)) {
        (Ok(listed), Ok(present)) => (listed, present),
        (Err(error), _) | (_, Err(error)) => {
            let message = format!("{}: {error}", folder.display());
            return vec![alone("kept::list", move || Err(message.into()))];
        }
    };
    let mut trials = Vec::new();
    for (path, hash) in &listed {
        let Some((version, name)) = path.split_once('/') else {
            continue;
        };
        // The kept files of the present version equal today's except for repairs, so a short run
        // skips them.
        if long || !is_present_version(version) {
            let file = folder.join(path);
            trials.extend(match name.strip_suffix(".rom") {
                Some(layer) => vec![old_layer(version, layer, file)],
                None if name == GUEST => old_guests(version, &file, long),
                None if long => old_linux(version, name, hash),
                None => Vec::new(),
            });
        }
    }
    trials.push(alone("kept::list", move || same(&listed, &present)));
    trials.push(alone("kept::no_tag", no_tag));
    trials
}

/// In a checkout without the tags, the error for a kept kernel names the missing tag, in one line.
fn no_tag() -> Result<(), Failed> {
    let why = match kept_linux::file("vmi-0.9", "vmlinux", "00")? {
        Ok(file) => return Err(format!("there is {}", file.display()).into()),
        Err(why) => why,
    };
    let what = "vmi-0.9/vmlinux: this checkout has no tag vmi-0.9 to build it from (git fetch";
    if why.starts_with(what) && why.lines().count() == 1 {
        return Ok(());
    }
    Err(why.into())
}

/// `vmi-1.0`, or `vmi-1.0-WORD`.
fn is_present_version(version: &str) -> bool {
    let now = format!(
        "vmi-{}.{}",
        paravane_abi::API_MAJOR,
        paravane_abi::API_MINOR
    );
    version
        .strip_prefix(&now)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The files that must exist: a lost one must not make its tests disappear. Lines as of sha256sum.
fn listed(folder: &Path) -> io::Result<List> {
    let text = fs::read_to_string(folder.join("SHA256SUMS"))?;
    let lines = text.lines().filter_map(|line| line.split_once("  "));
    Ok(lines
        .map(|(hash, path)| (path.to_string(), hash.to_string()))
        .collect())
}

fn present(folder: &Path) -> io::Result<List> {
    let mut files = List::new();
    for entry in fs::read_dir(folder)? {
        let version = entry?.file_name().to_string_lossy().into_owned();
        if !version.starts_with("vmi-") {
            continue;
        }
        for file in fs::read_dir(folder.join(&version))? {
            let path = format!("{version}/{}", file?.file_name().to_string_lossy());
            let hash = hash(&fs::read(folder.join(&path))?);
            files.insert(path, hash);
        }
    }
    Ok(files)
}

pub fn hash(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_linux(path: &str) -> bool {
    path.split_once('/')
        .is_some_and(|(_, name)| LINUX.contains(&name))
}

/// A kept file never changes: each one that is present has its listed hash.
fn same(listed: &List, present: &List) -> Result<(), Failed> {
    let mut here = listed.clone();
    here.retain(|path, _| !is_linux(path));
    if here == *present {
        return Ok(());
    }
    let names: BTreeSet<&String> = here.keys().chain(present.keys()).collect();
    let differ: Vec<_> = names
        .into_iter()
        .filter(|&name| here.get(name) != present.get(name))
        .collect();
    Err(format!("not as SHA256SUMS says: {differ:?}").into())
}

/// An old guest on each of today's layers; in the short version on the two that most use.
fn old_guests(version: &str, guest: &Path, long: bool) -> Vec<Trial> {
    let on_qemu = ["none"].iter().chain(&ROMS).map(|&layer| ("qemu", layer));
    let on_processes = PROCESS.map(|layer| ("process", layer));
    let chosen = move |&(_, layer): &(&str, &str)| long || matches!(layer, "native" | "process");
    let asks_too_near = version == ASKS_TOO_NEAR;
    let trial = |(hypervisor, layer): (&'static str, &'static str)| {
        let guest = guest.to_path_buf();
        let name = format!("kept::{version}::old_guest::{layer}");
        alone(name, move || {
            let guest = guest.to_string_lossy();
            let words = ["--layer", layer, "--cpus", "2", "--guest", &guest];
            let run = suite::run_on(hypervisor, &words);
            if hypervisor == "process" && asks_too_near {
                knows_more(&run)
            } else {
                suite::passed(&run)
            }
        })
    };
    let all = on_qemu.chain(on_processes).filter(chosen);
    all.map(trial).collect()
}

/// The guest that takes the first section after those that it knows for one that no layer has.
/// Later ones ask for a number that will stay free.
const ASKS_TOO_NEAR: &str = "vmi-1.0";

/// Passes if the run fails in nothing but that: the process hypervisor has this section today.
fn knows_more(run: &program::Run) -> Result<(), Failed> {
    let failed = run
        .stdout
        .lines()
        .filter(|line| line.starts_with("not ok "));
    let names: Vec<&str> = failed.filter_map(|line| line.split(" - ").nth(1)).collect();
    if run.code == 1 && names == ["core.version.unknown"] {
        return Ok(());
    }
    Err(format!(
        "exit code {}, not core.version.unknown alone\n{}{}",
        run.code, run.stdout, run.stderr
    )
    .into())
}

/// Today's guest on an old layer. That of KVM does as the native one where there is no KVM; on KVM
/// it is run by `kvm_layer.rs`.
fn old_layer(version: &str, layer: &str, rom: PathBuf) -> Trial {
    let name = format!("kept::{version}::old_{layer}_rom");
    let layer = layer.to_string();
    alone(name, move || {
        let rom = rom.to_string_lossy();
        suite::passed(&suite::run(&[
            "--layer", &layer, "--cpus", "2", "--rom", &rom,
        ]))
    })
}

/// An old Linux: vmlinux on today's process hypervisor, bzImage with each of today's ROMs.
fn old_linux(version: &str, name: &str, hash: &str) -> Vec<Trial> {
    let trial = |layer: &'static str, run: fn(&Path, &str) -> Result<(), Failed>| {
        let (hash, version, file) = (hash.to_string(), version.to_string(), name.to_string());
        let name = format!("kept::{version}::old_linux::{layer}");
        alone(name.clone(), move || {
            match kept_linux::file(&version, &file, &hash)? {
                Ok(file) => run(&file, layer)?,
                Err(why) => skip_named(&name, &why),
            }
            Ok(())
        })
    };
    match name {
        "vmlinux" => vec![trial("process", boots_on_processes)],
        "bzImage" => ROMS.map(|layer| trial(layer, boots_bare)).into(),
        _ => Vec::new(),
    }
}

fn boots_on_processes(vmlinux: &Path, _: &str) -> Result<(), Failed> {
    let run = program::finish(
        program::command()
            .args(["run", "--hypervisor", "process", "--cpus", "2", "--kernel"])
            .arg(vmlinux)
            .args(["--", "sh", "-c", "nproc; exit 7"]),
    );
    if (run.code, run.stdout.as_str()) == (7, "2\n") {
        return Ok(());
    }
    Err(format!("{run:?}").into())
}

fn boots_bare(image: &Path, layer: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let rom = folder.path().join("layer.rom");
    fs::write(
        &rom,
        match layer {
            "native" => paravane_blobs::NATIVE_ROM,
            "native-stats" => paravane_blobs::NATIVE_STATS_ROM,
            _ => paravane_blobs::KVM_ROM,
        },
    )?;
    let run = bare::boot(&folder, image, &rom, "2")?;
    let started = format!("log VMI: layer {layer} 1.");
    let bad = ["WARNING:", "BUG:", "Oops", "Call Trace"];
    if run.stdout.contains(&started) && !bad.iter().any(|word| run.stdout.contains(word)) {
        return Ok(());
    }
    Err(format!("{run:?}").into())
}
