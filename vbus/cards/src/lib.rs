// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network cards of a virtual bus that lead out of it: [`Wire`] is on a tap of the host or on
//! passt, [`Stack`] on the user-mode network of this process.
//!
//! A card has at most one client, with up to eight pairs of queues, and knows neither that client
//! nor what runs the card. The monitor has such cards on the buses of its machines, vbusd on those
//! of its user. Both give a card a [`Waker`] for the files of the host. A client's writes are
//! hostile input: frames are copied once, and the network checks them.

#![forbid(unsafe_code)]

mod alarm;
mod base;
pub mod card;
mod counts;
pub mod host;
pub mod looks;
pub mod offload;
mod pair;
pub mod presence;
mod stack;
mod wire;
mod yields;

pub use base::Base;
pub use counts::Counts;
pub use host::{Offloads, Peer, Wake, Waker, Way};
pub use stack::Stack;
pub use wire::Wire;
pub use yields::give_way;
