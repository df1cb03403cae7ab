// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Folders of which the guest knows all names, so that it need not ask for one that it does not
//! know.
//!
//! The device says so of a folder that the guest has just made, and with the last part of a list.
//! Before that the folder is watched, so each name that appears later is reported. The device does
//! not say so of a folder in which two names can be one, by their case: there a name that is not
//! listed can exist.

use super::super::names;
use super::Folder;
use fuse_backend_rs::api::filesystem::{Context, DirEntry, Entry, FileSystem};
use std::ffi::{CStr, CString};
use std::io;

/// `FUSE_ATTR_EMPTY` of the project's kernel: the new folder is empty, and watched.
const EMPTY: u32 = 1 << 30;

/// The name in the other case, if it has one.
pub fn other_case(name: &[u8]) -> Option<CString> {
    let swap = |byte: &u8| match byte.is_ascii_lowercase() {
        true => byte.to_ascii_uppercase(),
        false => byte.to_ascii_lowercase(),
    };
    let other: Vec<u8> = name.iter().map(swap).collect();
    (other != name).then(|| CString::new(other).ok())?
}

impl Folder {
    /// Whether a folder surely distinguishes names by their case: it has a name, but not this other
    /// one.
    pub(super) fn tells_apart(&self, ctx: &Context, folder: u64, other: &CStr) -> bool {
        match self.inner.lookup(ctx, folder, other) {
            Ok(entry) => {
                self.inner.forget(ctx, entry.inode, 1);
                false
            }
            Err(error) => error.raw_os_error() == Some(libc::ENOENT),
        }
    }

    /// Completes the answer about a folder that the guest has made under this name.
    pub(super) fn made_folder(
        &self,
        ctx: &Context,
        parent: u64,
        name: &CStr,
        mut entry: Entry,
    ) -> io::Result<Entry> {
        let watch = self.watch.as_ref();
        let watched = watch.is_some_and(|watch| watch.is_watched(entry.inode));
        if watched
            && self.told_ends()
            && other_case(name.to_bytes())
                .is_some_and(|other| self.tells_apart(ctx, parent, &other))
            && self.is_empty(&entry)?
        {
            entry.attr_flags |= EMPTY;
        }
        Ok(entry)
    }

    /// Whether a folder has no names.
    fn is_empty(&self, entry: &Entry) -> io::Result<bool> {
        let mut empty = true;
        let mut any = |_: DirEntry<'_>, _: Entry| {
            empty = false;
            Ok(0)
        };
        let folder = self.open_passed(entry.inode)?;
        self.open.close(entry.inode);
        names::list(&folder, 0, &mut any)?;
        Ok(empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_letters_have_another_case() {
        for (name, other) in [
            ("aB1", Some("Ab1")),
            ("12.", None),
            ("\u{e4}x", Some("\u{e4}X")),
        ] {
            let found = other_case(name.as_bytes());
            let wanted = other.map(|other| CString::new(other).unwrap());
            assert_eq!(found, wanted, "{name}");
        }
    }
}
