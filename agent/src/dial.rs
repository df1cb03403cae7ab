// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections to the monitor.

use paravane_agent_protocol::{HOST_CID, PORT};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

#[allow(clippy::cast_possible_truncation)] // 40
const FAMILY: libc::sa_family_t = libc::AF_VSOCK as libc::sa_family_t;
#[allow(clippy::cast_possible_truncation)] // 16
const ADDRESS_SIZE: libc::socklen_t = size_of::<libc::sockaddr_vm>() as libc::socklen_t;

/// Where the monitor is.
#[derive(Debug)]
pub enum Address {
    /// On the host, by vsock.
    Host,
    /// On a Unix socket of this machine.
    Unix(PathBuf),
}

/// Connects to it.
pub fn dial(address: &Address) -> io::Result<OwnedFd> {
    match address {
        Address::Host => vsock(),
        Address::Unix(path) => Ok(UnixStream::connect(path)?.into()),
    }
}

fn vsock() -> io::Result<OwnedFd> {
    // SAFETY: sockaddr_vm is plain data for which all zeroes is a valid value. It outlives the
    // call, which receives its size. Nothing else owns the new descriptor.
    unsafe {
        let socket = libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let mut address: libc::sockaddr_vm = std::mem::zeroed();
        address.svm_family = FAMILY;
        address.svm_cid = HOST_CID;
        address.svm_port = PORT;
        if libc::connect(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            ADDRESS_SIZE,
        ) != 0
        {
            return Err(io::Error::last_os_error());
        }
        Ok(socket)
    }
}
