// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux machines: the properties of a machine ([`spec`]), the state of named machines ([`store`]),
//! requests to a running one ([`control`]), its run from its files to its end ([`run()`]), when it
//! starts again ([`restart`]), its agent ([`agent`]), its built-in root ([`root`]), its statistics
//! ([`stats`]) and the places of its code ([`layout`]).

#![deny(unsafe_code)]

pub mod agent;
pub mod control;
pub mod heuristic;
mod hold;
pub mod initramfs;
pub mod layout;
pub mod output_log;
#[cfg(feature = "test-hooks")]
mod planted;
pub mod restart;
pub mod root;
mod run;
mod socket;
pub mod spec;
pub mod stats;
pub mod store;
mod vm;

#[cfg(feature = "test-hooks")]
pub use planted::plant_layer;
pub use run::{
    Background, Choice, RUNNING, Run, card_attributes, check_card, check_volumes, disk, net,
    outcome, root, run, volume,
};
