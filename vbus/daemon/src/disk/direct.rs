// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads, writes and flushes by plain host calls, for which the thread waits.

use super::file::Image;
use super::ring::Operation;
use rustix::fs::fdatasync;
use std::io;
use std::os::unix::fs::FileExt;

/// How often a call is made again that the host has interrupted. No signal of vbusd's does that, so
/// a file system that says it each time would say it for ever.
pub const TRIES: u32 = 3;

/// Does a request, or what is left of it after the first `from` bytes. Waits for the host.
///
/// # Errors
/// The host's, or the file is shorter.
pub fn whole(
    image: &Image,
    operation: Operation,
    offset: u64,
    buffer: &mut [u8],
    from: usize,
) -> io::Result<()> {
    let rest = buffer.get_mut(from..).unwrap_or_default();
    let (len, offset) = (rest.len(), offset + from as u64);
    match operation {
        Operation::Read => all(len, |done| {
            let rest = rest.get_mut(done..).unwrap_or_default();
            image.file.read_at(rest, offset + done as u64)
        }),
        Operation::Write => all(len, |done| {
            let rest = rest.get(done..).unwrap_or_default();
            image.file.write_at(rest, offset + done as u64)
        }),
        Operation::Flush => patient(|| Ok(fdatasync(&image.file)?)),
    }
}

/// Transfers `len` bytes. `some` transfers a part of them, from the given position on, and returns
/// its length.
fn all(len: usize, mut some: impl FnMut(usize) -> io::Result<usize>) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        match patient(|| some(done))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => done += bytes,
        }
    }
    Ok(())
}

/// Makes a call, and makes it again if it was interrupted.
fn patient<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut tries = 0;
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && tries < TRIES => {
                tries += 1;
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_or_interrupted_goes_on_and_has_an_end() {
        let mut places = Vec::new();
        let done = all(10, |at| {
            places.push(at);
            match places.len() {
                2 => Err(io::ErrorKind::Interrupted.into()),
                _ => Ok(4.min(10 - at)),
            }
        });
        assert!(done.is_ok());
        assert_eq!(places, [0, 4, 4, 8]);
        let end = all(10, |at| Ok(if at == 0 { 4 } else { 0 })).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        let mut calls = 0;
        let error = all(10, |_| {
            calls += 1;
            Err(io::ErrorKind::Interrupted.into())
        });
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!(calls, TRIES + 1);
    }
}
