// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A way to the descriptors of the crate's file system, which keeps them to itself.

use fuse_backend_rs::abi::virtio_fs::RemovemappingOne;
use fuse_backend_rs::api::filesystem::{Context, FileSystem};
use fuse_backend_rs::passthrough::PassthroughFs;
use fuse_backend_rs::transport::FsCacheReqHandler;
use std::io;
use std::os::fd::RawFd;

/// What to do with a file that the file system opens for reading. The crate opens files only for
/// requests, and passes the descriptor on only for mappings into the guest, which are not offered.
pub struct Opened<F>(pub F);

impl<F: FnMut(RawFd) -> io::Result<()>> Opened<F> {
    /// Has the file opened.
    pub fn with(&mut self, fs: &PassthroughFs<()>, inode: u64) -> io::Result<()>
    where
        F: Send + Sync + 'static,
    {
        fs.setupmapping(&Context::default(), inode, 0, 0, 0, 0, 0, self)
    }
}

impl<F: FnMut(RawFd) -> io::Result<()> + Send + Sync + 'static> FsCacheReqHandler for Opened<F> {
    fn map(&mut self, _: u64, _: u64, _: u64, _: u64, fd: RawFd) -> io::Result<()> {
        (self.0)(fd)
    }

    fn unmap(&mut self, _: Vec<RemovemappingOne>) -> io::Result<()> {
        Ok(())
    }
}
