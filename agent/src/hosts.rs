// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes the machine's own name resolve, by a line in /etc/hosts.

use crate::user;
use std::fs;
use std::io;

/// The file.
pub const HOSTS: &str = "/etc/hosts";
/// The address that Debian gives to a machine's own name.
const ADDRESS: &str = "127.0.1.1";
/// The comment at the end of the agent's line. A start with another name replaces the line.
const MARK: &str = "# paravane";
/// For a root without the file.
const LOCALHOST: &str = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n";

/// Adds a line for the name, unless another line contains it.
pub fn add(name: &str) -> io::Result<()> {
    add_to(HOSTS, name)
}

fn add_to(path: &str, name: &str) -> io::Result<()> {
    let old = match user::content(path) {
        Ok(bytes) => String::from_utf8(bytes).map_err(io::Error::other)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    match changed(&old, name) {
        Some(new) => fs::write(path, new),
        None => Ok(()),
    }
}

/// The new text of the file. None if it does not change.
fn changed(old: &str, name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        return None;
    }
    let mut new: String = old
        .split_inclusive('\n')
        .filter(|line| !line.trim_end().ends_with(MARK))
        .collect();
    let has = |line: &str| {
        let words = line.split('#').next().unwrap_or_default();
        words.split_whitespace().skip(1).any(|word| word == name)
    };
    if !new.lines().any(has) {
        if new.trim().is_empty() {
            new.push_str(LOCALHOST);
        } else if !new.ends_with('\n') {
            new.push('\n');
        }
        new.push_str(&format!("{ADDRESS} {name} {MARK}\n"));
    }
    (new != old).then_some(new)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_line() {
        let first = changed("", "web").unwrap();
        assert_eq!(first, format!("{LOCALHOST}127.0.1.1 web # paravane\n"));
        assert_eq!(changed(&first, "web"), None);
        let second = changed(&first, "db").unwrap();
        assert_eq!(second, format!("{LOCALHOST}127.0.1.1 db # paravane\n"));
        assert_eq!(changed(&second, "localhost").unwrap(), LOCALHOST);
    }

    #[test]
    fn a_file_that_is_a_fifo_or_too_large_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
        assert!(add_to(fifo.to_str().unwrap(), "web").is_err());
        let large = folder.path().join("large");
        fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
        assert!(add_to(large.to_str().unwrap(), "web").is_err());
        let new = folder.path().join("new");
        add_to(new.to_str().unwrap(), "web").unwrap();
        assert!(fs::read_to_string(new).unwrap().contains("127.0.1.1 web"));
    }

    #[test]
    fn other_lines_stay() {
        let own = "10.0.0.1 web.example web # ours";
        assert_eq!(changed(own, "web"), None);
        let with = changed(own, "ours").unwrap();
        assert_eq!(with, format!("{own}\n127.0.1.1 ours # paravane\n"));
    }

    #[test]
    fn invalid_names_are_not_written() {
        for name in ["", "a b", "a\nb", "#"] {
            assert_eq!(changed("", name), None, "{name:?}");
        }
    }
}
