// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ethernet for a virtual machine, without privileges.
//!
//! There are three networks: [`user`] is a stack inside this process that turns the guest's
//! connections into connections of the host, and works everywhere; [`passt`] does the same in a
//! process of its own, with IPv6; [`tap`] is an interface of the host. [`auto`] chooses passt where
//! that runs, else the stack. A [`Link`] carries whole Ethernet frames to and from the last two.
//! Nothing in this crate depends on virtual machines.

pub mod auto;
pub mod changes;
pub mod link;
pub mod passt;
pub mod publish;
pub mod tap;
pub mod user;

pub use changes::{Changes, Interface};
pub use link::{Link, Received};
pub use publish::{Protocol, Publish};

use std::io;
use std::net::SocketAddr;

/// The largest frame that a link carries: an Ethernet header and the largest IPv4 packet.
pub const MAX_FRAME: usize = 14 + 65_535;

const BLOCKING: &str = "cannot make a descriptor non-blocking";

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A host port that cannot be listened on.
    #[error("cannot publish {address}/{protocol}: {error}")]
    Publish {
        /// The address to listen on.
        address: SocketAddr,
        /// TCP or UDP.
        protocol: Protocol,
        /// The error of the host.
        error: io::Error,
    },
    /// This user has no tap of this name.
    #[error("cannot use the tap {name}: {error}{hint}")]
    Tap {
        /// The name as given.
        name: String,
        /// The error of the host.
        error: io::Error,
        /// What to do about it.
        hint: &'static str,
    },
    /// passt could not be started, or ended at once.
    #[error("passt: {0}")]
    Passt(String),
    /// Any other error of the host.
    #[error("{what}: {error}")]
    Host {
        /// What was tried.
        what: &'static str,
        /// The error of the host.
        error: io::Error,
    },
}

impl Error {
    fn host(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |error| Error::Host { what, error }
    }
}
