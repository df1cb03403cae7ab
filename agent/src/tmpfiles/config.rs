// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of tmpfiles.d, in their order.

use super::Complaints;
use super::tree::{Place, Tree, names};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The directories. A file in one of them hides files of the same name in later ones.
const DIRECTORIES: [&str; 5] = [
    "/etc/tmpfiles.d",
    "/run/tmpfiles.d",
    "/usr/local/lib/tmpfiles.d",
    "/usr/lib/tmpfiles.d",
    // For roots in which /lib is not a link to usr/lib.
    "/lib/tmpfiles.d",
];
const MAX_FILES: usize = 1024;
const MAX_FILE: usize = 256 << 10;
const MAX_LINES: usize = 16 << 10;
/// Size of all files together.
const MAX_BYTES: usize = 1 << 20;

/// The position of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    file: Rc<PathBuf>,
    /// From 1; 0 for the file.
    line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.file.display()),
            line => write!(f, "{}:{line}", self.file.display()),
        }
    }
}

/// The lines of all files, sorted by file name across directories.
pub fn lines(tree: &Tree, complaints: &mut Complaints) -> Vec<(Origin, Vec<u8>)> {
    let (mut all, mut bytes) = (Vec::new(), 0);
    for path in files(tree, complaints).into_values() {
        let origin = Origin {
            file: Rc::new(path),
            line: 0,
        };
        let text = match tree.read(&origin.file, MAX_FILE) {
            Ok(text) => text,
            Err(_) if is_masked(tree, &origin.file) => continue,
            Err(error) => {
                complaints.add(&origin, &format!("cannot read it: {error}"));
                continue;
            }
        };
        bytes += text.len();
        if bytes > MAX_BYTES {
            complaints.add(
                &origin,
                &format!("more than {} MiB in all files", MAX_BYTES >> 20),
            );
            return all;
        }
        for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
            if all.len() == MAX_LINES {
                complaints.add(
                    &origin,
                    &format!("more than {MAX_LINES} lines in all files"),
                );
                return all;
            }
            if !line.trim_ascii().is_empty() {
                let origin = Origin {
                    line: at + 1,
                    ..origin.clone()
                };
                all.push((origin, line.to_vec()));
            }
        }
    }
    all
}

/// The paths of all files by name.
fn files(tree: &Tree, complaints: &mut Complaints) -> BTreeMap<OsString, PathBuf> {
    let mut all = BTreeMap::new();
    for directory in DIRECTORIES.map(Path::new) {
        let Ok(open) = tree.directory(directory) else {
            continue;
        };
        let origin = Origin {
            file: Rc::new(directory.to_path_buf()),
            line: 0,
        };
        let names = names(&open).unwrap_or_else(|error| {
            complaints.add(&origin, &format!("cannot read it: {error}"));
            Vec::new()
        });
        for name in names {
            if Path::new(&name).extension() != Some(OsStr::new("conf")) {
                continue;
            }
            if all.len() == MAX_FILES {
                complaints.add(&origin, &format!("more than {MAX_FILES} files"));
                return all;
            }
            let path = directory.join(&name);
            all.entry(name).or_insert(path);
        }
    }
    all
}

/// Whether a file is a link to /dev/null, which only hides other files.
fn is_masked(tree: &Tree, path: &Path) -> bool {
    tree.place(path, false)
        .and_then(|place: Place| place.target())
        .is_ok_and(|target| target == b"/dev/null")
}
