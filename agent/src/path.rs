// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looks up the program of a command.

use rustix::fs::{Access, access};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The default PATH of commands.
pub const DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The file to execute for `name`: relative to `folder` if it contains a slash, otherwise the first
/// executable file of that name in `path`.
pub fn find(name: &[u8], path: &[u8], folder: &Path) -> io::Result<PathBuf> {
    if name.contains(&b'/') {
        return Ok(folder.join(OsStr::from_bytes(name)));
    }
    let mut error = io::ErrorKind::NotFound;
    for part in path.split(|&b| b == b':') {
        if name.is_empty() {
            break;
        }
        let file = folder
            .join(OsStr::from_bytes(part))
            .join(OsStr::from_bytes(name));
        if file.is_file() {
            if access(&file, Access::EXEC_OK).is_ok() {
                return Ok(file);
            }
            error = io::ErrorKind::PermissionDenied;
        }
    }
    Err(error.into())
}

/// Converts bytes of a message to a path.
pub fn from_bytes(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_first_executable_file_along_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["one", "two", "three"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        fs::create_dir(root.join("one/program")).unwrap();
        for (name, mode) in [
            ("two/program", 0o644),
            ("three/program", 0o755),
            ("two/data", 0o644),
        ] {
            fs::write(root.join(name), "").unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = b"one:two:three";
        assert_eq!(
            find(b"program", path, root).unwrap(),
            root.join("three/program")
        );
        assert_eq!(find(b"./x/y", path, root).unwrap(), root.join("x/y"));
        let kind = |name: &[u8]| find(name, path, root).unwrap_err().kind();
        assert_eq!(kind(b"data"), io::ErrorKind::PermissionDenied);
        assert_eq!(kind(b"nothing"), io::ErrorKind::NotFound);
        assert_eq!(kind(b""), io::ErrorKind::NotFound);
    }
}
