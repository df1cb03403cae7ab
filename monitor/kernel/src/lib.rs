// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds Linux for the guest: finds its source, applies the port and the configuration, and keeps
//! the result.
//!
//! The key of a result covers all of its inputs, so a kernel is built once and then found. The port
//! is part of this program: no checkout is needed.

#![forbid(unsafe_code)]

mod cache;
mod debian;
mod installed;
mod list;
mod make;
mod port_size;
mod recipe;
mod source;
mod tools;
mod tree;

pub use installed::RECIPE;
pub use list::{Kept, Part, kept, locate_with, parts};
pub use port_size::lines;
pub use recipe::{Recipe, digest};
pub use source::{Source, Wanted};

use anyhow::{Context, bail};
use cache::Cache;
use paravane_user_io::progress::Progress;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tree::{DoesNotApply, Tree};

/// How many other versions of Debian's source a build tries if the port does not apply to one.
const OTHER_SOURCES: usize = 4;

/// The list of the drivers that a kernel has built in, beside its other files. Kernels of earlier
/// versions of this program have none.
pub const BUILTIN: &str = "modules.builtin";

/// A kernel that can be booted.
#[derive(Clone, Debug)]
pub struct KernelFiles {
    /// ELF file with its relocations, for a hypervisor that relocates it.
    pub vmlinux: PathBuf,
    /// The kernel, compressed, for bare metal.
    pub bzimage: PathBuf,
    /// Its configuration.
    pub config: PathBuf,
    /// The drivers that it has built in ([`BUILTIN`]).
    pub builtin: PathBuf,
}

impl KernelFiles {
    fn in_folder(folder: &Path) -> Self {
        KernelFiles {
            vmlinux: folder.join("vmlinux"),
            bzimage: folder.join("bzImage"),
            config: folder.join("config"),
            builtin: folder.join(BUILTIN),
        }
    }
}

/// What to build.
#[derive(Debug)]
pub struct Request {
    /// The source of Linux.
    pub source: Wanted,
    /// The changes to the source, and the configuration.
    pub recipe: Recipe,
    /// Number of compilers that run at the same time.
    pub jobs: usize,
}

impl Request {
    /// The default request.
    pub fn usual() -> anyhow::Result<Self> {
        Ok(Request {
            source: Wanted::Debian { newest: false },
            recipe: Recipe::new(&[], &[])?,
            jobs: jobs(),
        })
    }
}

/// One compiler for each processor.
pub fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The result of a request.
#[derive(Debug)]
pub struct Built {
    /// The kernel.
    pub files: KernelFiles,
    /// Linux' version: 6.12.y.
    pub version: String,
    /// Duration of the build; `None` if the cache had the kernel.
    pub time: Option<Duration>,
}

/// The kernel of this program: what `paravane kernel build` last built from its port, or else the
/// one that is installed with the program. Builds nothing.
pub fn locate() -> anyhow::Result<Option<KernelFiles>> {
    let recipe = Recipe::new(&[], &[])?;
    // Without a home directory there is no cache, and the installed kernel will do.
    let cached = Cache::open().ok().and_then(|cache| cache.current(&recipe));
    let folder = match cached {
        Some(folder) => Some(folder),
        None => installed::find(&recipe)?,
    };
    Ok(folder.map(|folder| KernelFiles::in_folder(&folder)))
}

/// The kernel of [`locate`], built now if there is none.
pub fn locate_or_build() -> anyhow::Result<KernelFiles> {
    match locate()? {
        Some(files) => Ok(files),
        None => Ok(build(&Request::usual()?)?.files),
    }
}

/// The compressed kernel of the same source and configuration without the port, built now if there
/// is none.
pub fn unpatched() -> anyhow::Result<PathBuf> {
    let mut request = Request::usual()?;
    request.recipe = request.recipe.without_port();
    Ok(build(&request)?.files.bzimage)
}

/// The source of which [`Request::usual`] builds, fetched now if there is none: a tarball, and its
/// hash.
pub fn source() -> anyhow::Result<Source> {
    let progress = Progress::new("looking for the source of Linux");
    let cache = Cache::open()?;
    let _lock = cache.lock()?;
    source::find(&Wanted::Debian { newest: false }, &cache, &progress)
}

/// Finds the kernel of this request in the cache, or builds it. Shows progress on stderr.
///
/// Debian's newest source may be newer than the port, or a kept one older. If the port does not
/// apply to it, this says so and tries the other versions that apt knows.
pub fn build(request: &Request) -> anyhow::Result<Built> {
    let progress = Progress::new("waiting for another build of Linux before this program's");
    let cache = Cache::open()?;
    let _lock = cache.lock()?;
    let compiler = tools::compiler()?;
    let build = Build {
        request,
        start: Instant::now(),
        compiler,
        cache,
        progress,
    };
    let (cache, progress) = (&build.cache, &build.progress);
    let mut source = source::find(&request.source, cache, progress)?;
    let mut tried = Vec::new();
    loop {
        let error = match build.from(&source) {
            Err(error) if error.is::<DoesNotApply>() => error,
            result => return result,
        };
        let advice = || format!("{error}: give another source with --source, or update paravane");
        let Some(unfit) = error.downcast_ref::<DoesNotApply>() else {
            return Err(error);
        };
        tried.push(unfit.version.clone());
        let other = match request.source {
            Wanted::Debian { .. } if tried.len() <= OTHER_SOURCES => {
                debian::another(&tried).with_context(advice)?
            }
            _ => None,
        };
        let Some(other) = other else {
            bail!(advice());
        };
        progress.say(&format!(
            "{error}: trying Debian's {other} instead; update paravane to build the other one"
        ));
        let tarball =
            debian::fetch(Some(&other), &cache.sources(), progress).with_context(advice)?;
        source = source::at(tarball, cache, progress)?;
    }
}

/// A build that has begun.
#[derive(Debug)]
struct Build<'a> {
    request: &'a Request,
    start: Instant,
    compiler: String,
    cache: Cache,
    progress: Progress,
}

impl Build<'_> {
    /// The kernel of this source: from the cache, or built.
    fn from(&self, source: &Source) -> anyhow::Result<Built> {
        let Build {
            request,
            start,
            compiler,
            cache,
            progress,
        } = self;
        let recipe = &request.recipe;
        let key = recipe.key(&source.hash, compiler);
        let done = |folder: PathBuf, time| -> anyhow::Result<Built> {
            if let Some(parts) = &recipe.parts {
                cache.set_parts(&folder, parts)?;
                cache.set_current(recipe, &folder)?;
            }
            let text = folder.join("version");
            let version = fs::read_to_string(&text).with_context(|| text.display().to_string())?;
            Ok(Built {
                files: KernelFiles::in_folder(&folder),
                version: version.trim().to_string(),
                time,
            })
        };
        if let Some(folder) = cache.find(&key) {
            return done(folder, None);
        }
        tools::check()?;
        let tree = Tree::open(&cache.work(recipe.unpatched), source, progress)?;
        tree.apply(recipe, progress)?;
        tree.configure(recipe, progress)?;
        tree.make(request.jobs, progress)?;
        progress.step("storing the kernel");
        let folder = cache.store(&key, |folder| {
            store(&tree, recipe.unpatched, folder)?;
            fs::write(folder.join("inputs"), recipe.inputs(&source.hash, compiler))?;
            Ok(())
        })?;
        done(folder, Some(start.elapsed()))
    }
}

/// Copies a built kernel with its configuration, modules and version to a folder.
fn store(tree: &Tree, unpatched: bool, folder: &Path) -> anyhow::Result<()> {
    // The port keeps the relocations.
    let vmlinux = if unpatched {
        "vmlinux"
    } else {
        "vmlinux.unstripped"
    };
    for (from, to) in [
        (vmlinux, "vmlinux"),
        ("arch/x86/boot/bzImage", "bzImage"),
        (".config", "config"),
        (BUILTIN, BUILTIN),
    ] {
        let from = tree.object().join(from);
        fs::copy(&from, folder.join(to)).with_context(|| from.display().to_string())?;
    }
    let modules = folder.join("modules");
    fs::create_dir(&modules).with_context(|| modules.display().to_string())?;
    for from in tree.modules()? {
        let to = modules.join(from.file_name().unwrap_or_default());
        fs::copy(&from, to).with_context(|| from.display().to_string())?;
    }
    fs::write(folder.join("version"), format!("{}\n", tree.version()))?;
    Ok(())
}
