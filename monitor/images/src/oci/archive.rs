// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to the parts of a local image: a folder in OCI's layout, a tar archive of one, or an
//! archive of `docker save`.

use super::{Documents, digest};
use crate::unpack::members;
use anyhow::{Context, bail};
use oci_spec::image::Descriptor;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use tar::EntryType;

/// Largest size of an index, a manifest or a configuration, in bytes.
pub const DOCUMENT: u64 = 4 << 20;
/// Largest number of files in an archive of images.
const ENTRIES: usize = 100_000;
/// Largest sum of the lengths of their names, in bytes.
const NAMES: usize = 16 << 20;

/// A local image.
#[derive(Debug)]
pub enum Source {
    /// A folder.
    Folder(PathBuf),
    /// An archive, and the position of each file's contents in it.
    Tar {
        path: PathBuf,
        files: HashMap<String, Place>,
    },
}

/// The contents of a file in an archive.
#[derive(Clone, Debug)]
pub enum Place {
    Bytes {
        offset: u64,
        length: u64,
    },
    /// The contents of this file.
    Link(String),
}

impl Source {
    /// Opens a folder, or lists the files of an archive.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        if path.is_dir() {
            return Ok(Source::Folder(path.to_path_buf()));
        }
        // Before it is opened: the open of a pipe waits for the other end.
        if !std::fs::metadata(path)?.is_file() {
            bail!("neither a file nor a folder");
        }
        let file = File::open(path)?;
        let mut files = HashMap::new();
        let (mut entries, mut names) = (0, 0);
        members::each_in_file(BufReader::new(file), |entry| {
            entries += 1;
            if entries > ENTRIES {
                bail!("more than {ENTRIES} files: this is not an image archive");
            }
            let name = normal(&entry.path()?).context("a name in it leads outside")?;
            let place = match entry.header().entry_type() {
                EntryType::Regular | EntryType::Continuous => Place::Bytes {
                    offset: entry.raw_file_position(),
                    length: entry.size(),
                },
                // Older versions of docker save write links for identical layers.
                EntryType::Symlink | EntryType::Link => {
                    let target = entry.link_name()?.context("a link without a target")?;
                    let folder = match entry.header().entry_type() {
                        EntryType::Symlink => Path::new(&name).parent().unwrap_or(Path::new("")),
                        _ => Path::new(""),
                    };
                    match normal(&folder.join(target)) {
                        Some(target) => Place::Link(target),
                        None => return Ok(()),
                    }
                }
                _ => return Ok(()),
            };
            names += name.len();
            if let Place::Link(target) = &place {
                names += target.len();
            }
            if names > NAMES {
                bail!(
                    "names of more than {} MiB: this is not an image archive",
                    NAMES >> 20
                );
            }
            files.insert(name, place);
            Ok(())
        })?;
        Ok(Source::Tar {
            path: path.to_path_buf(),
            files,
        })
    }

    /// Reports whether a file of this name exists.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Source::Folder(folder) => folder.join(name).is_file(),
            Source::Tar { files, .. } => files.contains_key(name),
        }
    }

    /// A file's contents. `name` comes from the layout or from a document of the image.
    pub fn file(&self, name: &str) -> anyhow::Result<Box<dyn Read>> {
        let complain = || format!("the image has no {name}");
        match self {
            Source::Folder(folder) => {
                let name = normal(Path::new(name)).with_context(complain)?;
                Ok(Box::new(
                    File::open(folder.join(name)).with_context(complain)?,
                ))
            }
            Source::Tar { path, files } => {
                let mut place = files.get(&normal(Path::new(name)).with_context(complain)?);
                // Follow one link. docker save writes no links to links.
                if let Some(Place::Link(target)) = place {
                    place = files.get(target);
                }
                let Some(Place::Bytes { offset, length }) = place else {
                    bail!(complain());
                };
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(*offset))?;
                Ok(Box::new(file.take(*length)))
            }
        }
    }

    /// The contents of a document, at most [`DOCUMENT`] bytes.
    pub fn document(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name)?
            .take(DOCUMENT + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 > DOCUMENT {
            bail!("{name} is larger than {} MiB", DOCUMENT >> 20);
        }
        Ok(bytes)
    }
}

impl Documents for Source {
    fn manifest(&self, descriptor: &Descriptor) -> anyhow::Result<Vec<u8>> {
        self.document(&blob_name(descriptor.digest().as_ref())?)
    }

    fn configuration(&self, descriptor: &Descriptor) -> anyhow::Result<Vec<u8>> {
        self.manifest(descriptor)
    }
}

/// The name of a digest's blob in OCI's layout.
pub fn blob_name(wanted: &str) -> anyhow::Result<String> {
    Ok(format!("blobs/sha256/{}", digest::digits(wanted)?))
}

/// A path without `.` and `..`; `None` if it leads outside.
fn normal(path: &Path) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::ParentDir => drop(parts.pop()?),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Some(parts.join("/"))
}
