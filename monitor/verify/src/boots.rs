// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Boots a kernel on bare metal and on KVM, with each layer for it and without one, and on the
//! process hypervisor. Each boot must reach a program that runs a few workloads and reports their
//! results and the kernel that it runs on.

use anyhow::{Context, bail};
use paravane_hypervisor::process::{Config, End, Heuristics, Output, Vm};
use paravane_hypervisor::qemu::{Linux, Qemu};
use paravane_hypervisor::{Event, Layer, kvm};
use paravane_kernel::digest;
use paravane_machine::initramfs::Initramfs;
use paravane_machine::root::busybox::Busybox;
use paravane_user_io::signals::Signals;
use paravane_user_io::text::{self, hex};
use paravane_user_io::worker::{self, Limit};
use paravane_vmlinux::elf;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

const MEMORY_MIB: u32 = 256;
/// How many numbers the program writes, packs, unpacks and hashes.
const NUMBERS: u32 = 5000;
/// Console lines that are kept for messages.
const KEPT_LINES: usize = 8;
/// Console lines that are kept from the first fault of the kernel on: its registers and its stack.
const FAULT_LINES: usize = 80;

/// The first program. Lines that report a result begin with `verify`.
const INIT: &str = r#"#!/bin/sh
mkdir -p /proc /sys /tmp
mount -t devtmpfs devtmpfs /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /tmp
echo "verify notes $(od -An -v -tx1 /sys/kernel/notes | tr -d ' \n')"
echo "verify layer $(dmesg | sed -n 's/.*VMI: layer \([^ ]*\) [0-9.]*$/\1/p')"
echo "verify cpus $(grep -c ^processor /proc/cpuinfo)"
seq 1 NUMBERS > /tmp/a
gzip -c /tmp/a | gunzip -c | cat > /tmp/b
echo "verify hash $(sha256sum < /tmp/b | cut -d' ' -f1)"
caught=0
trap 'caught=$((caught + 1))' USR1
for i in 1 2 3; do kill -USR1 $$; done
echo "verify signals $caught"
(usleep 20000; exit 5) &
wait $!; later=$?
(exit 7)
echo "verify status $? $later"
echo "verify done"
poweroff -f
"#;

/// What runs a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// QEMU's software emulation.
    Metal,
    /// Processes of this host.
    Process,
    /// The host's KVM, which gets vmlinux.
    Kvm,
    /// The host's KVM, which gets the compressed kernel.
    KvmCompressed,
}

/// A hypervisor and a layer on which the kernel must boot.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub on: On,
    pub layer: Layer,
    pub cpus: u32,
    /// This ROM in place of the layer's.
    pub rom: Option<&'a Rom>,
}

/// The ROM of a layer that is not built in.
#[derive(Debug)]
pub struct Rom {
    /// The layer's name.
    pub name: String,
    /// The file's contents.
    pub bytes: Vec<u8>,
}

/// All places.
pub const PLACES: [Place<'static>; 9] = [
    Place::new(On::Metal, Layer::None, 2),
    Place::new(On::Metal, Layer::Native, 2),
    Place::new(On::Metal, Layer::NativeStats, 2),
    Place::new(On::Process, Layer::Process, 1),
    Place::new(On::Process, Layer::Process, 2),
    Place::new(On::Kvm, Layer::None, 2),
    Place::new(On::Kvm, Layer::Native, 2),
    Place::new(On::Kvm, Layer::Kvm, 2),
    Place::new(On::KvmCompressed, Layer::None, 1),
];

impl Place<'static> {
    const fn new(on: On, layer: Layer, cpus: u32) -> Self {
        Place {
            on,
            layer,
            cpus,
            rom: None,
        }
    }
}

impl<'a> Place<'a> {
    /// The place of a ROM.
    pub fn of(rom: &'a Rom) -> Self {
        Place {
            on: On::Metal,
            layer: Layer::None,
            cpus: 2,
            rom: Some(rom),
        }
    }

    /// The name of the layer that the kernel must find; empty for none.
    fn layer_name(&self) -> &str {
        match (self.rom, self.layer) {
            (Some(rom), _) => &rom.name,
            (None, Layer::None) => "",
            (None, layer) => layer.name(),
        }
    }

    /// A description for the user.
    pub fn describe(&self) -> String {
        let on = match self.on {
            On::Metal => "bare metal (QEMU)",
            On::Process => "the process hypervisor",
            On::Kvm => "KVM",
            On::KvmCompressed => "KVM, compressed,",
        };
        let with = match (self.on, self.layer_name()) {
            (On::Process, _) => String::new(),
            (_, "") => " without a ROM".to_string(),
            (_, name) => format!(" with the ROM {name}"),
        };
        format!(
            "boots on {on}{with}, {}",
            text::count(self.cpus as usize, "vCPU")
        )
    }
}

/// The files, read once. All boots use these bytes.
#[derive(Debug)]
pub struct Files<'a> {
    pub vmlinux: &'a [u8],
    pub bzimage: &'a [u8],
    pub initrd: &'a [u8],
    pub build_id: Option<&'a str>,
    /// The deadline of one boot, from the machine's start.
    pub timeout: Duration,
}

/// The initramfs of all boots.
///
/// # Errors
/// The program busybox has 4 GiB or more.
pub fn initrd(busybox: &Busybox) -> std::io::Result<Vec<u8>> {
    let mut archive = Initramfs::default();
    for folder in ["bin", "sbin", "usr", "usr/bin", "usr/sbin", "dev"] {
        archive.directory(folder, 0o755)?;
    }
    archive.file("bin/busybox", 0o755, &busybox.program)?;
    for applet in &busybox.applets {
        archive.symlink(applet, "/bin/busybox")?;
    }
    archive.file(
        "init",
        0o755,
        INIT.replace("NUMBERS", &NUMBERS.to_string()).as_bytes(),
    )?;
    archive.finish()
}

/// Boots at a place. Returns a short summary of the result.
pub fn boot(place: Place<'_>, files: &Files<'_>, signals: &Signals) -> anyhow::Result<String> {
    let begun = Instant::now();
    let mut report = Report::default();
    match place.on {
        On::Metal => on_metal(place, files, signals, &mut report)?,
        On::Process => on_processes(place, files, signals, &mut report)?,
        On::Kvm | On::KvmCompressed => on_kvm(place, files, signals, &mut report)?,
    }
    report.check(place, files.build_id)?;
    Ok(format!(
        "to user mode and back in {:.1} s",
        begun.elapsed().as_secs_f64()
    ))
}

fn on_metal(
    place: Place<'_>,
    files: &Files<'_>,
    signals: &Signals,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut running = Qemu::find()?.start_linux(&Linux {
        bzimage: files.bzimage,
        initrd: files.initrd,
        layer: place
            .rom
            .map_or_else(|| place.layer.rom(), |rom| Some(&rom.bytes)),
        command_line: "console=ttyS0 quiet panic=-1",
        cpus: place.cpus,
        memory_mib: MEMORY_MIB,
        count_instructions: false,
    })?;
    let deadline = Instant::now() + files.timeout;
    loop {
        match running.next(deadline, signals) {
            Event::Line(line) => report.line(line),
            Event::Ended(_) => return Ok(()),
            Event::TimedOut => bail!(
                "no end after {} s; {}",
                files.timeout.as_secs(),
                report.last()
            ),
            Event::Interrupted(_) => bail!("interrupted"),
        }
    }
}

fn on_processes(
    place: Place<'_>,
    files: &Files<'_>,
    signals: &Signals,
    report: &mut Report,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + files.timeout;
    let limit = Limit {
        signals: Some(signals),
        deadline,
    };
    let (kernel, initrd) = (files.vmlinux.to_vec(), files.initrd.to_vec());
    let vm = worker::within(&limit, "starter", move || {
        Vm::start(&Config {
            name: "vmlinux",
            kernel: &kernel,
            layer: paravane_blobs::PROCESS_LAYER,
            command_line: "console=hvc0 quiet",
            initrd: &initrd,
            vcpus: place.cpus,
            memory: u64::from(MEMORY_MIB) << 20,
            spaces: None,
            debuggable: false,
            heuristics: Heuristics::default(),
        })
    })?;
    let time = (deadline, files.timeout);
    watch(|| vm.next(), vm.bell(), time, signals, report)
}

fn on_kvm(
    place: Place<'_>,
    files: &Files<'_>,
    signals: &Signals,
    report: &mut Report,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + files.timeout;
    let limit = Limit {
        signals: Some(signals),
        deadline,
    };
    let (name, kernel) = match place.on {
        On::KvmCompressed => ("bzImage", files.bzimage.to_vec()),
        _ => ("vmlinux", files.vmlinux.to_vec()),
    };
    let initrd = files.initrd.to_vec();
    let layer = place.rom.map(|rom| rom.bytes.clone());
    let layer = layer.or_else(|| place.layer.rom().map(<[u8]>::to_vec));
    let vm = worker::within(&limit, "starter", move || {
        let config = kvm::Config {
            name,
            kernel: &kernel,
            layer: layer.as_deref(),
            command_line: "console=ttyS0 quiet pci=off panic=-1",
            initrd: &initrd,
            vcpus: place.cpus,
            memory: u64::from(MEMORY_MIB) << 20,
            tests: false,
            large_pages: true,
            // Such a KVM lacks instructions of the kernel.
            emulated: false,
        };
        let vm = kvm::Vm::prepare(&config, Vec::new())?;
        vm.start_kernel();
        Ok(vm)
    })?;
    let time = (deadline, files.timeout);
    watch(|| vm.next(), vm.bell(), time, signals, report)
}

/// Reads a machine's console until it powers off. The time is its end and its length.
fn watch(
    next: impl Fn() -> Option<Output>,
    bell: BorrowedFd<'_>,
    (deadline, timeout): (Instant, Duration),
    signals: &Signals,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut partial = Vec::new();
    loop {
        match next() {
            Some(Output::Console(bytes)) => {
                for byte in bytes {
                    if byte == b'\n' || partial.len() > 4096 {
                        report.line(text::clean(&std::mem::take(&mut partial)));
                    } else {
                        partial.push(byte);
                    }
                }
                continue;
            }
            Some(Output::End(End::Shutdown(0))) => return Ok(()),
            Some(Output::End(end)) => bail!("it ended with {end:?}; {}", report.last()),
            None => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("no end after {} s; {}", timeout.as_secs(), report.last());
        }
        if signals.pending().is_some() {
            bail!("interrupted");
        }
        let mut wait = [
            PollFd::from_borrowed_fd(bell, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.wake(), PollFlags::IN),
        ];
        // The caller checks everything again after any end of the wait, errors included.
        let _ = poll(&mut wait, Timespec::try_from(left).ok().as_ref());
    }
}

/// What the program has reported.
#[derive(Debug, Default)]
struct Report {
    said: Vec<(String, String)>,
    lines: Vec<String>,
    fault: Vec<String>,
}

/// Whether a line begins a report of a fault in the kernel.
fn begins_fault(line: &str) -> bool {
    const WORDS: [&str; 5] = ["BUG: ", "Oops: ", "WARNING: ", "Kernel panic", "rcu: INFO"];
    WORDS.iter().any(|word| line.contains(word))
}

impl Report {
    fn line(&mut self, line: String) {
        if let Some(said) = line.trim().strip_prefix("verify ") {
            let (what, value) = said.split_once(' ').unwrap_or((said, ""));
            self.said.push((what.to_string(), value.trim().to_string()));
        } else if !line.trim().is_empty() {
            let faulty = !self.fault.is_empty() || begins_fault(&line);
            if faulty && self.fault.len() < FAULT_LINES {
                self.fault.push(line.clone());
            }
            if self.lines.len() == KEPT_LINES {
                self.lines.remove(0);
            }
            self.lines.push(line);
        }
    }

    fn last(&self) -> String {
        let (what, lines) = match self.fault.is_empty() {
            true => ("its last lines: ", &self.lines),
            false => ("its fault: ", &self.fault),
        };
        match lines.is_empty() {
            true => format!("{what}none"),
            false => format!("{what}{}", lines.join(" | ")),
        }
    }

    fn check(&self, place: Place<'_>, build_id: Option<&str>) -> anyhow::Result<()> {
        let value = |what: &str| {
            let found = self.said.iter().find(|(w, _)| w == what);
            found
                .map(|(_, value)| value.as_str())
                .with_context(|| format!("the program did not report {what}; {}", self.last()))
        };
        value("done")?;
        let running = unhex(value("notes")?).and_then(|notes| elf::build_id(&notes));
        if running.is_none() || running.as_deref() != build_id {
            bail!(
                "the kernel that runs has the build id {}, the file {}",
                running.unwrap_or_default(),
                build_id.unwrap_or_default()
            );
        }
        let layer = place.layer_name();
        let numbers: String = (1..=NUMBERS).fold(String::new(), |mut text, n| {
            let _ = writeln!(text, "{n}");
            text
        });
        for (what, wanted) in [
            ("layer", layer),
            ("cpus", &place.cpus.to_string()),
            ("hash", &hex(&digest(numbers.as_bytes()))),
            ("signals", "3"),
            ("status", "7 5"),
        ] {
            let got = value(what)?;
            if got != wanted {
                bail!("the program reports {what} {got:?}, expected {wanted:?}");
            }
        }
        Ok(())
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: &u8| {
        char::from(*c)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    text.as_bytes()
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(change: Option<(&str, &str)>) -> Report {
        let mut report = Report::default();
        let numbers: String = (1..=NUMBERS).map(|n| format!("{n}\n")).collect();
        let hash = hex(&digest(numbers.as_bytes()));
        for (what, value) in [
            ("notes", "040000000200000003000000474e5500ab010000"),
            ("layer", "native"),
            ("cpus", "2"),
            ("hash", &hash),
            ("signals", "3"),
            ("status", "7 5"),
            ("done", ""),
        ] {
            match change {
                Some((name, other)) if name == what => {
                    report.line(format!("verify {what} {other}"))
                }
                _ => report.line(format!("verify {what} {value}\r")),
            }
        }
        report
    }

    #[test]
    fn everything_it_says_counts() {
        let place = Place::new(On::Metal, Layer::Native, 2);
        report(None).check(place, Some("ab01")).unwrap();
        assert!(report(None).check(place, Some("ab02")).is_err());
        assert!(report(None).check(place, None).is_err());
        for what in ["notes", "layer", "cpus", "hash", "signals", "status"] {
            assert!(
                report(Some((what, "1")))
                    .check(place, Some("ab01"))
                    .is_err(),
                "{what}"
            );
        }
        let mut unfinished = report(None);
        unfinished.said.pop();
        assert!(unfinished.check(place, Some("ab01")).is_err());
    }

    #[test]
    fn a_fault_is_kept_from_its_beginning() {
        let mut report = Report::default();
        let mut lines = vec!["booting".to_string(), "BUG: the first".to_string()];
        lines.extend((0..200).map(|n| format!("stack {n}")));
        lines.into_iter().for_each(|line| report.line(line));
        let last = report.last();
        assert!(last.starts_with("its fault: BUG: the first | stack 0"));
        assert!(last.ends_with(&format!("stack {}", FAULT_LINES - 2)));
        // Without one, the end is kept.
        let mut report = Report::default();
        (0..200).for_each(|n| report.line(format!("line {n}")));
        assert!(report.last().ends_with("line 199"));
    }
}
