// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets that a machine makes for programs of the host.

use anyhow::bail;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The name of a socket, which is removed with this value.
#[derive(Debug)]
pub struct Name {
    path: PathBuf,
    /// Device and inode of the socket's file.
    own: (u64, u64),
}

impl Drop for Name {
    fn drop(&mut self) {
        // Do not remove a socket that another program has put there.
        if fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.own) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes a socket. Replaces only one that no process listens on.
///
/// # Errors
/// There is something else, another process listens there, or the host's error.
pub fn listen(path: &Path) -> anyhow::Result<(UnixListener, Name)> {
    if let Ok(meta) = fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            bail!("there is something that is no socket");
        }
        match UnixStream::connect(path) {
            Ok(_) => bail!("somebody listens there already"),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let listener = UnixListener::bind(path)?;
    let meta = fs::symlink_metadata(path)?;
    let name = Name {
        path: path.to_path_buf(),
        own: (meta.dev(), meta.ino()),
    };
    Ok((listener, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_without_a_listener_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let listener = listen(&path).unwrap();
        assert!(
            listen(&path)
                .unwrap_err()
                .to_string()
                .contains("somebody listens")
        );
        drop(listener);
        assert!(!path.exists(), "the socket is left");
        let file = folder.path().join("file");
        fs::write(&file, "mine").unwrap();
        assert!(listen(&file).unwrap_err().to_string().contains("no socket"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
        assert!(listen(&folder.path().join("no/such")).is_err());
    }
}
