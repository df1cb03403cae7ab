// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other systems that run the same root without hardware virtualization.

use super::guesses::{self, Guess};
use super::inputs::LINUX;
use super::plan::Group;
use super::session::{DRIVER, End, Session, Terms};
use super::sides::{self, Machine, Work};
use crate::arguments::{BenchApps, Peer, Place};
use anyhow::{Context, bail};
use paravane_kernel as kernel;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What runs a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// This program.
    Paravane,
    /// This program, with a card of the virtual bus.
    Venet,
    /// This program, with a disk on the virtual bus.
    Vblk,
    /// This program, with one of its guesses turned off.
    Without(&'static Guess),
    /// Another one.
    Peer(Peer),
}

impl System {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            System::Paravane => "paravane",
            System::Venet => "venet",
            System::Vblk => "vblk",
            System::Without(guess) => guess.without,
            System::Peer(Peer::Uml) => "uml",
            System::Peer(Peer::Qemu) => "qemu",
            System::Peer(Peer::Gvisor) => "gvisor",
        }
    }

    /// The system of a name in results.
    pub fn of_name(name: &str) -> Option<System> {
        let plain = [System::Paravane, System::Venet, System::Vblk].into_iter();
        let peers = [Peer::Uml, Peer::Qemu, Peer::Gvisor].map(System::Peer);
        let without = guesses::all().iter().map(System::Without);
        let mut known = plain.chain(peers).chain(without);
        known.find(|system| system.name() == name)
    }

    /// The system with which it is compared, besides the host.
    pub fn base(self) -> System {
        match self {
            System::Without(guess) if guess.card => System::Venet,
            _ => System::Paravane,
        }
    }

    /// Whether its card, or its disk, is on a virtual bus.
    pub fn has_bus(self) -> bool {
        matches!(self, System::Venet | System::Vblk) || self.base() == System::Venet
    }

    /// Whether it is this program, so that what it cannot do is a fault.
    pub fn is_own(self) -> bool {
        !matches!(self, System::Peer(_))
    }
}

/// The peers that this host has, of those that the user has chosen, and a line for each other.
pub fn present(wanted: &[Peer]) -> (Vec<Peer>, Vec<String>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for &peer in wanted {
        let (program, package) = program(peer);
        if find(program).is_some() {
            found.push(peer);
        } else {
            let name = System::Peer(peer).name();
            missing.push(format!(
                "{name} is not measured: there is no {program} (Debian: package {package})"
            ));
        }
    }
    (found, missing)
}

/// The systems that measure a group, this program first. Only this program has all places.
/// User-Mode Linux has one processor, and gVisor's trial command shares no second folder.
pub fn systems(args: &BenchApps, group: &Group<'_>) -> anyhow::Result<Vec<System>> {
    let (found, _) = present(&args.against);
    let input = group.app.input.is_some();
    let fits = |peer: &Peer| match peer {
        Peer::Uml => group.vcpus == 1,
        Peer::Gvisor => !input,
        Peer::Qemu => true,
    };
    let place = group.place == Place::Rootfs && args.root.is_none();
    let peers = found
        .into_iter()
        .filter(|p| place && fits(p))
        .map(System::Peer);
    // Only there does the card matter, or the disk.
    let bus = match group.place {
        Place::Publish => Some(System::Venet),
        Place::Disk => group.app.vblk.then_some(System::Vblk),
        Place::Rootfs | Place::Volume => None,
    };
    let guesses = guesses::chosen(&args.ablate)?.into_iter();
    let guesses = guesses.filter(|guess| guess.matters(group.place));
    let own = [System::Paravane].into_iter().chain(bus);
    let own = own.chain(guesses.map(System::Without));
    Ok(own.chain(peers).collect())
}

/// The program of a peer, and Debian's package of it.
fn program(peer: Peer) -> (&'static str, &'static str) {
    match peer {
        Peer::Uml => ("linux.uml", "user-mode-linux"),
        Peer::Qemu => ("qemu-system-x86_64", "qemu-system-x86"),
        Peer::Gvisor => ("runsc", "runsc"),
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Starts a guest of a peer.
pub fn start<'a>(
    peer: Peer,
    work: &Work<'_>,
    machine: &Machine<'_>,
    terms: Terms<'a>,
) -> anyhow::Result<Session<'a>> {
    let mut command = sides::contained();
    command.arg(program(peer).0);
    if peer != Peer::Gvisor {
        // gVisor's sandbox would look for it in its own root.
        command.env("TMPDIR", machine.temporary);
    }
    command.args(match peer {
        Peer::Uml => uml(work, machine),
        Peer::Qemu => qemu(work, machine)?,
        Peer::Gvisor => gvisor(work, machine)?,
    });
    let name = System::Peer(peer).name();
    if peer == Peer::Gvisor {
        return Session::start(name, command, End::Namespaces, terms);
    }
    // Init is a shell at a console.
    let mut session = Session::at_console(name, command, PROMPT, "bench typing", terms)?;
    let driver = DRIVER.replace('\'', r"'\''");
    let input = input(peer, work);
    let driver = format!("{MOUNTS}{input}\nexec /bin/bash -c '{driver}'\n");
    session.type_in(&driver)?;
    Ok(session)
}

/// For init: no prompt, and no echo. The words are apart so that their echo is not the answer.
const PROMPT: &str = "PS1= PS2=; stty raw -echo; echo bench 'typing'\n";

/// What the agent of a machine does.
const MOUNTS: &str = "mount -t proc proc /proc; mount -t sysfs sysfs /sys; mkdir -p /dev/shm; \
    for dir in /dev/shm /tmp /run; do mount -t tmpfs -o mode=1777 tmpfs $dir; done; \
    ip link set lo up";

/// The file of `/mnt` is the second disk, for tar to read.
fn input(peer: Peer, work: &Work<'_>) -> String {
    let disk = if peer == Peer::Uml { "ubdb" } else { "vdb" };
    match work.mnt {
        Some(_) => format!("; mount -t tmpfs tmpfs /mnt; ln -s /dev/{disk} /mnt/{LINUX}"),
        None => String::new(),
    }
}

fn uml(work: &Work<'_>, machine: &Machine<'_>) -> Vec<OsString> {
    // Its output is in a file of its own.
    let mut disk = OsString::from("ubd0=");
    disk.push(machine.temporary.join("uml.cow"));
    disk.push(",");
    disk.push(&work.root.guest);
    let mut folder = OsString::from("uml_dir=");
    folder.push(machine.temporary);
    let memory = format!("mem={}M", machine.memory_mib);
    let words = [
        &memory,
        "root=/dev/ubda",
        "rw",
        "init=/bin/sh",
        "quiet",
        "con=null",
        "con0=fd:0,fd:1",
        "ssl=null",
    ];
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    words.extend([disk, folder]);
    if let Some(mnt) = work.mnt {
        let mut second = OsString::from("ubd1r=");
        second.push(mnt.join(LINUX));
        words.push(second);
    }
    words
}

/// The command line of a kernel in QEMU.
const LINE: &str = "console=ttyS0 quiet root=/dev/vda rw init=/bin/sh";

fn qemu(work: &Work<'_>, machine: &Machine<'_>) -> anyhow::Result<Vec<OsString>> {
    let kernel = match machine.kernel {
        // The kernel's file for bare metal is in the same folder.
        Some(file) => file.with_file_name("bzImage"),
        None => kernel::locate_or_build()?.bzimage,
    };
    // A machine has the image open, too, and nothing writes to it.
    let mut disk =
        OsString::from("format=raw,if=virtio,snapshot=on,file.locking=off,file.filename=");
    disk.push(name(&work.root.guest)?);
    let (memory, cpus) = (machine.memory_mib.to_string(), machine.vcpus.to_string());
    let machine = "-machine q35 -accel tcg,thread=multi -cpu max -display none -vga none \
        -serial stdio -nodefaults -no-user-config -no-reboot";
    let mut words: Vec<OsString> = machine.split_whitespace().map(OsString::from).collect();
    words.extend(["-m", &memory, "-smp", &cpus, "-append", LINE, "-kernel"].map(OsString::from));
    words.extend([kernel.into_os_string(), "-drive".into(), disk]);
    if let Some(mnt) = work.mnt {
        let file = mnt.join(LINUX);
        let second = format!(
            "format=raw,if=virtio,readonly=on,file.locking=off,file.filename={}",
            name(&file)?
        );
        words.extend(["-drive".into(), second.into()]);
    }
    Ok(words)
}

fn gvisor(work: &Work<'_>, machine: &Machine<'_>) -> anyhow::Result<Vec<OsString>> {
    let mut words: Vec<OsString> = vec!["--root".into()];
    words.push(machine.temporary.join("runsc").into_os_string());
    if !rustix::process::geteuid().is_root() {
        words.push("--rootless".into());
    }
    words.extend(["--network=none", "do", "-cwd", "/", "-root"].map(OsString::from));
    words.push(work.root.folder.clone().into_os_string());
    let driver = format!("mkdir -p /dev/shm\n{DRIVER}");
    words.extend(["/bin/bash", "-c", &driver].map(OsString::from));
    Ok(words)
}

/// A path without characters that mean something to QEMU.
fn name(path: &Path) -> anyhow::Result<&str> {
    let name = path.to_str().context("a path that is not UTF-8")?;
    if name.contains(',') {
        bail!("{name}: a path with a comma cannot be a disk of QEMU");
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::super::description;
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchApps,
    }

    #[test]
    fn a_peer_that_is_not_there_is_named() {
        let (found, missing) = present(&[]);
        assert!(found.is_empty() && missing.is_empty());
        for peer in [Peer::Uml, Peer::Qemu, Peer::Gvisor] {
            let (found, missing) = present(&[peer]);
            let there = find(program(peer).0).is_some();
            assert_eq!(
                (found.len(), missing.len()),
                (there.into(), (!there).into())
            );
            assert!(missing.iter().all(|line| line.contains("Debian: package ")));
        }
    }

    #[test]
    fn a_machine_without_a_guess_of_a_card_is_one_over_venet() {
        let of = |name: &str| System::of_name(name).unwrap();
        for name in ["paravane", "venet", "vblk", "uml", "without costs"] {
            assert_eq!((of(name).name(), of(name).base()), (name, System::Paravane));
        }
        assert_eq!(System::of_name("kvm"), None);
        let system = of("without card-looks");
        assert_eq!((system.base(), system.has_bus()), (System::Venet, true));
        assert!(of("vblk").has_bus() && !of("without tx-delay").has_bus());
        // The machine with which it is compared is always there, and before it.
        let apps = description::all().unwrap();
        let words = ["apps", "--ablate=card-looks,tx-delay"];
        let args = Line::parse_from(words).args;
        let names = |place| {
            let group = Group::of(&apps, "nginx", place, 1);
            let systems = systems(&args, &group).unwrap().into_iter();
            systems.map(System::name).collect::<Vec<_>>()
        };
        assert_eq!(
            names(Place::Publish),
            [
                "paravane",
                "venet",
                "without card-looks",
                "without tx-delay"
            ]
        );
        assert_eq!(names(Place::Rootfs), ["paravane"]);
    }

    #[test]
    fn paths_that_qemu_would_split_are_refused() {
        assert_eq!(name(Path::new("/a/b.ext4")).unwrap(), "/a/b.ext4");
        assert!(name(Path::new("/a,b")).is_err());
    }
}
