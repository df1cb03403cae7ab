// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tap interface. An administrator makes it for this user (`ip tuntap add NAME mode tap user
//! USER`); a privileged user may use any.

use crate::link::HEADER;
use crate::{Error, Link};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use std::io;

#[allow(clippy::cast_possible_truncation)] // The flags are 15 bits.
const FLAGS: libc::c_short =
    (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;

/// Which unfinished frames of the host the guest accepts (`TUNSETOFFLOAD`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Offload {
    /// Frames without a checksum.
    pub checksum: bool,
    /// TCP over IPv4 in frames longer than the MTU.
    pub tcp4: bool,
    /// TCP over IPv6 in frames longer than the MTU.
    pub tcp6: bool,
}

/// Informs the host which frames the guest accepts.
pub fn set_offload(tap: impl AsFd, offload: Offload) -> io::Result<()> {
    let bits = [
        (offload.checksum, libc::TUN_F_CSUM),
        (offload.tcp4, libc::TUN_F_TSO4),
        (offload.tcp6, libc::TUN_F_TSO6),
    ];
    let bits = bits
        .into_iter()
        .filter(|(on, _)| *on)
        .fold(0, |bits, (_, bit)| bits | libc::c_ulong::from(bit));
    // SAFETY: TUNSETOFFLOAD takes its argument by value and accesses no memory of this process.
    let done = unsafe { libc::ioctl(tap.as_fd().as_raw_fd(), libc::TUNSETOFFLOAD, bits) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// What an administrator does for a user.
const MAKE_ONE: &str = " (to make one for a user: ip tuntap add NAME mode tap user USER; \
                        ip link set NAME up)";

/// Connects to the tap `name`, which has 1 to 15 bytes and no slash, like all names of interfaces.
pub fn open(name: &str) -> Result<Link, Error> {
    let fail = |error: io::Error| Error::Tap {
        name: name.to_string(),
        hint: match error.kind() {
            io::ErrorKind::PermissionDenied => MAKE_ONE,
            io::ErrorKind::NotFound => " (this host has no /dev/net/tun)",
            _ => "",
        },
        error,
    };
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '\0', '%']) {
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
    // TUNSETIFF would make the interface if this process may, and a typing error would be a machine
    // whose network leads nowhere.
    let asked = socket(AddressFamily::UNIX, SocketType::DGRAM, None).map_err(|e| fail(e.into()))?;
    let is_there = || name_to_index(&asked, name) != Err(Errno::NODEV);
    let gone = || Error::Tap {
        name: name.to_string(),
        error: io::Error::new(io::ErrorKind::NotFound, "there is no such interface"),
        hint: MAKE_ONE,
    };
    if !is_there() {
        return Err(gone());
    }
    // It may be removed at any time. A user may not make it then, and a file that has it open is in
    // a bad state, also if there is another interface of this name by now.
    let fail = |error: io::Error| {
        if error.raw_os_error() == Some(libc::EBADFD) || !is_there() {
            gone()
        } else {
            fail(error)
        }
    };
    // SAFETY: all zeroes are a valid `struct ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_flags = FLAGS;
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // SAFETY: TUNSETIFF reads and writes the `struct ifreq` that it is given.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if done < 0 {
        return Err(fail(io::Error::last_os_error()));
    }
    let size = libc::c_int::try_from(HEADER).unwrap_or(0);
    // SAFETY: TUNSETVNETHDRSZ reads one int.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const size) };
    if done < 0 {
        return Err(fail(io::Error::last_os_error()));
    }
    let mtu = mtu_of(&asked, &mut request).map_err(fail)?;
    // The file has the tap now: another one of this name can be created only after its removal.
    let index = name_to_index(&asked, name).map_err(|e| fail(e.into()))?;
    let mut link = Link::reads(fd, mtu).map_err(fail)?;
    link.index = Some(index);
    Ok(link)
}

/// The MTU of the interface that the request names. /sys may show another network namespace than
/// that of this process.
fn mtu_of(socket: &OwnedFd, request: &mut libc::ifreq) -> io::Result<u16> {
    // SAFETY: SIOCGIFMTU reads and writes the `struct ifreq` that it is given.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut *request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: SIOCGIFMTU has written this member, and each value of an int is valid.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_not_made() {
        let message = open("nosuch0").unwrap_err().to_string();
        let expected = "cannot use the tap nosuch0: there is no such interface (to make one";
        assert!(message.starts_with(expected), "{message}");
        assert!(!std::path::Path::new("/sys/class/net/nosuch0").exists());
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
