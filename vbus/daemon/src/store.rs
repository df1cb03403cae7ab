// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state file: `state.json` in vbusd's folder. It is replaced as a whole, so it has one state
//! or the next after a crash at any moment.

use crate::card::Cards;
use crate::disk::{self, DiskClass, Pool};
use anyhow::{Context, bail};
use paravane_vbus::{Configuration, Vbus, devices};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Largest state file. The limits of buses, devices and links allow far less.
const MAX: u64 = 4 << 20;

/// The folder of a vbusd, which no other one uses while this value lives.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    /// Held open for changes of names.
    directory: File,
    _lock: File,
}

impl Store {
    /// Takes the folder.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join("lock");
        let context = || format!("cannot open {}", path.display());
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(&path).with_context(context)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => bail!(
                "another vbusd uses {}: end it, or name another folder",
                folder.display()
            ),
            Err(error) => return Err(error).with_context(context),
        }
        let directory = File::open(folder).with_context(context)?;
        let disks = folder.join(disk::FOLDER);
        let context = || format!("cannot make the folder {}", disks.display());
        let mut maker = fs::DirBuilder::new();
        maker.recursive(true).mode(0o700);
        maker.create(&disks).with_context(context)?;
        Ok(Store {
            folder: folder.to_path_buf(),
            directory,
            _lock: lock,
        })
    }

    /// The state that was saved last; at first nothing.
    pub fn load(&self, pool: &Arc<Pool>, cards: &Cards) -> anyhow::Result<Vbus> {
        let path = self.folder.join("state.json");
        let mut classes = devices::classes();
        let restores = Arc::new(AtomicBool::new(true));
        classes.push(Box::new(DiskClass::new(&self.folder, pool, &restores)));
        classes.extend(cards.classes(&restores));
        let mut vbus = Vbus::new(classes);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.len() > MAX => {
                bail!("{} is damaged: over {} MiB", path.display(), MAX >> 20)
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                restores.store(false, Ordering::SeqCst);
                return Ok(vbus);
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        }
        let damaged = || format!("{} is damaged: correct or remove it", path.display());
        let text = fs::read(&path).with_context(damaged)?;
        let configuration: Configuration = serde_json::from_slice(&text).with_context(damaged)?;
        vbus.restore(&configuration).with_context(damaged)?;
        restores.store(false, Ordering::SeqCst);
        Ok(vbus)
    }

    /// Saves the state, on the disk when it returns.
    pub fn save(&self, vbus: &Vbus) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(&vbus.configuration())?;
        text.push(b'\n');
        let part = self.folder.join("state.json.part");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&part)?;
        file.write_all(&text)?;
        file.sync_data()?;
        fs::rename(&part, self.folder.join("state.json"))?;
        self.directory.sync_all()
    }
}
