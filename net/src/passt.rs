// SPDX-License-Identifier: Apache-2.0 OR MIT
//! passt (<https://passt.top>): a user-mode network in a process of its own, IPv6 included. It confines itself with user namespaces,
//! so it does not run where a container engine forbids those.

use crate::{Error, Link, Protocol, Publish};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// passt's own default: the largest that it takes.
const MTU: u16 = 65_520;
/// It ends at once if it cannot run here.
const SETTLE: Duration = Duration::from_millis(150);

/// What the guest may reach and who may reach the guest.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Whether the gateway's address leads to the host's own loopback.
    pub host_loopback: bool,
    /// Ports of the host that lead into the guest.
    pub publish: Vec<Publish>,
}

/// A running passt, which ends with its link, and at the latest when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; it is ours, so its id is still its own.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The arguments for a configuration.
fn arguments(config: &Config) -> Vec<String> {
    let mut words: Vec<String> = ["--foreground", "--quiet", "--stderr"].map(String::from).to_vec();
    if !config.host_loopback {
        words.push("--no-map-gw".to_string());
    }
    for (protocol, option) in [(Protocol::Tcp, "--tcp-ports"), (Protocol::Udp, "--udp-ports")] {
        let ports: Vec<&Publish> = config.publish.iter().filter(|p| p.protocol == protocol).collect();
        if ports.is_empty() {
            words.extend([option.to_string(), "none".to_string()]);
        }
        for port in ports {
            let address = match port.host.ip() {
                any if any.is_unspecified() => String::new(),
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

/// Starts `program` (`passt` is looked for in PATH). An error says why it does not run here.
pub fn start(program: &Path, config: &Config) -> Result<(Link, Process), Error> {
    if let Some(port) = config.publish.iter().find(|p| p.host.port() == 0) {
        return Err(Error::Passt(format!(
            "{port}: it cannot choose a port by itself: name one"
        )));
    }
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|e| Error::Host {
        what: "cannot make a pair of sockets",
        error: e.into(),
    })?;
    let mut child = spawn(program, config, &theirs)?;
    drop(theirs);
    let begun = Instant::now();
    while begun.elapsed() < SETTLE {
        if let Ok(Some(status)) = child.try_wait() {
            let mut said = String::new();
            if let Some(mut pipe) = child.stderr.take() {
                let _ = pipe.by_ref().take(4096).read_to_string(&mut said);
            }
            let last = said
                .lines()
                .map(str::trim)
                .rfind(|l| !l.is_empty())
                .unwrap_or("it said nothing");
            return Err(Error::Passt(format!("it ended at once ({status}): {last}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let link = Link::stream(ours, MTU).map_err(Error::host(crate::BLOCKING))?;
    Ok((link, Process { child }))
}

fn spawn(program: &Path, config: &Config, theirs: &OwnedFd) -> Result<Child, Error> {
    let fd = theirs.as_raw_fd();
    let mut command = Command::new(program);
    command
        .args(arguments(config))
        .args(["--fd", &fd.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let keep = theirs.try_clone().map_err(Error::host("cannot duplicate a socket"))?;
    // SAFETY: between fork and exec only prctl and fcntl run, which are async-signal-safe and allocate nothing.
    unsafe {
        command.pre_exec(move || {
            // Whatever happens to us, nothing is left behind.
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            let _open = &keep;
            let inherited = rustix::fd::BorrowedFd::borrow_raw(fd);
            fcntl_setfd(inherited, FdFlags::empty())?;
            Ok(())
        });
    }
    command
        .spawn()
        .map_err(|error| Error::Passt(format!("cannot run {}: {error}", program.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_named_as_passt_wants_them() {
        let publish = ["8080:80", "0.0.0.0:53:5353/udp"].map(|p| p.parse().unwrap()).to_vec();
        let words = arguments(&Config {
            host_loopback: false,
            publish,
        })
        .join(" ");
        assert!(words.contains("--tcp-ports 127.0.0.1/8080:80"), "{words}");
        assert!(words.contains("--udp-ports 53:5353"), "{words}");
        assert!(words.contains("--no-map-gw"), "{words}");
    }

    #[test]
    fn without_ports_none_are_forwarded() {
        let words = arguments(&Config {
            host_loopback: true,
            publish: Vec::new(),
        })
        .join(" ");
        assert!(
            words.contains("--tcp-ports none") && words.contains("--udp-ports none"),
            "{words}"
        );
        assert!(!words.contains("--no-map-gw"), "{words}");
    }

    #[test]
    fn a_program_that_ends_is_an_error_in_a_line() {
        let error = start(Path::new("/bin/false"), &Config::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("it ended at once") && !error.contains('\n'), "{error}");
        let error = start(Path::new("/no/such/passt"), &Config::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("/no/such/passt"), "{error}");
    }
}
