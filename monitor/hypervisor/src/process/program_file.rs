// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layer's program as a file that nothing can change.

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// `MFD_EXEC`: hosts from 6.3 on may require it for files in memory that are executed.
const MFD_EXEC: MemfdFlags = MemfdFlags::from_bits_retain(0x10);
/// How long the host may be busy with the file's pages.
const BUSY_TIME: Duration = Duration::from_secs(10);
/// The time between two tries. The host kernel itself waits about 150 ms in each.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// The program as a file that can be executed and no longer changed.
///
/// # Errors
/// The host's error.
pub fn program_file(program: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match rustix::fs::memfd_create("paravane-layer", flags | MFD_EXEC) {
        // Kernels before 6.3 do not know the flag and do not need it.
        Err(Errno::INVAL) => rustix::fs::memfd_create("paravane-layer", flags)?,
        other => other?,
    };
    let mut file = File::from(file);
    file.write_all(program)?;
    seal(file.as_fd(), BUSY_TIME)?;
    Ok(file.into())
}

/// Seals a file that has no writable mapping.
///
/// The host refuses with `EBUSY` while anything else holds a page of the file: a writer could still
/// change it. Work of the host itself, such as compaction, can do so for a short time. See
/// fcntl(2), `F_SEAL_WRITE`.
fn seal(file: BorrowedFd<'_>, patience: Duration) -> io::Result<()> {
    let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let deadline = Instant::now() + patience;
    loop {
        match rustix::fs::fcntl_add_seals(file, seals) {
            Err(Errno::BUSY) if Instant::now() < deadline => std::thread::sleep(TRY_AGAIN),
            Err(error) => {
                let error = io::Error::from(error);
                let text = format!("the seals of the layer's file: {error}");
                return Err(io::Error::new(error.kind(), text));
            }
            Ok(()) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::SpliceFlags;

    /// A file whose page a pipe holds until the reader is dropped.
    fn held() -> (File, std::io::PipeReader) {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(rustix::fs::memfd_create("held", flags).unwrap());
        file.write_all(&[1; 4096]).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let mut at = 0;
        let moved = rustix::pipe::splice(
            &file,
            Some(&mut at),
            &writer,
            None,
            4096,
            SpliceFlags::empty(),
        )
        .unwrap();
        assert_eq!(moved, 4096);
        (file, reader)
    }

    #[test]
    fn sealing_waits_for_the_host() {
        let (file, reader) = held();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Longer than the host kernel's own patience.
                std::thread::sleep(Duration::from_millis(600));
                drop(reader);
            });
            seal(file.as_fd(), BUSY_TIME).unwrap();
        });
        let mut file = file;
        assert!(file.write_all(b"x").is_err());
    }

    #[test]
    fn sealing_ends() {
        let (file, reader) = held();
        let error = seal(file.as_fd(), Duration::from_millis(300)).unwrap_err();
        assert!(error.to_string().contains("seals"), "{error}");
        drop(reader);
    }
}
