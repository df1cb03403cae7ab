// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images of containers: OCI's layout (a folder, or a tar archive of one) and the archives of `docker save`.
//!
//! An image is unpacked once, to the cache, under the digest of its configuration, which names every layer by the digest of its contents: so what lies there
//! under a name is always the same. Every digest is checked while it is read. Run by an ordinary user, all files belong to that user, which is root in the guest.

mod archive;
mod digest;
mod process;
#[cfg(test)]
mod tests;

use crate::text;
use crate::unpack::{Rules, Tree};
use anyhow::{Context, bail};
use archive::{Source, blob_name};
use digest::Summed;
use indicatif::{ProgressBar, ProgressStyle};
pub use process::Process;
use serde::Deserialize;
use std::fs::{self, DirBuilder};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Layers of an image.
const LAYERS: usize = 500;
/// Files of an image, and bytes in them.
const ENTRIES: u64 = 4_000_000;
const BYTES: u64 = 64 << 30;
/// Indexes in indexes.
const DEPTH: usize = 3;

const CONFIGURATION: &str = "config.json";
const ROOT: &str = "rootfs";

/// An image that is unpacked.
#[derive(Debug)]
pub struct Image {
    /// Its root.
    pub root: PathBuf,
    /// What is to run in it.
    pub process: Process,
}

#[derive(Debug, Deserialize)]
struct Configuration {
    architecture: String,
    os: String,
    #[serde(default)]
    config: Option<Process>,
    rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

/// An index or a manifest.
#[derive(Debug, Deserialize)]
struct Document {
    #[serde(default)]
    manifests: Vec<Descriptor>,
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct Descriptor {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Debug, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

/// An entry of docker save's manifest.json.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    layers: Vec<String>,
}

/// An image's parts, found.
struct Parts {
    configuration: Vec<u8>,
    /// Names of files, the lowest first.
    layers: Vec<String>,
}

/// Finds an image, and unpacks it unless that was done.
pub fn get(path: &Path) -> anyhow::Result<Image> {
    get_to(path, &cache()?).with_context(|| path.display().to_string())
}

fn cache() -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let base = base.context("no place for images: set HOME or XDG_CACHE_HOME")?;
    Ok(base.join("paravane/images"))
}

fn get_to(path: &Path, cache: &Path) -> anyhow::Result<Image> {
    let source = Source::open(path)?;
    let parts = parts(&source)?;
    let configuration: Configuration =
        serde_json::from_slice(&parts.configuration).context("the image's configuration is damaged")?;
    if (configuration.architecture.as_str(), configuration.os.as_str()) != ("amd64", "linux") {
        let (os, architecture) = (&configuration.os, &configuration.architecture);
        bail!(
            "an image for {}: linux/amd64 is needed",
            text::clean(format!("{os}/{architecture}").as_bytes())
        );
    }
    let sums = &configuration.rootfs.diff_ids;
    if sums.len() != parts.layers.len() || sums.len() > LAYERS {
        bail!("{} layers, and digests for {}", parts.layers.len(), sums.len());
    }
    let mut process = configuration.config.clone().unwrap_or_default();
    process.of_image = true;
    let own = digest::of(&parts.configuration);
    let place = cache.join(digest::digits(&own)?);
    if !place.join(CONFIGURATION).is_file() {
        unpack(&source, &parts, sums, &process, cache, &place)?;
    }
    Ok(Image {
        root: place.join(ROOT),
        process,
    })
}

fn parts(source: &Source) -> anyhow::Result<Parts> {
    if source.has("index.json") {
        return layout(source);
    }
    if !source.has("manifest.json") {
        bail!("neither an image in OCI's layout (index.json) nor one of docker save (manifest.json)");
    }
    let saved: Vec<Saved> =
        serde_json::from_slice(&source.document("manifest.json")?).context("manifest.json is damaged")?;
    let [saved] = saved.as_slice() else {
        bail!("{} images in one archive: one is needed", saved.len());
    };
    Ok(Parts {
        configuration: source.document(&saved.config)?,
        layers: saved.layers.clone(),
    })
}

/// From the index to the one image for machines like this.
fn layout(source: &Source) -> anyhow::Result<Parts> {
    let mut bytes = source.document("index.json")?;
    for _ in 0..DEPTH {
        let document: Document = serde_json::from_slice(&bytes).context("the image's index or manifest is damaged")?;
        if let Some(config) = document.config {
            let layers = document.layers.iter().map(|layer| blob_name(&layer.digest));
            return Ok(Parts {
                configuration: source.blob(&config.digest)?,
                layers: layers.collect::<anyhow::Result<_>>()?,
            });
        }
        let fits = |descriptor: &&Descriptor| {
            let platform = descriptor.platform.as_ref();
            platform.is_none_or(|p| (p.os.as_str(), p.architecture.as_str()) == ("linux", "amd64"))
        };
        let fitting: Vec<&Descriptor> = document.manifests.iter().filter(fits).collect();
        bytes = match fitting.as_slice() {
            [one] => source.blob(&one.digest)?,
            [] => bail!("no image for linux/amd64 in it"),
            several => bail!("{} images for linux/amd64 in it: one is needed", several.len()),
        };
    }
    bail!("no manifest in it, only indexes")
}

/// Unpacks all layers beside the place, and gives them that name when they are whole.
fn unpack(
    source: &Source,
    parts: &Parts,
    sums: &[String],
    process: &Process,
    cache: &Path,
    place: &Path,
) -> anyhow::Result<()> {
    let complain = || format!("cannot write to {}", cache.display());
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(cache)
        .with_context(complain)?;
    // 0700: what is in it may have rights that are the guest's business alone.
    let part = tempfile::Builder::new()
        .prefix(".part-")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(cache)
        .with_context(complain)?;
    let root = part.path().join(ROOT);
    fs::create_dir(&root).with_context(complain)?;
    let rules = Rules {
        entries: ENTRIES,
        bytes: BYTES,
        mode: 0o7777,
        layer: true,
        first: None,
    };
    let mut tree = Tree::new(&root, rules)?;
    let bar = progress();
    for (index, (layer, wanted)) in parts.layers.iter().zip(sums).enumerate() {
        let name = format!("layer {} of {}", index + 1, sums.len());
        bar.set_message(format!("unpacking {name}"));
        digest::digits(wanted)?;
        let mut contents = Summed::new(plain(bar.wrap_read(source.file(layer)?))?);
        tree.apply(&mut contents).with_context(|| name.clone())?;
        if contents.finish().with_context(|| name.clone())? != *wanted {
            bail!("{name} is damaged: it has another digest");
        }
    }
    bar.finish_and_clear();
    if let Some(folder) = process.folder() {
        // The image may count on its being made.
        tree.folder(folder.as_os_str().as_bytes())
            .context("the image's working directory")?;
    }
    fs::write(part.path().join(CONFIGURATION), &parts.configuration).with_context(complain)?;
    match fs::rename(part.path(), place) {
        Ok(()) => drop(part.keep()),
        // Somebody else was faster, with the same.
        Err(_) if place.join(CONFIGURATION).is_file() => {}
        Err(error) => return Err(error).with_context(complain),
    }
    Ok(())
}

fn progress() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {elapsed} {bytes} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// What is in a layer, whatever it is compressed with.
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
