// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench micro`: measures what operations of Linux cost a program in a virtual machine,
//! each beside the host.
//!
//! One static program (`bench/micro/`) measures both: as an ordinary process of the host, and as
//! the only process of a virtual machine. They take turns on the same CPU, and the ratio is taken
//! within each turn.

mod report;
pub mod rows;
mod toolchain;

use super::markdown::Page;
use super::{cpus, turns};
use crate::arguments::BenchMicro;
use anyhow::{Context, bail};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use paravane_hypervisor::process::{Config, End, Heuristics, Output, Vm};
use paravane_kernel as kernel;
use paravane_machine::initramfs::Initramfs;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;
use paravane_user_io::text;
use report::{Report, Skipped, Turns};
use rows::{Needs, ROWS, Row};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use toolchain::Toolchain;

/// The name of the table's markers in the page.
const MARKER: &str = "micro";
const MEMORY: u64 = 256 << 20;
/// Guest memory with a compiler in it, in bytes.
const MEMORY_COMPILER: u64 = 512 << 20;
/// How much of a guest's console is kept for an error message, in bytes.
const TAIL: usize = 4096;

/// Measures, and prints or writes the table.
pub fn run(args: &BenchMicro) -> anyhow::Result<Outcome> {
    let rows = turns::select(&ROWS, &args.row)?;
    // Before a kernel is built, which takes long.
    let page = Page::chosen(&args.output, MARKER)?;
    let file = match &args.kernel {
        Some(file) => file.clone(),
        None => kernel::locate_or_build()?.vmlinux,
    };
    let name = file.display().to_string();
    let kernel = fs::read(&file).with_context(|| name.clone())?;
    let shell = read_static(&args.shell);
    let signals = Signals::install().context("cannot handle signals")?;
    let host = host_folder(shell.as_deref().ok())?;
    let compiler = if rows.iter().any(|row| row.needs == Needs::Compiler) {
        Toolchain::find(&host.path().join("main.c"))
            .and_then(|tools| Ok((compiler_initramfs(&tools)?, tools.compiler)))
    } else {
        Err(anyhow::anyhow!("not looked for"))
    };
    let bench = Bench {
        kernel: &kernel,
        name: &name,
        initrd: initramfs(shell.as_deref().ok())?,
        compiler: compiler.as_ref().ok(),
        folder: host.path(),
        append: &args.append,
        signals: &signals,
        timeout: Duration::from_secs(args.timeout),
        cpus: cpus::allowed(),
    };
    let why = |row: &Row| match row.needs {
        Needs::Nothing | Needs::Vdso => None,
        Needs::Shell => shell.as_ref().err(),
        Needs::Compiler => compiler.as_ref().err(),
    };
    let (mut turns, mut skipped) = (Vec::new(), Vec::new());
    for row in rows {
        match why(row) {
            Some(why) => skipped.push(Skipped::new(row, text::one_line(&format!("{why:#}")))),
            None => turns.push(Turns::new(row)),
        }
    }
    if let Some(signal) = turns::alternate("", &mut turns, args.rounds, &signals, |turn, round| {
        bench.turn(turn, round)
    })? {
        return Ok(Outcome::Interrupted(signal));
    }
    let report = Report::new(&turns, skipped);
    turns::show(&report, page, args.output.json)?;
    Ok(turns::judge(&report.missed()))
}

/// Reads a static program. The guest has no other files.
pub fn read_static(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    let elf = ElfFile64::<object::Endianness>::parse(&*bytes)
        .with_context(|| format!("{}: not a program", path.display()))?;
    let endian = elf.endian();
    let headers = elf.elf_header().program_headers(endian, &*bytes)?;
    if headers
        .iter()
        .any(|h| h.p_type(endian) == object::elf::PT_INTERP)
    {
        bail!(
            "{} is not static (Debian: package busybox-static)",
            path.display()
        );
    }
    Ok(bytes)
}

/// A folder with what the program expects in its working folder: itself, and a shell.
fn host_folder(shell: Option<&[u8]>) -> anyhow::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let mut files = vec![("micro", paravane_blobs::MICRO)];
    files.extend(shell.map(|shell| ("sh", shell)));
    files.extend(paravane_blobs::MICRO_SOURCES);
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::write(&path, content).with_context(|| path.display().to_string())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .with_context(|| path.display().to_string())?;
    }
    Ok(folder)
}

/// The files of the host's folder, as an initramfs for the guest.
pub fn initramfs(shell: Option<&[u8]>) -> anyhow::Result<Vec<u8>> {
    Ok(folder_archive(shell)?.finish()?)
}

fn folder_archive(shell: Option<&[u8]>) -> anyhow::Result<Initramfs> {
    let mut archive = Initramfs::default();
    for folder in ["dev", "sys"] {
        archive.directory(folder, 0o755)?;
    }
    archive.file("micro", 0o755, paravane_blobs::MICRO)?;
    archive.symlink("init", "micro")?;
    if let Some(shell) = shell {
        archive.file("sh", 0o755, shell)?;
    }
    Ok(archive)
}

fn compiler_initramfs(tools: &Toolchain) -> anyhow::Result<Vec<u8>> {
    let mut archive = folder_archive(None)?;
    for (name, content) in paravane_blobs::MICRO_SOURCES {
        archive.file(name, 0o644, content)?;
    }
    tools.store(&mut archive)?;
    Ok(archive.finish()?)
}

struct Bench<'a> {
    kernel: &'a [u8],
    name: &'a str,
    initrd: Vec<u8>,
    /// An initramfs with a compiler, and the compiler's path.
    compiler: Option<&'a (Vec<u8>, PathBuf)>,
    /// The working folder on the host.
    folder: &'a Path,
    append: &'a str,
    signals: &'a Signals,
    timeout: Duration,
    cpus: Vec<usize>,
}

impl Bench<'_> {
    /// Measures guest and host once each, in alternating order.
    fn turn(&self, turns: &mut Turns, round: u32) -> anyhow::Result<()> {
        let row = turns.row;
        cpus::pin(&cpus::first(&self.cpus));
        let result = if round.is_multiple_of(2) {
            self.host(row).and_then(|host| Ok((self.guest(row)?, host)))
        } else {
            self.guest(row)
                .and_then(|guest| Ok((guest, self.host(row)?)))
        };
        cpus::pin(&self.cpus);
        let (guest, host) = result?;
        turns.pairs.add(guest, host);
        Ok(())
    }

    fn host(&self, row: &Row) -> anyhow::Result<f64> {
        let mut command = Command::new("./micro");
        if let Some((_, compiler)) = self.compiler {
            command.env("compiler", compiler);
        }
        let row = row.name;
        let output = command
            .arg(row)
            .current_dir(self.folder)
            .output()
            .context("cannot start the host's side")?;
        let text = String::from_utf8_lossy(&output.stdout);
        figure(&text, row).with_context(|| {
            let said = text::one_line(&String::from_utf8_lossy(&output.stderr));
            format!("the host's side failed ({}): {said}", output.status)
        })
    }

    fn guest(&self, row: &Row) -> anyhow::Result<f64> {
        let (initrd, memory, compiler) = match (row.needs, self.compiler) {
            (Needs::Compiler, Some((initrd, compiler))) => (
                initrd,
                MEMORY_COMPILER,
                format!("compiler={}", compiler.display()),
            ),
            _ => (&self.initrd, MEMORY, String::new()),
        };
        let row = row.name;
        let vm = Vm::start(&Config {
            name: self.name,
            kernel: self.kernel,
            layer: paravane_blobs::PROCESS_LAYER,
            command_line: &format!("console=hvc0 quiet micro={row} {compiler} {}", self.append),
            initrd,
            vcpus: 1,
            memory,
            spaces: None,
            debuggable: false,
            heuristics: Heuristics::default(),
        })?;
        let mut console = String::new();
        match self.console(&vm, &mut console)? {
            End::Shutdown(0) => figure(&console, row).with_context(|| last_words(&console)),
            End::Shutdown(code) => bail!("the guest ended with {code}; {}", last_words(&console)),
            End::Reboot(_) => bail!("the machine was reset; {}", last_words(&console)),
            End::Failed(why) => bail!("{why}; {}", last_words(&console)),
        }
    }

    /// Collects the guest's output until it ends.
    fn console(&self, vm: &Vm, console: &mut String) -> anyhow::Result<End> {
        let deadline = Instant::now() + self.timeout;
        loop {
            match vm.next() {
                Some(Output::Console(bytes)) => {
                    console.push_str(&String::from_utf8_lossy(&bytes));
                    while console.len() > TAIL {
                        console.remove(0);
                    }
                    continue;
                }
                Some(Output::End(end)) => return Ok(end),
                None => {}
            }
            if let Some(signal) = self.signals.pending() {
                bail!("ended by signal {signal}");
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!(
                    "no end after {} s; {}",
                    self.timeout.as_secs(),
                    last_words(console)
                );
            }
            let mut files = [
                PollFd::from_borrowed_fd(vm.bell(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.wake(), PollFlags::IN),
            ];
            // The loop checks everything again after any end of the wait.
            let _ = rustix::event::poll(&mut files, Timespec::try_from(left).ok().as_ref());
        }
    }
}

fn last_words(console: &str) -> String {
    let last = console.lines().rev().find(|line| !line.trim().is_empty());
    format!(
        "the guest's last line is `{}`",
        text::one_line(last.unwrap_or_default())
    )
}

/// Finds the line `micro ROW NS`.
pub fn figure(text: &str, row: &str) -> anyhow::Result<f64> {
    for line in text.lines() {
        if let ["micro", name, ns] = line.split_whitespace().collect::<Vec<_>>()[..] {
            if name == row {
                let ns: f64 = ns.parse().with_context(|| format!("`{ns}` is no number"))?;
                if ns.is_finite() && ns > 0.0 {
                    return Ok(ns);
                }
            }
        }
    }
    bail!("no figure for {row} was printed")
}

#[cfg(test)]
#[expect(unsafe_code, reason = "works between fork and exec")]
mod tests {
    use super::super::refuse;
    use super::*;
    use std::os::unix::process::CommandExt;

    /// The program's rows where a system call is refused: whether it has a figure, and its errors.
    fn without(call: libc::c_long, row: &str) -> (bool, String) {
        let folder = host_folder(None).unwrap();
        let mut command = Command::new("./micro");
        command.arg(row).current_dir(folder.path());
        // SAFETY: only system calls, with a filter on the stack.
        unsafe {
            command.pre_exec(move || refuse::system_call(call));
        }
        let output = command.output().unwrap();
        let found = figure(&String::from_utf8_lossy(&output.stdout), row).is_ok();
        (found, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[test]
    fn the_clock_is_read_without_a_system_call() {
        let read = without(libc::SYS_clock_gettime, "clock_gettime");
        assert_eq!(read, (true, String::new()));
        // Other rows make the calls that they measure.
        let (found, said) = without(libc::SYS_read, "read");
        assert!(!found && said.starts_with("micro: read: "), "{said}");
    }

    #[test]
    fn figures_are_read_strictly() {
        let text = "[ 0.1] noise\r\nmicro write 12.500\r\nmicro read 3\n";
        assert!(figure(text, "write").is_ok_and(|ns| (ns - 12.5).abs() < 1e-9));
        assert!(figure(text, "read").is_ok());
        for bad in [
            "",
            "micro stat",
            "micro stat x",
            "micro stat -1",
            "micro stat inf",
            "micro stat 1 2",
        ] {
            assert!(figure(bad, "stat").is_err(), "{bad}");
        }
    }

    #[test]
    fn a_shell_that_needs_other_files_is_refused() {
        let shell = std::env::current_exe().unwrap();
        let error = read_static(&shell).unwrap_err().to_string();
        assert!(error.contains("not static"), "{error}");
    }
}
