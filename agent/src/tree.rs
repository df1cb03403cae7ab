// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files to and from the monitor (`paravane cp`), as a tar archive on standard output or input.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufReader, BufWriter};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use tar::Archive;

/// Writes the file or directory tree at `path` to standard output.
pub fn pack(path: &Path) -> io::Result<()> {
    let output = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    paravane_agent_protocol::tree::pack(path, output, &mut |path| {
        eprintln!(
            "{}: neither a file, a directory nor a link: left out",
            path.display()
        );
    })
}

/// Unpacks standard input: into `to` if that is a directory, otherwise under the name `to`.
pub fn unpack(to: &Path) -> io::Result<()> {
    let within =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", to.display()));
    let (folder, name) = if to.is_dir() {
        (to, None)
    } else {
        let parent = to
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("/"));
        fs::metadata(parent).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", parent.display()))
        })?;
        (parent, to.file_name())
    };
    let mut archive = Archive::new(BufReader::with_capacity(64 << 10, io::stdin().lock()));
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = renamed(&entry.path()?, name)?;
        let target = folder.join(path);
        // Replaces what exists, except that a directory is merged into a directory.
        if let Ok(old) = fs::symlink_metadata(&target).map(|old| old.file_type()) {
            if !old.is_dir() && !old.is_file() && !old.is_symlink() {
                let why = "a device, FIFO or socket is not replaced";
                return Err(io::Error::other(format!("{}: {why}", target.display())));
            }
            if !old.is_dir() {
                fs::remove_file(&target).map_err(within)?;
            }
        }
        entry.unpack(&target).map_err(|error| {
            // The archive's error names the file only. The system's is its source.
            let cause = error.get_ref().and_then(|error| error.source());
            let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
            io::Error::new(
                error.kind(),
                format!("{}: {error}{cause}", target.display()),
            )
        })?;
    }
    Ok(())
}

/// A path of the archive with its first component replaced. It cannot lead out of the directory.
fn renamed(path: &Path, first: Option<&OsStr>) -> io::Result<PathBuf> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            _ => return Err(io::Error::other("a path in the archive leads outside")),
        }
    }
    if let (Some(name), Some(part)) = (first, parts.first_mut()) {
        *part = name;
    }
    if parts.is_empty() || parts.iter().any(|part| part.as_bytes().contains(&0)) {
        return Err(io::Error::other("invalid path in the archive"));
    }
    Ok(parts.iter().collect())
}
