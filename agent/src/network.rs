// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's network interfaces, by the requests of netdevice(7).

use paravane_agent_protocol::Network;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const RESOLVER: &str = "/etc/resolv.conf";
const NETWORKD: &str = "/run/systemd/network";
#[allow(clippy::cast_possible_truncation)] // 0x1
const UP: libc::c_short = libc::IFF_UP as libc::c_short;
#[allow(clippy::cast_possible_truncation)] // 0x40
const RUNNING: libc::c_short = libc::IFF_RUNNING as libc::c_short;
/// Time for a card's link to come up.
const LINK: Duration = Duration::from_millis(500);

/// Brings up the interface `lo`. The kernel assigns its addresses.
pub fn loopback_up() -> io::Result<()> {
    up(&socket()?, "lo")
}

/// Configures the machine's first card.
pub fn configure(wanted: &Network) -> io::Result<()> {
    let name = card()?;
    let socket = socket()?;
    let mask = u32::MAX
        .checked_shl(u32::from(32 - wanted.prefix.min(32)))
        .unwrap_or(0);
    let address = |to| move |r: &mut libc::ifreq| r.ifr_ifru.ifru_addr = plain(to);
    request(&socket, &name, libc::SIOCSIFMTU, |r| {
        r.ifr_ifru.ifru_mtu = i32::from(wanted.mtu)
    })?;
    request(&socket, &name, libc::SIOCSIFADDR, address(wanted.address))?;
    request(
        &socket,
        &name,
        libc::SIOCSIFNETMASK,
        address(Ipv4Addr::from(mask)),
    )?;
    up(&socket, &name)?;
    route(&socket, wanted.gateway)?;
    if let Some(dns) = wanted.dns {
        // The machine is usable without this.
        if let Err(error) = name_server(dns) {
            eprintln!("paravane-agent: {RESOLVER}: {error}");
        }
    }
    wait_for_link(&socket, &name)
}

/// Waits until the kernel knows that the link is up, a moment after the card is. It drops packets
/// before that, and repeats the first ARP request only after a second.
fn wait_for_link(socket: &OwnedFd, name: &str) -> io::Result<()> {
    let begun = Instant::now();
    while flags(socket, name)? & RUNNING == 0 {
        if begun.elapsed() > LINK {
            return Ok(());
        }
        thread::sleep(Duration::from_micros(200));
    }
    // The kernel sets that flag before it starts the card's queue, both under the RTNL lock. This
    // request takes the lock too, so the queue runs when it returns.
    up(socket, name)
}

/// Writes the resolver's configuration.
fn name_server(dns: Ipv4Addr) -> io::Result<()> {
    // A root that has name servers keeps them.
    if fs::read(RESOLVER).is_ok_and(|text| !text.is_empty()) {
        return Ok(());
    }
    // On Debian this is a link to a file that systemd-resolved would write.
    let target = fs::read_link(RESOLVER).map_or(RESOLVER.into(), |to| Path::new("/etc").join(to));
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(RESOLVER, format!("nameserver {dns}\n"))
}

/// With systemd: settings for cards that no other file of systemd-networkd configures. The daemon
/// starts later.
pub fn leave_to_networkd(wanted: &Network) -> io::Result<()> {
    fs::create_dir_all(NETWORKD)?;
    let dns = wanted
        .dns
        .map(|dns| format!("DNS={dns}\n"))
        .unwrap_or_default();
    let text = format!(
        "[Match]\nName=en* eth*\n\n[Link]\nMTUBytes={}\n\n\
         [Network]\nAddress={}/{}\nGateway={}\n{dns}",
        wanted.mtu, wanted.address, wanted.prefix, wanted.gateway
    );
    // The first file that matches counts, so this one sorts after all others.
    fs::write(Path::new(NETWORKD).join("99-paravane.network"), text)
}

/// The first interface that belongs to a device.
fn card() -> io::Result<String> {
    let mut names: Vec<String> = fs::read_dir("/sys/class/net")?
        .flatten()
        .filter(|entry| entry.path().join("device").exists())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
        .into_iter()
        .next()
        .ok_or_else(|| io::Error::other("there is no network card"))
}

fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

fn up(socket: &OwnedFd, name: &str) -> io::Result<()> {
    let flags = flags(socket, name)? | UP | RUNNING;
    request(socket, name, libc::SIOCSIFFLAGS, |r| {
        r.ifr_ifru.ifru_flags = flags
    })?;
    Ok(())
}

fn flags(socket: &OwnedFd, name: &str) -> io::Result<libc::c_short> {
    let answer = request(socket, name, libc::SIOCGIFFLAGS, |_| ())?;
    // SAFETY: SIOCGIFFLAGS has filled this field of the union.
    Ok(unsafe { answer.ifr_ifru.ifru_flags })
}

/// Makes a netdevice(7) request for an interface. `fill` sets its argument; returns the answer.
fn request(
    socket: &OwnedFd,
    name: &str,
    number: libc::Ioctl,
    fill: impl FnOnce(&mut libc::ifreq),
) -> io::Result<libc::ifreq> {
    // SAFETY: ifreq is plain data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero and ends the name.
    for (to, from) in request
        .ifr_name
        .iter_mut()
        .zip(name.bytes())
        .take(libc::IFNAMSIZ - 1)
    {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    fill(&mut request);
    // SAFETY: all requests of this module take a pointer to an ifreq, which outlives the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), number, &raw mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(request)
}

/// Adds the default route.
fn route(socket: &OwnedFd, gateway: Ipv4Addr) -> io::Result<()> {
    // SAFETY: rtentry is plain data for which all zeroes is a valid value. The request takes a
    // pointer to one, which outlives the call.
    let done = unsafe {
        let mut route: libc::rtentry = std::mem::zeroed();
        route.rt_dst = plain(Ipv4Addr::UNSPECIFIED);
        route.rt_genmask = plain(Ipv4Addr::UNSPECIFIED);
        route.rt_gateway = plain(gateway);
        route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
        libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT, &raw mut route)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A `struct sockaddr_in` as a `struct sockaddr`: family, port, address.
fn plain(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    for (to, from) in data.iter_mut().skip(2).zip(address.octets()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    #[allow(clippy::cast_possible_truncation)] // 2
    let family = libc::AF_INET as libc::sa_family_t;
    libc::sockaddr {
        sa_family: family,
        sa_data: data,
    }
}
