// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds Linux' source: a given one, the installed package, or one fetched from the distribution.

use super::cache::Cache;
use super::debian::{self, TARBALL};
use anyhow::{Context, bail};
use paravane_user_io::progress::Progress;
use paravane_user_io::text::hex;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes for each read.
const PIECE: usize = 1 << 20;

/// The requested source.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// A tarball, or a folder that contains an unpacked one.
    At(PathBuf),
    /// Debian's package.
    Debian {
        /// Ask apt for the newest version even if one is present.
        newest: bool,
    },
}

/// A source on this host.
#[derive(Debug)]
pub struct Source {
    /// Absolute path of the tarball or folder.
    pub path: PathBuf,
    /// Hash of the contents.
    pub hash: String,
}

/// Finds the requested source. Fetches it if needed.
pub fn find(wanted: &Wanted, cache: &Cache, progress: &Progress) -> anyhow::Result<Source> {
    let path = match wanted {
        Wanted::At(path) => {
            fs::canonicalize(path).with_context(|| format!("source {}", path.display()))?
        }
        Wanted::Debian { newest } => {
            let installed = Path::new("/usr/src").join(TARBALL);
            let fetched = cache.sources().join(TARBALL);
            match (newest, installed.is_file(), fetched.is_file()) {
                (false, true, _) => installed,
                (false, false, true) => fetched,
                _ => debian::fetch(None, &cache.sources(), progress)?,
            }
        }
    };
    at(path, cache, progress)
}

/// A tarball or a folder as a source.
pub fn at(path: PathBuf, cache: &Cache, progress: &Progress) -> anyhow::Result<Source> {
    progress.step(&format!("reading {}", path.display()));
    let hash = if path.is_dir() {
        if !path.join("Makefile").is_file() {
            bail!("{}: it contains no kernel source", path.display());
        }
        hash_folder(&path)?
    } else {
        hash_tarball(&path, cache)?
    };
    Ok(Source { path, hash })
}

/// The hash of a tarball. The hash of an unchanged file is remembered.
fn hash_tarball(path: &Path, cache: &Cache) -> anyhow::Result<String> {
    let complain = || format!("source {}", path.display());
    let meta = fs::metadata(path).with_context(complain)?;
    let identity = format!(
        "{} {} {}.{} {}",
        meta.ino(),
        meta.size(),
        meta.mtime(),
        meta.mtime_nsec(),
        path.display()
    );
    let memo = cache.sources().join("hash");
    let remembered = fs::read_to_string(&memo).unwrap_or_default();
    match remembered.split_once(' ') {
        Some((hash, of)) if of == identity => return Ok(hash.to_string()),
        _ => {}
    }
    let mut file = BufReader::with_capacity(PIECE, File::open(path).with_context(complain)?);
    let mut hasher = Sha256::new();
    loop {
        let piece = file.fill_buf().with_context(complain)?;
        if piece.is_empty() {
            break;
        }
        hasher.update(piece);
        let read = piece.len();
        file.consume(read);
    }
    let hash = hex(&hasher.finalize());
    fs::create_dir_all(cache.sources())
        .and_then(|()| fs::write(&memo, format!("{hash} {identity}")))
        .with_context(|| memo.display().to_string())?;
    Ok(hash)
}

/// The hash of all files' names, contents and execute permissions.
fn hash_folder(root: &Path) -> anyhow::Result<String> {
    let mut hasher = Sha256::new();
    let mut folders = vec![root.to_path_buf()];
    let mut buffer = Vec::new();
    while let Some(folder) = folders.pop() {
        let complain = || format!("source {}", folder.display());
        let mut entries: Vec<_> = fs::read_dir(&folder)
            .with_context(complain)?
            .collect::<Result<_, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let kind = entry.file_type().with_context(complain)?;
            if entry.file_name() == ".git" {
                continue;
            }
            hasher.update(
                path.strip_prefix(root)
                    .unwrap_or(&path)
                    .as_os_str()
                    .as_encoded_bytes(),
            );
            buffer.clear();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_symlink() {
                buffer.extend_from_slice(
                    fs::read_link(&path)
                        .with_context(complain)?
                        .as_os_str()
                        .as_encoded_bytes(),
                );
            } else {
                File::open(&path)
                    .and_then(|mut file| file.read_to_end(&mut buffer))
                    .with_context(|| format!("source {}", path.display()))?;
                hasher.update([u8::from(
                    entry.metadata().with_context(complain)?.mode() & 0o111 != 0,
                )]);
            }
            hasher.update((buffer.len() as u64).to_le_bytes());
            hasher.update(&buffer);
        }
    }
    Ok(hex(&hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_hash_of_what_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a/b");
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(&file, "1").unwrap();
        let first = hash_folder(folder.path()).unwrap();
        fs::write(&file, "1").unwrap();
        assert_eq!(hash_folder(folder.path()).unwrap(), first);
        fs::write(&file, "2").unwrap();
        assert_ne!(hash_folder(folder.path()).unwrap(), first);
    }
}
