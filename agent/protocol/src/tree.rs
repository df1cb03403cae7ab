// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files on their way between host and guest (`paravane cp`): a tar archive on a command's standard output or input.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use tar::Builder;

/// Writes what is at `path`, under its own name, as an archive. `left_out` hears of what is neither file, folder nor link.
///
/// # Errors
/// What cannot be read or written, and which it was.
pub fn pack(path: &Path, output: impl Write, left_out: &mut dyn FnMut(&Path)) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::other(format!("{}: it has no name to be copied by", path.display())))?;
    let mut builder = Builder::new(output);
    builder.follow_symlinks(false);
    builder.sparse(false);
    add(&mut builder, path, Path::new(name), left_out)?;
    builder.into_inner()?.flush()
}

fn add(builder: &mut Builder<impl Write>, path: &Path, name: &Path, left_out: &mut dyn FnMut(&Path)) -> io::Result<()> {
    let within = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let kind = fs::symlink_metadata(path).map_err(within)?.file_type();
    if kind.is_dir() {
        builder.append_path_with_name(path, name).map_err(within)?;
        let mut inner: Vec<_> = fs::read_dir(path).map_err(within)?.collect::<io::Result<_>>()?;
        inner.sort_by_key(fs::DirEntry::file_name);
        for entry in inner {
            add(builder, &entry.path(), &name.join(entry.file_name()), left_out)?;
        }
    } else if kind.is_file() || kind.is_symlink() {
        builder.append_path_with_name(path, name).map_err(within)?;
    } else {
        left_out(path);
    }
    Ok(())
}
