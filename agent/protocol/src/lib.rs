// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the monitor and the agent in a guest say to each other.
//!
//! The agent dials: it connects to [`PORT`] of the host and says [`FromAgent::Hello`]. Then the monitor may ask one
//! thing after the other on that connection, each answered in order, until [`ToAgent::Exec`] makes the connection that
//! command's for the rest of its life. As soon as a connection has got its first request, the agent dials again: there is
//! always one that waits. So a command has a connection to itself, which nothing else can stop up, and nobody else in
//! the guest or outside it can reach the agent.
//!
//! Bytes on the wire are [frames](frame): data as it is, messages in postcard's encoding. Neither side believes the
//! other: a frame's length is limited before anything is stored, and a message that does not decode ends the connection.
#![forbid(unsafe_code)]

pub mod frame;
mod message;
pub mod tree;

pub use frame::{Decoder, Error, Frame, Stream};
pub use message::{Configuration, Exec, Failure, FromAgent, Mount, Network, Size, ToAgent};

/// The version of all this. Both sides are of one build, but for agents that were installed in an image.
pub const VERSION: u16 = 2;

/// The host's vsock port that the agent dials.
pub const PORT: u32 = 0x5056;

/// The host's address on every vsock.
pub const HOST_CID: u32 = 2;

/// Bytes of standard input that the monitor may send before the agent says with [`FromAgent::Taken`] that the command
/// has read some: so the agent can always read what comes, and never has to store more.
pub const INPUT_WINDOW: u32 = 256 << 10;
