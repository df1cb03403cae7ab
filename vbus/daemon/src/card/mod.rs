// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The classes `venet-tap` and `venet-user`: cards that lead out of the bus.
//!
//! A card is on a thread of its class, which has a policy of its own: it has the rings of its
//! client, moves frames between these and the host, and gets the client's notifications. The bus
//! has a [`Proxy`](proxy::Proxy) of the card, which sends the client's requests to that thread as
//! orders. The first thread never waits for that thread: answers wait (`crate::later`). Each class
//! has a further thread for work that may take long ([`keeper`]).

mod crew;
#[cfg(test)]
mod fuzz;
mod keeper;
mod kinds;
mod news;
mod orders;
mod proxy;
#[cfg(test)]
mod tests;
mod trials;
mod user;
mod worker;

pub use crew::{Crew, Elsewhere};
pub use news::Outcome;
pub use trials::Trials;

use keeper::Keeper;
use kinds::Tap;
use news::News;
use paravane_net::Changes;
use paravane_net::passt::Starter;
use paravane_net::user as network;
use paravane_vbus::{Class, Name};
use proxy::{CardClass, Site};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tracing::warn;
use user::User;

/// Most taps with a client, the part of all descriptors that they take at most, and descriptors of
/// each besides those of every connection: the tap, twice, a timer, a copy of the client's eventfd.
const TAPS: usize = 64;
const PART_OF_TAPS: usize = 16;
const FILES_OF_TAP: usize = 4;
/// Most networks, the part of all descriptors that they take at most, and descriptors of each: its
/// sockets, also those of published ports, an epoll, a timer, and four spare connections.
const NETWORKS: usize = 16;
const PART_OF_NETWORKS: usize = 2;
const FILES_OF_NETWORK: usize = network::MAX_TCP + network::MAX_UDP + user::PORTS + 8;

/// Names of the classes.
const TAP: &str = "venet-tap";
const USER: &str = "venet-user";

/// The threads of cards.
#[derive(Debug)]
pub struct Cards {
    taps: Arc<Crew>,
    networks: Arc<Crew>,
    news: Arc<News>,
    elsewhere: Elsewhere,
    trials: Trials,
    resolvers: Vec<std::net::SocketAddr>,
    starter: Starter,
    files: usize,
}

impl Cards {
    /// Starts the threads, which confine themselves. `files` is the most descriptors that vbusd may
    /// have, and `starter` starts passt.
    ///
    /// # Errors
    /// The host has no threads for it, or refuses their policies.
    pub fn start(files: usize, starter: Starter) -> anyhow::Result<Self> {
        let news = News::new()?;
        let taps = (files / PART_OF_TAPS / FILES_OF_TAP).min(TAPS);
        let networks = (files / PART_OF_NETWORKS / FILES_OF_NETWORK).min(NETWORKS);
        let keeper = Some(Keeper::of_taps()?);
        let network_keeper = Some(Keeper::of_networks()?);
        // Without it a card learns of the state of its tap with the next frame.
        let changes = Changes::open();
        let changes = changes.inspect_err(|error| warn!("taps: {error}")).ok();
        Ok(Cards {
            taps: Crew::start("taps", "vbusd-taps", (keeper, changes), &news, taps)?,
            networks: Crew::start(
                "networks",
                "vbusd-networks",
                (network_keeper, None),
                &news,
                networks,
            )?,
            starter,
            news,
            elsewhere: Elsewhere::default(),
            trials: Trials::default(),
            resolvers: network::host_resolvers(),
            files: taps * FILES_OF_TAP + networks * FILES_OF_NETWORK,
        })
    }

    /// Descriptors that all cards together may take.
    pub fn files(&self) -> usize {
        self.files
    }

    /// The classes. While they `restore` what was configured, no tap is tried.
    pub fn classes(&self, restores: &Arc<AtomicBool>) -> [Box<dyn Class>; 2] {
        let site = |crew| self.site(crew, restores);
        let (resolvers, starter) = (self.resolvers.clone(), self.starter.clone());
        [
            Box::new(CardClass {
                name: TAP,
                site: site(&self.taps),
                kind: Box::new(|| Box::new(Tap::default())),
            }),
            Box::new(CardClass {
                name: USER,
                site: site(&self.networks),
                kind: Box::new(move || Box::new(User::new(resolvers.clone(), starter.clone()))),
            }),
        ]
    }

    /// What devices need whose cards are on this thread.
    fn site(&self, crew: &Arc<Crew>, restores: &Arc<AtomicBool>) -> Site {
        Site {
            crew: Arc::clone(crew),
            news: Arc::clone(&self.news),
            elsewhere: self.elsewhere.clone(),
            trials: self.trials.clone(),
            restores: Arc::clone(restores),
        }
    }

    /// The thread that has the cards of a class, if it is one of theirs.
    pub fn crew(&self, class: &str) -> Option<&Arc<Crew>> {
        match class {
            TAP => Some(&self.taps),
            USER => Some(&self.networks),
            _ => None,
        }
    }

    /// Which connections have cards on these threads.
    pub fn elsewhere(&self) -> &Elsewhere {
        &self.elsewhere
    }

    /// The trials that administrators' requests need.
    pub fn trials(&self) -> &Trials {
        &self.trials
    }

    /// The threads that got orders since the last call.
    pub fn given(&self) -> Vec<Arc<Crew>> {
        let all = [&self.taps, &self.networks];
        all.into_iter()
            .filter(|crew| crew.given())
            .cloned()
            .collect()
    }

    /// The outcomes of orders since the last call, with the numbers of the answers that wait for
    /// them.
    pub fn outcomes(&self) -> Vec<(u64, Outcome)> {
        self.news.outcomes()
    }

    /// Becomes readable, once for each edge, when connections must be closed, a card has ended, or
    /// orders were carried out.
    pub fn bell(&self) -> &OwnedFd {
        self.news.bell()
    }

    /// The devices with such connections.
    pub fn ready(&self) -> Vec<Name> {
        self.news.devices()
    }

    /// Forgets those of a device that is no more.
    pub fn forget(&self, device: &Name) {
        self.news.take(device);
    }
}
