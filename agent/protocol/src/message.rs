// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages.
//!
//! Postcard numbers variants and fields by their order. New variants go to the end; any other
//! change requires a new [`VERSION`](crate::VERSION).

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// From the monitor to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// Configures the machine. Answered by [`FromAgent::Done`] or [`FromAgent::Failed`].
    Configure(Configuration),
    /// Starts a command and dedicates the connection to it. Answered by [`FromAgent::Started`] or
    /// [`FromAgent::Failed`], finally by [`FromAgent::Exited`] or [`FromAgent::Killed`].
    Exec(Exec),
    /// For a running command: the end of its standard input.
    EndOfInput,
    /// For a running command: the new size of its terminal.
    Resize(Size),
    /// For a running command and its process group: a signal, by Linux's number.
    Signal(i32),
    /// Writes all data back and powers the machine off with this exit status. Answered only if that
    /// fails.
    PowerOff(u8),
}

/// From the agent to the monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAgent {
    /// The first message of every connection.
    Hello {
        /// The agent's [`VERSION`](crate::VERSION).
        version: u16,
    },
    /// The request succeeded.
    Done,
    /// The request failed.
    Failed(Failure),
    /// The command has started.
    Started {
        /// Its process ID in the guest.
        pid: u32,
    },
    /// The command has read this many more bytes of its standard input, or will never read them.
    Taken(u32),
    /// The command has exited with this code. All its output has been sent before.
    Exited(u8),
    /// This signal has killed the command. All its output has been sent before.
    Killed(u8),
}

/// The reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// An exit code as shells use them: 127 no such command, 126 not executable, 125 anything else.
    pub code: u8,
    /// One line of text.
    pub why: String,
}

/// The configuration of a machine: the first request, sent once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// The host name. None keeps the current one.
    pub hostname: Option<String>,
    /// File systems, in the order in which they are mounted.
    pub mounts: Vec<Mount>,
    /// Addresses of the network card, if the agent configures one.
    pub network: Option<Network>,
}

/// Addresses of a network card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The card's address.
    pub address: Ipv4Addr,
    /// The length of the network prefix, 0 to 32 bits.
    pub prefix: u8,
    /// The default gateway.
    pub gateway: Ipv4Addr,
    /// The name server.
    pub dns: Option<Ipv4Addr>,
    /// The MTU in bytes.
    pub mtu: u16,
}

/// A file system to mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The tag of a virtio-fs device, or the path of a block device.
    pub source: String,
    /// The mount point, an absolute path. It is created if it does not exist.
    pub target: Vec<u8>,
    /// The file system type, such as `virtiofs` or `ext4`.
    pub kind: String,
    /// Mounts it read-only.
    pub read_only: bool,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// The program and its arguments. A program without a slash is looked up in PATH.
    pub argv: Vec<Vec<u8>>,
    /// Environment variables in addition to the agent's PATH, HOME and USER, and TERM with a
    /// terminal.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// The working directory. None stands for the user's home directory.
    pub cwd: Option<Vec<u8>>,
    /// NAME or UID, optionally followed by `:` and GROUP or GID. None stands for root.
    pub user: Option<String>,
    /// Runs it as a session leader with a terminal of this size.
    pub terminal: Option<Size>,
    /// Connects its standard input. Otherwise that is /dev/null.
    pub input: bool,
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Characters per line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
}
