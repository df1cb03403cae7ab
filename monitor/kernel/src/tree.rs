// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A kernel's source tree with the port applied. It is kept from build to build. Unchanged files
//! keep their times, so that make builds only what changed.

use super::recipe::Recipe;
use super::source::Source;
use super::tools::last_words;
use anyhow::{Context, bail};
use paravane_user_io::progress::Progress;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The series of Linux that the port supports.
const SERIES: &str = "6.12";

/// A patch of the port does not fit the source.
#[derive(Debug)]
pub struct DoesNotApply {
    patch: String,
    /// Linux' version: 6.12.y.
    pub version: String,
    /// The place, or what patch says.
    file: String,
}

impl std::fmt::Display for DoesNotApply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DoesNotApply {
            patch,
            version,
            file,
        } = self;
        write!(f, "{patch} does not apply to Linux {version} ({file})")
    }
}

impl std::error::Error for DoesNotApply {}

/// The source tree with its object tree and log.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    version: String,
}

impl Tree {
    /// Opens the tree in this folder. Unpacks it if it was made from another source.
    pub fn open(root: &Path, source: &Source, progress: &Progress) -> anyhow::Result<Self> {
        let complain = || format!("cannot use {}", root.display());
        let refuse = || format!("{}: it contains no kernel source", source.path.display());
        if fs::read_to_string(root.join("stamp")).ok().as_ref() == Some(&source.hash) {
            let version = version(&root.join("source")).with_context(refuse)?;
            return Ok(Tree {
                root: root.to_path_buf(),
                version,
            });
        }
        // Unpack beside the previous tree, which is removed when the new one is complete.
        let part = root.with_extension("part");
        if part.exists() {
            fs::remove_dir_all(&part).with_context(complain)?;
        }
        let tree = part.join("source");
        fs::create_dir_all(&tree).with_context(complain)?;
        fs::create_dir_all(part.join("object")).with_context(complain)?;
        progress.step(&format!("unpacking {}", source.path.display()));
        unpack(&source.path, &tree)?;
        let version = version(&tree).with_context(refuse)?;
        if !version.starts_with(SERIES)
            || !matches!(version.as_bytes().get(SERIES.len()), None | Some(b'.'))
        {
            bail!(
                "{}: Linux {version}, and the port is for {SERIES}",
                source.path.display()
            );
        }
        fs::write(part.join("stamp"), &source.hash).with_context(complain)?;
        if root.exists() {
            progress.step("removing the previous source");
            fs::remove_dir_all(root).with_context(complain)?;
        }
        fs::rename(&part, root).with_context(complain)?;
        Ok(Tree {
            root: root.to_path_buf(),
            version,
        })
    }

    /// Linux' version: 6.12.y.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The source of Linux with the port.
    pub fn source(&self) -> PathBuf {
        self.root.join("source")
    }

    /// The folder of make's output files.
    pub fn object(&self) -> PathBuf {
        self.root.join("object")
    }

    /// The log of make's messages.
    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// Applies a recipe. Files that already have the right contents stay untouched, and changes of
    /// an earlier recipe are undone.
    pub fn apply(&self, recipe: &Recipe, progress: &Progress) -> anyhow::Result<()> {
        progress.step(&format!("patching Linux {}", self.version));
        let before = self.changed()?;
        let scratch = self.root.join("scratch");
        if scratch.exists() {
            fs::remove_dir_all(&scratch)?;
        }
        fs::create_dir_all(&scratch)?;
        let mut now = BTreeSet::new();
        for (name, patch) in &recipe.patches {
            for path in patched(patch).with_context(|| (*name).to_string())? {
                let Some(original) = self.original(&path, &before)? else {
                    continue;
                };
                if now.insert(path.clone()) {
                    write(&scratch.join(&path), &original)?;
                }
            }
            self.patch(&scratch, name, patch)?;
        }
        for (path, bytes) in &recipe.overlay {
            if self.original(path, &before)?.is_some() {
                bail!(
                    "Linux {} has a file {path} of its own, which the port would replace",
                    self.version
                );
            }
            write(&scratch.join(path), bytes)?;
            now.insert((*path).to_string());
        }
        // After an interruption this list may be too long, but never too short.
        self.set_changed(&before.union(&now).cloned().collect())?;
        for path in &now {
            let wanted = fs::read(scratch.join(path)).with_context(|| path.clone())?;
            let file = self.source().join(path);
            if fs::read(&file).ok().as_ref() != Some(&wanted) {
                write(&file, &wanted)?;
            }
        }
        for path in before.difference(&now) {
            match self.original(path, &before)? {
                Some(original) => write(&self.source().join(path), &original)?,
                None => fs::remove_file(self.source().join(path)).with_context(|| path.clone())?,
            }
        }
        self.set_changed(&now)?;
        fs::remove_dir_all(&scratch)?;
        Ok(())
    }

    /// A file's original contents. They are saved before its first change.
    fn original(&self, path: &str, changed: &BTreeSet<String>) -> anyhow::Result<Option<Vec<u8>>> {
        let kept = self.root.join("originals").join(path);
        if let Ok(bytes) = fs::read(&kept) {
            return Ok(Some(bytes));
        }
        if changed.contains(path) {
            // The overlay added this file.
            return Ok(None);
        }
        match fs::read(self.source().join(path)) {
            Ok(bytes) => {
                write(&kept, &bytes)?;
                Ok(Some(bytes))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| path.to_string()),
        }
    }

    fn patch(&self, folder: &Path, name: &str, patch: &[u8]) -> anyhow::Result<()> {
        let mut child = Command::new("patch")
            .args(["-p1", "-N", "--no-backup-if-mismatch", "-d"])
            .arg(folder)
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run patch")?;
        let mut input = child.stdin.take().context("patch has no input")?;
        let bytes = patch.to_vec();
        let writer = std::thread::spawn(move || input.write_all(&bytes));
        let output = child.wait_with_output()?;
        // If patch ends early, its own error message says why.
        let _ = writer.join();
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stdout);
            let file = rejected(&text).map_or_else(
                || last_words("patch", &output.stderr),
                |file| format!("at {file}"),
            );
            bail!(DoesNotApply {
                patch: name.to_string(),
                version: self.version.clone(),
                file,
            });
        }
        Ok(())
    }

    fn changed(&self) -> anyhow::Result<BTreeSet<String>> {
        match fs::read_to_string(self.root.join("changed")) {
            Ok(text) => Ok(text.lines().map(str::to_string).collect()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
            Err(e) => Err(e).context("the list of changed files"),
        }
    }

    fn set_changed(&self, paths: &BTreeSet<String>) -> anyhow::Result<()> {
        let text = paths
            .iter()
            .fold(String::new(), |text, path| text + path + "\n");
        let part = self.root.join("changed.part");
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, self.root.join("changed")))
            .context("the list of changed files")
    }
}

/// The first file in patch's error messages: the file that it was patching, or one that it did not
/// find.
fn rejected(output: &str) -> Option<&str> {
    let mut file = None;
    let mut missing = false;
    for line in output.lines() {
        if let Some(name) = line.strip_prefix("patching file ") {
            file = Some(name);
        } else if line.contains("FAILED") {
            return file;
        } else if line.starts_with("can't find file") {
            missing = true;
        } else if let (true, Some(name)) = (missing, line.strip_prefix("|+++ b/")) {
            return Some(name);
        }
    }
    None
}

/// The files that a patch changes, from its header lines.
fn patched(patch: &[u8]) -> anyhow::Result<BTreeSet<String>> {
    let mut paths = BTreeSet::new();
    for line in std::str::from_utf8(patch)?.lines() {
        if let Some(path) = line
            .strip_prefix("--- a/")
            .or_else(|| line.strip_prefix("+++ b/"))
        {
            if path.split('/').any(|part| part == "..") {
                bail!("a patch changes a file outside of the source: {path}");
            }
            paths.insert(path.to_string());
        }
    }
    Ok(paths)
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

fn unpack(source: &Path, to: &Path) -> anyhow::Result<()> {
    let mut command;
    if source.is_dir() {
        command = Command::new("cp");
        command.arg("-a").arg("--").arg(source.join(".")).arg(to);
    } else {
        command = Command::new("tar");
        command
            .arg("-xf")
            .arg(source)
            .arg("-C")
            .arg(to)
            .arg("--strip-components=1");
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!(
            "cannot unpack {}: {}",
            source.display(),
            last_words(&program, &output.stderr)
        );
    }
    Ok(())
}

/// The version at the start of the Makefile.
fn version(tree: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(tree.join("Makefile"))?;
    let field = |name: &str| {
        text.lines()
            .filter_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix('='))
            .map(str::trim)
            .next()
            .filter(|value| value.chars().all(|c| c.is_ascii_digit()))
    };
    let (Some(version), Some(level), Some(sub)) =
        (field("VERSION"), field("PATCHLEVEL"), field("SUBLEVEL"))
    else {
        bail!("its Makefile has no version");
    };
    Ok(format!("{version}.{level}.{sub}"))
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
