// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Users and groups, from /etc/passwd and /etc/group.
//!
//! The functions of libc would load NSS libraries of the root, which a static program must not.

use std::fs;
use std::io;

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
        let read = |path: &str| match fs::read(path) {
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

    /// The number of a user, given by name or number.
    pub fn uid(&self, name: &str) -> Option<u32> {
        id(&self.passwd, name)
    }

    /// The number of a group, given by name or number.
    pub fn gid(&self, name: &str) -> Option<u32> {
        id(&self.group, name)
    }

    /// Finds NAME or UID, optionally followed by `:` and GROUP or GID.
    pub fn find(&self, wanted: &str) -> Result<User, String> {
        find_in(wanted, &self.passwd, &self.group)
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
