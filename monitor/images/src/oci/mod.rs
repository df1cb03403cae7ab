// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Container images: OCI's layout (a folder, or a tar archive of one), archives of `docker save`,
//! and registries.
//!
//! An image is unpacked once into the cache, under the digest of its configuration. The
//! configuration names every layer by the digest of its contents, so a name in the cache always
//! means the same contents. Every digest is checked while data is read. If an ordinary user unpacks
//! an image, all files belong to that user, which the guest sees as root.

mod archive;
mod cache;
mod digest;
mod http;
mod process;
mod registry;
#[cfg(test)]
mod tests;

use crate::unpack::{Rules, Tree};
use anyhow::{Context, anyhow, bail};
use archive::{Source, blob_name};
pub(super) use cache::Cache;
pub use cache::Work;
use clap::ValueEnum;
use digest::Summed;
use oci_spec::distribution::Reference;
use oci_spec::image::{Arch, Descriptor, ImageConfiguration, ImageIndex, ImageManifest, Os};
use paravane_user_io::progress::{Progress, Total, Unit};
use paravane_user_io::signals::{Interrupted, Signals};
use paravane_user_io::text;
pub use process::Process;
use registry::Registry;
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Largest number of layers of an image.
const LAYERS: usize = 500;
/// Largest number of files of an image, and of bytes in them.
const ENTRIES: u64 = 4_000_000;
const BYTES: u64 = 64 << 30;
/// Largest depth of nested indexes.
const DEPTH: usize = 3;

const CONFIGURATION: &str = "config.json";
const ROOT: &str = "rootfs";

/// When to ask a registry for an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Pull {
    /// If no image of that name was pulled before
    #[default]
    Missing,
    /// Always; parts that are in the cache are not fetched again
    Always,
    /// Never
    Never,
}

/// An unpacked image.
#[derive(Debug)]
pub struct Image {
    /// Its identity: the digest of its configuration.
    pub digest: String,
    /// The folder of its root file system.
    pub root: PathBuf,
    /// The process that runs in it.
    pub process: Process,
}

/// An index or a manifest.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Document {
    Manifest(Box<ImageManifest>),
    Index(Box<ImageIndex>),
}

/// An entry of docker save's manifest.json.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    layers: Vec<String>,
}

/// The parts of an image.
struct Parts {
    configuration: Vec<u8>,
    /// In order, the lowest layer first.
    layers: Vec<Layer>,
}

struct Layer {
    /// The name of the layer's file.
    name: String,
    /// Digest and size of the stored layer, if a manifest has them.
    descriptor: Option<Descriptor>,
}

/// A source of the documents of an image in OCI's layout. The caller checks the digests.
trait Documents {
    /// A manifest or an index.
    fn manifest(&self, descriptor: &Descriptor) -> anyhow::Result<Vec<u8>>;
    /// A configuration.
    fn configuration(&self, descriptor: &Descriptor) -> anyhow::Result<Vec<u8>>;
}

/// Returns an image, unpacked if it is not in the cache yet. `word` is a file or folder if one of
/// that name exists, and else a name in a registry.
pub fn get(word: &Path, pull: Pull) -> anyhow::Result<Image> {
    match reference(word)? {
        Some(reference) => found(&reference.whole(), |cache, signals| {
            pulled(&reference, pull, cache, signals)
        }),
        None => found(&word.display().to_string(), |cache, signals| {
            local(word, cache, signals)
        }),
    }
}

/// Fetches the image of that name from its registry.
pub fn fetch(name: &str) -> anyhow::Result<Image> {
    let reference: Reference = name.parse().map_err(|error| anyhow!("{name:?}: {error}"))?;
    found(&reference.whole(), |cache, signals| {
        pulled(&reference, Pull::Always, cache, signals)
    })
}

fn found(
    name: &str,
    find: impl FnOnce(&Cache, &Signals) -> anyhow::Result<Image>,
) -> anyhow::Result<Image> {
    let signals = Signals::install().context("cannot handle signals")?;
    let image = find(&Cache::standard()?, &signals);
    match signals.pending() {
        // The error is a consequence of the signal.
        Some(signal) => Err(Interrupted(signal).into()),
        None => image.with_context(|| name.to_string()),
    }
}

/// The name in a registry that a word stands for if no file has that name.
fn reference(word: &Path) -> anyhow::Result<Option<Reference>> {
    let first = word.as_os_str().as_bytes().first();
    let missing = fs::metadata(word).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    if !missing || first.is_none_or(|byte| b"/.".contains(byte)) {
        return Ok(None);
    }
    let name = word.to_string_lossy();
    match name.parse() {
        Ok(reference) => Ok(Some(reference)),
        Err(error) => {
            bail!("{name}: no such file, and not the name of an image in a registry ({error})")
        }
    }
}

fn local(path: &Path, cache: &Cache, signals: &Signals) -> anyhow::Result<Image> {
    let source = Source::open(path)?;
    let parts = parts(&source)?;
    install(&parts, cache, signals, |_| Ok(&source))
}

fn pulled(
    reference: &Reference,
    pull: Pull,
    cache: &Cache,
    signals: &Signals,
) -> anyhow::Result<Image> {
    if pull != Pull::Always {
        if let Some(digest) = cache.known(reference)? {
            if let Some(image) = unpacked(&digest, cache)? {
                return Ok(image);
            }
        }
    }
    if pull == Pull::Never {
        bail!("it has not been pulled, and --pull never is given");
    }
    let registry = Registry::new(reference, signals)?;
    let parts = resolve(registry.named()?, &registry)?;
    let store = Source::Folder(cache.folder().to_path_buf());
    let image = install(&parts, cache, signals, |work| {
        transfer(&parts.layers, &registry, cache, work)?;
        Ok(&store)
    })?;
    cache.remember(reference, &image.digest)?;
    Ok(image)
}

/// Fetches the layers that are not in the cache.
fn transfer(
    layers: &[Layer],
    registry: &Registry<'_>,
    cache: &Cache,
    work: &Work,
) -> anyhow::Result<()> {
    let blobs: Vec<&Descriptor> = layers
        .iter()
        .filter_map(|layer| layer.descriptor.as_ref())
        .collect();
    let wanted = blobs.iter().map(|blob| {
        (
            blob,
            cache
                .folder()
                .join(blob_name(blob.digest().as_ref()).unwrap_or_default()),
        )
    });
    let wanted: Vec<_> = wanted.filter(|(_, place)| !place.is_file()).collect();
    let total = wanted
        .iter()
        .fold(0u64, |sum, (blob, _)| sum.saturating_add(blob.size()));
    if total > BYTES {
        bail!("layers of more than {} GiB", BYTES >> 30);
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let progress = Progress::new("pulling layers");
    progress.count(Unit::Bytes, Total::Exact(total));
    for (blob, place) in &wanted {
        let complain = || format!("cannot write to {}", cache.folder().display());
        let part = work.path().join("layer");
        let file = File::create(&part).with_context(complain)?;
        registry.blob(
            blob.digest().as_ref(),
            blob.size(),
            &mut progress.writing(&file),
        )?;
        // A file under its final name is complete, even after a power failure of the host.
        file.sync_all().with_context(complain)?;
        cache.keep(&part, place)?;
    }
    Ok(())
}

/// The image of this digest, if the cache has it.
fn unpacked(digest: &str, cache: &Cache) -> anyhow::Result<Option<Image>> {
    let place = cache.image(digest)?;
    let bytes = match fs::read(place.join(CONFIGURATION)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.with_context(|| place.display().to_string())?,
    };
    Ok(Some(Image {
        digest: digest.to_string(),
        root: place.join(ROOT),
        process: Process::of(&configuration(&bytes)?),
    }))
}

fn configuration(bytes: &[u8]) -> anyhow::Result<ImageConfiguration> {
    serde_json::from_slice(bytes).context("the image's configuration is damaged")
}

/// Unpacks an image unless the cache has it. `layers` opens its layers.
fn install<'a>(
    parts: &Parts,
    cache: &Cache,
    signals: &Signals,
    layers: impl FnOnce(&Work) -> anyhow::Result<&'a Source>,
) -> anyhow::Result<Image> {
    let configuration = configuration(&parts.configuration)?;
    let (os, architecture) = (configuration.os(), configuration.architecture());
    if (os, architecture) != (&Os::Linux, &Arch::Amd64) {
        bail!(
            "an image for {}: linux/amd64 is needed",
            text::clean(format!("{os}/{architecture}").as_bytes())
        );
    }
    let sums = configuration.rootfs().diff_ids();
    if sums.len() != parts.layers.len() || sums.len() > LAYERS {
        bail!(
            "{} layers, and digests for {}",
            parts.layers.len(),
            sums.len()
        );
    }
    let digest = digest::of(&parts.configuration);
    if let Some(image) = unpacked(&digest, cache)? {
        return Ok(image);
    }
    let work = cache.work()?;
    let source = layers(&work)?;
    unpack(
        source,
        parts,
        &configuration,
        work,
        &cache.image(&digest)?,
        signals,
    )?;
    unpacked(&digest, cache)?.context("the image was removed while it was being unpacked")
}

fn parts(source: &Source) -> anyhow::Result<Parts> {
    if source.has("index.json") {
        return resolve(source.document("index.json")?, source);
    }
    if !source.has("manifest.json") {
        bail!(
            "neither an image in OCI's layout (index.json) nor one of docker save (manifest.json)"
        );
    }
    let saved: Vec<Saved> = serde_json::from_slice(&source.document("manifest.json")?)
        .context("manifest.json is damaged")?;
    let [saved] = saved.as_slice() else {
        bail!("the archive contains {} images, expected one", saved.len());
    };
    let layer = |name: &String| Layer {
        name: name.clone(),
        descriptor: None,
    };
    Ok(Parts {
        configuration: source.document(&saved.config)?,
        layers: saved.layers.iter().map(layer).collect(),
    })
}

/// Follows an index or manifest to the one image for this platform.
fn resolve(mut bytes: Vec<u8>, documents: &impl Documents) -> anyhow::Result<Parts> {
    let checked = |descriptor: &Descriptor, bytes: Vec<u8>| {
        if digest::of(&bytes) == descriptor.digest().as_ref() {
            return Ok(bytes);
        }
        bail!(
            "{} is damaged: its digest does not match",
            descriptor.digest()
        )
    };
    for _ in 0..DEPTH {
        let document: Document =
            serde_json::from_slice(&bytes).context("the image's index or manifest is damaged")?;
        let index = match document {
            Document::Index(index) => index,
            Document::Manifest(manifest) => {
                let config = manifest.config();
                digest::digits(config.digest().as_ref())?;
                let layer = |descriptor: &Descriptor| {
                    Ok(Layer {
                        name: blob_name(descriptor.digest().as_ref())?,
                        descriptor: Some(descriptor.clone()),
                    })
                };
                return Ok(Parts {
                    configuration: checked(config, documents.configuration(config)?)?,
                    layers: manifest
                        .layers()
                        .iter()
                        .map(layer)
                        .collect::<anyhow::Result<_>>()?,
                });
            }
        };
        let fits = |descriptor: &&Descriptor| {
            let platform = descriptor.platform().as_ref();
            platform.is_none_or(|p| (p.os(), p.architecture()) == (&Os::Linux, &Arch::Amd64))
        };
        let fitting: Vec<&Descriptor> = index.manifests().iter().filter(fits).collect();
        let next = match fitting.as_slice() {
            [] => bail!("it contains no image for linux/amd64"),
            // The first of several entries for this platform is used (OCI image specification,
            // image-index.md).
            [first, rest @ ..] if rest.is_empty() || first.platform().is_some() => first,
            several => bail!(
                "{} images for linux/amd64 in it: one is needed",
                several.len()
            ),
        };
        digest::digits(next.digest().as_ref())?;
        bytes = checked(next, documents.manifest(next)?)?;
    }
    bail!("it contains no manifest, only indexes")
}

/// Unpacks all layers beside the final place, and renames the folder when it is complete.
fn unpack(
    source: &Source,
    parts: &Parts,
    configuration: &ImageConfiguration,
    work: Work,
    place: &Path,
    signals: &Signals,
) -> anyhow::Result<()> {
    let complain = || format!("cannot write to {}", work.path().display());
    let root = work.path().join(ROOT);
    fs::create_dir(&root).with_context(complain)?;
    let rules = Rules {
        entries: ENTRIES,
        bytes: BYTES,
        mode: 0o7777,
        layer: true,
        first: None,
    };
    let mut tree = Tree::new(&root, rules)?;
    let progress = Progress::new("unpacking");
    let sums = configuration.rootfs().diff_ids();
    for (index, (layer, wanted)) in parts.layers.iter().zip(sums).enumerate() {
        let name = format!("layer {} of {}", index + 1, sums.len());
        progress.step(&format!("unpacking {name}"));
        progress.count(Unit::Bytes, Total::Unknown);
        digest::digits(wanted)?;
        let file = Patient {
            inner: progress.reading(source.file(&layer.name)?),
            signals: signals.clone(),
        };
        let mut contents = Summed::new(plain(file)?);
        tree.apply(&mut contents).with_context(|| name.clone())?;
        if contents.finish().with_context(|| name.clone())? != *wanted {
            bail!("{name} is damaged: its digest does not match");
        }
    }
    drop(progress);
    if let Some(folder) = Process::of(configuration).folder() {
        // Programs of the image may expect that this folder exists.
        tree.folder(folder.as_os_str().as_bytes())
            .context("the image's working directory")?;
    }
    fs::write(work.path().join(CONFIGURATION), &parts.configuration).with_context(complain)?;
    work.finish(place, |place| place.join(CONFIGURATION).is_file())
}

/// A reader that fails once a signal asks the program to end.
struct Patient<R> {
    inner: R,
    signals: Signals,
}

impl<R: Read> Read for Patient<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.signals.pending() {
            Some(signal) => Err(io::Error::other(Interrupted(signal))),
            None => self.inner.read(into),
        }
    }
}

/// Decompresses a layer, whatever its format.
fn plain(layer: impl Read + 'static) -> anyhow::Result<Box<dyn Read>> {
    let mut layer = BufReader::with_capacity(64 << 10, layer);
    let start = layer.fill_buf()?;
    if start.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(layer)));
    }
    if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder = ruzstd::decoding::StreamingDecoder::new(layer);
        return Ok(Box::new(
            decoder.map_err(|error| anyhow::anyhow!("damaged (zstd): {error}"))?,
        ));
    }
    Ok(Box::new(layer))
}
