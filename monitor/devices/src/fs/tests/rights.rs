// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rights of root that the device's thread keeps, and its effect on the rights of programs.

use super::{Access, DESTROY, OPEN, Sender, bytes, capability, confined, fill, named};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const GETXATTR: u32 = 22;
const LISTXATTR: u32 = 23;

fn get(sender: &mut Sender, node: u64, name: &str) -> Result<Vec<u8>, i32> {
    sender.send(GETXATTR, node, &named(&[100, 0], name))
}

/// Attributes that only the host's root may see, on each kind of volume. If root runs the monitor,
/// the guest also reads files that only their owner may read.
#[test]
fn attributes_of_the_host_s_root_stay_its_own() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let path = folder.path().join("file");
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(&path, name, value, rustix::fs::XattrFlags::empty()).is_ok()
    };
    if !set("trusted.paravane", b"secret") {
        return crate::skip::skip("not root, or the file system has no such attributes");
    }
    assert!(set("security.capability", &capability()));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    rustix::fs::chown(&path, Some(rustix::fs::Uid::from_raw(1234)), None).unwrap();
    for access in [Access::ReadOnly, Access::Write, Access::Suid] {
        confined(folder.path(), access, |sender| {
            let file = sender.lookup("file");
            assert_eq!(get(sender, file, "trusted.paravane"), Err(libc::ENODATA));
            let list = sender.ok(LISTXATTR, file, &bytes(&[1000, 0]));
            let list = String::from_utf8(list).unwrap();
            assert!(!list.contains("trusted"), "{list:?}");
            let noatime = (libc::O_RDONLY | libc::O_NOATIME).unsigned_abs();
            for flags in [0, noatime] {
                sender.ok(OPEN, file, &bytes(&[flags, 0]));
            }
        });
    }
}

/// With `:suid` programs get file capabilities. The guest cannot set other attributes that only
/// root may set.
#[test]
fn a_folder_for_programs_has_them_with_their_rights() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    if !rustix::process::geteuid().is_root() {
        return crate::skip::skip("not root");
    }
    confined(folder.path(), Access::Suid, |sender| {
        let file = sender.lookup("file");
        sender
            .set(file, "security.capability", &capability())
            .unwrap();
        let found = get(sender, file, "security.capability").unwrap();
        assert_eq!(found, capability());
        let none = sender.set(file, "trusted.paravane", b"x");
        assert_eq!(none, Err(libc::EPERM));
    });
}

/// The crate clears the umask each time a guest ends the file system.
#[test]
fn the_end_of_a_file_system_leaves_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    confined(folder.path(), Access::Write, |sender| {
        // SAFETY: changes an attribute of this thread, which ends.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0);
        let own = rustix::fs::Mode::from_raw_mode(0o027);
        rustix::process::umask(own);
        let _ = sender.send(DESTROY, 0, &[]);
        assert_eq!(rustix::process::umask(own), own);
    });
}
