// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `%` specifiers in tmpfiles.d, which stand for properties of the system.

use super::tree::Tree;
use std::path::Path;

/// The maximum size of a file with values.
const MAX_FILE: usize = 64 << 10;
/// The maximum size of a value, which a line can name often. Longer ones count as missing.
const MAX_VALUE: usize = 64;
/// Specifiers for fields of os-release.
const OS_FIELDS: [(u8, &str); 6] = [
    (b'o', "ID"),
    (b'w', "VERSION_ID"),
    (b'W', "VARIANT_ID"),
    (b'B', "BUILD_ID"),
    (b'M', "IMAGE_ID"),
    (b'A', "IMAGE_VERSION"),
];

/// The root has no value for a specifier, such as a machine ID before the first boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing;

/// The values of one root.
#[derive(Clone, Debug, Default)]
pub struct Specifiers {
    machine_id: String,
    boot_id: String,
    hostname: String,
    release: String,
    /// In the order of [`OS_FIELDS`].
    os: Vec<String>,
}

impl Specifiers {
    /// Reads the values. Files that cannot be read count as empty.
    pub fn of(tree: &Tree) -> Self {
        let text = |path: &str| {
            let bytes = tree.read(Path::new(path), MAX_FILE).unwrap_or_default();
            String::from_utf8_lossy(&bytes).trim().to_string()
        };
        let os_release = match text("/etc/os-release") {
            missing if missing.is_empty() => text("/usr/lib/os-release"),
            found => found,
        };
        let release = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        let fields = OS_FIELDS.iter().map(|(_, name)| field(&os_release, name));
        Specifiers {
            machine_id: bounded(text("/etc/machine-id")),
            boot_id: bounded(text("/proc/sys/kernel/random/boot_id").replace('-', "")),
            // The monitor sets the host name later.
            hostname: bounded(text("/etc/hostname")),
            release: bounded(release),
            os: fields.map(bounded).collect(),
        }
    }

    /// Replaces the specifiers in a field. Unknown ones stay, as in systemd.
    pub fn expand(&self, text: &[u8]) -> Result<Vec<u8>, Missing> {
        let mut all = Vec::with_capacity(text.len());
        let mut bytes = text.iter().copied();
        while let Some(byte) = bytes.next() {
            match (byte, byte == b'%') {
                (_, false) => all.push(byte),
                (_, true) => match bytes.next() {
                    None => all.push(byte),
                    Some(letter) => match self.value(letter)? {
                        Some(value) => all.extend(value.bytes()),
                        None => all.extend([byte, letter]),
                    },
                },
            }
        }
        Ok(all)
    }

    fn value(&self, letter: u8) -> Result<Option<&str>, Missing> {
        let known = match letter {
            b'%' => "%",
            b'a' => "x86-64",
            b'b' => present(&self.boot_id)?,
            b'm' => present(&self.machine_id)?,
            b'H' => present(&self.hostname)?,
            b'l' => present(self.hostname.split('.').next().unwrap_or_default())?,
            b'v' => present(&self.release)?,
            b'o' | b'w' | b'W' | b'B' | b'M' | b'A' => self.os(letter),
            b'C' => "/var/cache",
            b'L' => "/var/log",
            b'S' => "/var/lib",
            b't' => "/run",
            b'T' => "/tmp",
            b'V' => "/var/tmp",
            b'h' => "/root",
            b'u' | b'g' => "root",
            b'U' | b'G' => "0",
            _ => return Ok(None),
        };
        Ok(Some(known))
    }

    /// A field of os-release. Empty if it is missing.
    fn os(&self, letter: u8) -> &str {
        let mut known = OS_FIELDS.iter().zip(&self.os);
        known
            .find(|((own, _), _)| *own == letter)
            .map_or("", |(_, value)| value.as_str())
    }
}

/// A field of os-release.
fn field(os_release: &str, name: &str) -> String {
    os_release
        .lines()
        .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))
        .unwrap_or_default()
        .trim_matches(['"', '\''])
        .to_string()
}

fn bounded(value: String) -> String {
    if value.len() > MAX_VALUE {
        return String::new();
    }
    value
}

fn present(value: &str) -> Result<&str, Missing> {
    if value.is_empty() {
        return Err(Missing);
    }
    Ok(value)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn values_come_from_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let etc = folder.path().join("etc");
        std::fs::create_dir(&etc).unwrap();
        std::fs::write(etc.join("hostname"), "box.example\n").unwrap();
        std::fs::write(etc.join("machine-id"), "").unwrap();
        let os = "NAME=Some\nID=debian\nVERSION_ID=\"12\"\n";
        std::fs::write(etc.join("os-release"), os).unwrap();
        let specifiers = Specifiers::of(&Tree::open(folder.path()).unwrap());
        let expand = |text: &str| specifiers.expand(text.as_bytes());
        let text = expand("%t/%o-%w/%l/%H/100%%/%y%").unwrap();
        assert_eq!(text, b"/run/debian-12/box/box.example/100%/%y%");
        assert_eq!(expand("/var/log/%m"), Err(Missing));
    }
}
