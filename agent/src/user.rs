// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Users and groups, from /etc/passwd and /etc/group.
//!
//! The functions of libc would load NSS libraries of the root, which a static program must not.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

/// The maximum size of a file with accounts: some fifty thousand of them.
const MAX_FILE: u64 = 4 << 20;

/// The user that a command runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    pub name: String,
    pub home: String,
}

/// The accounts of a root.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    passwd: String,
    group: String,
}

impl Accounts {
    /// Reads /etc/passwd and /etc/group, which need not exist.
    pub fn read() -> Result<Self, String> {
        let read = |path: &str| match content(path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(format!("cannot read {path}: {error}")),
        };
        Ok(Accounts {
            passwd: read("/etc/passwd")?,
            group: read("/etc/group")?,
        })
    }

    /// The accounts in these texts.
    #[cfg(test)]
    pub fn of(passwd: &str, group: &str) -> Self {
        Accounts {
            passwd: passwd.to_string(),
            group: group.to_string(),
        }
    }

    /// The numbers of all users.
    pub fn users(&self) -> Ids<'_> {
        Ids::of(&self.passwd)
    }

    /// The numbers of all groups.
    pub fn groups(&self) -> Ids<'_> {
        Ids::of(&self.group)
    }

    /// Finds NAME or UID, optionally followed by `:` and GROUP or GID.
    pub fn find(&self, wanted: &str) -> Result<User, String> {
        find_in(wanted, &self.passwd, &self.group)
    }
}

/// Reads a file of bounded size. In a hostile root it may be a FIFO, whose other end never comes.
pub fn content(path: &str) -> io::Result<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        let why = format!("larger than {} MiB", MAX_FILE >> 20);
        return Err(io::Error::other(why));
    }
    Ok(bytes)
}

/// The numbers of users or of groups, by name.
#[derive(Debug)]
pub struct Ids<'a>(HashMap<&'a str, Option<u32>>);

impl<'a> Ids<'a> {
    fn of(text: &'a str) -> Self {
        let mut all: HashMap<&'a str, Option<u32>> = HashMap::new();
        for entry in entries(text, 3) {
            // The first line for a name counts.
            all.entry(entry[0]).or_insert_with(|| entry[2].parse().ok());
        }
        Ids(all)
    }

    /// The number of a user or group, given by name or number. Root needs no line.
    pub fn get(&self, name: &str) -> Option<u32> {
        match self.0.get(name) {
            Some(known) => *known,
            None if name == "root" => Some(0),
            None => name.parse().ok(),
        }
    }
}

/// The third field of the line for a name. Root needs no line.
fn id(text: &str, name: &str) -> Option<u32> {
    let known = entries(text, 3).find(|entry| entry[0] == name);
    match known {
        Some(entry) => entry[2].parse().ok(),
        None if name == "root" => Some(0),
        None => name.parse().ok(),
    }
}

fn find_in(wanted: &str, passwd: &str, group: &str) -> Result<User, String> {
    let (who, with) = match wanted.split_once(':') {
        Some((who, with)) => (who, Some(with)),
        None => (wanted, None),
    };
    let number = who.parse::<u32>().ok();
    // name:password:uid:gid:comment:home:shell
    let known = entries(passwd, 6).find(|e| number.map_or(e[0] == who, |n| e[2].parse() == Ok(n)));
    let mut user = match (known, number) {
        (Some(e), _) => {
            let id = |text: &str| {
                text.parse()
                    .map_err(|_| format!("user {who}: its line in /etc/passwd is damaged"))
            };
            User {
                uid: id(e[2])?,
                gid: id(e[3])?,
                groups: Vec::new(),
                name: e[0].to_string(),
                home: e[5].to_string(),
            }
        }
        (None, Some(uid)) => User {
            uid,
            gid: uid,
            groups: Vec::new(),
            name: who.to_string(),
            home: "/".to_string(),
        },
        // Root needs no files.
        (None, None) if who == "root" => User {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            name: who.to_string(),
            home: "/".to_string(),
        },
        (None, None) => return Err(format!("there is no user {who}")),
    };
    // name:password:gid:member,member
    match with {
        Some(name) => {
            user.gid = match id(group, name) {
                Some(gid) => gid,
                None => return Err(format!("there is no group {name}")),
            };
        }
        None => {
            let member = |e: &Vec<&str>| {
                e.get(3)
                    .is_some_and(|list| list.split(',').any(|name| name == user.name))
            };
            user.groups = entries(group, 4)
                .filter(member)
                .filter_map(|e| e[2].parse().ok())
                .collect();
        }
    }
    Ok(user)
}

/// The fields of all lines that have at least this many.
fn entries(text: &str, fields: usize) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .filter(move |entry| entry.len() >= fields)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
        ann:x:1000:100::/home/ann:/bin/sh\nbad:x:y:0::/:/\nshort:x\n";
    const GROUP: &str = "root:x:0:\nusers:x:100:\nwheel:x:10:root,ann\nkvm:x:36:annette\nempty\n";

    #[test]
    fn by_name_and_by_number() {
        let ann = find_in("ann", PASSWD, GROUP).unwrap();
        assert_eq!(
            (ann.uid, ann.gid, &ann.groups[..], &ann.home[..]),
            (1000, 100, &[10][..], "/home/ann")
        );
        assert_eq!(find_in("1000", PASSWD, GROUP).unwrap(), ann);
        let with = find_in("ann:kvm", PASSWD, GROUP).unwrap();
        assert_eq!((with.uid, with.gid, with.groups.len()), (1000, 36, 0));
        let nobody = find_in("65534:7", PASSWD, GROUP).unwrap();
        assert_eq!((nobody.uid, nobody.gid, &nobody.home[..]), (65534, 7, "/"));
        assert_eq!(find_in("root", "", "").unwrap().uid, 0);
    }

    #[test]
    fn unknown_users_are_errors() {
        assert!(
            find_in("bob", PASSWD, GROUP)
                .unwrap_err()
                .contains("no user bob")
        );
        assert!(
            find_in("ann:nobodies", PASSWD, GROUP)
                .unwrap_err()
                .contains("no group nobodies")
        );
        assert!(
            find_in("bad", PASSWD, GROUP)
                .unwrap_err()
                .contains("damaged")
        );
        assert!(find_in("", PASSWD, GROUP).is_err());
        assert!(find_in("-1", PASSWD, GROUP).is_err());
    }
}
