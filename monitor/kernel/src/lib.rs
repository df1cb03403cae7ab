// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux for the guest: its source, what it is changed and configured with, how it is built, and where the result lies.
//!
//! Everything that a result depends on goes into its key, so that a kernel is built once and found ever after. What is
//! changed is inside this program: no checkout is needed.

#![forbid(unsafe_code)]

mod cache;
mod make;
mod port_size;
mod recipe;
mod source;
mod tools;
mod tree;

pub use port_size::lines;
pub use recipe::{Recipe, digest};
pub use source::Wanted;

use anyhow::Context;
use cache::Cache;
use paravane_user_io::progress::Progress;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tree::Tree;

/// A kernel, ready to be booted.
#[derive(Clone, Debug)]
pub struct KernelFiles {
    /// ELF file with its relocations, for a hypervisor that moves it.
    pub vmlinux: PathBuf,
    /// The same, packed up for bare metal.
    pub bzimage: PathBuf,
    /// What it was configured with.
    pub config: PathBuf,
}

impl KernelFiles {
    fn in_folder(folder: &Path) -> Self {
        KernelFiles {
            vmlinux: folder.join("vmlinux"),
            bzimage: folder.join("bzImage"),
            config: folder.join("config"),
        }
    }
}

/// What to build.
#[derive(Debug)]
pub struct Request {
    /// Linux' source.
    pub source: Wanted,
    /// What is done to it.
    pub recipe: Recipe,
    /// Compilers at once.
    pub jobs: usize,
}

impl Request {
    /// What is built when nobody asks for anything else.
    pub fn usual() -> anyhow::Result<Self> {
        Ok(Request {
            source: Wanted::Debian { newest: false },
            recipe: Recipe::new(&[], &[])?,
            jobs: jobs(),
        })
    }
}

/// As many compilers as there are processors.
pub fn jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A kernel and how it came about.
#[derive(Debug)]
pub struct Built {
    /// The kernel.
    pub files: KernelFiles,
    /// Linux' version: 6.12.y.
    pub version: String,
    /// How long it took; `None` if it was there already.
    pub time: Option<Duration>,
}

/// The kernel that `paravane kernel build` last made of what this program carries, if it did: a look, no work.
pub fn locate() -> anyhow::Result<Option<KernelFiles>> {
    let recipe = Recipe::new(&[], &[])?;
    Ok(Cache::open()?
        .current(&recipe)
        .map(|folder| KernelFiles::in_folder(&folder)))
}

/// That kernel, built now if there is none.
pub fn locate_or_build() -> anyhow::Result<KernelFiles> {
    match locate()? {
        Some(files) => Ok(files),
        None => Ok(build(&Request::usual()?)?.files),
    }
}

/// The packed-up kernel of the same source and configuration without the port, built now if there is none.
pub fn unpatched() -> anyhow::Result<PathBuf> {
    let mut request = Request::usual()?;
    request.recipe = request.recipe.without_port();
    Ok(build(&request)?.files.bzimage)
}

/// Finds the kernel of this request in the cache, or builds it. Shows its progress on stderr.
pub fn build(request: &Request) -> anyhow::Result<Built> {
    let start = Instant::now();
    let progress = Progress::new("waiting for another build of Linux");
    let cache = Cache::open()?;
    let _lock = cache.lock()?;
    let source = source::find(&request.source, &cache, &progress)?;
    let compiler = tools::compiler()?;
    let key = request.recipe.key(&source.hash, &compiler);
    let plain = request.recipe.plain;
    let done = |folder: PathBuf, time| -> anyhow::Result<Built> {
        if plain {
            cache.set_current(&request.recipe, &folder)?;
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
    let tree = Tree::open(&cache.work(request.recipe.unpatched), &source, &progress)?;
    tree.apply(&request.recipe, &progress)?;
    tree.configure(&request.recipe, &progress)?;
    tree.make(request.jobs, &progress)?;
    progress.step("storing the kernel");
    // The port keeps the relocations.
    let vmlinux = if request.recipe.unpatched {
        "vmlinux"
    } else {
        "vmlinux.unstripped"
    };
    let folder = cache.store(&key, |folder| {
        for (from, to) in [
            (vmlinux, "vmlinux"),
            ("arch/x86/boot/bzImage", "bzImage"),
            (".config", "config"),
        ] {
            let from = tree.object().join(from);
            fs::copy(&from, folder.join(to)).with_context(|| from.display().to_string())?;
        }
        fs::write(folder.join("version"), format!("{}\n", tree.version()))?;
        fs::write(
            folder.join("inputs"),
            request.recipe.inputs(&source.hash, &compiler),
        )?;
        Ok(())
    })?;
    done(folder, Some(start.elapsed()))
}
