// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The optional parts of the configuration, and the kernels in the cache that were built of them.

use super::KernelFiles;
use super::cache::Cache;
use super::recipe::{Recipe, optional_names};
use std::fs;
use std::path::PathBuf;

/// An optional part of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The name for `--with`.
    pub name: &'static str,
    /// What it adds.
    pub about: String,
}

/// A kernel in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its optional parts, in order.
    pub with: Vec<String>,
    /// Linux' version: 6.12.y.
    pub version: String,
    /// Its folder.
    pub folder: PathBuf,
}

/// The optional parts that this program has, by name.
pub fn parts() -> Vec<Part> {
    let mut parts: Vec<_> = optional_names()
        .map(|name| Part {
            name,
            about: about(name),
        })
        .collect();
    parts.sort_by_key(|part| part.name);
    parts
}

/// The comment at the beginning of a fragment, after the line with its licence.
fn about(name: &str) -> String {
    let path = format!("optional/{name}.config");
    let fragment = paravane_blobs::LINUX_CONFIG.iter().find(|f| f.0 == path);
    let text = String::from_utf8_lossy(fragment.map_or(&[][..], |f| f.1));
    let lines: Vec<_> = text
        .lines()
        .skip(1)
        .map_while(|line| line.strip_prefix("# "))
        .collect();
    lines.join(" ")
}

/// The kernels in the cache that were built of this program's port, with their optional parts: one
/// of each choice of parts, the last that was built. They are ordered by their parts.
///
/// # Errors
/// This program's port is damaged.
pub fn kept() -> anyhow::Result<Vec<Kept>> {
    // Without a home directory there is no cache.
    let Ok(cache) = Cache::open() else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    for folder in cache.all_current() {
        // Only the default kernel is found without a record: earlier versions have stored it.
        let with = cache.parts(&folder).unwrap_or_default();
        // Parts of another version of this program may be unknown here.
        let Ok(recipe) = Recipe::new(&with, &[]) else {
            continue;
        };
        let version = fs::read_to_string(folder.join("version")).unwrap_or_default();
        let kernel = Kept {
            with,
            version: version.trim().to_string(),
            folder: folder.clone(),
        };
        if cache.current(&recipe) == Some(folder) && !all.contains(&kernel) {
            all.push(kernel);
        }
    }
    all.sort_by(|a, b| a.with.cmp(&b.with));
    Ok(all)
}

/// The kernel of this program's port with these optional parts, if it was built.
///
/// # Errors
/// A part has another name.
pub fn locate_with(parts: &[String]) -> anyhow::Result<Option<KernelFiles>> {
    let recipe = Recipe::new(parts, &[])?;
    let folder = Cache::open().ok().and_then(|cache| cache.current(&recipe));
    Ok(folder.map(|folder| KernelFiles::in_folder(&folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_says_what_it_adds() {
        let parts = parts();
        let names: Vec<_> = parts.iter().map(|part| part.name).collect();
        assert_eq!(
            names,
            [
                "btf",
                "debug-info",
                "filesystems",
                "lsm",
                "network",
                "services",
                "storage"
            ]
        );
        for part in &parts {
            assert!(part.about.ends_with('.'), "{part:?}");
            assert!(part.about.len() > 20, "{part:?}");
        }
        assert!(locate_with(&["nothing".to_string()]).is_err());
    }
}
