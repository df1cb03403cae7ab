// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocol between the monitor and the agent in a guest.
//!
//! The agent connects to [`PORT`] of the host and sends [`FromAgent::Hello`]. The monitor then
//! sends requests on that connection, each answered in order. [`ToAgent::Exec`] dedicates the
//! connection to one command. When a connection receives its first request, the agent opens the
//! next one, so that one always waits for a request. Before the monitor passes a connection to a
//! client, it sends [`ToAgent::EndOfInput`] on it. This message has no effect without a command,
//! but it is a first request: the agent opens the next connection, so a client that stops before
//! its own request does not make others wait. A command thus has a connection of its own that no
//! other traffic can block, and nothing in the guest listens for connections.
//!
//! The wire format is [frames](frame): raw data, or messages in postcard's encoding. Neither side
//! trusts the other: a frame's length is checked before anything is stored, and a message that does
//! not decode ends the connection.
#![forbid(unsafe_code)]

pub mod frame;
mod message;
pub mod tree;

pub use frame::{Decoder, Error, Frame, Stream};
pub use message::{Configuration, Exec, Failure, FromAgent, Mount, Network, Size, ToAgent};

/// The version of the protocol. Both sides come from the same build, except for agents that were
/// installed in an image.
pub const VERSION: u16 = 2;

/// The host's vsock port that the agent connects to.
pub const PORT: u32 = 0x5056;

/// The host's context ID on every vsock.
pub const HOST_CID: u32 = 2;

/// Standard input in bytes that the monitor may send ahead: before [`FromAgent::Taken`] reports
/// that the command has read it. The agent can thus always read its connection, and what it stores
/// is bounded.
pub const INPUT_WINDOW: u32 = 256 << 10;
