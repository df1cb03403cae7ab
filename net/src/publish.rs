// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ports of the host that lead into the guest.

use crate::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::str::FromStr;

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        })
    }
}

/// `[ADDRESS:]HOST:GUEST[/udp]`: connections to ADDRESS:HOST reach the guest's port GUEST.
///
/// Without an address, only programs of this host can connect. To expose a port to others, name an
/// address (`0.0.0.0:8080:80`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The host's address. With port 0 the host chooses the port.
    pub host: SocketAddr,
    /// The guest's port, 1 to 65535.
    pub guest: u16,
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.host, self.guest, self.protocol)
    }
}

impl FromStr for Publish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (ports, protocol) = match text.rsplit_once('/') {
            None => (text, Protocol::Tcp),
            Some((ports, "tcp")) => (ports, Protocol::Tcp),
            Some((ports, "udp")) => (ports, Protocol::Udp),
            Some((_, other)) => return Err(format!("protocol {other}: expected tcp or udp")),
        };
        let form = "expected HOST:GUEST or ADDRESS:HOST:GUEST, such as 8080:80";
        let (rest, guest) = ports.rsplit_once(':').ok_or(form)?;
        let (address, host) = match rest.rsplit_once(':') {
            None => (IpAddr::V4(Ipv4Addr::LOCALHOST), rest),
            Some((address, host)) => {
                let bare = address
                    .strip_prefix('[')
                    .and_then(|a| a.strip_suffix(']'))
                    .unwrap_or(address);
                let parsed = bare
                    .parse()
                    .map_err(|_| format!("{bare} is not an IP address"))?;
                (parsed, host)
            }
        };
        let port = |text: &str| {
            text.parse::<u16>()
                .map_err(|_| format!("{text} is not a port (0 to 65535); {form}"))
        };
        let guest = port(guest)?;
        if guest == 0 {
            return Err("the guest's port is 1 to 65535".to_string());
        }
        Ok(Publish {
            protocol,
            host: SocketAddr::new(address, port(host)?),
            guest,
        })
    }
}

/// Checks that it is possible to listen on these ports by a short try. Returns the ports, with the
/// host's choice for each 0.
pub fn settle(ports: &[Publish]) -> Result<Vec<Publish>, Error> {
    // Hold all of them at once, so that the host does not choose one twice.
    let mut listeners = Vec::new();
    let mut sockets = Vec::new();
    let mut settled = Vec::new();
    for port in ports {
        let host = match port.protocol {
            Protocol::Tcp => TcpListener::bind(port.host).and_then(|listener| {
                let host = listener.local_addr();
                listeners.push(listener);
                host
            }),
            Protocol::Udp => UdpSocket::bind(port.host).and_then(|socket| {
                let host = socket.local_addr();
                sockets.push(socket);
                host
            }),
        };
        let host = host.map_err(|error| Error::Publish {
            address: port.host,
            protocol: port.protocol,
            error,
        })?;
        settled.push(Publish { host, ..*port });
    }
    Ok(settled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Publish, String> {
        text.parse()
    }

    #[test]
    fn forms() {
        assert_eq!(
            parse("8080:80").unwrap().to_string(),
            "127.0.0.1:8080:80/tcp"
        );
        assert_eq!(
            parse("0.0.0.0:53:5353/udp").unwrap().to_string(),
            "0.0.0.0:53:5353/udp"
        );
        assert_eq!(parse("[::1]:1:2/tcp").unwrap().to_string(), "[::1]:1:2/tcp");
        assert_eq!(parse("0:22").unwrap().host.port(), 0);
    }

    #[test]
    fn refusals() {
        for bad in [
            "", "80", ":", "80:", ":80", "1:0", "70000:1", "1:70000", "a:1:2", "1:2/icmp", "-1:2",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ports_are_settled_before_anything_runs() {
        let free = settle(&[
            parse("0:80").unwrap(),
            parse("0:81").unwrap(),
            parse("0:82/udp").unwrap(),
        ])
        .unwrap();
        assert!(free.iter().all(|port| port.host.port() != 0), "{free:?}");
        assert_ne!(free[0].host, free[1].host);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = Publish {
            host: taken.local_addr().unwrap(),
            ..free[0]
        };
        let error = settle(&[port]).unwrap_err().to_string();
        assert!(
            error.contains("cannot publish") && !error.contains('\n'),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*") {
            let _ = parse(&text);
        }

        #[test]
        fn what_is_printed_is_read(
            host in any::<SocketAddr>(),
            guest in 1u16..,
            udp in any::<bool>(),
        ) {
            // The text form has neither scope nor flow.
            let host = SocketAddr::new(host.ip(), host.port());
            let protocol = if udp { Protocol::Udp } else { Protocol::Tcp };
            let publish = Publish { protocol, host, guest };
            prop_assert_eq!(parse(&publish.to_string()).unwrap(), publish);
        }
    }
}
