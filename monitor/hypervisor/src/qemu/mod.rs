// SPDX-License-Identifier: Apache-2.0 OR MIT
//! QEMU's software emulation: a complete PC, and a package of Debian for every host. To a guest it
//! is bare metal, and the layer is an option ROM.

#[expect(unsafe_code, reason = "works between fork and exec")]
mod child;

use crate::{Event, Hypervisor, Machine, Running, Verdict};
use anyhow::{Context, bail};
use child::{Output, Supervised};
use paravane_user_io::signals::Signals;
use paravane_user_io::worker::Limit;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Instant;
use tempfile::TempDir;

const PROGRAM: &str = "qemu-system-x86_64";
const GUEST_FILE: &str = "guest.elf";
const LAYER_FILE: &str = "layer.rom";
const INITRD_FILE: &str = "initrd";

/// The guest writes 0x10 or 0x11 to the isa-debug-exit port; QEMU exits with (value << 1) | 1.
const EXIT_PASSED: i32 = (0x10 << 1) | 1;
const EXIT_FAILED: i32 = (0x11 << 1) | 1;

/// The back end.
#[derive(Debug)]
pub struct Qemu {
    program: PathBuf,
}

impl Qemu {
    /// Finds QEMU in PATH.
    ///
    /// # Errors
    /// It is not installed.
    pub fn find() -> anyhow::Result<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let program = env::split_paths(&path)
            .map(|folder| folder.join(PROGRAM))
            .find(|p| is_executable(p));
        match program {
            Some(program) => Ok(Qemu { program }),
            None => {
                bail!("{PROGRAM} was not found: install it with `apt-get install qemu-system-x86`")
            }
        }
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

impl Hypervisor for Qemu {
    fn describe(&self) -> String {
        "qemu (software emulation)".to_string()
    }

    fn start(&self, machine: &Machine<'_>, _: &Limit<'_>) -> anyhow::Result<Box<dyn Running>> {
        let guest = machine.guest;
        let elf = guest.elf()?;
        if elf.pvh_entry.is_none() {
            bail!(
                "guest {}: no PVH note, which QEMU needs to start it",
                guest.name
            );
        }
        let (end, memory) = (elf.memory_end, u64::from(machine.memory_mib) << 20);
        if end > memory {
            bail!(
                "guest {}: it ends at {end:#x}, but the machine's memory ends at {memory:#x}",
                guest.name
            );
        }
        let options = Options {
            layer: machine.layer.is_some(),
            initrd: false,
            command_line: &machine.command_line,
            cpus: machine.cpus,
            memory_mib: machine.memory_mib,
            count_instructions: machine.count_instructions,
        };
        let files = [
            (GUEST_FILE, Some(&*guest.bytes)),
            (LAYER_FILE, machine.layer),
        ];
        self.launch(&files, &options)
    }
}

/// Linux as a boot loader starts it.
#[derive(Clone, Copy, Debug)]
pub struct Linux<'a> {
    /// The compressed kernel.
    pub bzimage: &'a [u8],
    /// The initial RAM disk.
    pub initrd: &'a [u8],
    /// The ROM of a layer.
    pub layer: Option<&'a [u8]>,
    /// The kernel's command line.
    pub command_line: &'a str,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// As in [`Machine`].
    pub count_instructions: bool,
}

impl Qemu {
    /// Starts Linux.
    pub fn start_linux(&self, linux: &Linux<'_>) -> anyhow::Result<Box<dyn Running>> {
        let options = Options {
            layer: linux.layer.is_some(),
            initrd: true,
            command_line: linux.command_line,
            cpus: linux.cpus,
            memory_mib: linux.memory_mib,
            count_instructions: linux.count_instructions,
        };
        let files = [
            (GUEST_FILE, Some(linux.bzimage)),
            (INITRD_FILE, Some(linux.initrd)),
            (LAYER_FILE, linux.layer),
        ];
        self.launch(&files, &options)
    }

    fn launch(
        &self,
        files: &[(&str, Option<&[u8]>)],
        options: &Options<'_>,
    ) -> anyhow::Result<Box<dyn Running>> {
        let folder = tempfile::Builder::new()
            .prefix("paravane-")
            .tempdir()
            .context("cannot make a temporary folder (is TMPDIR right?)")?;
        for (name, content) in files {
            let path = folder.path().join(name);
            if let Some(content) = content {
                fs::write(&path, content)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        let mut command = Command::new(&self.program);
        // Plain names in the current directory: QEMU splits some options at commas, and a path may
        // contain one.
        command.current_dir(folder.path()).args(arguments(options));
        tracing::info!(?command, "starting QEMU");
        let child = Supervised::start(&mut command)
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        Ok(Box::new(Instance {
            child,
            _folder: folder,
        }))
    }
}

/// What becomes QEMU's options.
#[derive(Debug)]
struct Options<'a> {
    layer: bool,
    initrd: bool,
    command_line: &'a str,
    cpus: u32,
    memory_mib: u32,
    count_instructions: bool,
}

fn arguments(machine: &Options<'_>) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |option: &str, value: &str| words.extend([option.into(), value.into()]);
    add("-machine", "q35");
    if machine.count_instructions {
        // One nanosecond of guest time for each instruction, and nothing that varies between runs:
        // neither the host's time nor random numbers.
        add("-accel", "tcg");
        add("-icount", "shift=0,sleep=off");
        add("-rtc", "base=2000-01-01,clock=vm");
        add("-cpu", "max,-rdrand,-rdseed");
    } else {
        add("-accel", "tcg,thread=multi");
        add("-cpu", "max");
    }
    add("-m", &machine.memory_mib.to_string());
    add("-smp", &machine.cpus.to_string());
    add("-display", "none");
    add("-vga", "none");
    add("-serial", "stdio");
    add("-device", "isa-debug-exit,iobase=0xf4,iosize=4");
    add("-kernel", GUEST_FILE);
    add("-append", machine.command_line);
    if machine.initrd {
        add("-initrd", INITRD_FILE);
    }
    if machine.layer {
        add("-option-rom", LAYER_FILE);
    }
    // The user's own configuration must not change what a test means.
    words.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(OsString::from));
    words
}

/// A running QEMU. The fields are dropped in order: first the process, then its files.
struct Instance {
    child: Supervised,
    _folder: TempDir,
}

impl Running for Instance {
    fn next(&mut self, deadline: Instant, signals: &Signals) -> Event {
        match self.child.next(deadline, signals) {
            Output::Event(event) => event,
            Output::Exit(status, errors) => Event::Ended(verdict(status, &errors)),
        }
    }
}

fn verdict(status: ExitStatus, errors: &str) -> Verdict {
    let said = if errors.is_empty() {
        String::new()
    } else {
        format!(": {errors}")
    };
    match (status.code(), status.signal()) {
        (Some(EXIT_PASSED), _) => Verdict::Passed,
        (Some(EXIT_FAILED), _) => Verdict::Failed,
        (Some(0), _) => Verdict::Crashed(format!("the machine was reset or switched off{said}")),
        (Some(code), _) if code & 1 == 1 && code > 1 => {
            Verdict::Crashed(format!("it ended with the value {:#x}{said}", code >> 1))
        }
        (Some(code), _) => Verdict::Crashed(format!("QEMU ended with exit code {code}{said}")),
        (None, signal) => Verdict::Crashed(format!(
            "QEMU was killed by signal {}{said}",
            signal.unwrap_or(0)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(count_instructions: bool, layer: bool) -> String {
        let options = Options {
            layer,
            initrd: false,
            command_line: "layer=none",
            cpus: 2,
            memory_mib: 256,
            count_instructions,
        };
        arguments(&options)
            .join(std::ffi::OsStr::new(" "))
            .into_string()
            .unwrap()
    }

    #[test]
    fn a_layer_is_an_option_rom() {
        assert!(line(false, true).contains("-option-rom layer.rom"));
        assert!(!line(false, false).contains("-option-rom"));
    }

    #[test]
    fn counting_is_not_multi_threaded() {
        let words = line(true, false);
        assert!(
            words.contains("-icount shift=0") && !words.contains("thread=multi"),
            "{words}"
        );
        assert!(line(false, false).contains("tcg,thread=multi"));
    }

    #[test]
    fn only_the_two_agreed_values_are_verdicts() {
        let of = |code: i32| verdict(ExitStatus::from_raw(code << 8), "");
        assert_eq!(of(33), Verdict::Passed);
        assert_eq!(of(35), Verdict::Failed);
        for code in [0, 1, 2, 32, 34, 37, 255] {
            assert!(matches!(of(code), Verdict::Crashed(_)), "{code}");
        }
        assert_eq!(
            verdict(ExitStatus::from_raw(9), ""),
            Verdict::Crashed("QEMU was killed by signal 9".into())
        );
    }
}
