// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Named machines: where their state is kept, and how other programs find them.
//!
//! Each machine has a folder below `$XDG_STATE_HOME/paravane/machines`, which contains:
//!
//! * `spec.json`: the machine's properties ([`Spec`]). It exists before all other files.
//! * `lock`: locked by the machine's monitor while it lives, or by its restarter, and contains the
//!   monitor's process id. Between two lives of the machine it contains the restarter's. The host's
//!   kernel releases the lock however they end.
//! * `control`: the socket on which the monitor listens ([`crate::control`]).
//! * `lives.json`: for a machine that may start again, its restarter's process id, and how often it
//!   has started again ([`Lives`]).
//! * `output`, `output.1`: the output of the command, and the monitor's last messages
//!   ([`crate::output_log`]).
//! * `hypervisor.json`: what runs it, and why.
//! * `signals.json`: what keeps the signals of its processes inside (`process::signal_scope`).
//! * `network.json`: the network that it got, once that is known.
//! * `ended.json`: how it ended ([`Ended`]), or `null` while it runs and after a crash. The monitor
//!   makes it with its full size before the machine starts, and overwrites it at the end. So the
//!   end is recorded on a full disk, too.
//!
//! `spec.json` gets its name when it is complete, and so does the folder: an incomplete folder has
//! a name that starts with a dot.

pub use crate::hold::{Ended, Hold, Lives};
use crate::run::Choice;
use crate::spec::Spec;
use anyhow::{Context, anyhow, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MAX_NAME: usize = 64;
/// Longest time for which a reader of the state holds the lock.
const LOOKED_AT: Duration = Duration::from_millis(200);
/// Prefix of an incomplete folder's name, followed by the process id of its creator. No machine has
/// such a name.
const DRAFT: &str = ".new-";
/// An incomplete folder that is older was left by a process that was killed.
const LEFT_BEHIND: Duration = Duration::from_secs(60);
/// The record of the end.
const ENDED: &str = "ended.json";
/// The record of the lives.
const LIVES: &str = "lives.json";
/// Interval between two attempts to take a lock, and between two looks at its content.
const LOOK: Duration = Duration::from_millis(5);
/// Longest time from taking the lock to the process id in it, on a busy host.
const WRITTEN: Duration = Duration::from_secs(1);

/// The state of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was never started.
    Created,
    /// A monitor holds its lock.
    Running {
        /// The monitor's process id.
        pid: u32,
    },
    /// It ended with this exit code.
    Exited(u8),
    /// Its monitor was killed.
    Died,
}

/// All machines of this user.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Opens the folder of this user's machines.
    pub fn open() -> anyhow::Result<Self> {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let base =
            absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        let Some(base) = base else {
            bail!("there is no folder for machines: set HOME or XDG_STATE_HOME");
        };
        Ok(Store {
            folder: base.join("paravane/machines"),
        })
    }

    /// Creates a machine. Without a name it gets a generated one.
    pub fn create(&self, name: Option<&str>, spec: &Spec) -> anyhow::Result<Machine> {
        let text = serde_json::to_vec_pretty(spec)
            .context("the command and environment of a machine with a name must be valid UTF-8")?;
        let mut folders = DirBuilder::new();
        folders.recursive(true).mode(0o700);
        folders
            .create(&self.folder)
            .with_context(|| format!("cannot make {}", self.folder.display()))?;
        if let Some(name) = name {
            check(name)?;
        }
        self.sweep();
        let folder = self.folder.join(format!("{DRAFT}{}", std::process::id()));
        let mut draft = Machine {
            name: String::new(),
            folder,
        };
        let complain = || format!("cannot make a machine in {}", self.folder.display());
        // An earlier process with this process id has ended.
        let _ = fs::remove_dir_all(&draft.folder);
        DirBuilder::new()
            .mode(0o700)
            .create(&draft.folder)
            .with_context(complain)?;
        let named = draft.write("spec.json", &text).and_then(|()| match name {
            Some(name) if self.name(&mut draft, name)? => Ok(()),
            Some(name) => {
                bail!(
                    "there is a machine {name}: choose another name, or \
                     `paravane rm --force {name}`"
                )
            }
            None => self.name_any(&mut draft),
        });
        if let Err(error) = named {
            let _ = fs::remove_dir_all(&draft.folder);
            return Err(error);
        }
        Ok(draft)
    }

    /// Gives a complete machine its name. Returns false if another machine has the name: its folder
    /// is not empty.
    fn name(&self, draft: &mut Machine, name: &str) -> anyhow::Result<bool> {
        let folder = self.folder.join(name);
        match fs::rename(&draft.folder, &folder) {
            Ok(()) => {
                draft.name = name.to_string();
                draft.folder = folder;
                Ok(true)
            }
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOTEMPTY | libc::EEXIST | libc::ENOTDIR)
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(error).with_context(|| format!("cannot make {}", folder.display())),
        }
    }

    fn name_any(&self, draft: &mut Machine) -> anyhow::Result<()> {
        for n in 1..100_000 {
            if self.name(draft, &format!("vm{n}"))? {
                return Ok(());
            }
        }
        bail!("too many machines in {}", self.folder.display())
    }

    /// Removes incomplete folders of processes that were killed.
    fn sweep(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let draft = entry.file_name().to_string_lossy().starts_with(DRAFT);
            let age = entry
                .metadata()
                .and_then(|m| m.modified())
                .map(|at| at.elapsed().unwrap_or_default());
            if draft && age.is_ok_and(|age| age > LEFT_BEHIND) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// The machine of this name.
    pub fn find(&self, name: &str) -> anyhow::Result<Machine> {
        check(name)?;
        let folder = self.folder.join(name);
        if !folder.is_dir() {
            bail!("there is no machine {name}: see `paravane ps --all`");
        }
        Ok(Machine {
            name: name.to_string(),
            folder,
        })
    }

    /// All machines, by name.
    pub fn all(&self) -> anyhow::Result<Vec<Machine>> {
        let complain = || format!("cannot read {}", self.folder.display());
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(complain),
        };
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry.with_context(complain)?;
            // Other names do not belong to machines.
            if let Some(name) = entry
                .file_name()
                .to_str()
                .filter(|name| check(name).is_ok())
            {
                all.push(Machine {
                    name: name.to_string(),
                    folder: entry.path(),
                });
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }
}

/// Checks that a name is valid for a machine.
fn check(name: &str) -> anyhow::Result<()> {
    let first = name
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric());
    let all = name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    if !first || !all || name.len() > MAX_NAME {
        bail!(
            "`{name}` cannot be a machine's name: letters, digits, `_`, `.` and `-`, \
             at most {MAX_NAME}"
        );
    }
    Ok(())
}

/// A named machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its name.
    pub name: String,
    folder: PathBuf,
}

impl Machine {
    /// The machine's properties.
    pub fn spec(&self) -> anyhow::Result<Spec> {
        match self.read("spec.json")? {
            Some(spec) => Ok(spec),
            None => bail!(
                "machine {} was never completed: `paravane rm {}`",
                self.name,
                self.name
            ),
        }
    }

    /// The machine's state.
    pub fn state(&self) -> anyhow::Result<State> {
        let path = self.folder.join("lock");
        let lock = match File::open(&path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::Created),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let deadline = Instant::now() + WRITTEN;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockShared) {
                Ok(()) => {
                    return Ok(match self.read::<Option<Ended>>(ENDED)?.flatten() {
                        Some(ended) => State::Exited(ended.code),
                        None => State::Died,
                    });
                }
                Err(Errno::WOULDBLOCK) => {
                    // The monitor writes its process id right after it has taken the lock. The file
                    // is empty before, and the host may stop the monitor there.
                    let pid = fs::read_to_string(&path).unwrap_or_default();
                    match pid.trim().parse() {
                        Ok(pid) => return Ok(State::Running { pid }),
                        Err(_) if Instant::now() < deadline => std::thread::sleep(LOOK),
                        Err(_) => return Ok(State::Running { pid: 0 }),
                    }
                }
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            }
        }
    }

    /// Waits until the machine's monitor has ended. Returns false on a timeout.
    pub fn wait_gone(&self, time: Duration) -> anyhow::Result<bool> {
        let deadline = Instant::now() + time;
        while let State::Running { .. } = self.state()? {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        Ok(true)
    }

    /// Forgets which process was the monitor, while none is. To be called under
    /// [`turn`](Machine::turn) before a monitor starts: a reader of the state must not find the old
    /// id, which may be another process's now, after the new monitor has taken the lock. A monitor
    /// that runs keeps its own: one of `run` needs no turn.
    ///
    /// # Errors
    /// The host's.
    pub fn forget_monitor(&self) -> anyhow::Result<()> {
        let path = self.folder.join("lock");
        let empty = || {
            let lock = OpenOptions::new().write(true).open(&path)?;
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => lock.set_len(0),
                Err(Errno::WOULDBLOCK) => Ok(()),
                Err(error) => Err(error.into()),
            }
        };
        match empty() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| path.display().to_string())
            }
            _ => Ok(()),
        }
    }

    /// For the monitor: takes the lock if it is free, and removes the record of an earlier end.
    pub fn hold(&self) -> anyhow::Result<Hold> {
        let path = self.folder.join("lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        let deadline = Instant::now() + LOOKED_AT;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                // A reader of the state holds the lock for a moment, too.
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(LOOK),
                Err(Errno::WOULDBLOCK) => bail!("machine {} is running", self.name),
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            }
        }
        let record = self.folder.join(ENDED);
        let hold = Hold::new(lock, &record, &self.folder.join(LIVES))?;
        for old in ["network.json", "signals.json", "hypervisor.json", "control"] {
            match fs::remove_file(self.folder.join(old)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(hold)
    }

    /// For the monitor: records what runs the machine, and why, in one write.
    pub fn set_hypervisor(&self, choice: &Choice) -> anyhow::Result<()> {
        let path = self.folder.join("hypervisor.json");
        fs::write(&path, serde_json::to_vec(choice)?).with_context(|| path.display().to_string())
    }

    /// For the monitor: records what keeps the signals of the machine's processes inside, in one
    /// write.
    pub fn set_signals(&self, word: &str) -> anyhow::Result<()> {
        let path = self.folder.join("signals.json");
        fs::write(&path, serde_json::to_vec(word)?).with_context(|| path.display().to_string())
    }

    /// For the monitor: the file in which it records the machine's network, in one write. It is
    /// empty until then.
    pub fn record_network(&self) -> anyhow::Result<File> {
        let path = self.folder.join("network.json");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options
            .open(&path)
            .with_context(|| path.display().to_string())
    }

    /// The contents of a record of the monitor: the network, what runs the machine, or what keeps
    /// signals inside.
    pub fn recorded(&self, name: &str) -> anyhow::Result<Option<serde_json::Value>> {
        match fs::metadata(self.folder.join(name)) {
            Ok(file) if file.len() > 0 => self.read(name),
            _ => Ok(None),
        }
    }

    /// The lives of a machine that may start again.
    pub fn lives(&self) -> anyhow::Result<Option<Lives>> {
        Ok(self.read::<Option<Lives>>(LIVES)?.flatten())
    }

    /// The path of the machine's output.
    pub fn output(&self) -> PathBuf {
        self.folder.join("output")
    }

    /// The machine's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Waits for others that start or remove the machine, and keeps them from that until the result
    /// is dropped.
    ///
    /// # Errors
    /// The machine was removed, or the host's error.
    pub fn turn(&self) -> anyhow::Result<File> {
        let removed = || anyhow!("machine {} was removed meanwhile", self.name);
        let folder = match File::open(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(removed()),
            opened => opened.with_context(|| self.folder.display().to_string())?,
        };
        flock(&folder, FlockOperation::LockExclusive)?;
        // The command that held the lock before may have removed the machine.
        let held = folder.metadata()?;
        let named = fs::metadata(&self.folder).map_err(|_| removed())?;
        if (named.dev(), named.ino()) != (held.dev(), held.ino()) {
            return Err(removed());
        }
        Ok(folder)
    }

    /// Whether no command has removed it.
    pub fn exists(&self) -> bool {
        self.folder.exists()
    }

    /// Removes the machine, which must not run.
    pub fn remove(&self) -> anyhow::Result<()> {
        let complain = || format!("cannot remove {}", self.folder.display());
        // No other command finds a part of it. If this process is killed, the next one that creates
        // a machine removes the rest. The confined monitor may not rename the folder.
        let name = format!("{DRAFT}{}-removed", std::process::id());
        let hidden = self.folder.with_file_name(name);
        let _ = fs::remove_dir_all(&hidden);
        match fs::rename(&self.folder, &hidden) {
            Ok(()) => fs::remove_dir_all(&hidden).with_context(complain),
            Err(_) => fs::remove_dir_all(&self.folder).with_context(complain),
        }
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> anyhow::Result<Option<T>> {
        let path = self.folder.join(name);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        // A power failure leaves a record that was not on the disk yet empty, or with zeros.
        if text.iter().all(|byte| matches!(byte, 0 | b' ')) {
            return Ok(None);
        }
        let value = serde_json::from_slice(&text)
            .with_context(|| format!("{} is damaged", path.display()))?;
        Ok(Some(value))
    }

    /// Writes a file atomically: it exists completely or not at all.
    fn write(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let part = self.folder.join(format!("{name}.part"));
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&part)?;
            file.write_all(content)?;
            file.sync_data()?;
            fs::rename(&part, self.folder.join(name))
        };
        write().with_context(|| format!("cannot write {}", self.folder.join(name).display()))
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
