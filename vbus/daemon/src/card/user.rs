// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The user-mode network to which a card leads: the stack of this process, or a passt.

use super::kinds::{Kind, Mac, Try, error, on_link, on_stack};
use super::worker::{Made, Open};
use paravane_net::passt::{self, Hold, Starter};
use paravane_net::user::{Config, Network};
use paravane_net::{Error as NetError, Publish, publish};
use paravane_vbus::{Attribute, Error, Kind as ErrorKind, flag};
use paravane_vbus_cards::presence::Presence;
use paravane_vbus_cards::{Counts, Stack, Wire};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The user-mode network, of which each client has one for itself.
#[derive(Clone, Debug)]
pub struct User {
    resolvers: Vec<SocketAddr>,
    starter: Starter,
    by: By,
    /// How many passt processes have ended by themselves while they had a client.
    ended: Arc<AtomicU64>,
    loopback: bool,
    link_local: bool,
    mtu: u16,
    /// As it was written, and what it means.
    publish: (String, Vec<Publish>),
}

/// What the network of a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Stack,
    Passt,
}

impl By {
    const NAME: &str = "by";

    fn word(self) -> &'static str {
        match self {
            By::Stack => "stack",
            By::Passt => "passt",
        }
    }

    fn read(value: &str) -> Result<Self, Error> {
        match value {
            "stack" => Ok(By::Stack),
            "passt" => Ok(By::Passt),
            _ => {
                let name = By::NAME;
                let text = format!("{value:.40?} is no value of {name}: stack and passt are");
                Err(Error::new(ErrorKind::Invalid, text))
            }
        }
    }
}

/// A client's passt, which ends with this value.
pub struct Passt {
    _hold: Hold,
    presence: Option<Arc<Presence>>,
    ended: Arc<AtomicU64>,
}

impl Drop for Passt {
    fn drop(&mut self) {
        let gone = |presence: &Arc<Presence>| presence.number() == 0;
        if self.presence.as_ref().is_some_and(gone) {
            self.ended.fetch_add(1, Ordering::Relaxed);
        }
    }
}

const ENDED: &str = "passt-ended";
const LOOPBACK: &str = "loopback";
const LINK_LOCAL: &str = "link-local";
const MTU_NAME: &str = "mtu";
const PUBLISH: &str = "publish";
/// The address with which a passt is tried: locally administered, and no client's.
const TRIED: Mac = [2, 0, 0, 0, 0, 1];
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
        // There is no way to learn which port the host has chosen.
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

/// Whether passt can do what the configuration asks for.
fn fit(config: &Config) -> Result<(), Error> {
    let why = passt::unfit(config).map(|why| NetError::Passt(why.to_string()));
    why.map_or(Ok(()), |why| Err(error(&why)))
}

impl User {
    /// With the name servers of the host, and what starts passt.
    pub fn new(resolvers: Vec<SocketAddr>, starter: Starter) -> Self {
        User {
            resolvers,
            starter,
            by: By::Stack,
            ended: Arc::default(),
            loopback: false,
            link_local: false,
            mtu: MTU,
            publish: (String::new(), Vec::new()),
        }
    }

    fn config(&self) -> Config {
        Config {
            host_loopback: self.loopback,
            link_local: self.link_local,
            resolvers: self.resolvers.clone(),
            mtu: self.mtu,
            publish: self.publish.1.clone(),
            ..Config::default()
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
            Attribute::setting(By::NAME, self.by.word().to_string()),
            flag(LOOPBACK, self.loopback),
            flag(LINK_LOCAL, self.link_local),
            Attribute::setting(MTU_NAME, self.mtu.to_string()),
            Attribute::setting(PUBLISH, self.publish.0.clone()),
        ]
    }

    fn set(&mut self, name: &str, value: &str) -> Result<Option<Try>, Error> {
        match name {
            By::NAME => self.by = By::read(value)?,
            LOOPBACK => self.loopback = flag(name, value)?,
            LINK_LOCAL => self.link_local = flag(name, value)?,
            MTU_NAME => self.mtu = mtu(value)?,
            PUBLISH => {
                let ports = ports(value)?;
                self.publish = (value.to_string(), ports.clone());
                let config = self.config();
                let passt = self.by == By::Passt;
                let listen = move || {
                    if passt {
                        fit(&config)?;
                    }
                    publish::settle(&ports).map(drop).map_err(|e| error(&e))
                };
                return Ok((!value.is_empty()).then(|| Try::Cards(Box::new(listen))));
            }
            _ => return Err(paravane_vbus::no_attribute(name)),
        }
        // One that is missing or too old, or cannot do that, is known now. Ports are bound for a
        // trial when they are set.
        let try_passt = || {
            let starter = self.starter.clone();
            let mut config = self.config();
            Try::Kept(Box::new(move || {
                fit(&config)?;
                config.publish.clear();
                let started = starter.start(&config, TRIED);
                started.map(drop).map_err(|e| error(&e))
            }))
        };
        let decides = name == By::NAME || (name == LOOPBACK && !self.loopback);
        Ok((decides && self.by == By::Passt).then(try_passt))
    }

    fn figures(&self, counts: &Counts) -> Vec<Attribute> {
        let ended = self.ended.load(Ordering::Relaxed);
        let ended = (self.by == By::Passt).then(|| Attribute::figure(ENDED, ended));
        counts.looks().into_iter().chain(ended).collect()
    }

    fn open(&self, mac: Mac, counts: &Arc<Counts>) -> Result<Open, Error> {
        let (config, counts) = (self.config(), Arc::clone(counts));
        if self.by == By::Stack {
            return Ok(Box::new(move |_| {
                // The thread of the cards opens the sockets.
                Ok(Box::new(move |waker| {
                    let network = Network::new(config).map_err(|e| error(&e))?;
                    let mut card = Stack::new(network, mac);
                    card.base.count(counts);
                    Ok(on_stack(card, waker))
                }))
            }));
        }
        let (starter, ended) = (self.starter.clone(), Arc::clone(&self.ended));
        Ok(Box::new(move |_| {
            let (link, hold) = starter.start(&config, mac).map_err(|e| error(&e))?;
            let mut card = Wire::new(link, mac);
            card.base.count(counts);
            Ok(Box::new(move |waker| {
                let made = on_link(card, waker);
                let passt = Passt {
                    _hold: hold,
                    presence: made.presence.clone(),
                    ended,
                };
                Ok(Made {
                    passt: Some(passt),
                    ..made
                })
            }))
        }))
    }

    fn copy(&self) -> Box<dyn Kind> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_out_is_read_strictly() {
        assert_eq!(By::read("stack"), Ok(By::Stack));
        assert_eq!(By::read("passt"), Ok(By::Passt));
        for bad in [
            "",
            "Passt",
            "passt ",
            "stack,passt",
            "/usr/bin/passt",
            "--fd",
        ] {
            assert_eq!(By::read(bad).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }

    /// Setting an attribute tries the values that passt depends on, and refuses those with which it
    /// cannot run.
    #[test]
    fn what_passt_cannot_do_is_refused_when_it_is_set() {
        let starter = Starter::on_thread().unwrap();
        let mut user = User::new(vec!["127.0.0.53:53".parse().unwrap()], starter);
        let attempt = user.set("by", "passt").unwrap();
        let Some(Try::Kept(attempt)) = attempt else {
            panic!("it is not tried where it may take long");
        };
        let refused = attempt().unwrap_err().to_string();
        assert!(refused.contains("name server"), "{refused}");
        assert!(user.set("loopback", "1").unwrap().is_none());
        assert!(user.set("loopback", "0").unwrap().is_some());
        assert!(user.set("by", "stack").unwrap().is_none());
        assert!(user.set("loopback", "0").unwrap().is_none());
    }

    /// This holds whichever of the two attributes is set last.
    #[test]
    fn ports_that_passt_would_lead_elsewhere_are_refused() {
        const PORTS: &str = "127.0.0.1:1:80,127.0.0.2:1:81";
        let user = || User::new(Vec::new(), Starter::on_thread().unwrap());
        let refused = |attempt: Option<Try>| {
            let (Some(Try::Cards(attempt)) | Some(Try::Kept(attempt))) = attempt else {
                panic!("it is not tried");
            };
            attempt().unwrap_err().to_string()
        };
        let mut ports_last = user();
        ports_last.set("by", "passt").unwrap();
        let why = refused(ports_last.set("publish", PORTS).unwrap());
        assert!(why.contains("one port of the guest"), "{why}");
        let mut passt_last = user();
        passt_last.set("publish", PORTS).unwrap();
        let why = refused(passt_last.set("by", "passt").unwrap());
        assert!(why.contains("one port of the guest"), "{why}");
    }

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
