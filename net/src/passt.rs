// SPDX-License-Identifier: Apache-2.0 OR MIT
//! passt (<https://passt.top>): a user-mode network in a process of its own, with IPv6. It confines
//! itself with user namespaces, so it does not run where a container engine forbids those.
//!
//! It takes a tenth of a second to start, and many guests never need it. [`prepare`] therefore
//! creates a process that only waits, and [`Prepared::go`] turns that process into passt. In
//! between, the caller can confine itself so that it can no longer start programs.

mod starter;

pub use starter::{Hold, Starter};

use crate::user::{Config, passt_finds_ipv4};
use crate::{Error, Link, Protocol, Publish, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// passt starts in a tenth of a second on an idle host.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the end of a network waits for a killed passt.
pub const END: Duration = Duration::from_millis(250);
/// Waits for a line on standard input, a socket, and then becomes the program. Ends when the other
/// end is closed.
const LAUNCHER: &str =
    r#"read -r go <&1 && [ "$go" = go ] && exec "$@" 3<&0 </dev/null >/dev/null"#;
/// The guest's address for the host's loopback. Versions without this option (before August 2024;
/// Debian 12 has March 2023) must not be used. When a guest has closed its half of a connection,
/// they send it the data of the other half again and again, and they deliver a guest's packet for
/// 127.0.0.1 to the host's loopback.
const NEW_OPTION: &str = "--map-host-loopback";
const OLD: &str = "unrecognized option";
const TOO_OLD: &str = "this version corrupts connections: one of August 2024 or later is needed, \
                       such as Debian 13's";
/// The type of ARP's frames.
const ARP: [u8; 2] = [8, 6];
/// Bytes of the program's messages that are kept.
const SAID: usize = 16 << 10;

/// The program, if it is installed.
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join("passt"))
        .find(|file| file.is_file())
}

/// Why passt cannot do what the configuration asks for, or `None`.
pub fn unfit(config: &Config) -> Option<&'static str> {
    if config.publish.iter().any(|port| port.host.port() == 0) {
        return Some("it does not choose ports by itself");
    }
    let twice = |(index, port): (usize, &Publish)| {
        config.publish.iter().take(index).any(|other| {
            (other.protocol, other.host.port()) == (port.protocol, port.host.port())
                && other.guest != port.guest
        })
    };
    // Whatever the addresses are, the last one would count for all of them.
    if config.publish.iter().enumerate().any(twice) {
        return Some("it leads one port number to one port of the guest");
    }
    let resolver = resolver(config);
    if resolver.is_none() && !config.resolvers.is_empty() {
        return Some("it leads 10.0.2.3 to IPv4 name servers only");
    }
    let inside = |name: Ipv4Addr| name.is_loopback() || name.is_unspecified();
    if resolver.is_some_and(inside) && !config.host_loopback {
        return Some("it does not reach a name server on this host's loopback");
    }
    None
}

/// The name server to which passt leads the guest's queries.
fn resolver(config: &Config) -> Option<Ipv4Addr> {
    config.resolvers.iter().find_map(|name| match name.ip() {
        IpAddr::V4(name) => Some(name),
        IpAddr::V6(_) => None,
    })
}

/// Why passt cannot start on this host now, or `None`. This reads files and opens sockets.
fn hindered(config: &Config) -> Option<&'static str> {
    if resolver(config).is_some() && !passt_finds_ipv4() {
        return Some("it finds no IPv4 name server in /etc/resolv.conf");
    }
    if only_ipv6() {
        return Some("it has no IPv4 here, since this host has a route for IPv6 only");
    }
    None
}

/// Whether this host has routes for IPv6 only. passt then answers nothing of IPv4, nor ARP. This
/// sends nothing. A host without any route is passt's own matter.
fn only_ipv6() -> bool {
    let route = |from: &str, to: &str| UdpSocket::bind(from)?.connect(to);
    let ipv4 = route("0.0.0.0:0", "192.0.2.1:9");
    ipv4.is_err_and(|error| error.kind() == io::ErrorKind::NetworkUnreachable)
        && route("[::]:0", "[2001:db8::1]:9").is_ok()
}

/// A process that waits to become passt.
#[derive(Debug)]
pub struct Prepared {
    process: Process,
    /// The program's messages. Writing never blocks: messages that do not fit are lost.
    said: OwnedFd,
    go: UnixStream,
    link: Link,
    config: Config,
}

/// A running passt. It ends with its link, and at the latest when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    end: Box<dyn End>,
}

/// Ends one process and can end no other.
pub trait End: std::fmt::Debug + Send + Sync {
    /// Kills the process. Does nothing if it has ended.
    fn kill(&self);
}

/// Stores the descriptor of a process, which means the same process for ever, unlike its id.
pub type Keep = fn(OwnedFd) -> io::Result<Box<dyn End>>;

static KEEP: OnceLock<Keep> = OnceLock::new();

/// Stores the descriptors of all passt processes that are created from now on with this function.
/// For owners of a [`Process`] whose confinement allows only a descriptor of a known number. The
/// first call counts.
pub fn keep_with(keep: Keep) {
    let _ = KEEP.set(keep);
}

impl End for OwnedFd {
    fn kill(&self) {
        // The process may have ended by itself.
        let _ = pidfd_send_signal(self, Signal::KILL);
    }
}

fn keep(descriptor: OwnedFd) -> io::Result<Box<dyn End>> {
    match KEEP.get() {
        Some(keep) => keep(descriptor),
        None => Ok(Box::new(descriptor)),
    }
}

impl Process {
    fn new(mut child: Child) -> Result<Self, Error> {
        let opened = match i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            Some(pid) => pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from),
            None => Err(io::ErrorKind::InvalidInput.into()),
        };
        match opened.and_then(keep) {
            Ok(end) => Ok(Process { child, end }),
            Err(error) => {
                // Both fail only if the process has ended.
                let _ = child.kill();
                let _ = child.wait();
                Err(Error::host(
                    "cannot open a descriptor of a process (pidfd_open)",
                )(error))
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end.kill();
        // The host ends it even if the wait times out.
        let deadline = Instant::now() + END;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The arguments for a configuration.
fn arguments(config: &Config) -> Vec<String> {
    let mut words: Vec<String> = ["--foreground", "--quiet", "--stderr", "--fd", "3"]
        .map(String::from)
        .to_vec();
    words.extend(
        [
            ("--address", config.guest.to_string()),
            ("--netmask", config.prefix.to_string()),
            ("--gateway", config.gateway.to_string()),
            ("--mtu", config.mtu.to_string()),
        ]
        .into_iter()
        .flat_map(|(option, value)| [option.to_string(), value]),
    );
    // Without a name server, passt would lead these queries to the host's loopback.
    if resolver(config).is_some() {
        words.extend(["--dns-forward".to_string(), config.dns.to_string()]);
    }
    let loopback = match config.host_loopback {
        true => config.gateway.to_string(),
        false => "none".to_string(),
    };
    words.extend([NEW_OPTION.to_string(), loopback]);
    for (protocol, option) in [
        (Protocol::Tcp, "--tcp-ports"),
        (Protocol::Udp, "--udp-ports"),
    ] {
        let ports: Vec<&Publish> = config
            .publish
            .iter()
            .filter(|p| p.protocol == protocol)
            .collect();
        if ports.is_empty() {
            words.extend([option.to_string(), "none".to_string()]);
        }
        for port in ports {
            // Without an address, passt listens on all addresses of IPv4 and of IPv6.
            let address = match port.host.ip() {
                IpAddr::V6(any) if any.is_unspecified() => String::new(),
                IpAddr::V4(address) => format!("{address}/"),
                IpAddr::V6(address) => format!("{address}/"),
            };
            words.extend([
                option.to_string(),
                format!("{address}{}:{}", port.host.port(), port.guest),
            ]);
        }
    }
    words
}

/// Prepares to start `program`. The program does not run yet.
pub fn prepare(program: &Path, config: &Config) -> Result<Prepared, Error> {
    if let Some(why) = unfit(config).or_else(|| hindered(config)) {
        return Err(Error::Passt(why.to_string()));
    }
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|e| Error::host("cannot make a pair of sockets")(e.into()))?;
    let (go, wait) = UnixStream::pair().map_err(Error::host("cannot make a pair of sockets"))?;
    let (said, says) = messages()?;
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", LAUNCHER, "passt"])
        .arg(program)
        .args(arguments(config))
        .stdin(theirs)
        .stdout(OwnedFd::from(wait))
        .stderr(says);
    // SAFETY: between fork and exec only prctl runs, which is async-signal-safe and allocates
    // nothing.
    unsafe {
        command.pre_exec(|| {
            // End it with this process, however that ends. passt itself ends with its link.
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            Ok(())
        });
    }
    let child = command
        .spawn()
        .map_err(|error| Error::Passt(format!("cannot run /bin/sh: {error}")))?;
    let process = Process::new(child)?;
    let link = stream(ours, config)?;
    Ok(Prepared {
        process,
        said,
        go,
        link,
        config: config.clone(),
    })
}

impl Prepared {
    /// Starts passt and returns when it answers. `mac` is the address of the guest's card. The
    /// error says why passt does not run here.
    pub fn go(self, mac: [u8; 6]) -> Result<(Link, Process), Error> {
        let Prepared {
            mut process,
            said,
            mut go,
            mut link,
            config,
        } = self;
        if go.write_all(b"go\n").is_err() {
            return Err(process.gone(&said));
        }
        drop(go);
        match answered(&mut link, &config, mac)? {
            true => Ok((link, process)),
            false => Err(process.gone(&said)),
        }
    }
}

/// A pipe for the program's messages. Neither end blocks.
fn messages() -> Result<(OwnedFd, OwnedFd), Error> {
    let (said, says) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|e| Error::host("cannot make a pipe")(e.into()))?;
    for end in [&said, &says] {
        rustix::io::ioctl_fionbio(end, true).map_err(|e| Error::host(crate::BLOCKING)(e.into()))?;
    }
    Ok((said, says))
}

/// The link to a passt with this configuration.
fn stream(ours: OwnedFd, config: &Config) -> Result<Link, Error> {
    let mut link = Link::stream(ours, config.mtu).map_err(Error::host(crate::BLOCKING))?;
    // Do not depend on how passt treats packets for addresses that mean the host.
    link.outside_only = true;
    link.no_link_local = !config.link_local;
    Ok(link)
}

/// Waits until passt answers: it runs then, and knows the address of the guest, whose card has the
/// address `mac`. False: it has ended.
fn answered(link: &mut Link, config: &Config, mac: [u8; 6]) -> Result<bool, Error> {
    let deadline = Instant::now() + PATIENCE;
    let mut asked = link.send(&question(mac, config)).and_then(|_| link.flush());
    loop {
        let more = match asked.and_then(|()| link.receive()) {
            Ok(Received::Frame(frame)) if frame.get(12..14) == Some(&ARP) => return Ok(true),
            // Others answer nothing, such as a router's advertisement.
            Ok(Received::Frame(_)) => true,
            Ok(Received::Empty) => false,
            Ok(Received::Gone) | Err(_) => return Ok(false),
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Passt(format!(
                "no answer after {} s",
                PATIENCE.as_secs()
            )));
        }
        asked = Ok(());
        if more {
            continue;
        }
        let timeout = Timespec::try_from(left).ok();
        // The loop checks all conditions again, whatever ended the wait.
        let _ = poll(&mut [PollFd::new(&*link, PollFlags::IN)], timeout.as_ref());
    }
}

impl Process {
    /// Why passt ended, by its own messages.
    fn gone(&mut self, said: &OwnedFd) -> Error {
        // passt has ended, so all of its messages have arrived.
        let status = self
            .child
            .wait()
            .map_or(String::new(), |s| format!(" ({s})"));
        why(said, &status)
    }
}

/// Why passt ended, by its own messages or those of its starter.
fn why(said: &OwnedFd, status: &str) -> Error {
    let mut bytes = vec![0; SAID];
    let length = rustix::io::read(said, &mut bytes).unwrap_or(0);
    bytes.truncate(length);
    let text = String::from_utf8_lossy(&bytes);
    if text.contains(OLD) {
        return Error::Passt(TOO_OLD.to_string());
    }
    if let Some(own) = text.strip_prefix(starter::OWN) {
        return Error::Passt(own.to_string());
    }
    // The prefix that passt puts before each line when there is no syslog.
    let last = text
        .lines()
        .map(str::trim)
        .rfind(|l| !l.is_empty() && !l.contains("syslog"));
    let last = last.unwrap_or("it said nothing");
    Error::Passt(format!("it ended at once{status}: {last}"))
}

/// Prepares passt and starts it at once.
pub fn start(program: &Path, config: &Config, mac: [u8; 6]) -> Result<(Link, Process), Error> {
    prepare(program, config)?.go(mac)
}

/// The guest's ARP request for the address of the gateway.
fn question(mac: [u8; 6], config: &Config) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(mac);
    // For IPv4 over Ethernet, a request.
    frame.extend(ARP);
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(mac);
    frame.extend(config.guest.octets());
    frame.extend([0; 6]);
    frame.extend(config.gateway.octets());
    frame
}

#[cfg(test)]
mod tests;
