// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's name servers.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

const FILE: &str = "/etc/resolv.conf";
const DNS_PORT: u16 = 53;
/// The number of name servers that are used, as by the C library.
const MOST: usize = 3;

/// The name servers that this host uses (`/etc/resolv.conf`), in their order. To be called before
/// the process confines itself, since it reads files.
pub fn host_resolvers() -> Vec<SocketAddr> {
    let text = std::fs::read_to_string(FILE).unwrap_or_default();
    resolvers_of(&text, index)
}

/// The name servers of a file. `index` returns an interface's number for its name.
fn resolvers_of(text: &str, index: impl Fn(&str) -> Option<u32>) -> Vec<SocketAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then_some(())?;
        let word = words.next()?;
        let Some((address, zone)) = word.split_once('%') else {
            return Some(SocketAddr::new(word.parse().ok()?, DNS_PORT));
        };
        let zone = zone.parse().ok().or_else(|| index(zone))?;
        let address = address.parse().ok()?;
        Some(SocketAddrV6::new(address, DNS_PORT, 0, zone).into())
    });
    servers.take(MOST).collect()
}

/// The number of an interface of this host.
fn index(name: &str) -> Option<u32> {
    if name.contains('/') {
        return None;
    }
    let number = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok()?;
    number.trim().parse().ok()
}

/// Whether passt finds an IPv4 name server on this host now. It reads the file when it starts, and
/// takes fewer forms of a line than the C library does: one space, and nothing after the address.
pub fn passt_finds_ipv4() -> bool {
    std::fs::read_to_string(FILE).is_ok_and(|text| has_plain_ipv4(&text))
}

fn has_plain_ipv4(text: &str) -> bool {
    let mut servers = text.lines().filter_map(|line| {
        let address = line.strip_prefix("nameserver ")?.parse::<IpAddr>();
        address.ok()
    });
    servers.any(|address| address.is_ipv4())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<String> {
        let known = |name: &str| (name == "eth0").then_some(7);
        let all = resolvers_of(text, known).into_iter();
        all.map(|server| server.to_string()).collect()
    }

    #[test]
    fn resolv_conf_is_read() {
        let text = "# x\nsearch a\nnameserver 1.2.3.4\nnameserver\t5.6.7.8 # second\n";
        assert_eq!(read(text), ["1.2.3.4:53", "5.6.7.8:53"]);
        assert_eq!(read("nameserver ::1\n"), ["[::1]:53"]);
        let zones = "nameserver fe80::1%eth0\nnameserver fe80::2%3\nnameserver fe80::3%eth1\n";
        assert_eq!(read(zones), ["[fe80::1%7]:53", "[fe80::2%3]:53"]);
        for none in [
            "",
            "nameserver\n",
            "nameserver x",
            "nameserver 1.2.3.4%eth0",
        ] {
            assert_eq!(read(none), [""; 0], "{none}");
        }
        assert_eq!(read(&"nameserver 1.2.3.4\n".repeat(9)).len(), MOST);
        // Every host has this one, and none has the other.
        assert_eq!(index("lo"), Some(1));
        assert_eq!(index("../lo"), None);
    }

    #[test]
    fn what_passt_takes_for_a_name_server_is_known() {
        for (text, expected) in [
            ("nameserver 1.2.3.4\n", true),
            ("nameserver ::1\nnameserver 1.2.3.4", true),
            ("nameserver ::1\n", false),
            ("nameserver\t1.2.3.4\n", false),
            ("nameserver 1.2.3.4 # first\n", false),
            (" nameserver 1.2.3.4\n", false),
            ("# nameserver 1.2.3.4\n", false),
            ("", false),
        ] {
            assert_eq!(has_plain_ipv4(text), expected, "{text:?}");
        }
    }
}
