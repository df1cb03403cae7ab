// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds an image of a Debian release.

use super::apt;
use anyhow::{Context, bail};
use clap::ValueEnum;
use paravane_user_io::progress::Progress;
use paravane_user_io::signals::Signals;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Packages that systemd needs for a clean start, and a network that configures itself.
const PACKAGES: [&str; 6] = [
    "systemd-sysv",
    "systemd-resolved",
    "dbus",
    "udev",
    "iproute2",
    "ca-certificates",
];

/// The time that a tool has for cleaning up when it must end.
const TIDYING: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

/// The folder from which an ext4 image is made, and the image, below the folder of the work.
pub(super) const ROOT: &str = "root";
pub(super) const IMAGE: &str = "root.ext4";

/// A file system with fewer free bytes counts as full.
const FULL: u64 = 1 << 20;

/// Configures every Ethernet interface by DHCP.
const NETWORK: &str = "[Match]\\nName=en* eth*\\n[Network]\\nDHCP=yes\\n";

/// Creates the machine's own host keys when sshd first starts. The image contains none.
const HOST_KEYS: &str = "[Unit]\\nDescription=SSH host keys\\n\
                         ConditionPathExists=/usr/bin/ssh-keygen\\n\
                         Before=ssh.service ssh.socket\\n[Service]\\nType=oneshot\\n\
                         RemainAfterExit=yes\\n\
                         ExecStart=/usr/bin/ssh-keygen -A\\n[Install]\\n\
                         WantedBy=ssh.service ssh.socket\\n";

/// The format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A writable file system; unused blocks take no space
    Ext4,
    /// Compressed and read-only
    Squashfs,
    /// A tar archive
    Tar,
}

/// What to build.
#[derive(Debug)]
pub struct Request<'a> {
    /// Debian's name of the release, such as `bookworm`.
    pub suite: &'a str,
    /// Packages besides those that every image contains.
    pub include: &'a [String],
    /// Total size of an ext4 file system, in MiB.
    pub size: u32,
    /// The format of the image.
    pub format: Format,
    /// The file to create.
    pub file: &'a Path,
}

/// Builds the image, or leaves no files. A signal in `signals` ends the tools, too.
pub fn build(request: &Request<'_>, signals: &Signals) -> anyhow::Result<()> {
    check(request)?;
    let folder = match request.file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Work beside the result: that file system needs the space anyway, and a complete file can be
    // renamed there.
    let work = tempfile::Builder::new()
        .prefix(".paravane-image-")
        .tempdir_in(folder)
        .with_context(|| format!("{}: cannot be written to", folder.display()))?;
    let result = make(request, work.path(), signals)?;
    File::open(&result)
        .and_then(|f| f.sync_all())
        .context("the image cannot be written to disk")?;
    fs::rename(&result, request.file)
        .with_context(|| format!("{}: cannot be written", request.file.display()))
}

/// Makes a file system in a folder, and returns its file. Beside an ext4 image the folder [`ROOT`]
/// has the same files.
pub(super) fn make(
    request: &Request<'_>,
    work: &Path,
    signals: &Signals,
) -> anyhow::Result<PathBuf> {
    let progress = Progress::new("making a Debian");
    let archive = work.join("root.tar");
    let made =
        bootstrap(request, &archive, &progress, signals).and_then(|()| match request.format {
            Format::Tar => Ok(archive),
            Format::Squashfs => squash(&archive, work, &progress, signals),
            Format::Ext4 => ext4(request, &archive, work, &progress, signals),
        });
    match made {
        // The messages of the tools do not name this cause.
        Err(_) if is_full(work) => {
            let folder = work.parent().unwrap_or(work);
            bail!("{}: no space left on its file system", folder.display())
        }
        other => other,
    }
}

/// Reports whether a folder's file system is almost full.
fn is_full(folder: &Path) -> bool {
    rustix::fs::statvfs(folder)
        .is_ok_and(|there| there.f_bavail.saturating_mul(there.f_frsize) < FULL)
}

pub(super) fn check(request: &Request<'_>) -> anyhow::Result<()> {
    let name = |text: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "+-._:".contains(c);
        !text.is_empty() && !text.starts_with('-') && text.chars().all(plain)
    };
    if !name(request.suite) {
        bail!(
            "{:?} is no name of a Debian release (such as bookworm)",
            request.suite
        );
    }
    if let Some(bad) = request.include.iter().find(|p| !name(p)) {
        bail!("{bad:?} is not a package name");
    }
    if request.file.is_dir() {
        bail!(
            "{} is a directory: name the file to make",
            request.file.display()
        );
    }
    let mut needed = vec![("mmdebstrap", "mmdebstrap"), ("tar", "tar")];
    match request.format {
        Format::Ext4 => needed.push(("mke2fs", "e2fsprogs")),
        Format::Squashfs => needed.push(("sqfstar", "squashfs-tools")),
        Format::Tar => {}
    }
    if request.format == Format::Ext4 && !is_root() {
        needed.push(("fakeroot", "fakeroot"));
    }
    let missing: Vec<&str> = needed
        .iter()
        .filter(|(p, _)| find(p).is_none())
        .map(|(_, package)| *package)
        .collect();
    if !missing.is_empty() {
        bail!("missing: {0}: apt-get install {0}", missing.join(" "));
    }
    Ok(())
}

/// The mode in which mmdebstrap works in the new root. As root it chooses the mode itself.
fn mode() -> anyhow::Result<Option<&'static str>> {
    if is_root() {
        return Ok(None);
    }
    // Creates the user namespaces that it needs, and does nothing in them.
    let mut trial = program("mmdebstrap");
    trial
        .args(["--unshare-helper", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if trial.status().is_ok_and(|status| status.success()) {
        return Ok(Some("--mode=unshare"));
    }
    if find("fakechroot").is_some() {
        return Ok(Some("--mode=fakechroot"));
    }
    bail!(
        "an ordinary user needs fakechroot for this (apt-get install fakechroot), or user \
         namespaces with \
         ids of one's own (the package uidmap, a line in /etc/subuid and one in /etc/subgid)"
    )
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Finds a program in PATH, or in the folders for system programs, which an ordinary user's PATH
/// may lack.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(more)
        .map(|d| d.join(program))
        .find(|p| p.is_file())
}

fn program(name: &str) -> Command {
    let mut command = Command::new(find(name).unwrap_or_else(|| PathBuf::from(name)));
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// Creates the archive of the whole root.
fn bootstrap(
    request: &Request<'_>,
    archive: &Path,
    progress: &Progress,
    signals: &Signals,
) -> anyhow::Result<()> {
    let packages: Vec<&str> = PACKAGES
        .into_iter()
        .chain(request.include.iter().map(String::as_str))
        .collect();
    let mode = mode()?;
    let mut command = program("mmdebstrap");
    command
        .args(mode)
        .arg("--variant=important")
        .arg("--format=tar")
        .arg(format!("--include={}", packages.join(",")));
    for option in apt::options() {
        command.arg(format!("--aptopt={option}"));
    }
    let hooks = [
        r#"echo paravane > "$1/etc/hostname""#.to_string(),
        // The kernel has already mounted the root.
        r#": > "$1/etc/fstab""#.to_string(),
        format!(r#"printf '{NETWORK}' > "$1/etc/systemd/network/80-dhcp.network""#),
        r#"chroot "$1" systemctl enable systemd-networkd >/dev/null 2>&1"#.to_string(),
        format!(
            r#"[ ! -e "$1/usr/sbin/sshd" ] || {{
                printf '{HOST_KEYS}' > "$1/etc/systemd/system/ssh-host-keys.service"
                chroot "$1" systemctl enable ssh-host-keys.service >/dev/null 2>&1
            }}"#
        ),
        // All machines of the image would otherwise share them.
        r#"rm -f "$1/etc/machine-id" "$1"/etc/ssh/ssh_host_*; : > "$1/etc/machine-id""#.to_string(),
    ];
    for hook in hooks {
        command.arg(format!("--customize-hook={hook}"));
    }
    command
        .arg(request.suite)
        .arg(archive)
        .args(apt::sources(request.suite));
    run(command, "mmdebstrap", "making a Debian", progress, signals)
}

fn squash(
    archive: &Path,
    work: &Path,
    progress: &Progress,
    signals: &Signals,
) -> anyhow::Result<PathBuf> {
    let image = work.join("root.squashfs");
    let mut command = program("sqfstar");
    command
        .args(["-quiet", "-no-progress", "-comp", "zstd"])
        .arg(&image)
        .stdin(File::open(archive)?);
    run(
        command,
        "sqfstar",
        "making the file system",
        progress,
        signals,
    )?;
    Ok(image)
}

fn ext4(
    request: &Request<'_>,
    archive: &Path,
    work: &Path,
    progress: &Progress,
    signals: &Signals,
) -> anyhow::Result<PathBuf> {
    let image = work.join(IMAGE);
    // One shell runs both commands, so that one fakeroot serves both: the second reads the owners
    // that the first sets.
    let script = r#"set -e
        mkdir "$2"
        tar -x --numeric-owner $5 -p -C "$2" -f "$1"
        rm -f "$1"
        exec "$6" -q -F -t ext4 -L root -m 1 -E lazy_itable_init=1,lazy_journal_init=1 \
            -d "$2" "$3" "$4""#;
    let mut command = if is_root() {
        program("sh")
    } else {
        program("fakeroot")
    };
    if !is_root() {
        command.arg("sh");
    }
    // Only root can set file capabilities.
    let attributes = if is_root() {
        "--xattrs --xattrs-include=*"
    } else {
        ""
    };
    command
        .args(["-c", script, "sh"])
        .arg(archive)
        .arg(work.join(ROOT))
        .arg(&image);
    command
        .arg(format!("{}M", request.size))
        .arg(attributes)
        .arg(find("mke2fs").unwrap_or_default());
    run(
        command,
        "mke2fs",
        "making the file system",
        progress,
        signals,
    )?;
    Ok(image)
}

/// Runs a tool and shows its progress. On failure the error has the tool's message ([`listen`]).
fn run(
    mut command: Command,
    name: &str,
    stage: &str,
    progress: &Progress,
    signals: &Signals,
) -> anyhow::Result<()> {
    progress.step(stage);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // The tool may signal its whole group, which must not contain this process.
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let group = Pid::from_child(&child);
    let said = std::thread::scope(|scope| {
        // Closed when all processes with the tool's stderr have ended. Until then the group's
        // number is not reused.
        let (ended, over) = UnixStream::pair()?;
        scope.spawn(move || end_when_asked(group, signals, &over));
        let said = child
            .stderr
            .take()
            .map(|pipe| listen(pipe, stage, progress))
            .transpose();
        drop(ended);
        said
    });
    let status = child
        .wait()
        .with_context(|| format!("{name} cannot be waited for"))?;
    let last = said
        .context("cannot read its messages")?
        .unwrap_or_default();
    if !status.success() {
        bail!("{name} failed ({status}): {last}");
    }
    Ok(())
}

/// Interrupts all processes of a tool on a signal, as a terminal does, so that they clean up.
/// mmdebstrap's first process ends after the others. fakeroot ends its server on SIGINT, but not on
/// SIGTERM. After a timeout the processes are killed.
fn end_when_asked(group: Pid, signals: &Signals, over: &UnixStream) {
    let ready = |files: &mut [PollFd<'_>], time: Option<&Timespec>| loop {
        match rustix::event::poll(files, time) {
            Err(Errno::INTR) => {}
            other => break other.unwrap_or(0) > 0,
        }
    };
    let over = || PollFd::new(over, PollFlags::IN);
    ready(
        &mut [
            PollFd::from_borrowed_fd(signals.wake(), PollFlags::IN),
            over(),
        ],
        None,
    );
    if signals.pending().is_none() {
        return;
    }
    // Both calls fail if the processes have just ended.
    let _ = kill_process_group(group, Signal::INT);
    if !ready(&mut [over()], Some(&TIDYING)) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Shows a tool's progress messages. Returns its first error with the message before it, which may
/// be that of a program that the tool ran (`tar: ...`, `E: tar failed`). Without an error, returns
/// its last message.
fn listen(pipe: impl Read, stage: &str, progress: &Progress) -> io::Result<String> {
    let mut last = String::new();
    // Whether the last message came after the last line of progress.
    let mut recent = false;
    for line in BufReader::new(pipe).lines() {
        let line = paravane_user_io::text::clean(line?.as_bytes());
        if let Some(step) = line.strip_prefix("I: ") {
            progress.step(&format!("{stage}: {step}"));
            recent = false;
        } else if !last.starts_with("E: ") {
            last = if recent && line.starts_with("E: ") {
                format!("{line}: {last}")
            } else {
                line
            };
            recent = true;
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(suite: &str, include: &[&str], file: &Path) -> String {
        let include: Vec<String> = include.iter().map(ToString::to_string).collect();
        let request = Request {
            suite,
            include: &include,
            size: 1024,
            format: Format::Tar,
            file,
        };
        build(&request, &Signals::install().unwrap())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn what_is_no_name_never_reaches_a_program() {
        let file = Path::new("/nonexistent/x");
        for bad in ["", "--help", "a b", "a;b", "../x"] {
            assert!(
                refuse(bad, &[], file).contains("no name of a Debian release"),
                "{bad}"
            );
            assert!(
                refuse("bookworm", &["hello", bad], file).contains("not a package name"),
                "{bad}"
            );
        }
        assert!(refuse("bookworm", &[], Path::new("/tmp")).contains("is a directory"));
    }

    #[test]
    fn an_error_has_the_words_of_the_program_that_failed() {
        let cases = [
            ("I: a\nW: b\nc\nI: d\n", "c"),
            ("W: b\nI: a\nE: no\nE: more\nI: tidy\n", "E: no"),
            (
                "W: b\ntar: x: changed\nE: tar failed: 256\nI: tidy\n",
                "E: tar failed: 256: tar: x: changed",
            ),
            ("", ""),
        ];
        let progress = Progress::new("test");
        for (text, expected) in cases {
            assert_eq!(listen(text.as_bytes(), "", &progress).unwrap(), expected);
        }
    }
}
