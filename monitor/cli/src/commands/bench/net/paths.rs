// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The paths that are measured.

use super::hosts::{SERVER, TAP_GUEST, TAP_NET};

/// Where the client of a path runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// On the client's host.
    Host,
    /// In a guest whose machine runs on the client's host, with this network.
    Guest(&'static str),
    /// In a guest on the bridge.
    OnBridge,
    /// In a guest on the bus of vbusd.
    OnBus,
}

/// Where its server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// On the server's host.
    Host,
    /// In another guest on the bus.
    GuestOnBus,
}

/// A path.
#[derive(Debug)]
pub struct Path {
    pub name: &'static str,
    pub client: Client,
    pub server: Server,
}

/// The network of guests on the bus: that of the daemon of `bench vbus`.
pub const BUS_NET: &str = "bus:bench/venet-switch";
/// The guests on the bus.
pub const BUS_SERVER: &str = "10.9.1.1";
const BUS_CLIENT: &str = "10.9.1.2";

/// All paths, the comparison first.
pub const PATHS: [Path; 5] = [
    Path {
        name: "host",
        client: Client::Host,
        server: Server::Host,
    },
    Path {
        name: "virtio-net",
        client: Client::Guest("stack"),
        server: Server::Host,
    },
    Path {
        name: "venet",
        client: Client::Guest("venet"),
        server: Server::Host,
    },
    Path {
        name: "virtio-net-tap",
        client: Client::OnBridge,
        server: Server::Host,
    },
    Path {
        name: "venet-guests",
        client: Client::OnBus,
        server: Server::GuestOnBus,
    },
];

impl Path {
    /// The server's address as the client sees it.
    pub fn address(&self) -> &'static str {
        match self.server {
            Server::Host => SERVER,
            Server::GuestOnBus => BUS_SERVER,
        }
    }

    /// The option `--net` of the client's machine, and the address that the guest gives itself.
    /// `None` if the client is no guest; no address where the network gives one.
    pub fn guest(&self) -> Option<(&'static str, Option<&'static str>)> {
        match self.client {
            Client::Host => None,
            Client::Guest(net) => Some((net, None)),
            Client::OnBridge => Some((TAP_NET, Some(TAP_GUEST))),
            Client::OnBus => Some((BUS_NET, Some(BUS_CLIENT))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_first_and_names_differ() {
        assert_eq!(PATHS[0].name, super::super::report::BASE);
        let mut names: Vec<_> = PATHS.iter().map(|path| path.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PATHS.len());
    }
}
