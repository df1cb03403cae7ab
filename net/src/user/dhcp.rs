// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The DHCP server (RFC 2131). It leases one address, always the same.

use super::{Config, frame};
use smoltcp::wire::{DhcpMessageType, DhcpOption, DhcpPacket, DhcpRepr, EthernetAddress, Ipv4Cidr};
use std::net::{Ipv4Addr, SocketAddrV4};

/// The server's port. The client's port is the next one.
pub const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;
/// Option 26, interface MTU (RFC 2132).
const OPTION_MTU: u8 = 26;
/// Lease time in seconds.
const LEASE: u32 = 86_400;

/// Whether a datagram to this address is a client's message to the server.
pub fn serves(config: &Config, to: SocketAddrV4) -> bool {
    to.port() == SERVER_PORT && (to.ip().is_broadcast() || *to.ip() == config.gateway)
}

/// The answer to a client's message as a frame, `None` if there is none.
pub fn answer(config: &Config, hardware: EthernetAddress, message: &[u8]) -> Option<Vec<u8>> {
    let packet = DhcpPacket::new_checked(message).ok()?;
    let request = DhcpRepr::parse(&packet).ok()?;
    let wanted = request.requested_ip.unwrap_or(request.client_ip);
    let kind = match request.message_type {
        DhcpMessageType::Discover => DhcpMessageType::Offer,
        // The client has chosen another server.
        DhcpMessageType::Request
            if request
                .server_identifier
                .is_some_and(|s| s != config.gateway) =>
        {
            return None;
        }
        DhcpMessageType::Request if wanted == config.guest => DhcpMessageType::Ack,
        DhcpMessageType::Request => DhcpMessageType::Nak,
        DhcpMessageType::Inform => DhcpMessageType::Ack,
        _ => return None,
    };
    let refused = kind == DhcpMessageType::Nak;
    // A client that has an address asks for the rest (RFC 2131, section 4.3.5).
    let leases = !refused && request.message_type != DhcpMessageType::Inform;
    let mask = Ipv4Cidr::new(config.gateway, config.prefix.min(32)).netmask();
    let mtu = config.mtu.to_be_bytes();
    let more = [DhcpOption {
        kind: OPTION_MTU,
        data: &mtu,
    }];
    let reply = DhcpRepr {
        message_type: kind,
        transaction_id: request.transaction_id,
        secs: 0,
        client_hardware_address: request.client_hardware_address,
        client_ip: Ipv4Addr::UNSPECIFIED,
        your_ip: if leases {
            config.guest
        } else {
            Ipv4Addr::UNSPECIFIED
        },
        server_ip: config.gateway,
        router: (!refused).then_some(config.gateway),
        subnet_mask: (!refused).then_some(mask),
        relay_agent_ip: Ipv4Addr::UNSPECIFIED,
        broadcast: request.broadcast,
        requested_ip: None,
        client_identifier: None,
        server_identifier: Some(config.gateway),
        parameter_request_list: None,
        dns_servers: (!refused && !config.resolvers.is_empty())
            .then(|| [config.dns].into_iter().collect()),
        max_size: None,
        lease_duration: leases.then_some(LEASE),
        renew_duration: None,
        rebind_duration: None,
        additional_options: if refused { &[] } else { &more },
    };
    let mut bytes = vec![0; reply.buffer_len()];
    reply
        .emit(&mut DhcpPacket::new_unchecked(bytes.as_mut_slice()))
        .ok()?;
    let (to, to_hardware) = if refused || request.broadcast || request.client_ip.is_unspecified() {
        (Ipv4Addr::BROADCAST, EthernetAddress::BROADCAST)
    } else {
        (request.client_ip, hardware)
    };
    let from = SocketAddrV4::new(config.gateway, SERVER_PORT);
    frame::datagram(
        to_hardware,
        from,
        SocketAddrV4::new(to, CLIENT_PORT),
        &bytes,
        1500,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLIENT: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 9]);

    fn message(kind: DhcpMessageType, requested: Option<Ipv4Addr>) -> Vec<u8> {
        let repr = DhcpRepr {
            message_type: kind,
            transaction_id: 77,
            secs: 0,
            client_hardware_address: CLIENT,
            client_ip: Ipv4Addr::UNSPECIFIED,
            your_ip: Ipv4Addr::UNSPECIFIED,
            server_ip: Ipv4Addr::UNSPECIFIED,
            router: None,
            subnet_mask: None,
            relay_agent_ip: Ipv4Addr::UNSPECIFIED,
            broadcast: false,
            requested_ip: requested,
            client_identifier: None,
            server_identifier: None,
            parameter_request_list: None,
            dns_servers: None,
            max_size: None,
            lease_duration: None,
            renew_duration: None,
            rebind_duration: None,
            additional_options: &[],
        };
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut DhcpPacket::new_unchecked(bytes.as_mut_slice()))
            .unwrap();
        bytes
    }

    fn ask(
        kind: DhcpMessageType,
        requested: Option<Ipv4Addr>,
    ) -> Option<(DhcpMessageType, Ipv4Addr, bool)> {
        let config = Config {
            resolvers: vec!["1.2.3.4:53".parse().unwrap()],
            ..Config::default()
        };
        let reply = answer(&config, CLIENT, &message(kind, requested))?;
        let frame::Kind::Datagram { from, to, data } = frame::kind(&reply) else {
            panic!("no datagram");
        };
        assert_eq!((from.port(), to.port()), (67, 68));
        let packet = DhcpPacket::new_checked(data).unwrap();
        let mtu = packet
            .options()
            .any(|o| o.kind == OPTION_MTU && o.data == config.mtu.to_be_bytes());
        let repr = DhcpRepr::parse(&packet).unwrap();
        assert_eq!(repr.transaction_id, 77);
        if repr.message_type != DhcpMessageType::Nak {
            assert_eq!(repr.router, Some(config.gateway));
            assert_eq!(repr.subnet_mask, Some(Ipv4Addr::new(255, 255, 255, 0)));
            assert_eq!(repr.dns_servers.as_deref(), Some([config.dns].as_slice()));
        }
        let leases = repr.your_ip != Ipv4Addr::UNSPECIFIED;
        assert_eq!(repr.lease_duration.is_some(), leases);
        Some((repr.message_type, repr.your_ip, mtu))
    }

    #[test]
    fn the_conversation() {
        let guest = Config::default().guest;
        assert_eq!(
            ask(DhcpMessageType::Discover, None),
            Some((DhcpMessageType::Offer, guest, true))
        );
        assert_eq!(
            ask(DhcpMessageType::Request, Some(guest)),
            Some((DhcpMessageType::Ack, guest, true))
        );
        let other = Ipv4Addr::new(192, 168, 0, 1);
        let refused = (DhcpMessageType::Nak, Ipv4Addr::UNSPECIFIED, false);
        assert_eq!(ask(DhcpMessageType::Request, Some(other)), Some(refused));
        // One that has an address gets no other, and no lease.
        assert_eq!(
            ask(DhcpMessageType::Inform, None),
            Some((DhcpMessageType::Ack, Ipv4Addr::UNSPECIFIED, true))
        );
        assert_eq!(ask(DhcpMessageType::Release, None), None);
    }

    proptest! {
        #[test]
        fn no_message_panics(at in 0usize..300, value: u8, length in 0usize..400) {
            let mut bytes = message(DhcpMessageType::Discover, None);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            bytes.truncate(length);
            answer(&Config::default(), CLIENT, &bytes);
        }
    }
}
