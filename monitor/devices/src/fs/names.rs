// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists the names of a folder whose entries cannot be looked up.
//!
//! The crate looks each entry of a list up. Where that fails, because this user may not or has no
//! descriptor left, its list ends: without an error if nothing but `.` and `..` came before. A
//! guest would take the folder for empty.

use fuse_backend_rs::api::filesystem::{DirEntry, Entry};
use rustix::fs::{FileType, RawDir, SeekFrom, seek};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;

/// Enough bytes for many entries of the host's list, and for the longest name.
const BUFFER: usize = 4096;

/// An entry of which only the name is known: the guest looks it up when it needs more. Without a
/// node, the guest reads no attributes.
pub fn unknown() -> Entry {
    Entry::default()
}

/// Passes the names of a folder from a position on to `add`, until that has no room and returns 0.
///
/// # Errors
/// The host does not read the folder, or that of `add`.
pub fn list(
    folder: &File,
    position: u64,
    add: &mut dyn FnMut(DirEntry<'_>, Entry) -> io::Result<usize>,
) -> io::Result<()> {
    seek(folder, SeekFrom::Start(position))?;
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut entries = RawDir::new(folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let listed = DirEntry {
            ino: entry.ino(),
            offset: entry.next_entry_cookie(),
            type_: kind(entry.file_type()),
            name,
        };
        if name != b"." && name != b".." && add(listed, unknown())? == 0 {
            break;
        }
    }
    Ok(())
}

/// The type as in `struct linux_dirent64`.
fn kind(of: FileType) -> u32 {
    u32::from(match of {
        FileType::RegularFile => libc::DT_REG,
        FileType::Directory => libc::DT_DIR,
        FileType::Symlink => libc::DT_LNK,
        FileType::Fifo => libc::DT_FIFO,
        FileType::Socket => libc::DT_SOCK,
        FileType::CharacterDevice => libc::DT_CHR,
        FileType::BlockDevice => libc::DT_BLK,
        FileType::Unknown => libc::DT_UNKNOWN,
    })
}
