// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Linux of a released version, which is too large for the repository: its file as it was
//! published, today's if that is the same, or one that is built from the release's source.

use crate::kept::hash;
use libtest_mimic::Failed;
use paravane_tests::{debian, linux, source_root};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// In this folder outside the repository is a file by its hash.
const ELSEWHERE: &str = "PARAVANE_KEPT";
/// In it, what was built here, by the commit of its source.
const MADE: &str = "made";

/// Where a file is, or a line that says why it is nowhere.
pub type Place = Result<PathBuf, String>;

/// Finds a file, or makes it, which takes as long as a first build of today's kernel. Only a
/// checkout without the version's tag, such as a shallow clone, cannot.
pub fn file(version: &str, name: &str, wanted: &str) -> Result<Place, Failed> {
    let folder =
        std::env::var_os(ELSEWHERE).map_or_else(|| debian::cache().join("kept"), PathBuf::from);
    let published = folder.join(wanted);
    if published.exists() {
        if hash(&fs::read(&published)?) != wanted {
            let published = published.display();
            return Err(format!("{published} has another hash than its name").into());
        }
        return Ok(Ok(published));
    }
    let Some(commit) = commit(version)? else {
        return Ok(Err(format!(
            "{version}/{name}: this checkout has no tag {version} to build it from (git fetch \
             --tags), and there is no {}",
            published.display()
        )));
    };
    // Between two releases most changes are not Linux's.
    let today = linux::kernel().with_file_name(name);
    if hash(&fs::read(&today)?) == wanted {
        return Ok(Ok(today));
    }
    let made = folder.join(MADE).join(&commit);
    if !made.exists() {
        build(&commit, &made)?;
    }
    let file = made.join(name);
    if hash(&fs::read(&file)?) != wanted {
        eprintln!(
            "{version}/{name}: another compiler or source than the release's, so other bytes"
        );
    }
    Ok(Ok(file))
}

/// The commit of a version's tag.
fn commit(version: &str) -> Result<Option<String>, Failed> {
    let tag = format!("refs/tags/{version}^{{commit}}");
    let words = ["rev-parse", "--verify", "--quiet", &tag];
    let run = git().args(words).stderr(Stdio::null()).output()?;
    let commit = String::from_utf8_lossy(&run.stdout).trim().to_string();
    Ok(run.status.success().then_some(commit))
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(source_root());
    git
}

/// Builds the program of a commit, and with it the commit's Linux, in a folder that goes.
fn build(commit: &str, made: &Path) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (tree, archive) = (folder.path().join("tree"), folder.path().join("archive"));
    fs::create_dir(&tree)?;
    let words = ["archive", "--format=tar", "--output"];
    succeeds(git().args(words).arg(&archive).arg(commit))?;
    let words = ["--extract", "--file"];
    succeeds(
        Command::new("tar")
            .args(words)
            .arg(&archive)
            .arg("-C")
            .arg(&tree),
    )?;
    // It gets its name when it is whole.
    let part = made.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    fs::create_dir_all(&part)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let words = [
        "run",
        "--quiet",
        "--locked",
        "--package",
        "paravane",
        "--bin",
        "paravane",
    ];
    eprintln!("building Linux of commit {commit}: this takes as long as a first `make run`");
    succeeds(
        Command::new(cargo)
            .args(words)
            .arg("--manifest-path")
            .arg(tree.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(folder.path().join("target"))
            .args(["--", "kernel", "build", "--output"])
            .arg(&part)
            // Each version has a tree of its own, so that no other is compiled again.
            .env("XDG_CACHE_HOME", folder.path().join("cache")),
    )?;
    fs::rename(&part, made)?;
    Ok(())
}

/// Runs a command, whose output is of use when it fails.
fn succeeds(command: &mut Command) -> Result<(), Failed> {
    let run = command.stdin(Stdio::null()).output()?;
    if run.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&run.stderr);
    Err(format!("{command:?}: {}\n{said}", run.status).into())
}
