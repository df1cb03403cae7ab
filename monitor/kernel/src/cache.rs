// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The user's cache of built kernels, outside of every checkout.

use super::recipe::Recipe;
use anyhow::Context;
use paravane_user_io::files;
use rustix::fs::{FlockOperation, syncfs};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Before the name of a recipe: a link to its last result.
const POINTER: &str = "current-";
/// The file of a result that names its optional parts.
const PARTS: &str = "parts";

/// The cache folder.
#[derive(Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Opens the cache in `$XDG_CACHE_HOME` or `~/.cache`.
    pub fn open() -> anyhow::Result<Self> {
        Ok(Cache {
            root: files::cache("kernels")?.join("kernel"),
        })
    }

    /// Creates the folder and locks it against other builds until the file is dropped.
    pub fn lock(&self) -> anyhow::Result<File> {
        let complain = || format!("cannot use {}", self.root.display());
        fs::create_dir_all(&self.root).with_context(complain)?;
        let file = File::create(self.root.join("lock")).with_context(complain)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive).with_context(complain)?;
        Ok(file)
    }

    /// The folder of fetched sources.
    pub fn sources(&self) -> PathBuf {
        self.root.join("source")
    }

    /// The folder in which a kernel is built. Linux without the port has a tree of its own, because
    /// a switch between the two would compile everything again.
    pub fn work(&self, unpatched: bool) -> PathBuf {
        self.root
            .join(if unpatched { "work-unpatched" } else { "work" })
    }

    /// The folder of a result.
    pub fn find(&self, key: &str) -> Option<PathBuf> {
        let folder = self.root.join(key);
        // A folder gets its final name when it is complete.
        folder.is_dir().then_some(folder)
    }

    /// Stores a result: `fill` writes it into a folder.
    pub fn store(
        &self,
        key: &str,
        fill: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<PathBuf> {
        let part = self.root.join(format!("{key}.part"));
        let folder = self.root.join(key);
        if part.exists() {
            fs::remove_dir_all(&part).with_context(|| part.display().to_string())?;
        }
        fs::create_dir(&part).with_context(|| part.display().to_string())?;
        fill(&part)?;
        // A power failure must not leave what looks whole.
        File::open(&part)
            .and_then(|folder| Ok(syncfs(folder)?))
            .with_context(|| part.display().to_string())?;
        fs::rename(&part, &folder).with_context(|| folder.display().to_string())?;
        Ok(folder)
    }

    /// The last result for this recipe, from any source and compiler.
    pub fn current(&self, recipe: &Recipe) -> Option<PathBuf> {
        let key = fs::read_link(self.pointer(recipe)).ok()?;
        self.find(key.to_str()?)
    }

    /// Makes a result the last one for its recipe.
    pub fn set_current(&self, recipe: &Recipe, folder: &Path) -> anyhow::Result<()> {
        let pointer = self.pointer(recipe);
        let part = pointer.with_extension("part");
        let key = folder.file_name().unwrap_or_default();
        let _ = fs::remove_file(&part);
        symlink(key, &part)
            .and_then(|()| fs::rename(&part, &pointer))
            .with_context(|| pointer.display().to_string())
    }

    /// The results that are the last ones for any recipe.
    pub fn all_current(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        let pointers = names.filter(|name| name.to_string_lossy().starts_with(POINTER));
        let keys = pointers.filter_map(|name| fs::read_link(self.root.join(name)).ok());
        keys.filter_map(|key| self.find(key.to_str()?)).collect()
    }

    /// The optional parts of a result, one in a line. None: an earlier version has stored it.
    pub fn parts(&self, folder: &Path) -> Option<Vec<String>> {
        let text = fs::read_to_string(folder.join(PARTS)).ok()?;
        Some(text.lines().map(str::to_string).collect())
    }

    /// Records the optional parts of a result.
    pub fn set_parts(&self, folder: &Path, parts: &[String]) -> anyhow::Result<()> {
        let path = folder.join(PARTS);
        let lines: String = parts.iter().map(|part| format!("{part}\n")).collect();
        fs::write(&path, lines).with_context(|| path.display().to_string())
    }

    fn pointer(&self, recipe: &Recipe) -> PathBuf {
        self.root.join(format!("{POINTER}{}", recipe.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_there_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache {
            root: folder.path().to_path_buf(),
        };
        let recipe = Recipe::new(&[], &[]).unwrap();
        assert!(cache.store("k", |_| anyhow::bail!("full")).is_err());
        assert!(cache.find("k").is_none() && cache.current(&recipe).is_none());
        let stored = cache
            .store("k", |folder| Ok(fs::write(folder.join("vmlinux"), "x")?))
            .unwrap();
        assert_eq!(cache.find("k"), Some(stored.clone()));
        cache.set_current(&recipe, &stored).unwrap();
        cache.set_current(&recipe, &stored).unwrap();
        assert_eq!(cache.current(&recipe), Some(stored.clone()));
        assert_eq!(cache.all_current(), std::slice::from_ref(&stored));
        assert_eq!(cache.parts(&stored), None);
        for parts in [vec![], vec!["a".to_string(), "b-c".to_string()]] {
            cache.set_parts(&stored, &parts).unwrap();
            assert_eq!(cache.parts(&stored), Some(parts));
        }
        fs::remove_dir_all(stored).unwrap();
        assert!(cache.current(&recipe).is_none());
    }
}
