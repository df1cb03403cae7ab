// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads the kernel modules that the monitor has put into the initial root: the drivers of the
//! machine's devices, for a distribution's kernel. VMI-Linux has them built in. For VMI-Linux the
//! root gets the list of built-in drivers, so that `modprobe` of one succeeds.

use crate::mounts::make_directory;
use rustix::system::{finit_module, uname};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Modules, in the order of their names.
const FOLDER: &str = "/paravane/modules";

/// Loads all of them. One that cannot be loaded is reported: without its driver the machine may
/// still work.
pub fn load() {
    load_from(Path::new(FOLDER), |file| {
        finit_module(file, c"", 0).map_err(|error| error.to_string())
    });
}

fn load_from(folder: &Path, load: impl Fn(&File) -> Result<(), String>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let loaded = File::open(&path)
            .map_err(|error| error.to_string())
            .and_then(|file| load(&file));
        if let Err(why) = loaded {
            eprintln!("paravane-agent: the module {}: {why}", path.display());
        }
    }
    // The kernel has copies. Fails in a root that cannot be written.
    let _ = fs::remove_dir_all(folder);
}

/// The lists of built-in drivers, as the monitor has made them.
const LISTS: &str = "/paravane/builtin";
const MODULES: &str = "/lib/modules";

/// Files for the folder of the kernel's modules: names and contents.
#[derive(Debug)]
pub struct Lists(Vec<(OsString, Vec<u8>)>);

impl Lists {
    /// Takes them out of the initial root.
    pub fn read() -> Self {
        let lists = Self::read_from(Path::new(LISTS));
        // Fails in a root that cannot be written.
        let _ = fs::remove_dir_all(LISTS);
        lists
    }

    fn read_from(folder: &Path) -> Self {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let read = |entry: fs::DirEntry| Some((entry.file_name(), fs::read(entry.path()).ok()?));
        Lists(entries.filter_map(read).collect())
    }

    /// Writes them to the machine's root, unless that has a folder for this kernel. A failure is
    /// reported: few programs need them.
    pub fn provide(&self) {
        let release = uname();
        let release = OsStr::from_bytes(release.release().to_bytes());
        let folder = Path::new(MODULES).join(release);
        if let Err(error) = self.provide_in(&folder) {
            eprintln!("paravane-agent: {}: {error}", folder.display());
        }
    }

    fn provide_in(&self, folder: &Path) -> io::Result<()> {
        if self.0.is_empty() || folder.symlink_metadata().is_ok() {
            return Ok(());
        }
        make_directory(folder)?;
        let written = self
            .0
            .iter()
            .try_for_each(|(name, content)| fs::write(folder.join(name), content));
        if written.is_err() {
            // The next start would take a part for the whole.
            let _ = fs::remove_dir_all(folder);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::io::Read;

    #[test]
    fn modules_are_loaded_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let modules = folder.path().join("modules");
        load_from(&modules, |_| Err("there is none".to_string()));
        fs::create_dir(&modules).unwrap();
        for name in ["010-c.ko", "000-a.ko", "001-b.ko"] {
            fs::write(modules.join(name), &name[4..5]).unwrap();
        }
        let seen = RefCell::new(String::new());
        load_from(&modules, |mut file| {
            file.read_to_string(&mut seen.borrow_mut()).unwrap();
            Err("one that fails is no end".to_string())
        });
        assert_eq!(*seen.borrow(), "abc");
        assert!(!modules.exists());
    }

    #[test]
    fn a_root_without_a_folder_for_the_kernel_gets_the_lists() {
        let root = tempfile::tempdir().unwrap();
        let (from, to) = (root.path().join("from"), root.path().join("lib/1-vmi"));
        Lists::read_from(&from).provide_in(&to).unwrap();
        assert!(!to.exists());
        fs::create_dir(&from).unwrap();
        fs::write(from.join("modules.builtin"), "a.ko\n").unwrap();
        let lists = Lists::read_from(&from);
        lists.provide_in(&to).unwrap();
        let list = to.join("modules.builtin");
        assert_eq!(fs::read_to_string(&list).unwrap(), "a.ko\n");
        // The root's own stays.
        fs::write(&list, "own").unwrap();
        lists.provide_in(&to).unwrap();
        assert_eq!(fs::read_to_string(&list).unwrap(), "own");
        // A list that cannot be written completely is removed.
        let bad = Lists(vec![("a".into(), vec![1]), ("no/folder".into(), vec![])]);
        let other = root.path().join("lib/2-vmi");
        assert!(bad.provide_in(&other).is_err() && !other.exists());
    }
}
