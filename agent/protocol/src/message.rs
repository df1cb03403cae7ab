// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages.
//!
//! Postcard numbers variants and fields by their order: new variants go to the end, and a change of anything else
//! is a new [`VERSION`](crate::VERSION).

use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// From the monitor to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// Makes the machine what it is to be. Answered by [`FromAgent::Done`] or [`FromAgent::Failed`].
    Configure(Configuration),
    /// Starts a command, to which the connection belongs from now on. Answered by [`FromAgent::Started`] or
    /// [`FromAgent::Failed`], and in the end by [`FromAgent::Exited`] or [`FromAgent::Killed`].
    Exec(Exec),
    /// To a running command: its standard input is at its end.
    EndOfInput,
    /// To a running command: its terminal has this size now.
    Resize(Size),
    /// To a running command and what it has started: this signal (Linux's number).
    Signal(i32),
    /// Writes everything back and ends the machine with this status. Answered only if that fails.
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
    /// What was asked for is done.
    Done,
    /// It could not be done.
    Failed(Failure),
    /// The command runs.
    Started {
        /// Its number in the guest.
        pid: u32,
    },
    /// The command has read so many bytes of its standard input, or will never read them.
    Taken(u32),
    /// The command has ended, with this exit code; all that it printed came before.
    Exited(u8),
    /// The command was ended by this signal; all that it printed came before.
    Killed(u8),
}

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// An exit code as shells have them: 127 no such command, 126 it cannot be executed, 125 all else.
    pub code: u8,
    /// In words, one line.
    pub why: String,
}

/// What machine it is to be, asked for once, before anything else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Its name; the one it has, if none.
    pub hostname: Option<String>,
    /// File systems to mount, in this order.
    pub mounts: Vec<Mount>,
    /// For its network card; a machine without one has none.
    pub network: Option<Network>,
}

/// Addresses of a network card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Its own.
    pub address: Ipv4Addr,
    /// Bits of it that all in the network have in common, 0 to 32.
    pub prefix: u8,
    /// Where all else is reached through.
    pub gateway: Ipv4Addr,
    /// Who answers name queries.
    pub dns: Option<Ipv4Addr>,
    /// The largest IP packet, bytes.
    pub mtu: u16,
}

/// One file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// virtio-fs's tag, or a device.
    pub source: String,
    /// Where it goes, an absolute path; the folder is made if it is not there.
    pub target: Vec<u8>,
    /// `virtiofs`, `ext4` and so on.
    pub kind: String,
    /// Nothing may be written there.
    pub read_only: bool,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// The program, looked for along the guest's PATH if it has no slash, and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// Variables on top of the agent's few: PATH, HOME, USER, and with a terminal TERM.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// The folder that it starts in; the user's own unless said.
    pub cwd: Option<Vec<u8>>,
    /// NAME or UID, and `:` with GROUP or GID behind it; root unless said.
    pub user: Option<String>,
    /// It gets a terminal of this size, and is the leader of a session.
    pub terminal: Option<Size>,
    /// It gets a standard input; else it finds that at its end.
    pub input: bool,
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Characters in a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
}
