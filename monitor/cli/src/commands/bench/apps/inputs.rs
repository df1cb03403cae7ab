// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that applications work on and no package has.

use anyhow::{Context, bail};
use paravane_images as images;
use paravane_kernel as kernel;
use paravane_user_io::progress::Progress;
use paravane_user_io::signals::{Interrupted, Signals};
use paravane_user_io::text;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What a small kernel for x86 is not built of: most of the source's size. Lists of options and
/// makefiles stay.
const LEFT_OUT: [&str; 18] = [
    "*/Documentation/*.rst",
    "*/Documentation/*.txt",
    "*/Documentation/*.yaml",
    "*/Documentation/*.svg",
    "*/arch/[!x]*/*.[chS]",
    "*/arch/[!x]*/boot/*",
    "*/arch/[!x]*/configs/*",
    "*/arch/xtensa/*",
    "*/drivers/gpu/*.[ch]",
    "*/drivers/infiniband/*.[ch]",
    "*/drivers/media/*.[ch]",
    "*/drivers/net/*.[ch]",
    "*/drivers/scsi/*.[ch]",
    "*/drivers/staging/*.[ch]",
    "*/drivers/usb/*.[ch]",
    "*/sound/*.[ch]",
    "*/tools/perf/*",
    "*/tools/testing/*",
];

/// The name of the input in its folder.
pub const LINUX: &str = "linux.tar";

/// The interval between two looks at a tool.
const LOOK: Duration = Duration::from_millis(50);

/// The folder with `linux.tar`: of the source of Linux, what a small kernel for x86 needs. It is
/// made once for each source.
pub fn linux(cache: &Path, source: &kernel::Source, signals: &Signals) -> anyhow::Result<PathBuf> {
    let recipe = format!("{} {LEFT_OUT:?}", source.hash);
    let name = text::hex(
        kernel::digest(recipe.as_bytes())
            .get(..16)
            .unwrap_or_default(),
    );
    let place = cache.join(format!("linux-{name}"));
    if place.is_dir() {
        return Ok(place);
    }
    let _progress = Progress::new("unpacking Linux for the benchmark");
    let work = images::work(cache)?;
    let tree = work.path().join("linux");
    fs::create_dir(&tree).with_context(|| tree.display().to_string())?;
    let mut unpack = Command::new("tar");
    unpack.args(["--extract", "--strip-components=1", "--wildcards"]);
    unpack.args(LEFT_OUT.map(|pattern| format!("--exclude={pattern}")));
    unpack.arg("--directory").arg(&tree);
    if source.path.is_dir() {
        bail!("{}: a tarball was expected", source.path.display());
    }
    run(unpack.arg("--file").arg(&source.path), signals)?;
    let mut pack = Command::new("tar");
    pack.args(["--create", "--sort=name", "--owner=0", "--group=0"]);
    pack.arg("--directory").arg(work.path());
    pack.arg("--file").arg(work.path().join(LINUX)).arg("linux");
    run(&mut pack, signals)?;
    fs::remove_dir_all(&tree).with_context(|| tree.display().to_string())?;
    work.finish(&place, |place| place.is_dir())?;
    Ok(place)
}

/// Runs a tool to its end, or ends it when a signal has come.
fn run(command: &mut Command, signals: &Signals) -> anyhow::Result<()> {
    let mut errors = tempfile::tempfile().context("cannot make a temporary file")?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors.try_clone()?)
        .spawn()
        .with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if let Some(signal) = signals.pending() {
            // It may have ended by now.
            let _ = child.kill();
            child.wait()?;
            return Err(Interrupted(signal).into());
        }
        std::thread::sleep(LOOK);
    };
    if !status.success() {
        bail!("tar failed ({status}): {}", last_line(&mut errors));
    }
    Ok(())
}

/// The last line of a file that a tool has written.
fn last_line(file: &mut File) -> String {
    use std::io::Seek;
    let mut said = String::new();
    // Without a message the error still has the exit code.
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut said));
    text::clean(said.lines().last().unwrap_or_default().as_bytes())
}
