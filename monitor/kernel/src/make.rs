// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Configures and builds a kernel with its own makefiles.

use super::recipe::Recipe;
use super::tree::Tree;
use anyhow::{Context, bail};
use paravane_user_io::events::{PollFlags, Waits, is_ready};
use paravane_user_io::progress::{Progress, Total, Unit};
use paravane_user_io::signals::{Interrupted, Signals};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};

/// The approximate number of objects of a build from scratch: that of Debian's 6.12 with the
/// default configuration. Only make knows the exact number, and only at the end.
const OBJECTS: u64 = 2480;
/// Environment variables that would change the kernel or its build: the user's, or those of a make
/// that runs this program.
const FOREIGN: [&str; 26] = [
    "ARCH",
    "CROSS_COMPILE",
    "CC",
    "LD",
    "AR",
    "NM",
    "OBJCOPY",
    "HOSTCC",
    "HOSTCFLAGS",
    "CFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "KCFLAGS",
    "KCPPFLAGS",
    "KAFLAGS",
    "LLVM",
    "LLVM_IAS",
    "KBUILD_OUTPUT",
    "KCONFIG_CONFIG",
    "LOCALVERSION",
    "MAKEFLAGS",
    "MFLAGS",
    "MAKELEVEL",
    "MAKEOVERRIDES",
    "V",
    "O",
];
/// Fixed values for what would otherwise depend on the time or the host.
const FIXED: [(&str, &str); 6] = [
    ("KBUILD_BUILD_TIMESTAMP", "1970-01-01 00:00:00 UTC"),
    ("KBUILD_BUILD_USER", "build"),
    ("KBUILD_BUILD_HOST", "paravane"),
    ("KBUILD_BUILD_VERSION", "1"),
    ("LC_ALL", "C"),
    // If gcc is ccache: with a base directory it makes source paths relative, and the kernel's
    // makefiles then do not strip them from file names in messages.
    ("CCACHE_BASEDIR", ""),
];

impl Tree {
    /// Writes the configuration: the kernel's defaults, overridden by the recipe's fragments.
    pub fn configure(&self, recipe: &Recipe, progress: &Progress) -> anyhow::Result<()> {
        progress.step("configuring Linux");
        let fragments = self.object().join("fragments");
        let mut text = Vec::new();
        let mut wanted: Vec<(&str, String)> = Vec::new();
        for (name, bytes) in &recipe.config {
            for line in std::str::from_utf8(bytes)
                .with_context(|| name.clone())?
                .lines()
            {
                if let Some((option, value)) = option(line) {
                    wanted.retain(|(_, w)| self::option(w).is_none_or(|w| w.0 != option));
                    wanted.push((name, setting(option, value)));
                }
            }
        }
        for (_, line) in &wanted {
            writeln!(text, "{line}")?;
        }
        fs::write(&fragments, text).with_context(|| fragments.display().to_string())?;
        let mut command = self.command();
        command
            .env("KCONFIG_ALLCONFIG", &fragments)
            .arg("alldefconfig");
        // Starts the log; later steps append to it.
        fs::write(self.log(), "").with_context(|| self.log().display().to_string())?;
        self.run(command, &mut |_| {})?;
        let config =
            fs::read_to_string(self.object().join(".config")).context("the configuration")?;
        for (name, line) in wanted {
            let Some((option, value)) = option(&line) else {
                continue;
            };
            let got = config
                .lines()
                .filter_map(self::option)
                .find(|o| o.0 == option)
                .and_then(|o| o.1);
            if got != value {
                bail!(
                    "{name}: {line} is not in effect (it is {}): an option that it depends on is \
                     missing",
                    got.unwrap_or("off")
                );
            }
        }
        Ok(())
    }

    /// Builds the kernel and its modules. Objects of an earlier build that are up to date are kept.
    pub fn make(&self, jobs: usize, progress: &Progress) -> anyhow::Result<()> {
        let from_scratch = !self.object().join("vmlinux.unstripped").exists();
        let mut command = self.command();
        command
            .arg(format!("-j{jobs}"))
            .args(["vmlinux", "bzImage", "modules"]);
        progress.step(&format!("building Linux {}", self.version()));
        let total = if from_scratch {
            Total::About(OBJECTS)
        } else {
            Total::Unknown
        };
        progress.count(Unit::Things("objects"), total);
        let mut objects = 0;
        self.run(command, &mut |line| {
            if let Some(object) = object(line) {
                objects += 1;
                progress.done(objects);
                progress.detail(object.to_string());
            }
        })
    }

    /// The files of the modules that this configuration has.
    pub fn modules(&self) -> anyhow::Result<Vec<PathBuf>> {
        let list = self.object().join("modules.order");
        let text = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
        let module = |line: &str| self.object().join(line).with_extension("ko");
        Ok(text.lines().map(module).collect())
    }

    fn command(&self) -> Command {
        let mut command = Command::new("make");
        for name in FOREIGN {
            command.env_remove(name);
        }
        command.envs(FIXED);
        command
            .arg("-C")
            .arg(self.source())
            .arg(format!("O={}", self.object().display()));
        command
    }

    /// Runs a command and passes every line of its output to `each`. A signal to this program ends
    /// the command first, with all that it has started.
    pub(crate) fn run(
        &self,
        mut command: Command,
        each: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        let path = self.log();
        let complain = || path.display().to_string();
        let mut log = OpenOptions::new()
            .append(true)
            .open(&path)
            .with_context(complain)?;
        let errors = log.try_clone().with_context(complain)?;
        let before = log.metadata().with_context(complain)?.len();
        let signals = Signals::install().context("cannot handle signals")?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .context("cannot run make")?;
        let followed = match child.stdout.take() {
            Some(output) => each_line(output, &signals, |line| {
                log.write_all(line)
                    .and_then(|()| log.write_all(b"\n"))
                    .with_context(complain)?;
                each(&String::from_utf8_lossy(line));
                Ok(())
            }),
            None => Ok(()),
        };
        if followed.is_err() {
            // make ends its own children.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
        let status = child.wait()?;
        followed?;
        if status.success() {
            return Ok(());
        }
        let text = fs::read(&path).unwrap_or_default();
        let text =
            String::from_utf8_lossy(text.get(usize::try_from(before)?..).unwrap_or_default())
                .into_owned();
        bail!(
            "Linux {} could not be built: {}; all of make's words: {}",
            self.version(),
            first_error(&text),
            path.display()
        )
    }
}

/// Passes each line of a command's output to `each`, until the output ends or a signal comes.
fn each_line(
    mut output: ChildStdout,
    signals: &Signals,
    mut each: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut unread = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(signal) = signals.pending() {
            return Err(Interrupted(signal).into());
        }
        if !is_ready(output.as_fd(), PollFlags::IN | PollFlags::HUP) {
            let mut waits = Waits::default();
            waits.to_read(output.as_fd());
            waits.to_read(signals.wake());
            waits.wait()?;
            continue;
        }
        let count = output.read(&mut buffer)?;
        unread.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let mut lines = unread.split(|&byte| byte == b'\n').peekable();
        let mut rest = Vec::new();
        while let Some(line) = lines.next() {
            if lines.peek().is_some() || (count == 0 && !line.is_empty()) {
                each(line)?;
            } else {
                rest = line.to_vec();
            }
        }
        unread = rest;
        if count == 0 {
            return Ok(());
        }
    }
}

/// The object file that make announces in a line.
fn object(line: &str) -> Option<&str> {
    let mut words = line.strip_prefix("  ")?.split_whitespace();
    let (Some(_command), Some(file), None) = (words.next(), words.next(), words.next()) else {
        return None;
    };
    file.ends_with(".o").then_some(file)
}

/// The first error in make's output.
fn first_error(log: &str) -> &str {
    let is_error = |line: &&str| {
        line.contains("error:") || line.contains("undefined reference") || line.contains("Error ")
    };
    log.lines()
        .find(is_error)
        .or_else(|| log.lines().rev().find(|line| !line.trim().is_empty()))
        .unwrap_or("make does not say why")
        .trim()
}

/// A line of a configuration: the option, and its value unless it is off.
fn option(line: &str) -> Option<(&str, Option<&str>)> {
    let line = line.trim();
    if let Some(name) = line
        .strip_prefix("# CONFIG_")
        .and_then(|l| l.strip_suffix(" is not set"))
    {
        return Some((name, None));
    }
    let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
    Some((name, Some(value).filter(|&v| v != "n")))
}

fn setting(name: &str, value: Option<&str>) -> String {
    value.map_or_else(
        || format!("# CONFIG_{name} is not set"),
        |value| format!("CONFIG_{name}={value}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_written() {
        assert_eq!(option("CONFIG_SMP=y"), Some(("SMP", Some("y"))));
        assert_eq!(option("CONFIG_LSM=\"a,b\""), Some(("LSM", Some("\"a,b\""))));
        assert_eq!(option("# CONFIG_VT is not set"), Some(("VT", None)));
        assert_eq!(option("CONFIG_VT=n"), Some(("VT", None)));
        assert_eq!(option("# CONFIG_VT is a word"), None);
        for line in ["# CONFIG_VT is not set", "CONFIG_HZ=100"] {
            let (name, value) = option(line).unwrap();
            assert_eq!(setting(name, value), line);
        }
    }

    #[test]
    fn objects_are_counted() {
        assert_eq!(object("  CC      init/main.o"), Some("init/main.o"));
        assert_eq!(
            object("  HOSTCC  scripts/kconfig/conf.o").map(str::len),
            Some(22)
        );
        for line in [
            "  AR      init/built-in.a",
            "init/main.o: warning",
            "  CC      a.o b.o",
            "",
        ] {
            assert_eq!(object(line), None, "{line}");
        }
    }

    #[test]
    fn the_first_error_is_the_one_to_show() {
        let log = "  CC      a.o\na.c:1:2: error: no such thing\nmake[3]: *** [a.o] Error 1\n\
                   make: *** [sub-make] Error 2\n";
        assert_eq!(first_error(log), "a.c:1:2: error: no such thing");
        assert_eq!(first_error("one\ntwo\n\n"), "two");
    }
}
