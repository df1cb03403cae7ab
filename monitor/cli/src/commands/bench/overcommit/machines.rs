// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machines: one that is measured, and one that burns processor time.

use super::super::apps::session::{Answer, DRIVER, End, Session};
use super::Bench;
use anyhow::{Context, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Memory of a machine that is measured, and of the others, in MiB.
const MEMORY: u32 = 1024;
const MEMORY_SMALL: u32 = 64;

/// A folder with the program of `bench micro`, which has hackbench.
pub fn tools() -> anyhow::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let path = folder.path().join("micro");
    fs::write(&path, paravane_blobs::MICRO).with_context(|| path.display().to_string())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// `paravane run` with these vCPUs and the built-in root, up to the command.
fn command(bench: &Bench<'_>, vcpus: u32, memory: u32) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let mut command = Command::new(program);
    // The measured back end is the same on every host.
    command.env("PARAVANE_HYPERVISOR", "process");
    command.args(["run", "--net", "none", "--cpus", &vcpus.to_string()]);
    command.args(["--memory", &format!("{memory}M"), "--kernel"]);
    command.arg(&bench.kernel);
    Ok(command)
}

/// The command of a machine that does nothing. A root that the host shares would send it the host's
/// changes.
pub fn idle(bench: &Bench<'_>) -> anyhow::Result<Command> {
    let mut command = command(bench, 1, MEMORY_SMALL)?;
    command.args(["--", "sh", "-c", "echo bench ready; read -r line"]);
    Ok(command)
}

/// A machine that is measured.
#[derive(Debug)]
pub struct Machine<'a>(Session<'a>);

impl<'a> Machine<'a> {
    /// Starts one with something on its kernel's command line.
    pub fn start(bench: &Bench<'a>, append: &str) -> anyhow::Result<Self> {
        let mut command = command(bench, bench.vcpus, MEMORY)?;
        command.arg("--rootfs").arg(&bench.root);
        let tools = bench.tools.path().display();
        command.args(["--volume", &format!("{tools}:/mnt:ro"), "--append", append]);
        command.args(["--", "/bin/bash", "-c", DRIVER]);
        let name = if append.is_empty() {
            "the machine"
        } else {
            append
        };
        let session = Session::start(name, command, End::Machine, bench.terms)?;
        Ok(Machine(session))
    }

    /// Runs a script.
    pub fn run(&mut self, script: &str) -> anyhow::Result<Answer> {
        self.0.run(script)
    }

    /// Lets its vCPUs wait in the layer for spinlocks, or not.
    pub fn set_locks(&mut self, wait: bool) -> anyhow::Result<()> {
        let file = "/sys/module/vmi/parameters/pv_locks";
        let (value, name) = if wait { (1, 'Y') } else { (0, 'N') };
        let answer = self.run(&format!(
            "echo {value} >{file}; read -r is <{file}; echo $is"
        ))?;
        // A kernel that has no such locks answers N.
        ensure!(
            answer.line.ends_with(name),
            "cannot turn paravirtual locks {}: {file} has `{}`",
            if wait { "on" } else { "off" },
            answer.line
        );
        Ok(())
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The difference of its clock from the hypervisor's, in ns, when it was last corrected.
    pub fn clock_offset(&mut self) -> anyhow::Result<i64> {
        let answer = self.run(
            "d=/sys/kernel/debug; [ -d $d/vmi ] || mount -t debugfs none $d\n\
             while read -r name value; do [ \"$name\" != offset_ns ] || echo \"$value\"; done \
             <$d/vmi/clock",
        )?;
        answer
            .line
            .parse()
            .with_context(|| format!("the offset of a clock: `{}`", answer.line))
    }
}

/// A machine whose vCPUs all burn processor time until the value is dropped.
#[derive(Debug)]
pub struct Hog<'a>(Session<'a>);

impl<'a> Hog<'a> {
    pub fn start(bench: &Bench<'a>) -> anyhow::Result<Self> {
        let mut command = command(bench, bench.vcpus, MEMORY_SMALL * 2)?;
        let script = format!(
            "i=0; while [ $i -lt {} ]; do (while :; do :; done) & i=$((i + 1)); done\n\
             echo bench ready; read -r line",
            bench.vcpus
        );
        command.args(["--", "sh", "-c", &script]);
        let session = Session::start("a busy machine", command, End::Machine, bench.terms)?;
        Ok(Hog(session))
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}
