// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads the kernel modules that the monitor has put into the initial root: the drivers of the
//! machine's devices, for a distribution's kernel. VMI-Linux has them built in.

use rustix::system::finit_module;
use std::fs::{self, File};
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
}
