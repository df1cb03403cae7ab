// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hosts of the measurement: two network namespaces, `server` and `client`, each with one end
//! of a veth pair whose other end is a port of a bridge, and taps on the same bridge. Frames
//! between the hosts cross two veth pairs and the bridge. They are the bare metal of this test.

use super::super::program::Running;
use anyhow::{Context, bail};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// The port at which servers listen.
pub const PORT: u16 = 7000;
/// That of the server with a processor of its own.
pub const APART_PORT: u16 = 7001;
/// The address of the host with the server.
pub const SERVER: &str = "10.9.0.1";
/// The address of the host on which clients and machines run.
const CLIENT: &str = "10.9.0.2";
/// The address of a guest on the tap.
pub const TAP_GUEST: &str = "10.9.0.3";
/// The tap, and the option `--net` of a machine on it. Machines have it one after the other.
const TAP: &str = "vm0";
pub const TAP_NET: &str = "tap:vm0";
pub const TAP_VENET: &str = "venet-tap:vm0";
/// The address and the tap of a guest that is a server.
pub const TAP_SERVER: &str = "10.9.0.4";
const SERVERS_TAP: &str = "vm1";
pub const TAP_SERVER_NET: &str = "tap:vm1";

/// A processor for the client, and one for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    client: usize,
    server: usize,
}

impl Apart {
    /// Two of this process's processors; `None` if it has only one.
    pub fn find() -> Option<Self> {
        let set = sched_getaffinity(None).ok()?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .collect();
        let threads = "/sys/devices/system/cpu/cpu*/topology/thread_siblings_list";
        let siblings = all
            .first()
            .map(|cpu| threads.replace('*', &cpu.to_string()));
        let siblings = siblings.and_then(|file| fs::read_to_string(file).ok());
        Self::of(&all, siblings.as_deref().unwrap_or_default())
    }

    /// The first of these, and the next one that is no thread of the same core (`siblings`: the
    /// list of its threads), if there is any.
    fn of(all: &[usize], siblings: &str) -> Option<Self> {
        let (&client, others) = all.split_first()?;
        let within = |cpu: usize, range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let ends = (first.parse::<usize>(), last.parse::<usize>());
            matches!(ends, (Ok(first), Ok(last)) if (first..=last).contains(&cpu))
        };
        let sibling = |cpu: usize| siblings.trim().split(',').any(|range| within(cpu, range));
        let core = others.iter().find(|&&cpu| !sibling(cpu));
        let &server = core.or_else(|| others.first())?;
        Some(Apart { client, server })
    }
}

/// Starts a command and waits until it prints the line "ready".
pub fn start(mut command: Command) -> anyhow::Result<Running> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let output = child.stdout.take().context("no pipe")?;
    let running = Running(child);
    let mut line = String::new();
    let mut output = BufReader::new(output);
    loop {
        line.clear();
        if output.read_line(&mut line)? == 0 {
            bail!("{name} has ended before it was ready");
        }
        if line.trim_end() == "ready" {
            return Ok(running);
        }
    }
}

/// The namespaces, their links and the server on the host.
#[derive(Debug)]
pub struct Hosts {
    client: Running,
    _servers: Vec<Running>,
    apart: Option<Apart>,
    /// A process that keeps the namespace of the server.
    _holder: Running,
}

impl Hosts {
    /// Removes what is left of an earlier run, and creates everything. With a rate, both directions
    /// of the server's link have this rate, in Mbit/s, by a token bucket. With `apart` there is a
    /// second server, on its processor.
    ///
    /// # Errors
    /// A program is missing, or the host refuses an interface: its own words.
    pub fn new(
        mtu: u32,
        rate: Option<u32>,
        folder: &Path,
        apart: Option<Apart>,
    ) -> anyhow::Result<Self> {
        // What an earlier value has made. Links disappear with their namespaces a little later.
        for link in ["br0", "port-s", "port-c", TAP, SERVERS_TAP] {
            let _ = Command::new("ip")
                .args(["link", "del", link])
                .stderr(Stdio::null())
                .status();
        }
        ip("link add br0 type bridge")?;
        ip(&format!("link set br0 mtu {mtu} up"))?;
        ip("link set lo up")?;
        let (holder, client) = (namespace()?, namespace()?);
        for (host, port, address) in [(&holder, "port-s", SERVER), (&client, "port-c", CLIENT)] {
            let pid = host.0.id();
            ip(&format!(
                "link add {port} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {pid}"
            ))?;
            ip(&format!("link set {port} master br0 up"))?;
            run(within(host, "ip").args(["addr", "add", &format!("{address}/24"), "dev", "eth0"]))?;
            run(within(host, "ip").args(["link", "set", "eth0", "up"]))?;
        }
        for tap in [TAP, SERVERS_TAP] {
            ip(&format!("tuntap add {tap} mode tap"))?;
            ip(&format!("link set {tap} mtu {mtu} master br0 up"))?;
        }
        if let Some(rate) = rate {
            let shape = format!("root tbf rate {rate}mbit burst 256k latency 20ms");
            let words = |device: &str| -> Vec<String> {
                let all = format!("qdisc add dev {device} {shape}");
                all.split(' ').map(String::from).collect()
            };
            run(Command::new("tc").args(words("port-s")))?;
            run(within(&holder, "tc").args(words("eth0")))?;
        }
        let program = folder.join("net");
        let mut server = within(&holder, &program);
        server.arg("serve").arg(PORT.to_string());
        let mut servers = vec![start(server).context("the server")?];
        if let Some(apart) = apart {
            let mut server = within(&holder, "taskset");
            server.args(pinned(apart.server)).arg(&program);
            server.arg("serve").arg(APART_PORT.to_string());
            servers.push(start(server).context("the server with a processor of its own")?);
        }
        Ok(Hosts {
            _servers: servers,
            client,
            apart,
            _holder: holder,
        })
    }

    /// A command on the client's host, on the client's processor if the programs have one each.
    pub fn on_client_apart(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let Some(apart) = self.apart else {
            return self.on_client(program);
        };
        let mut command = self.on_client("taskset");
        command.args(pinned(apart.client)).arg(program);
        command
    }

    /// A command on the client's host.
    pub fn on_client(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        within(&self.client, program)
    }
}

/// Options of `taskset`.
fn pinned(cpu: usize) -> [String; 2] {
    ["--cpu-list".to_string(), cpu.to_string()]
}

/// A process in a new network namespace.
fn namespace() -> anyhow::Result<Running> {
    let mut command = Command::new("unshare");
    let script = "ip link set lo up && echo ready && exec sleep infinity";
    command.args(["--net", "--", "sh", "-c", script]);
    start(command).context("a network namespace")
}

fn within(host: &Running, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    let pid = host.0.id().to_string();
    command.args(["--target", &pid, "--net", "--"]).arg(program);
    command
}

fn ip(words: &str) -> anyhow::Result<()> {
    run(Command::new("ip").args(words.split(' ')))
}

/// Runs a short command. The error is the program's output.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let words: Vec<_> = command
        .get_args()
        .map(|word| word.to_string_lossy())
        .collect();
    let line = format!(
        "{} {}",
        command.get_program().to_string_lossy(),
        words.join(" ")
    );
    let output = command
        .output()
        .with_context(|| format!("cannot run `{line}` (Debian: packages iproute2, util-linux)"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` failed: {}", said.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_and_server_get_a_core_each_where_there_are_two() {
        for (all, siblings, expected) in [
            (&[0, 1][..], "0\n", Some((0, 1))),
            (&[0, 1, 2, 3], "0-1\n", Some((0, 2))),
            (&[0, 1, 2, 3], "0,2\n", Some((0, 1))),
            (&[2, 4, 6, 7], "2-3,6\n", Some((2, 4))),
            // Two threads of one core are better than nothing.
            (&[0, 1], "0-1\n", Some((0, 1))),
            (&[3, 5], "", Some((3, 5))),
            (&[3], "3\n", None),
            (&[], "", None),
        ] {
            let expected = expected.map(|(client, server)| Apart { client, server });
            assert_eq!(Apart::of(all, siblings), expected, "{all:?} {siblings}");
        }
    }
}
