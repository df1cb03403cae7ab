// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds Linux' source: a given one, the installed package, or one fetched from the distribution.

use super::cache::Cache;
use super::tools::last_words;
use anyhow::{Context, bail};
use paravane_user_io::progress::{Progress, Total, Unit};
use paravane_user_io::text::hex;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Debian's package. Its tarball has the same name.
const PACKAGE: &str = "linux-source-6.12";
const TARBALL: &str = "linux-source-6.12.tar.xz";
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
                _ => fetch(cache, progress)?,
            }
        }
    };
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

/// Downloads Debian's package with apt and unpacks it. This needs no root.
fn fetch(cache: &Cache, progress: &Progress) -> anyhow::Result<PathBuf> {
    let folder = cache.sources();
    let part = folder.join("part");
    let complain = || format!("cannot write to {}", folder.display());
    if part.exists() {
        fs::remove_dir_all(&part).with_context(complain)?;
    }
    fs::create_dir_all(&part).with_context(complain)?;
    progress.step(&format!("fetching {PACKAGE}"));
    progress.count(Unit::Bytes, Total::Unknown);
    let mut child = Command::new("apt-get")
        .args(["-q", "download", PACKAGE])
        .current_dir(&part)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context(
            "no source of Linux 6.12 was found, and there is no apt-get to fetch it: give a \
             tarball with --source",
        )?;
    while child.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_millis(200));
        let bytes: u64 = fs::read_dir(&part)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some(entry.metadata().ok()?.len()))
            .sum();
        progress.done(bytes);
    }
    let output = child.wait_with_output()?;
    let package = fs::read_dir(&part)
        .with_context(complain)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "deb"));
    let (true, Some(package)) = (output.status.success(), package) else {
        bail!(
            "cannot fetch {PACKAGE} ({}): check the network and run apt-get update, or give a \
             tarball with --source",
            last_words("apt-get", &output.stderr)
        );
    };
    progress.step(&format!("unpacking {PACKAGE}"));
    let output = Command::new("dpkg-deb")
        .arg("--extract")
        .arg(&package)
        .arg(part.join("root"))
        .output()
        .context("cannot run dpkg-deb")?;
    if !output.status.success() {
        bail!(
            "cannot unpack {}: {}",
            package.display(),
            last_words("dpkg-deb", &output.stderr)
        );
    }
    let tarball = folder.join(TARBALL);
    fs::rename(part.join("root/usr/src").join(TARBALL), &tarball)
        .with_context(|| format!("{} has no {TARBALL}", package.display()))?;
    fs::remove_dir_all(&part).with_context(complain)?;
    Ok(tarball)
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
