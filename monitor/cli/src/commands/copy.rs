// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane cp`: copies files into a running machine, and out of it.
//!
//! The guest's side is the agent's program, which `exec` starts and which packs and unpacks. Data
//! from a guest is hostile: only the one requested name is changed ([`paravane_images::unpack`]),
//! no link from a guest is followed, now or on a later copy, and no file becomes setuid or setgid.

use super::far::{Far, Stream};
use crate::arguments;
use anyhow::{Context, bail};
use paravane_agent_protocol::tree::pack;
use paravane_images::unpack::{Rules, Tree};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, renameat, statat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufWriter};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Limits of one copy from a guest: files, and bytes.
const ENTRIES: u64 = 4_000_000;
const BYTES: u64 = 1 << 40;

/// Runs the command.
pub fn run(args: &arguments::Cp) -> anyhow::Result<Outcome> {
    if args.from == "-" || args.to == "-" {
        bail!(
            "-: a stream cannot be copied: `paravane exec NAME -- tar -c PATH` prints an archive \
             (./- is a file)"
        );
    }
    // Their default action would leave the temporary folder.
    let signals = Signals::install().context("cannot handle signals")?;
    let copied = match (in_machine(&args.from), in_machine(&args.to)) {
        (Some((name, path)), None) => out(name, path, Path::new(&args.to), &signals),
        (None, Some((name, path))) => into(Path::new(&args.from), name, path, &signals),
        (Some(_), Some(_)) => bail!("both are in a machine: copy to this host first"),
        (None, None) => bail!("neither is in a machine: write NAME:PATH for a path in a machine"),
    };
    match (copied, signals.pending()) {
        (Ok(()), _) => Ok(Outcome::Passed),
        (Err(_), Some(signal)) => Ok(Outcome::Interrupted(signal)),
        (Err(error), None) => Err(error),
    }
}

/// Splits `NAME:PATH`. A path of the host that contains a colon has a slash before it.
fn in_machine(word: &str) -> Option<(&str, &str)> {
    word.split_once(':')
        .filter(|(name, _)| !name.is_empty() && !name.contains('/'))
}

/// Starts the guest's side of a copy, whose archive is its output or its input.
fn far(name: &str, archive: Stream, path: &str, signals: &Signals) -> anyhow::Result<Far> {
    let option = match archive {
        Stream::Output => "--pack",
        Stream::Input => "--unpack",
    };
    let far = Far::start(name, archive, || {
        if !path.starts_with('/') {
            bail!("{name}:{path}: the path in the machine must be absolute");
        }
        Ok([option, path])
    })?;
    far.ends_with(signals)?;
    Ok(far)
}

/// Copies out of a machine.
fn out(machine: &str, path: &str, to: &Path, signals: &Signals) -> anyhow::Result<()> {
    let Some(base) = Path::new(path).file_name() else {
        bail!("{machine}:{path}: this path has no name: name a file or folder");
    };
    let (folder, name) = target(to, base)?;
    let last = folder.join(&name);
    let complain = || last.display().to_string();
    let place = Place::open(&folder, &name)?;
    let rules = Rules {
        entries: ENTRIES,
        bytes: BYTES,
        mode: 0o777,
        layer: false,
        first: Some((base.to_os_string(), place.first())),
    };
    let mut tree = Tree::at(place.root().try_clone().with_context(complain)?, rules);
    let mut far = far(machine, Stream::Output, path, signals)?;
    let archive = far
        .child
        .stdout
        .take()
        .context("no stream from the machine")?;
    if let Err(error) = tree.apply(archive) {
        far.give_up();
        return Err(error.context(format!("from machine {machine}")));
    }
    far.finish().with_context(|| format!("machine {machine}"))?;
    place.finish(&name).with_context(complain)
}

/// Where files from a machine are unpacked.
enum Place {
    /// Into the existing folder of this name.
    Merged(OwnedFd),
    /// Beside the target, which is replaced when everything is complete.
    Beside {
        /// The target's parent folder.
        above: OwnedFd,
        /// The temporary folder, removed when this value is dropped.
        _folder: TempDir,
        /// A descriptor of the temporary folder.
        root: OwnedFd,
    },
}

/// The target's name in the temporary folder.
const NEW: &str = "new";

impl Place {
    fn open(folder: &Path, name: &OsStr) -> anyhow::Result<Self> {
        let complain = || folder.display().to_string();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = rustix::fs::open(folder, flags, Mode::empty()).with_context(complain)?;
        match openat(&above, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(root) => return Ok(Place::Merged(root)),
            // Nothing, a file or a link: it is replaced.
            Err(Errno::NOENT | Errno::LOOP) => {}
            Err(Errno::NOTDIR) => {
                let there = statat(&above, name, AtFlags::SYMLINK_NOFOLLOW);
                let kind = there.with_context(complain)?.st_mode;
                if FileType::from_raw_mode(kind) != FileType::RegularFile
                    && FileType::from_raw_mode(kind) != FileType::Symlink
                {
                    bail!(
                        "{}: a device, FIFO or socket is not replaced",
                        folder.join(name).display()
                    );
                }
            }
            Err(error) => {
                return Err(error).with_context(|| folder.join(name).display().to_string());
            }
        }
        let beside = tempfile::Builder::new()
            .prefix(".paravane-cp-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(folder);
        let beside =
            beside.with_context(|| format!("{}: cannot be written to", folder.display()))?;
        let own = beside.path().file_name().context("no name")?;
        let root =
            openat(&above, own, flags | OFlags::NOFOLLOW, Mode::empty()).with_context(complain)?;
        Ok(Place::Beside {
            above,
            root,
            _folder: beside,
        })
    }

    fn root(&self) -> &OwnedFd {
        match self {
            Place::Merged(root) | Place::Beside { root, .. } => root,
        }
    }

    /// What replaces the first part of each name.
    fn first(&self) -> Option<OsString> {
        match self {
            Place::Merged(_) => None,
            Place::Beside { .. } => Some(NEW.into()),
        }
    }

    /// Moves the complete result to its name.
    fn finish(self, name: &OsStr) -> io::Result<()> {
        match self {
            Place::Merged(_) => Ok(()),
            Place::Beside { above, root, .. } => match renameat(&root, NEW, &above, name) {
                Err(Errno::NOENT) => Err(io::Error::other("the machine sent nothing")),
                done => Ok(done?),
            },
        }
    }
}

/// The folder and the name for something called `base`: inside of `to` if that is a folder, else
/// `to` itself.
///
/// A link to a folder is followed only if a slash follows it: an earlier copy may have brought the
/// link out of a machine.
fn target(to: &Path, base: &OsStr) -> anyhow::Result<(PathBuf, std::ffi::OsString)> {
    let complain = || to.display().to_string();
    let folder = to.as_os_str().as_bytes().ends_with(b"/");
    let to = std::path::absolute(to).with_context(complain)?;
    if to.is_dir() {
        if !folder
            && fs::symlink_metadata(&to)
                .with_context(complain)?
                .is_symlink()
        {
            bail!(
                "{0}: it is a link to a folder: write {0}/ to copy into that",
                to.display()
            );
        }
        return Ok((to, base.to_os_string()));
    }
    if folder && fs::symlink_metadata(&to).is_ok() {
        bail!("{}: it is not a folder", to.display());
    }
    match (to.parent(), to.file_name()) {
        (Some(parent), Some(name)) if parent.is_dir() => {
            Ok((parent.to_path_buf(), name.to_os_string()))
        }
        (Some(parent), _) => bail!("{}: there is no such folder", parent.display()),
        _ => bail!("{}: not a valid name for a file", to.display()),
    }
}

/// Copies into a machine.
fn into(from: &Path, machine: &str, path: &str, signals: &Signals) -> anyhow::Result<()> {
    let from = std::path::absolute(from).with_context(|| from.display().to_string())?;
    fs::symlink_metadata(&from).with_context(|| from.display().to_string())?;
    let mut far = far(machine, Stream::Input, path, signals)?;
    let input = far.child.stdin.take().context("no stream to the machine")?;
    let sent = pack(
        &from,
        BufWriter::with_capacity(64 << 10, input),
        &mut |path| {
            eprintln!(
                "paravane: {}: not a file, folder or link: left out",
                path.display()
            );
        },
    );
    match sent {
        Ok(()) => {}
        // The guest's side reports the reason.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        Err(error) => {
            far.give_up();
            return Err(error.into());
        }
    }
    far.finish().with_context(|| format!("machine {machine}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_machine() {
        assert_eq!(in_machine("web:/etc"), Some(("web", "/etc")));
        assert_eq!(in_machine("web:a:b"), Some(("web", "a:b")));
        for here in ["/a:b", "./a:b", "a", ":a"] {
            assert_eq!(in_machine(here), None, "{here}");
        }
    }

    #[test]
    fn targets() {
        let folder = tempfile::tempdir().unwrap();
        let (base, path) = (OsStr::new("x"), folder.path());
        assert_eq!(
            target(path, base).unwrap(),
            (path.to_path_buf(), "x".into())
        );
        assert_eq!(
            target(&path.join("y"), base).unwrap(),
            (path.to_path_buf(), "y".into())
        );
        assert!(
            target(&path.join("no/y"), base)
                .unwrap_err()
                .to_string()
                .contains("no such folder")
        );
    }
}
