// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The user-mode network as what a card leads to.

use super::kinds::{Kind, Mac, Try, error, on_stack};
use super::worker::Open;
use paravane_net::user::{Config, Network};
use paravane_net::{Publish, publish};
use paravane_vbus::{Attribute, Error, Kind as ErrorKind, flag};
use paravane_vbus_cards::{Counts, Stack};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The user-mode network, of which each client has one for itself.
#[derive(Clone, Debug)]
pub struct User {
    resolver: Option<SocketAddr>,
    loopback: bool,
    link_local: bool,
    mtu: u16,
    /// As it was written, and what it means.
    publish: (String, Vec<Publish>),
}

const LOOPBACK: &str = "loopback";
const LINK_LOCAL: &str = "link-local";
const MTU_NAME: &str = "mtu";
const PUBLISH: &str = "publish";
/// Most clients of a device.
const CLIENTS: usize = 8;
/// Most published ports, each of which takes a descriptor.
pub const PORTS: usize = 16;
/// The MTU at first is that of ordinary Ethernet, since clients may have small buffers. The largest
/// is that of the cards of machines on a bus.
const MTU: u16 = 1500;
const MTUS: RangeInclusive<u16> = 576..=9000;

fn mtu(value: &str) -> Result<u16, Error> {
    let number = value.parse().ok().filter(|mtu| MTUS.contains(mtu));
    number.ok_or_else(|| {
        let (least, most) = (MTUS.start(), MTUS.end());
        let text = format!("{value:.40?} is no value of {MTU_NAME}: {least} to {most} bytes are");
        Error::new(ErrorKind::Invalid, text)
    })
}

/// Reads ports as `paravane run --publish` has them, with commas in between.
fn ports(value: &str) -> Result<Vec<Publish>, Error> {
    let bad = |text: String| Error::new(ErrorKind::Invalid, format!("{PUBLISH}: {text}"));
    if value.is_empty() {
        return Ok(Vec::new());
    }
    let ports = value.split(',').map(|word| {
        let port: Publish = word
            .parse()
            .map_err(|why| bad(format!("{word:.40?}: {why:.120}")))?;
        // Nobody would learn which port the host has chosen this time.
        if port.host.port() == 0 {
            let text = format!("{word:.40?}: the host's port is 1 to 65535 here");
            return Err(bad(text));
        }
        Ok(port)
    });
    let ports: Vec<_> = ports.collect::<Result<_, Error>>()?;
    if ports.len() > PORTS {
        let many = ports.len();
        return Err(bad(format!(
            "{many} ports are too many: {PORTS} are possible"
        )));
    }
    Ok(ports)
}

impl User {
    /// With the name server of the host.
    pub fn new(resolver: Option<SocketAddr>) -> Self {
        User {
            resolver,
            loopback: false,
            link_local: false,
            mtu: MTU,
            publish: (String::new(), Vec::new()),
        }
    }
}

impl Kind for User {
    fn most(&self) -> usize {
        // A port leads to one client.
        if self.publish.1.is_empty() {
            CLIENTS
        } else {
            1
        }
    }

    fn attributes(&self) -> Vec<Attribute> {
        let flag = |name, on| Attribute::setting(name, u8::from(on).to_string());
        vec![
            flag(LOOPBACK, self.loopback),
            flag(LINK_LOCAL, self.link_local),
            Attribute::setting(MTU_NAME, self.mtu.to_string()),
            Attribute::setting(PUBLISH, self.publish.0.clone()),
        ]
    }

    fn set(&mut self, name: &str, value: &str) -> Result<Option<Try>, Error> {
        match name {
            LOOPBACK => self.loopback = flag(name, value)?,
            LINK_LOCAL => self.link_local = flag(name, value)?,
            MTU_NAME => self.mtu = mtu(value)?,
            PUBLISH => {
                let ports = ports(value)?;
                self.publish = (value.to_string(), ports.clone());
                let listen = move || publish::settle(&ports).map(drop).map_err(|e| error(&e));
                return Ok((!value.is_empty()).then(|| Box::new(listen) as Try));
            }
            _ => return Err(paravane_vbus::no_attribute(name)),
        }
        Ok(None)
    }

    fn figures(&self, counts: &Counts) -> Vec<Attribute> {
        counts.looks().into()
    }

    fn open(&self, mac: Mac, counts: &Arc<Counts>) -> Result<Open, Error> {
        let counts = Arc::clone(counts);
        let config = Config {
            host_loopback: self.loopback,
            link_local: self.link_local,
            resolver: self.resolver,
            mtu: self.mtu,
            publish: self.publish.1.clone(),
            ..Config::default()
        };
        Ok(Box::new(move |_| {
            let network = Network::new(config).map_err(|e| error(&e))?;
            let mut card = Stack::new(network, mac);
            card.base.count(counts);
            Ok(Box::new(move |waker| Ok(on_stack(card, waker))))
        }))
    }

    fn copy(&self) -> Box<dyn Kind> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that an administrator may write, as far as they are read.
    #[test]
    fn ports_and_mtus_are_read_strictly() {
        assert_eq!(ports("").unwrap(), []);
        let both = ports("8080:80,127.0.0.1:5353:53/udp").unwrap();
        let words: Vec<_> = both.iter().map(ToString::to_string).collect();
        assert_eq!(words, ["127.0.0.1:8080:80/tcp", "127.0.0.1:5353:53/udp"]);
        let many = |count| vec!["1:2"; count].join(",");
        assert_eq!(ports(&many(PORTS)).unwrap().len(), PORTS);
        for bad in [
            ",",
            "1:2,",
            "1:2 ,3:4",
            "80",
            "0:80",
            "1:0",
            "1:2/icmp",
            &many(PORTS + 1),
        ] {
            let error = ports(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let text = error.to_string();
            assert!(text.contains("publish: ") && !text.contains('\n'), "{text}");
        }
        assert_eq!((mtu("576"), mtu("9000")), (Ok(576), Ok(9000)));
        for bad in ["", "575", "9001", "65536", "-1", "1500 "] {
            assert_eq!(mtu(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }
}
