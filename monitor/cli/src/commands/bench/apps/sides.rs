// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How each side of a measurement is started: the same root on the host and in a machine.

use super::session::{DRIVER, End, Session, Terms};
use crate::arguments::Place;
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A root file system, for all sides.
#[derive(Clone, Debug)]
pub struct Root {
    /// A folder, for the host.
    pub folder: PathBuf,
    /// What a machine gets: an ext4 image with the same files, or the folder itself.
    pub guest: PathBuf,
}

impl Root {
    /// The path of a machine's further disk in the guest, on the virtual bus or of virtio-blk,
    /// where a root that is an image is the first one.
    pub fn next_disk(&self, bus: bool) -> &'static str {
        if bus {
            "/dev/vbd0"
        } else if self.guest.is_dir() {
            "/dev/vda"
        } else {
            "/dev/vdb"
        }
    }
}

/// Where a side finds things.
#[derive(Clone, Debug)]
pub struct Work<'a> {
    pub root: &'a Root,
    /// What is `/srv`: a folder of the host; for a machine with a disk of its own, its file.
    pub srv: &'a Path,
    /// What is `/mnt`, if anything.
    pub mnt: Option<&'a Path>,
}

/// The network of the host's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// A loopback of its own.
    Own,
    /// The host's, to reach a machine.
    Host,
}

/// Fails with what this host lacks for [`host`].
pub fn check_host() -> anyhow::Result<()> {
    let mut trial = namespaces();
    trial
        .args(["--net", "--", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let output = trial
        .output()
        .context("cannot run setsid and unshare (Debian: package util-linux)")?;
    if !output.status.success() {
        bail!(
            "the host's side needs a root of its own, by chroot or in a user namespace, and this \
             user can have neither: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// What precedes the command of each side, so that it is a session of its own: the host's scheduler
/// may share time among sessions.
fn session() -> Command {
    Command::new("setsid")
}

/// `unshare` for new namespaces. Everything in them ends with the first process. Of the user's
/// environment, which a machine does not have, only PATH is there. An ordinary user's need not have
/// the folders of chroot, mount and ip.
fn namespaces() -> Command {
    let mut command = session();
    command.env_clear();
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/sbin:/sbin");
    command.env("PATH", path);
    command.arg("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--propagation", "private"]);
    command.args(["--pid", "--fork", "--kill-child", "--ipc", "--uts"]);
    command
}

/// What precedes another program's command, so that none of its processes outlives it: those that
/// User-Mode Linux makes for programs and disks would.
pub fn contained() -> Command {
    let mut command = namespaces();
    // Not as the first process, on which its own abort() would have no effect.
    command.args(["--mount-proc", "--", "sh", "-c", "\"$@\"; exit $?", "sh"]);
    command
}

/// Starts the host's side, or another one there. Its name is for error messages.
pub fn host<'a>(
    name: &str,
    work: &Work<'_>,
    net: Net,
    terms: Terms<'a>,
) -> anyhow::Result<Session<'a>> {
    let mut command = namespaces();
    if net == Net::Own {
        command.arg("--net");
    }
    command.args(["--", "sh", "-c", include_str!("host.sh"), "sh"]);
    command.arg(&work.root.folder).arg(work.srv);
    command.arg(work.mnt.unwrap_or(Path::new("")));
    command.arg(if net == Net::Own { "own" } else { "host" });
    command.arg(DRIVER);
    Session::start(name, command, End::Namespaces, terms)
}

/// The properties of a machine.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// `None`: the kernel that `paravane run` finds.
    pub kernel: Option<&'a Path>,
    /// Further options of `paravane run`.
    pub options: &'a [String],
    /// Options of a folder of the host.
    pub volume: Option<&'a str>,
    pub place: Place,
    pub vcpus: u32,
    pub memory_mib: u32,
    /// The port of the host that leads to port 80.
    pub port: Option<u16>,
    /// With its card, or its disk, on the virtual bus.
    pub bus: bool,
    /// For what a machine writes to its root: on the same file system as the host's work.
    pub temporary: &'a Path,
    /// The folder for states in which it looks for vbusd, if not the user's.
    pub state: Option<&'a Path>,
}

/// Starts a machine.
pub fn guest<'a>(
    work: &Work<'_>,
    machine: &Machine<'_>,
    terms: Terms<'a>,
) -> anyhow::Result<Session<'a>> {
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let mut command = session();
    command.arg(program).args(options(work, machine)?);
    command.env("TMPDIR", machine.temporary);
    if let Some(state) = machine.state {
        command.env("XDG_STATE_HOME", state);
    }
    // The measured back end is the same on every host.
    command.env("PARAVANE_HYPERVISOR", "process");
    Session::start("the machine", command, End::Machine, terms)
}

/// The arguments of `paravane` for a machine.
fn options(work: &Work<'_>, machine: &Machine<'_>) -> anyhow::Result<Vec<OsString>> {
    let shared = |folder: &Path, place: &str| -> anyhow::Result<String> {
        let name = folder.to_str().filter(|name| !name.contains(':'));
        let name = name.with_context(|| {
            format!("{}: a path with a colon cannot be shared", folder.display())
        })?;
        Ok(format!("{name}:{place}"))
    };
    let mut words: Vec<OsString> = vec!["run".into()];
    let mut add = |option: &str, value: OsString| words.extend([option.into(), value]);
    add("--cpus", machine.vcpus.to_string().into());
    add("--memory", format!("{}M", machine.memory_mib).into());
    if let Some(kernel) = machine.kernel {
        add("--kernel", kernel.into());
    }
    let mut root = work.root.guest.clone().into_os_string();
    if !work.root.guest.is_dir() {
        root.push(":snapshot");
    }
    add("--rootfs", root);
    if let Some(mnt) = work.mnt {
        add("--volume", format!("{}:ro", shared(mnt, "/mnt")?).into());
    }
    let mut driver = DRIVER.to_string();
    match machine.place {
        Place::Volume => {
            let options = machine.volume.map(|option| format!(":{option}"));
            let options = options.unwrap_or_default();
            add(
                "--volume",
                format!("{}{options}", shared(work.srv, "/srv")?).into(),
            );
        }
        Place::Disk => {
            let mut file = work.srv.as_os_str().to_owned();
            if machine.bus {
                file.push(":vbus");
            }
            let disk = work.root.next_disk(machine.bus);
            add("--disk", file);
            driver = format!("mount -t ext4 {disk} /srv || exit 1\n{DRIVER}");
        }
        Place::Rootfs | Place::Publish => {}
    }
    match machine.port {
        Some(port) => add("--publish", format!("{port}:80").into()),
        None => add("--net", "none".into()),
    }
    if machine.bus && machine.port.is_some() {
        add("--net", "venet".into());
    }
    words.extend(machine.options.iter().map(OsString::from));
    words.extend(["--", "/bin/bash", "-c", &driver].map(OsString::from));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use paravane_user_io::signals::Signals;
    use rustix::fs::{FlockOperation, flock};
    use std::fs::File;
    use std::time::Duration;

    #[test]
    fn nothing_outlives_a_side() {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join("lock");
        let signals = Signals::install().unwrap();
        let terms = Terms {
            signals: &signals,
            timeout: Duration::from_secs(20),
        };
        let mut command = contained();
        // A process of another session has the lock as long as it lives.
        let script = "exec 9>\"$1\"; flock 9; setsid sleep 1000 & echo bench ready; read -r";
        command.args(["bash", "-c", script, "bash"]).arg(&lock);
        let side = Session::start("a side", command, End::Console, terms).unwrap();
        let lock = File::open(&lock).unwrap();
        let is_free = || flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        assert!(!is_free());
        drop(side);
        // They end a moment after the first process.
        for _ in 0..1000 {
            if is_free() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("a process is left");
    }

    fn words(place: Place, port: Option<u16>) -> String {
        words_with(place, port, None, false)
    }

    fn words_with(place: Place, port: Option<u16>, volume: Option<&str>, bus: bool) -> String {
        let root = Root {
            folder: "/r/root".into(),
            guest: "/r/root.ext4".into(),
        };
        let work = Work {
            root: &root,
            srv: Path::new("/w/srv"),
            mnt: Some(Path::new("/c/linux")),
        };
        let machine = Machine {
            kernel: None,
            options: &[],
            volume,
            place,
            vcpus: 2,
            memory_mib: 512,
            port,
            bus,
            temporary: Path::new("/w"),
            state: None,
        };
        let words = options(&work, &machine).unwrap();
        let line: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        line.join(" ")
    }

    #[test]
    fn a_machine_gets_what_its_place_needs() {
        let start = "run --cpus 2 --memory 512M --rootfs /r/root.ext4:snapshot \
            --volume /c/linux:/mnt:ro ";
        let rootfs = words(Place::Rootfs, None);
        assert!(
            rootfs.starts_with(&format!("{start}--net none -- /bin/bash -c ")),
            "{rootfs}"
        );
        let disk = words(Place::Disk, None);
        assert!(
            disk.starts_with(&format!("{start}--disk /w/srv --net none ")),
            "{disk}"
        );
        assert!(disk.contains(" mount -t ext4 /dev/vdb /srv || "), "{disk}");
        let volume = words(Place::Volume, None);
        assert!(volume.starts_with(&format!("{start}--volume /w/srv:/srv --net none ")));
        let slow = words_with(Place::Volume, None, Some("workers"), false);
        assert!(slow.contains(" --volume /w/srv:/srv:workers "), "{slow}");
        let published = words(Place::Publish, Some(8080));
        assert!(
            published.starts_with(&format!("{start}--publish 8080:80 -- ")),
            "{published}"
        );
        let vblk = words_with(Place::Disk, None, None, true);
        assert!(
            vblk.starts_with(&format!("{start}--disk /w/srv:vbus --net none ")),
            "{vblk}"
        );
        assert!(vblk.contains(" mount -t ext4 /dev/vbd0 /srv || "), "{vblk}");
        let venet = words_with(Place::Publish, Some(8081), None, true);
        let expected = format!("{start}--publish 8081:80 --net venet -- ");
        assert!(venet.starts_with(&expected), "{venet}");
    }
}
