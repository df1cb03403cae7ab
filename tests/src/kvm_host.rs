// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An emulated host that has KVM: QEMU in software with a processor that has SVM, Debian's cloud
//! kernel with kvm-amd, busybox, the `paravane` program and VMI-Linux. So machines on KVM are
//! tested anywhere. Commands run as root, and their output and exit codes come back.
//!
//! Time limits are for a host of two idle cores. They are multiplied by the factor by which this
//! host took longer to boot, which is printed.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

mod archive;
mod emulator;
mod kernel;
mod standstill;

pub use archive::Archive;
pub use kernel::{Kernel, MODULES};

use crate::one_cpu::OneCpu;
use crate::program::{self, Ends};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const QEMU: &str = "qemu-system-x86_64";
/// The time from QEMU's start to the first command on a host of two idle cores.
const USUAL_BOOT: Duration = Duration::from_secs(4);
/// The most that any host is given for the boot.
const LONGEST_BOOT: Duration = Duration::from_secs(180);
/// The end is for `standstill.rs`.
const COMMAND_LINE: &str = "console=ttyS0 loglevel=5 panic=-1 mitigations=off tsc=reliable \
                            unknown_nmi_panic panic_print=0x45";

/// The host. It ends when this is dropped.
#[derive(Debug)]
pub struct KvmHost {
    _qemu: Ends,
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
    /// Bytes that have come and belong to no answer yet.
    rest: Vec<u8>,
    folder: TempDir,
    commands: u32,
    /// Time on this host relative to a host of two idle cores, in thousandths, at least 1000.
    slowness: u32,
}

/// What a host consists of.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Its CPUs.
    pub cpus: u32,
    /// Its memory in MiB.
    pub memory: u32,
    /// Files: where they are there, and where they are here.
    pub files: Vec<(String, PathBuf)>,
    /// Programs, likewise, which get their libraries.
    pub programs: Vec<(String, PathBuf)>,
    /// Images of its disks, /dev/vda and so on. Changes of them are lost at its end.
    pub disks: Vec<PathBuf>,
    /// Modules of its kernel besides those of KVM and of the disks.
    pub modules: Vec<&'static str>,
}

impl Parts {
    /// `paravane` on the path, and `cpus` CPUs.
    #[must_use]
    pub fn new(cpus: u32) -> Self {
        Parts {
            cpus,
            memory: 2048,
            files: Vec::new(),
            programs: vec![("/bin/paravane".to_string(), program::path().to_path_buf())],
            disks: Vec::new(),
            modules: Vec::new(),
        }
    }

    /// Also VMI-Linux as `/vmlinux`, which `paravane run --kernel` takes.
    #[must_use]
    pub fn with_linux(self) -> Self {
        let kernel = crate::vm::kernel().unwrap_or_else(crate::linux::kernel);
        self.file("/vmlinux", &kernel)
    }

    /// Also a file.
    #[must_use]
    pub fn file(mut self, path: &str, file: &Path) -> Self {
        self.files.push((path.to_string(), file.to_path_buf()));
        self
    }

    /// Starts the host and waits for its first answer.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(&self) -> KvmHost {
        let kernel = Kernel::get();
        let mut wanted = self.modules.clone();
        if !self.disks.is_empty() {
            wanted.extend(["virtio_pci", "virtio_blk"]);
        }
        let mut modules = kernel.with_needs(&wanted);
        modules.extend(MODULES.map(|name| (name.to_string(), kernel.module(name))));
        let mut archive = Archive::new(&modules);
        for (path, file) in &self.files {
            archive.add(path, file, 0o644);
        }
        for (path, program) in &self.programs {
            archive.add_program(path, program);
        }
        let folder = tempfile::tempdir().unwrap();
        let initrd = folder.path().join("initrd");
        fs::write(&initrd, archive.bytes()).unwrap();
        let one = emulator::needs_one_cpu().then(|| OneCpu::take_nth(another()));
        let begun = Instant::now();
        let mut child = self
            .qemu(&kernel.image(), &initrd, &folder)
            .spawn()
            .unwrap_or_else(|error| panic!("{QEMU}: {error}"));
        drop(one);
        let input = child.stdin.take().unwrap();
        let mut pipe = child.stdout.take().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let mut host = KvmHost {
            _qemu: Ends(child),
            input,
            output,
            rest: Vec::new(),
            folder,
            commands: 0,
            slowness: 1000,
        };
        host.wait_for(b"ready\n", LONGEST_BOOT, "boot");
        let took = begun.elapsed();
        let slowness = took.as_millis() * 1000 / USUAL_BOOT.as_millis();
        host.slowness = u32::try_from(slowness).unwrap().max(1000);
        eprintln!(
            "calibration: the emulated host with {} CPUs has booted in {} ms (usual {} ms): limits \
             of time are multiplied by {}.{:03}",
            self.cpus,
            took.as_millis(),
            USUAL_BOOT.as_millis(),
            host.slowness / 1000,
            host.slowness % 1000
        );
        host
    }

    fn qemu(&self, kernel: &Path, initrd: &Path, folder: &TempDir) -> Command {
        let mut command = Command::new(QEMU);
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-no-reboot"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
        command.args(["-smp", &self.cpus.to_string()]);
        command.args(["-m", &self.memory.to_string()]);
        command
            .arg("-serial")
            .arg(format!("file:{}", console(folder).display()));
        command.arg("-monitor").arg(format!(
            "unix:{},server=on,wait=off",
            monitor(folder).display()
        ));
        let rate = emulator::counter_khz();
        command.args(["-serial", "stdio", "-append"]);
        command.arg(format!("{COMMAND_LINE} tsc_early_khz={rate}"));
        command
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(initrd);
        for (number, disk) in self.disks.iter().enumerate() {
            let file = format!(
                "if=none,id=disk{number},format=raw,snapshot=on,file={}",
                disk.display()
            );
            let device = format!("virtio-blk-pci,drive=disk{number}");
            command.args(["-drive", &file, "-device", &device]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }
}

/// A number for each emulated host, so that several of them do not share a CPU of this one.
fn another() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) + std::process::id() as usize
}

fn console(folder: &TempDir) -> PathBuf {
    folder.path().join("console")
}

fn monitor(folder: &TempDir) -> PathBuf {
    folder.path().join("monitor")
}

/// The result of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its exit code.
    pub code: i32,
    /// What it printed on both streams.
    pub output: String,
}

impl KvmHost {
    /// Runs a shell script, which ends within `seconds` on a usual host.
    ///
    /// # Panics
    /// When it does not end in time, or the host ends.
    pub fn run(&mut self, script: &str, seconds: u64) -> Reply {
        self.commands += 1;
        let mark = format!("done-{}-{}", std::process::id(), self.commands);
        let line = format!("{mark} {}\n", base64(script.as_bytes()));
        self.input.write_all(line.as_bytes()).unwrap();
        self.input.flush().unwrap();
        let mut output = self.wait_for(format!("{mark} ").as_bytes(), self.limit(seconds), script);
        output.truncate(output.len() - mark.len() - 1);
        let code = self.wait_for(b"\n", self.limit(10), script);
        Reply {
            code: String::from_utf8_lossy(&code).trim().parse().unwrap(),
            output: String::from_utf8_lossy(&output).into_owned(),
        }
    }

    /// Runs a script that must succeed. Returns what it printed.
    ///
    /// # Panics
    /// When it fails or does not end in time.
    pub fn ok(&mut self, script: &str, seconds: u64) -> String {
        let reply = self.run(script, seconds);
        assert_eq!(reply.code, 0, "{script}: {}", reply.output);
        reply.output
    }

    /// A limit of time on this host.
    #[must_use]
    pub fn limit(&self, seconds: u64) -> Duration {
        Duration::from_secs(seconds) * self.slowness / 1000
    }

    /// Options of `paravane conformance` that tell the suite how slow this host is and what it does
    /// not emulate. They begin with a space.
    ///
    /// # Panics
    /// When QEMU does not say its version.
    #[must_use]
    pub fn suite_options(&self) -> String {
        let patience = self.slowness.div_ceil(1000);
        let lacks = emulator::unemulated();
        format!("{lacks} --append shadow=lost --append patience={patience}")
    }

    /// What the host's kernel has printed.
    #[must_use]
    pub fn console(&self) -> String {
        let bytes = fs::read(console(&self.folder)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until `end` has come. Returns what has come, with it.
    fn wait_for(&mut self, end: &[u8], limit: Duration, what: &str) -> Vec<u8> {
        let deadline = Instant::now() + limit;
        loop {
            let found = self.rest.windows(end.len()).position(|part| part == end);
            if let Some(at) = found {
                let later = self.rest.split_off(at + end.len());
                return std::mem::replace(&mut self.rest, later);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let why = match self.output.recv_timeout(left) {
                Ok(bytes) => {
                    self.rest.extend(bytes);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {
                    let processors = standstill::look(&monitor(&self.folder), self.limit(10));
                    format!("not done in {limit:?}\n{processors}")
                }
                Err(RecvTimeoutError::Disconnected) => "the emulated host has ended".to_string(),
            };
            panic!(
                "{what}: {why}: {}\nits console: {}",
                String::from_utf8_lossy(&self.rest),
                self.console()
            );
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = (0..3).fold(0, |word: usize, at| {
            word << 8 | usize::from(chunk.get(at).copied().unwrap_or(0))
        });
        for at in 0..4 {
            let letter = char::from(LETTERS[word >> (18 - 6 * at) & 63]);
            text.push(if at <= chunk.len() { letter } else { '=' });
        }
    }
    text
}
