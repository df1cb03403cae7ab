// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tap interface that an administrator has given to this user
//! (`ip tuntap add NAME mode tap user USER`), or any, for who may.

use crate::link::HEADER;
use crate::{Error, Link};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::io;

const IFNAMSIZ: usize = 16;
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
/// `_IOW('T', 202, int)`, linux/if_tun.h.
const TUNSETIFF: u64 = 0x4004_54ca;

/// `_IOW('T', 208, unsigned int)`.
const TUNSETOFFLOAD: u64 = 0x4004_54d0;
/// `_IOW('T', 216, int)`.
const TUNSETVNETHDRSZ: u64 = 0x4004_54d8;

/// What of the host's frames the guest is content to get unfinished (`TUNSETOFFLOAD`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Offload {
    /// Without a checksum.
    pub checksum: bool,
    /// TCP over IPv4, longer than the MTU.
    pub tcp4: bool,
    /// TCP over IPv6, longer than the MTU.
    pub tcp6: bool,
}

/// Tells the host what the guest takes.
pub fn set_offload(link: &Link, offload: Offload) -> io::Result<()> {
    let bits =
        u64::from(offload.checksum) | u64::from(offload.tcp4) << 1 | u64::from(offload.tcp6) << 2;
    // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory of ours.
    let done = unsafe { libc::ioctl(link.as_fd().as_raw_fd(), TUNSETOFFLOAD, bits) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// `struct ifreq` as TUNSETIFF reads it.
#[repr(C)]
#[derive(Debug)]
struct InterfaceRequest {
    name: [u8; IFNAMSIZ],
    flags: u16,
    rest: [u8; 22],
}

/// Connects to the tap `name`: 1 to 15 bytes, no slash, as the host's interface names.
pub fn open(name: &str) -> Result<Link, Error> {
    let fail = |error: io::Error| Error::Tap {
        name: name.to_string(),
        hint: match error.kind() {
            io::ErrorKind::PermissionDenied => {
                " (ip tuntap add NAME mode tap user USER makes one for a user)"
            }
            io::ErrorKind::NotFound => " (this host has no /dev/net/tun)",
            _ => "",
        },
        error,
    };
    if name.is_empty() || name.len() >= IFNAMSIZ || name.contains(['/', '\0', '%']) {
        return Err(fail(io::Error::new(
            io::ErrorKind::InvalidInput,
            "an interface's name has 1 to 15 bytes",
        )));
    }
    let fd: OwnedFd = rustix::fs::open(
        "/dev/net/tun",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|e| fail(e.into()))?;
    let mut request = InterfaceRequest {
        name: [0; IFNAMSIZ],
        flags: IFF_TAP | IFF_NO_PI | IFF_VNET_HDR,
        rest: [0; 22],
    };
    for (to, from) in request.name.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: TUNSETIFF reads and writes one struct ifreq, 40 bytes, which `request` is.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF, &raw mut request) };
    if done < 0 {
        return Err(fail(io::Error::last_os_error()));
    }
    let size = libc::c_int::try_from(HEADER).unwrap_or(0);
    // SAFETY: TUNSETVNETHDRSZ reads one int.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETHDRSZ, &raw const size) };
    if done < 0 {
        return Err(fail(io::Error::last_os_error()));
    }
    Link::reads(fd, mtu_of(name)).map_err(fail)
}

/// The interface's own; 1500 if the host does not say.
fn mtu_of(name: &str) -> u16 {
    std::fs::read_to_string(format!("/sys/class/net/{name}/mtu"))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1500)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_has_the_host_s_size() {
        assert_eq!(size_of::<InterfaceRequest>(), size_of::<libc::ifreq>());
    }

    #[test]
    fn bad_names_are_refused_in_a_line() {
        for bad in ["", "a/b", "0123456789abcdef", "tap%d"] {
            let message = open(bad).unwrap_err().to_string();
            assert!(
                message.contains("1 to 15 bytes") && !message.contains('\n'),
                "{message}"
            );
        }
    }
}
