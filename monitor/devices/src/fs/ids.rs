// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Users, groups and inode numbers, as the guest sees them.
//!
//! An ordinary user's monitor can make files for this user alone, so the guest's root stands for
//! the user, and the guest's group 0 for the user's group. The crate has such a mapping, too, but
//! only one, for users and groups alike. That is wrong where the two numbers differ: `chown 0:0`
//! asks for a group that has the user's number, and the host refuses it.
//!
//! * The user and the group are 0 in each answer. The host's root and its group are 0 as well, and
//!   all other numbers are the host's.
//! * In a request to change the owner, 0 is the user or the group. Other numbers go to the host,
//!   which decides.
//! * A file that another user of the guest makes is this user's, too, and so root's in the guest.
//!
//! If root runs the monitor, all numbers are the host's.
//!
//! The crate puts the number of the mount into the highest byte of a file's node. Inode numbers
//! lose it: programs that keep a number as a double (Node.js) have 53 bits for it, and would take
//! files whose numbers are close to each other for one file with several names. All files are of
//! the same mount, so no two numbers become equal.

use fuse_backend_rs::abi::fuse_abi::stat64;
use fuse_backend_rs::api::VFS_MAX_INO;
use fuse_backend_rs::api::filesystem::{Context, DirEntry, Entry};

/// What the guest sees as root: a user and a group. `None`: the host's root.
#[derive(Clone, Copy, Debug)]
pub struct Ids(Option<(libc::uid_t, libc::gid_t)>);

impl Ids {
    /// With `one_user`, the guest's root is the user of this thread.
    pub fn new(one_user: bool) -> Self {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        Ids(one_user.then_some((user.as_raw(), group.as_raw())))
    }

    /// With `one_user`, for this user and group.
    #[cfg(test)]
    pub fn of(user: libc::uid_t, group: libc::gid_t) -> Self {
        Ids(Some((user, group)))
    }

    /// A file's attributes, for the guest.
    pub fn attr(self, mut attr: stat64) -> stat64 {
        attr.st_ino = small(attr.st_ino);
        if let Some((user, group)) = self.0 {
            attr.st_uid = changed(attr.st_uid, user, 0);
            attr.st_gid = changed(attr.st_gid, group, 0);
        }
        attr
    }

    /// The answer to a request for a name. The node stays: the guest sends it with requests.
    pub fn entry(self, mut entry: Entry) -> Entry {
        entry.attr = self.attr(entry.attr);
        entry
    }

    /// Attributes that the guest sets, for the host.
    pub fn set(self, mut attr: stat64) -> stat64 {
        if let Some((user, group)) = self.0 {
            attr.st_uid = changed(attr.st_uid, 0, user);
            attr.st_gid = changed(attr.st_gid, 0, group);
        }
        attr
    }

    /// Changes the user of a request to the one that carries it out. As the guest's root, the crate
    /// does not change this thread's user and group. For any other it would set both, which an
    /// ordinary user may not: the request would fail. If they are this user's own, it would set
    /// them back to 0 before it reads the error of the request, which would then be EPERM.
    pub fn caller(self, ctx: &mut Context) {
        if self.0.is_some() {
            (ctx.uid, ctx.gid) = (0, 0);
        }
    }
}

/// An entry of a list, for the guest.
pub fn listed(entry: DirEntry<'_>) -> DirEntry<'_> {
    DirEntry {
        ino: small(entry.ino),
        ..entry
    }
}

/// The bit by which the crate marks the numbers that it makes up, where the host's has 48 bits or
/// more, and one that fits into 53 bits. Below both are at most 47 bits, and the number of the
/// mount of the host, which is less than 32 in most folders.
const MADE_UP: [u64; 2] = [1 << 55, 1 << 52];

/// The number that the guest sees for a number of the crate.
fn small(number: u64) -> u64 {
    let number = number & VFS_MAX_INO;
    let [large, small] = MADE_UP;
    if number & large == 0 {
        return number;
    }
    number & !large | small
}

fn changed(number: u32, from: u32, to: u32) -> u32 {
    if number == from { to } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(uid: u32, gid: u32) -> stat64 {
        let mut attr = Entry::default().attr;
        (attr.st_uid, attr.st_gid) = (uid, gid);
        attr
    }

    fn owner(attr: stat64) -> (u32, u32) {
        (attr.st_uid, attr.st_gid)
    }

    #[test]
    fn user_and_group_are_mapped_by_a_number_of_their_own() {
        let ids = Ids::of(1000, 100);
        for (host, guest) in [
            ((1000, 100), (0, 0)),
            ((0, 0), (0, 0)),
            ((100, 1000), (100, 1000)),
            ((33, 44), (33, 44)),
        ] {
            let shown = ids.attr(owned(host.0, host.1));
            assert_eq!(owner(shown), guest, "{host:?}");
        }
        for (guest, host) in [
            ((0, 0), (1000, 100)),
            ((1000, 100), (1000, 100)),
            ((100, 1000), (100, 1000)),
            ((0, 44), (1000, 44)),
            ((u32::MAX, 0), (u32::MAX, 100)),
        ] {
            let set = ids.set(owned(guest.0, guest.1));
            assert_eq!(owner(set), host, "{guest:?}");
        }
    }

    #[test]
    fn numbers_of_files_have_53_bits() {
        for (number, shown) in [
            (0, 0),
            (1 << 56 | 1 << 47 | 1234, 1 << 47 | 1234),
            (1 << 56 | 1 << 55 | 7, 1 << 52 | 7),
        ] {
            let mut attr = owned(0, 0);
            attr.st_ino = number;
            let seen = Ids(None).attr(attr).st_ino;
            assert_eq!(seen, shown);
            assert!(seen < 1 << 53);
        }
    }

    #[test]
    fn one_user_carries_out_all_requests() {
        for (ids, expected) in [(Ids::of(1000, 100), (0, 0)), (Ids(None), (33, 44))] {
            let mut ctx = Context::new();
            (ctx.uid, ctx.gid) = (33, 44);
            ids.caller(&mut ctx);
            assert_eq!((ctx.uid, ctx.gid), expected);
        }
    }

    #[test]
    fn root_has_the_numbers_of_the_host() {
        for number in [(0, 0), (0, 1000), (1000, 0), (33, 44)] {
            let attr = owned(number.0, number.1);
            assert_eq!(owner(Ids(None).attr(attr)), number);
            assert_eq!(owner(Ids(None).set(attr)), number);
        }
    }
}
