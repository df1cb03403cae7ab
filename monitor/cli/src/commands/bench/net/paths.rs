// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The paths that are measured.

use super::hosts::{
    APART_PORT, PORT, SERVER, TAP_GUEST, TAP_NET, TAP_SERVER, TAP_SERVER_NET, TAP_VENET,
};

/// Where the client of a path runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// On the client's host, wherever its scheduler wants.
    Host,
    /// On the client's host, on a processor of its own.
    Apart,
    /// In a guest whose machine runs on the client's host, with this network.
    Guest(&'static str),
    /// In a guest with this network, in a machine of another build of this program.
    Older(&'static str),
    /// In a guest on the bridge, by this network.
    OnBridge(&'static str),
    /// In a guest on the bus of vbusd, by this network.
    OnBus(&'static str),
}

/// Where its server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// On the server's host, wherever its scheduler wants.
    Host,
    /// On the server's host, on a processor of its own.
    Apart,
    /// In another guest on the bus, by this network.
    GuestOnBus(&'static str),
    /// In another guest on the bridge, by virtio-net and a tap.
    GuestOnBridge,
}

/// A path.
#[derive(Debug)]
pub struct Path {
    pub name: &'static str,
    pub client: Client,
    pub server: Server,
}

/// The network of guests on the bus: that of the daemon of `bench vbus`.
const BUS_NET: &str = "bus:bench/venet-switch";
/// The network of guests whose two machines share memory.
const SHARED_NET: &str = "bus:bench/venet-switch,share";
/// The guests on the bus.
const BUS_SERVER: &str = "10.9.1.1";
const BUS_CLIENT: &str = "10.9.1.2";

/// The paths that the others are compared with: without a word about processors, and with one each
/// for client and server, as two machines have them.
pub const BASE: &str = "host";
pub const APART: &str = "host-apart";
/// The path of another build, which is measured only where one is given.
pub const OLDER: &str = "virtio-net-older";

/// The path from a guest to another over a virtual bus. There is none on the host that corresponds.
pub const GUESTS: &str = "venet-guests";
/// The paths over a virtual bus, each with that over virtio to the same network, or, between
/// guests, over the host's bridge.
pub const SAME_NETWORK: [(&str, &str); 3] = [
    ("venet", "virtio-net"),
    ("venet-tap", "virtio-net-tap"),
    (GUESTS, "virtio-net-guests"),
];

/// All paths, the comparison first.
pub const PATHS: [Path; 10] = [
    Path {
        name: BASE,
        client: Client::Host,
        server: Server::Host,
    },
    Path {
        name: APART,
        client: Client::Apart,
        server: Server::Apart,
    },
    Path {
        name: "virtio-net",
        client: Client::Guest("stack"),
        server: Server::Host,
    },
    Path {
        name: OLDER,
        client: Client::Older("stack"),
        server: Server::Host,
    },
    Path {
        name: "venet",
        client: Client::Guest("venet"),
        server: Server::Host,
    },
    Path {
        name: "virtio-net-tap",
        client: Client::OnBridge(TAP_NET),
        server: Server::Host,
    },
    Path {
        name: "venet-tap",
        client: Client::OnBridge(TAP_VENET),
        server: Server::Host,
    },
    Path {
        name: "virtio-net-guests",
        client: Client::OnBridge(TAP_NET),
        server: Server::GuestOnBridge,
    },
    Path {
        name: GUESTS,
        client: Client::OnBus(BUS_NET),
        server: Server::GuestOnBus(BUS_NET),
    },
    Path {
        name: "venet-guests-share",
        client: Client::OnBus(SHARED_NET),
        server: Server::GuestOnBus(SHARED_NET),
    },
];

impl Path {
    /// The server's address as the client sees it.
    pub fn address(&self) -> &'static str {
        match self.server {
            Server::Host | Server::Apart => SERVER,
            Server::GuestOnBus(_) => BUS_SERVER,
            Server::GuestOnBridge => TAP_SERVER,
        }
    }

    /// The server's port.
    pub fn port(&self) -> u16 {
        match self.server {
            Server::Host | Server::GuestOnBus(_) | Server::GuestOnBridge => PORT,
            Server::Apart => APART_PORT,
        }
    }

    /// The option `--net` of the server's machine, and the address that the guest gives itself.
    /// `None` if the server is no guest.
    pub fn server_guest(&self) -> Option<(&'static str, &'static str)> {
        match self.server {
            Server::Host | Server::Apart => None,
            Server::GuestOnBus(net) => Some((net, BUS_SERVER)),
            Server::GuestOnBridge => Some((TAP_SERVER_NET, TAP_SERVER)),
        }
    }

    /// The option `--net` of the client's machine, and the address that the guest gives itself.
    /// `None` if the client is no guest; no address where the network gives one.
    pub fn guest(&self) -> Option<(&'static str, Option<&'static str>)> {
        match self.client {
            Client::Host | Client::Apart => None,
            Client::Guest(net) | Client::Older(net) => Some((net, None)),
            Client::OnBridge(net) => Some((net, Some(TAP_GUEST))),
            Client::OnBus(net) => Some((net, Some(BUS_CLIENT))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_first_and_names_differ() {
        assert_eq!(PATHS[0].name, BASE);
        for (venet, virtio) in SAME_NETWORK {
            for name in [venet, virtio] {
                assert!(PATHS.iter().any(|path| path.name == name), "{name}");
            }
        }
        let mut names: Vec<_> = PATHS.iter().map(|path| path.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PATHS.len());
    }
}
