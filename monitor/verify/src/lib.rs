// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane kernel verify`: checks that one kernel file works on bare metal and on the process
//! hypervisor.
//!
//! The files are read once. Their hashes identify them. All checks and boots use the same bytes,
//! and each boot reports the build ID of its kernel.

#![forbid(unsafe_code)]

mod alternatives;
mod boots;
mod instructions;
mod payload;
mod review;

use anyhow::{Context, bail};
pub use boots::Rom;
use boots::{On, PLACES, Place};
use paravane_hypervisor::kvm;
use paravane_hypervisor::process;
use paravane_kernel::digest;
use paravane_machine::root::busybox;
use paravane_user_io::files;
use paravane_user_io::signals::Signals;
use paravane_user_io::text;
use paravane_user_io::text::hex;
use paravane_vmlinux::elf::Image;

use review::List;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to verify, and how.
#[derive(Debug)]
pub struct Request {
    /// Folder with vmlinux and bzImage.
    pub folder: PathBuf,
    /// The list of reviewed instructions; `None` for the built-in list.
    pub list: Option<PathBuf>,
    /// Boot the kernel, too.
    pub boot: bool,
    /// Boot it with this ROM on bare metal, and nowhere else.
    pub rom: Option<Rom>,
    /// Boot it only on these; none: on all that this host has.
    pub on: Vec<Where>,
    /// The deadline of one boot.
    pub timeout: Duration,
}

/// What boots a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// Bare metal, by QEMU's software emulation.
    Qemu,
    /// Processes of this host.
    Process,
    /// The host's KVM, however slow it is.
    Kvm,
}

/// One check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What the check expects.
    pub what: String,
    /// The expectation holds.
    pub passed: bool,
    /// Details; for a failed check, the reasons.
    pub lines: Vec<String>,
}

/// Runs all checks. `each` gets every check when it is done.
pub fn run(
    request: &Request,
    signals: &Signals,
    each: &mut dyn FnMut(&Check),
) -> anyhow::Result<Vec<Check>> {
    let read = |name: &str| files::read(&request.folder.join(name), "kernel");
    let (vmlinux, bzimage) = (read("vmlinux")?, read("bzImage")?);
    let list = match &request.list {
        Some(path) => List::parse(&String::from_utf8_lossy(&files::read(path, "list")?))
            .with_context(|| path.display().to_string())?,
        None => List::parse(review::LIST)?,
    };
    let image = Image::read(&vmlinux)
        .with_context(|| request.folder.join("vmlinux").display().to_string())?;
    let mut session = Session {
        checks: Vec::new(),
        each,
    };
    session.add("the files", &mut || {
        Ok(hashes(&request.folder, &vmlinux, &bzimage, &image))
    });
    session.add("bzImage contains this vmlinux", &mut || {
        let bytes = payload::compare(&payload::unpack(&bzimage)?, &vmlinux)?;
        Ok(vec![format!("{bytes} bytes of its segments are the same")])
    });
    session.add(
        "its relocations are those that the loader takes",
        &mut || relocations(&image, &vmlinux),
    );
    session.instructions(&list, &image);
    if request.boot {
        let initrd = boots::initrd(&busybox::find()?)?;
        let files = boots::Files {
            vmlinux: &vmlinux,
            bzimage: &bzimage,
            initrd: &initrd,
            build_id: image.build_id.as_deref(),
            timeout: request.timeout,
        };
        let places = match &request.rom {
            Some(rom) => vec![Place::of(rom)],
            None => places(&request.on, &mut session),
        };
        for place in places {
            if signals.pending().is_some() {
                break;
            }
            session.add(&place.describe(), &mut || {
                Ok(vec![boots::boot(place, &files, signals)?])
            });
        }
        // The files on disk must still be those that were read.
        session.add("the files have not changed", &mut || {
            for (name, bytes) in [("vmlinux", &vmlinux), ("bzImage", &bzimage)] {
                if read(name)? != *bytes {
                    bail!("{name} has changed since it was read");
                }
            }
            Ok(Vec::new())
        });
    }
    Ok(session.checks)
}

/// The requested places. Without a request, KVM is one of them where it is fast, and a check says
/// why it is left out elsewhere.
fn places(on: &[Where], session: &mut Session<'_>) -> Vec<Place<'static>> {
    let kvm = || match kvm::speed::measure() {
        Ok(speed) if speed.fast() => Ok(()),
        Ok(speed) => Err(format!("/dev/kvm is not fast: {}", speed.words())),
        Err(why) => Err(format!("{why:#}")),
    };
    let left_out = if on.is_empty() { kvm().err() } else { None };
    let wanted = |place: &Place<'_>| {
        let is = match place.on {
            On::Metal => Where::Qemu,
            On::Process => Where::Process,
            On::Kvm | On::KvmCompressed => Where::Kvm,
        };
        if on.is_empty() {
            is != Where::Kvm || left_out.is_none()
        } else {
            on.contains(&is)
        }
    };
    let places = PLACES.into_iter().filter(wanted).collect();
    if let Some(why) = &left_out {
        session.add("KVM is left out", &mut || Ok(vec![why.clone()]));
    }
    places
}

fn hashes(folder: &Path, vmlinux: &[u8], bzimage: &[u8], image: &Image<'_>) -> Vec<String> {
    let line = |name: &str, bytes: &[u8]| {
        format!("{}  {}", hex(&digest(bytes)), folder.join(name).display())
    };
    let build_id = image.build_id.as_deref().unwrap_or("none");
    vec![
        line("vmlinux", vmlinux),
        line("bzImage", bzimage),
        format!("build id {build_id}"),
    ]
}

fn relocations(image: &Image<'_>, vmlinux: &[u8]) -> anyhow::Result<Vec<String>> {
    let unexpected: Vec<String> = image
        .relocations
        .iter()
        .filter(|(kind, _)| !process::relocates(**kind))
        .map(|(kind, count)| format!("{count} of type {kind}"))
        .collect();
    if !unexpected.is_empty() {
        bail!("unexpected: {}", unexpected.join(", "));
    }
    // Checks every relocation against the value at its place.
    process::relocate(vmlinux)?;
    let total: u64 = image.relocations.values().sum();
    let kinds = image
        .relocations
        .iter()
        .map(|(kind, count)| format!("{count} of type {kind}"));
    Ok(vec![format!(
        "{total}: {}",
        kinds.collect::<Vec<_>>().join(", ")
    )])
}

struct Session<'a> {
    checks: Vec<Check>,
    each: &'a mut dyn FnMut(&Check),
}

impl Session<'_> {
    fn add(&mut self, what: &str, look: &mut dyn FnMut() -> anyhow::Result<Vec<String>>) {
        let (passed, lines) = match look() {
            Ok(lines) => (true, lines),
            Err(error) => (false, vec![text::one_line(&format!("{error:#}"))]),
        };
        self.put(what, passed, lines);
    }

    fn put(&mut self, what: &str, passed: bool, lines: Vec<String>) {
        let check = Check {
            what: what.to_string(),
            passed,
            lines,
        };
        (self.each)(&check);
        self.checks.push(check);
    }

    /// Two checks that share one scan.
    fn instructions(&mut self, list: &List, image: &Image<'_>) {
        let dead = match alternatives::Dead::of(image, &list.features()) {
            Ok(dead) => dead,
            Err(error) => {
                let lines = vec![text::one_line(&format!("{error:#}"))];
                self.put("its patch sites can be read", false, lines);
                return;
            }
        };
        let found = instructions::scan(image, &dead);
        let verdict = list.judge(&found);
        let mut lines: Vec<String> = verdict
            .unexpected
            .iter()
            .map(|((symbol, what), address)| {
                format!("{symbol}: {what} at {address:#x} is not on the list")
            })
            .collect();
        if lines.is_empty() {
            lines.push(format!(
                "{} instructions; of the sensitive ones {} are patched out ({} sites), \
                 {} are on the list",
                found.instructions, found.patched_out, dead.sites, verdict.explained
            ));
        }
        self.put(
            "no privileged instruction that is not reviewed",
            verdict.unexpected.is_empty(),
            lines,
        );
        let stale = verdict
            .stale
            .iter()
            .map(|line| format!("{line}: the kernel has none"));
        let lines: Vec<String> = stale.collect();
        self.put("nothing on the list for nothing", lines.is_empty(), lines);
    }
}
