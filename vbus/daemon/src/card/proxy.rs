// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A card on the bus, whose work another thread does.

use super::crew::{Crew, Elsewhere};
use super::kinds::{Kind, Mac};
use super::news::{End, News};
use super::trials::{Trial, Trials};
use super::worker::Made;
use paravane_vbus::ethernet::{KICK, Kick, call};
use paravane_vbus::{
    Attribute, Class, ConnectionId, Device, Endpoint, Error, Kind as ErrorKind, Name, QueueKind,
    Round, Work,
};
use paravane_vbus_cards::Counts;
use paravane_vbus_cards::card::{QUEUES, TYPE};
use rustix::rand::{GetRandomFlags, getrandom};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const MAC: &str = "mac";

/// Where the cards of a class are.
#[derive(Clone, Debug)]
pub struct Site {
    pub crew: Arc<Crew>,
    pub news: Arc<News>,
    pub elsewhere: Elsewhere,
    pub trials: Trials,
    /// While the configuration is restored.
    pub restores: Arc<AtomicBool>,
}

/// Makes a device's own part.
type Maker = Box<dyn Fn() -> Box<dyn Kind> + Send>;

/// Makes [`Proxy`].
pub struct CardClass {
    pub name: &'static str,
    pub site: Site,
    pub kind: Maker,
}

impl Class for CardClass {
    fn name(&self) -> &'static str {
        self.name
    }

    fn create(&self, name: &Name) -> Box<dyn Device> {
        Box::new(Proxy {
            name: name.clone(),
            site: self.site.clone(),
            kind: (self.kind)(),
            mac: any_mac(),
            poll: Arc::default(),
            kick: Kick::FIRST,
            clients: BTreeSet::new(),
            counts: Arc::default(),
        })
    }
}

/// A locally administered address that no other card has: administrators may put many of them on
/// one bridge.
fn any_mac() -> Mac {
    let mut mac = [0x02, 0, 0, 0, 0, 0];
    // Fails on no host that can run vbusd, which keeps the address from then on.
    let _ = getrandom(&mut mac[1..], GetRandomFlags::empty());
    mac
}

fn mac_text(mac: Mac) -> String {
    let [first, rest @ ..] = mac;
    rest.iter().fold(format!("{first:02x}"), |mut text, byte| {
        let _ = write!(text, ":{byte:02x}");
        text
    })
}

fn mac_of(text: &str) -> Result<Mac, Error> {
    let byte = |word: &str| {
        let digits = word.len() == 2 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        u8::from_str_radix(word, 16).ok().filter(|_| digits)
    };
    let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
    let mac = bytes.and_then(|bytes| Mac::try_from(bytes).ok());
    let good = mac.filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6]);
    good.ok_or_else(|| {
        let text = format!("{text:.40?} is no value of {MAC}: an address of one card is wanted");
        Error::new(ErrorKind::Invalid, text)
    })
}

/// The device. Its orders are carried out later: the results of `connect`, `share` and `call` are
/// those of the orders ([`super::news::Outcome`]).
pub struct Proxy {
    name: Name,
    site: Site,
    kind: Box<dyn Kind>,
    mac: Mac,
    /// How long its cards look for work by themselves, in microseconds.
    poll: Arc<AtomicU64>,
    kick: Kick,
    clients: BTreeSet<ConnectionId>,
    /// What all its cards have counted, also those of ended connections.
    counts: Arc<Counts>,
}

impl Proxy {
    fn client(&self, id: ConnectionId) -> Result<(), Error> {
        let known = self.clients.contains(&id).then_some(());
        known.ok_or_else(|| Error::new(ErrorKind::NotFound, "there is no such connection"))
    }
}

impl Device for Proxy {
    fn interface(&self) -> &'static str {
        TYPE
    }

    fn attributes(&self) -> Vec<Attribute> {
        let mut all = self.kind.attributes();
        all.push(Attribute::setting(MAC, mac_text(self.mac)));
        all.push(self.kick.attribute());
        all.push(Attribute::figure("connections", self.clients.len() as u64));
        all.extend(self.kind.figures(&self.counts));
        all
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        if name == KICK {
            // Clients ask for it when they connect.
            self.kick = Kick::read(value)?;
            return Ok(());
        }
        if !self.clients.is_empty() {
            let text = "the device is in use: its clients must leave first";
            return Err(Error::new(ErrorKind::Busy, text));
        }
        if name == MAC {
            self.mac = mac_of(value)?;
            return Ok(());
        }
        let mut changed = self.kind.copy();
        let attempt = changed.set(name, value)?;
        let tries = !self.site.restores.load(Ordering::SeqCst) && !self.site.trials.passed(value);
        if let Some(attempt) = attempt.filter(|_| tries) {
            self.site.trials.want(Trial {
                crew: Arc::clone(&self.site.crew),
                value: value.to_string(),
                attempt,
            });
            return Err(Error::new(ErrorKind::Busy, "the value is tried first"));
        }
        self.kind = changed;
        Ok(())
    }

    fn set_poll(&mut self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.poll.store(time, Ordering::Relaxed);
    }

    fn queues(&self) -> &'static [QueueKind] {
        QUEUES
    }

    fn connect(&mut self, id: ConnectionId) -> Result<(), Error> {
        let most = self.kind.most();
        if self.clients.len() >= most {
            let text = format!("the device has {most} of {most} possible clients already");
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let (name, poll) = (self.name.clone(), Arc::clone(&self.poll));
        let open = self.kind.open(self.mac, &self.counts)?;
        let Site {
            crew, elsewhere, ..
        } = &self.site;
        crew.admit(elsewhere)?;
        let order = crew.prepared(open, move |worker, make| {
            let made = make.and_then(|make| worker.add(name, id, poll, make));
            worker.note(made.map(|()| Vec::new()));
        });
        if let Err(error) = order {
            crew.release();
            return Err(error);
        }
        elsewhere.add(id, crew);
        self.clients.insert(id);
        Ok(())
    }

    fn disconnect(&mut self, id: ConnectionId) {
        if !self.clients.remove(&id) {
            return;
        }
        let Site {
            crew,
            elsewhere,
            news,
            ..
        } = &self.site;
        elsewhere.end(id);
        crew.release();
        let (elsewhere, news) = (elsewhere.clone(), Arc::clone(news));
        let end = move |card: Option<Made>| {
            drop(card);
            elsewhere.ended(id);
            news.ring();
        };
        crew.finish(move |worker| worker.remove(id), end);
    }

    fn call(
        &mut self,
        id: ConnectionId,
        call: u32,
        argument: &[u8],
        result: &mut [u8],
    ) -> Result<usize, Error> {
        self.client(id)?;
        if call == call::KICK {
            return self.kick.answer(result);
        }
        let (argument, most) = (argument.to_vec(), result.len());
        self.site.crew.order(move |worker| {
            let result = worker.call(id, call, &argument, most);
            worker.note(result);
        })?;
        Ok(0)
    }

    fn share(&mut self, id: ConnectionId, queue: u32, endpoint: Endpoint) -> Result<(), Error> {
        self.client(id)?;
        self.site.crew.order(move |worker| {
            let shared = worker.share(id, queue, endpoint);
            worker.note(shared.map(|()| Vec::new()));
        })
    }

    fn work(&mut self, _: ConnectionId, _: u32, round: &mut Round) -> Work {
        for (id, end) in self.site.news.take(&self.name) {
            match end {
                End::Broken(why) => round.broken.push((id, why)),
                End::Gone => round.ended.push((id, "its network has ended".to_string())),
            }
        }
        Work::Nothing
    }

    fn polls(&mut self, _: ConnectionId) -> bool {
        // The other thread does.
        false
    }

    fn adapts(&self) -> bool {
        false
    }

    fn rest(&mut self, _: ConnectionId) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        let mac = any_mac();
        assert_eq!(mac_of(&mac_text(mac)).unwrap(), mac);
        assert_eq!(mac_text([2, 0, 0xff, 0x10, 3, 4]), "02:00:ff:10:03:04");
        assert_ne!(any_mac(), any_mac());
        for bad in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:00:01",
            "2:0:0:0:0:1",
            "03:00:00:00:00:01",
            "00:00:00:00:00:00",
            "+2:00:00:00:00:01",
            "02-00-00-00-00-01",
        ] {
            assert!(mac_of(bad).is_err(), "{bad}");
        }
    }
}
