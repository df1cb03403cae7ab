// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds a busybox for the built-in root.
//!
//! The program does not contain a busybox, which has another licence. It uses the host's, or the
//! one that `scripts/setup.sh` has unpacked for a host without.

use anyhow::{Context, bail};
use object::read::elf::{FileHeader, ProgramHeader};
use paravane_user_io::files;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A busybox and the names of its applets.
#[derive(Debug)]
pub struct Busybox {
    /// The ELF file.
    pub program: Vec<u8>,
    /// Paths of the applets without the leading slash.
    pub applets: Vec<String>,
}

const INSTALL: &str = "apt-get install busybox-static";

/// Finds a statically linked busybox and asks it for its applets.
pub fn find() -> anyhow::Result<Busybox> {
    let mut dynamic = None;
    for path in places() {
        if !path.is_file() {
            continue;
        }
        let program = files::read(&path, "busybox")?;
        if is_static(&program).with_context(|| path.display().to_string())? {
            let applets = applets(&path)?;
            return Ok(Busybox { program, applets });
        }
        dynamic = Some(path);
    }
    match dynamic {
        Some(path) => bail!(
            "{} is linked dynamically, the built-in root needs a static one: {INSTALL}, \
             or give --initrd",
            path.display()
        ),
        None => bail!("no busybox for the built-in root: {INSTALL}, or give --initrd"),
    }
}

fn places() -> Vec<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(home);
    let own = cache.map(|cache| cache.join("paravane/tools/busybox"));
    let system = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
    own.into_iter().chain(system).collect()
}

/// Whether an ELF file is linked statically.
fn is_static(file: &[u8]) -> anyhow::Result<bool> {
    type Header = object::elf::FileHeader64<object::Endianness>;
    let header = Header::parse(file).context("not a program of this machine")?;
    let endian = header.endian()?;
    if header.e_machine(endian) != object::elf::EM_X86_64 {
        bail!("not a program of this machine");
    }
    let segments = header.program_headers(endian, file)?;
    Ok(segments
        .iter()
        .all(|s| s.p_type(endian) != object::elf::PT_INTERP))
}

fn applets(path: &Path) -> anyhow::Result<Vec<String>> {
    let run = Command::new(path)
        .arg("--list-full")
        .env_clear()
        .stdin(Stdio::null())
        .output();
    let output = run.with_context(|| format!("cannot run {}", path.display()))?;
    let applets = parse(&output.stdout);
    if !output.status.success() || !applets.iter().any(|path| path == "bin/sh") {
        bail!(
            "{} --list-full does not name bin/sh: {INSTALL}",
            path.display()
        );
    }
    Ok(applets)
}

/// Parses the list of applets. Skips busybox itself, and paths outside the root's directories for
/// programs.
fn parse(list: &[u8]) -> Vec<String> {
    let mut names: Vec<String> = String::from_utf8_lossy(list)
        .lines()
        .map(|line| line.trim_start_matches('/'))
        .filter(|path| {
            let folders = ["bin", "sbin", "usr/bin", "usr/sbin"];
            path.rsplit_once('/').is_some_and(|(folder, name)| {
                folders.contains(&folder) && !name.is_empty() && name != "busybox"
            })
        })
        .map(str::to_string)
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_are_skipped() {
        let list =
            b"bin/sh\nusr/bin/[\nbin/busybox\nlinuxrc\netc/passwd\n/sbin/ip\nbin/sh\nusr/sbin/\n";
        assert_eq!(parse(list), ["bin/sh", "sbin/ip", "usr/bin/["]);
    }

    #[test]
    fn the_agent_is_static() {
        assert!(is_static(paravane_blobs::AGENT).unwrap());
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(!is_static(&own).unwrap());
        assert!(is_static(b"#!/bin/sh\n").is_err());
    }
}
