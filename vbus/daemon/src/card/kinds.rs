// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a card leads to: a tap of the host, or the user-mode network (`super::user`).

use super::worker::{Made, Open};
use paravane_net::{Error as NetError, tap};
use paravane_vbus::{Attribute, Error, Kind as ErrorKind};
use paravane_vbus_cards::{Counts, Stack, Waker, Wire};
use std::io;
use std::sync::Arc;

/// A card on a link. The waker wakes it from now on.
pub fn on_link(mut card: Wire, waker: &Waker) -> Made {
    card.start(waker);
    Made {
        presence: Some(card.presence()),
        card: Box::new(card),
        passt: None,
    }
}

/// A card on a network of its own, which never ends.
pub fn on_stack(mut card: Stack, waker: &Waker) -> Made {
    card.base.start(waker);
    Made {
        presence: None,
        card: Box::new(card),
        passt: None,
    }
}

/// An address of Ethernet.
pub type Mac = [u8; 6];

/// A kind of device.
pub trait Kind: Send {
    /// Most clients at a time.
    fn most(&self) -> usize;

    /// The attributes that it has of its own.
    fn attributes(&self) -> Vec<Attribute>;

    /// Sets one. It is called while there is no client. Returns what must be tried before the
    /// attribute counts, where cards are opened.
    ///
    /// # Errors
    /// There is no such attribute, or the value is not possible.
    fn set(&mut self, name: &str, value: &str) -> Result<Option<Try>, Error>;

    /// What its cards count.
    fn figures(&self, counts: &Counts) -> Vec<Attribute>;

    /// How a card for a client is made, which counts there.
    ///
    /// # Errors
    /// An attribute is missing.
    fn open(&self, mac: Mac, counts: &Arc<Counts>) -> Result<Open, Error>;

    /// Another one with the same attributes.
    fn copy(&self) -> Box<dyn Kind>;
}

/// Something that may fail.
pub type Attempt = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// What is tried, and where.
pub enum Try {
    /// On the keeper's thread, where what may take long is done.
    Kept(Attempt),
    /// On the thread of the cards.
    Cards(Attempt),
}

/// An error of the network, for clients: a tap that is missing or in use may come back, and a port
/// that is in use may become free.
pub fn error(error: &NetError) -> Error {
    let kind = match error {
        NetError::Tap { error, .. } | NetError::Publish { error, .. } => match error.kind() {
            io::ErrorKind::ResourceBusy | io::ErrorKind::AddrInUse => ErrorKind::Busy,
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::InvalidInput => ErrorKind::Invalid,
            _ => ErrorKind::Host,
        },
        _ => ErrorKind::Host,
    };
    Error::new(kind, error.to_string())
}

/// A tap, which is open while its client is connected: earlier, frames are lost, and the host sees
/// no carrier.
#[derive(Clone, Debug, Default)]
pub struct Tap {
    tap: String,
}

const TAP: &str = "tap";

impl Kind for Tap {
    fn most(&self) -> usize {
        1
    }

    fn attributes(&self) -> Vec<Attribute> {
        vec![Attribute::setting(TAP, self.tap.clone())]
    }

    fn set(&mut self, name: &str, value: &str) -> Result<Option<Try>, Error> {
        if name != TAP {
            return Err(paravane_vbus::no_attribute(name));
        }
        self.tap = value.to_string();
        if value.is_empty() {
            return Ok(None);
        }
        let value = value.to_string();
        Ok(Some(Try::Kept(Box::new(move || {
            tap::open(&value).map(drop).map_err(|e| error(&e))
        }))))
    }

    fn figures(&self, counts: &Counts) -> Vec<Attribute> {
        counts.frames().into_iter().chain(counts.looks()).collect()
    }

    fn open(&self, mac: Mac, counts: &Arc<Counts>) -> Result<Open, Error> {
        let (name, counts) = (self.tap.clone(), Arc::clone(counts));
        if name.is_empty() {
            let text = format!("the device has no tap: set its attribute `{TAP}`");
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        Ok(Box::new(move |keeper| {
            let link = tap::open(&name).map_err(|e| error(&e))?;
            let offloads = keeper.map(|keeper| keeper.offloads(&link)).transpose();
            let offloads =
                offloads.map_err(|e| Error::new(ErrorKind::Host, format!("dup: {e}")))?;
            let mut card = Wire::new(link, mac);
            if let Some(offloads) = offloads {
                card.offload_by(offloads);
            }
            card.base.count(counts);
            Ok(Box::new(move |waker| Ok(on_link(card, waker))))
        }))
    }

    fn copy(&self) -> Box<dyn Kind> {
        Box::new(self.clone())
    }
}
