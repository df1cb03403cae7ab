// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control groups of the host, of either version, if this user can make them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A group for one controller. It is removed at the end.
#[derive(Debug)]
pub struct ControlGroup {
    folder: PathBuf,
    version_1: bool,
}

/// A file of a group: its names in version 2 and in version 1.
pub type Names = (&'static str, &'static str);

impl ControlGroup {
    /// Makes a group below the test's own one, or, in version 2, below the root: a group with
    /// processes has no other groups there. `None` if this user may not make a group, or the host
    /// does not have `file` in it.
    #[must_use]
    pub fn new(controller: &str, file: Names) -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = groups
            .lines()
            .find_map(|line| line.split_once(&format!(":{controller}:")));
        let parent = match own {
            Some((_, path)) => {
                let root = Path::new("/sys/fs/cgroup").join(controller);
                root.join(path.trim_start_matches('/'))
            }
            None => PathBuf::from("/sys/fs/cgroup"),
        };
        let group = ControlGroup {
            folder: parent.join(format!("paravane-test-{}", std::process::id())),
            version_1: own.is_some(),
        };
        fs::create_dir(&group.folder).ok()?;
        group.path(file).exists().then_some(group)
    }

    /// The text of a file.
    ///
    /// # Panics
    /// When the host does not have the file.
    #[must_use]
    pub fn read(&self, file: Names) -> String {
        let text = fs::read_to_string(self.path(file));
        text.unwrap_or_else(|error| unreachable!("{}: {error}", file.0))
    }

    /// Sets a limit.
    ///
    /// # Panics
    /// When the host refuses it.
    pub fn set(&self, file: Names, value: u64) {
        let written = fs::write(self.path(file), value.to_string());
        written.unwrap_or_else(|error| unreachable!("{}: {error}", file.0));
    }

    /// The command in this group: a shell joins the group, then becomes the program.
    #[must_use]
    pub fn with(&self, command: &Command) -> Command {
        let mut joined = Command::new("sh");
        joined
            .args(["-c", "echo $$ > \"$0\"/cgroup.procs && exec \"$@\""])
            .arg(&self.folder)
            .arg(command.get_program())
            .args(command.get_args());
        joined
    }

    fn path(&self, (version_2, version_1): Names) -> PathBuf {
        self.folder
            .join(if self.version_1 { version_1 } else { version_2 })
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // It is empty when the host has removed the last process. It stays while a process is left
        // in it, which other tests detect.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
