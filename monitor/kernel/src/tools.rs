// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's programs that build a kernel.

use anyhow::{Context, bail};
use std::io::Write;
use std::process::{Command, Stdio};

/// Programs, and the Debian packages that contain them.
const PROGRAMS: [(&str, &str); 12] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("ld", "binutils"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("cpio", "cpio"),
    ("patch", "patch"),
    ("perl", "perl"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("gzip", "gzip"),
];
/// Headers for the kernel's own tools. The preprocessor knows where they are.
const HEADERS: [(&str, &str); 2] = [("gelf.h", "libelf-dev"), ("stdio.h", "libc6-dev")];

/// Reports in one line what is missing.
pub fn check() -> anyhow::Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let have = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let mut missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(name, _)| !have(name))
        .map(|p| p.1)
        .collect();
    if have("gcc") {
        missing.extend(
            HEADERS
                .iter()
                .filter(|(name, _)| !has_header(name))
                .map(|h| h.1),
        );
    }
    if !missing.is_empty() {
        let missing = missing.join(" ");
        bail!(
            "programs to build a kernel are missing: apt-get install {missing} (on other systems, \
             the packages of these programs)"
        );
    }
    Ok(())
}

fn has_header(name: &str) -> bool {
    let attempt = || {
        let mut child = Command::new("gcc")
            .args(["-E", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            writeln!(input, "#include <{name}>")?;
        }
        child.wait()
    };
    attempt().is_ok_and(|status: std::process::ExitStatus| status.success())
}

/// The versions of compiler and linker: other versions build other kernels.
pub fn compiler() -> anyhow::Result<String> {
    let mut words = Vec::new();
    for (program, package) in [("gcc", "gcc"), ("ld", "binutils")] {
        let output = Command::new(program)
            .arg("--version")
            .output()
            .with_context(|| {
                format!("{program}, which builds the kernel, is missing: apt-get install {package}")
            })?;
        let text = String::from_utf8_lossy(&output.stdout);
        words.push(text.lines().next().unwrap_or_default().trim().to_string());
    }
    Ok(words.join(" / "))
}

/// The last line of a program's messages, for an error message.
pub fn last_words(program: &str, stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let line = text
        .lines()
        .rev()
        .find(|l| !l.trim().is_empty())
        .unwrap_or("it does not say why");
    format!("{program}: {}", line.trim())
}
