// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host publishes in /proc and /sys. Any of it may be missing, and in containers much of
//! it is.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The number in a file; `None` for `max`, or if the file cannot be read.
pub fn number(path: impl AsRef<Path>) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The text of a file, trimmed.
pub fn text(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string())
}

/// The number in a line `Name:   123 kB` of a status file.
pub fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text
        .lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Page tables of a process in KiB.
pub fn page_tables(pid: u32) -> Option<u64> {
    field(
        &fs::read_to_string(format!("/proc/{pid}/status")).ok()?,
        "VmPTE",
    )
}

/// Host memory of a process besides files in KiB: page tables and private pages. A process that has
/// ended has none.
///
/// # Errors
/// The host's error: it is not known.
pub fn overhead(pid: u32) -> io::Result<u64> {
    let status = match fs::read_to_string(format!("/proc/{pid}/status")) {
        Err(error) if is_gone(&error) => return Ok(0),
        read => read?,
    };
    // A process that has ended has neither line.
    let kib = |name| field(&status, name).unwrap_or(0);
    Ok(kib("VmPTE") + kib("RssAnon"))
}

/// Whether an error says that the process has ended.
fn is_gone(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    number == Some(libc::ENOENT) || number == Some(libc::ESRCH)
}

/// The number of mappings of a process. A process that has ended has none.
///
/// # Errors
/// The host's error: it is not known.
pub fn mappings(pid: u32) -> io::Result<u64> {
    let mut file = match fs::File::open(format!("/proc/{pid}/maps")) {
        Err(error) if is_gone(&error) => return Ok(0),
        opened => opened?,
    };
    let (mut buffer, mut count) = (vec![0; 1 << 16], 0);
    loop {
        match file.read(&mut buffer) {
            Err(error) if is_gone(&error) => return Ok(0),
            Err(error) => return Err(error),
            Ok(0) => return Ok(count),
            Ok(length) => {
                count += buffer[..length]
                    .iter()
                    .filter(|&&byte| byte == b'\n')
                    .count() as u64
            }
        }
    }
}

/// The threads of a process: the host's id, and the id in the thread's innermost PID namespace.
pub fn threads(pid: u32) -> io::Result<Vec<(u32, u32)>> {
    let mut all = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?;
        let host = task.file_name().to_str().and_then(|name| name.parse().ok());
        let inside = innermost_id(task.path().join("status"));
        let (Some(host), Some(inside)) = (host, inside) else {
            return Err(io::Error::other(
                "the host does not publish thread ids of PID namespaces (NSpid)",
            ));
        };
        all.push((host, inside));
    }
    Ok(all)
}

/// The id of a thread in its innermost PID namespace, from its status file.
pub fn innermost_id(status: impl AsRef<Path>) -> Option<u32> {
    let text = fs::read_to_string(status).ok()?;
    let ids = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_whitespace().last()?.parse().ok()
}

/// The folders of the control groups of this process for a controller, from its own group up to the
/// top.
///
/// Handles both versions. A container sees its own group as the top, or a path that does not exist:
/// then only the top counts.
pub fn groups(controller: &str) -> Vec<PathBuf> {
    let Some(lines) = text("/proc/self/cgroup") else {
        return Vec::new();
    };
    groups_of(&lines, controller)
        .into_iter()
        .filter(|folder| folder.is_dir())
        .collect()
}

fn groups_of(lines: &str, controller: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in lines.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let root = if controllers.is_empty() {
            PathBuf::from("/sys/fs/cgroup")
        } else if controllers.split(',').any(|c| c == controller) {
            Path::new("/sys/fs/cgroup").join(controller)
        } else {
            continue;
        };
        // `..` appears for a process outside of its group namespace.
        let mut own = root.clone();
        own.extend(
            path.split('/')
                .filter(|part| !part.is_empty() && *part != ".."),
        );
        folders.extend(
            own.ancestors()
                .take_while(|f| f.starts_with(&root))
                .map(Path::to_path_buf),
        );
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let status = "Name:\tx\nVmPTE:\t     164 kB\nThreads:\t3\n";
        assert_eq!(field(status, "VmPTE"), Some(164));
        assert_eq!(field(status, "Threads"), Some(3));
        assert_eq!(field(status, "Vm"), None);
        assert!(overhead(std::process::id()).unwrap() > 0);
        assert_eq!(overhead(0).unwrap(), 0);
        assert!(mappings(std::process::id()).unwrap() > 10);
        assert_eq!(mappings(0).unwrap(), 0);
    }

    #[test]
    fn groups_of_both_versions() {
        let folders = groups_of("8:pids,x:/a/b\n4:memory:/c\n0::/d/../e\n", "pids");
        let expected = [
            "/sys/fs/cgroup/pids/a/b",
            "/sys/fs/cgroup/pids/a",
            "/sys/fs/cgroup/pids",
        ];
        assert_eq!(folders[..3], expected.map(PathBuf::from));
        assert_eq!(folders[3], Path::new("/sys/fs/cgroup/d/e"));
        assert_eq!(folders.len(), 6);
    }
}
