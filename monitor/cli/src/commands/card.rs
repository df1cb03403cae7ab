// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane card`: attributes of a running machine's cards on a virtual bus.

use super::machines::running;
use super::say;
use crate::arguments;
use paravane_machine::card_attributes;
use paravane_machine::control::{Request, ask, ask_json};
use paravane_machine::stats::Stats;
use paravane_machine::store::Store;
use paravane_user_io::outcome::Outcome;

/// Runs the command.
pub fn run(args: &arguments::Card) -> anyhow::Result<Outcome> {
    let wanted = card_attributes(&args.attributes)?;
    let machine = running(&Store::open()?, &args.name)?;
    for (attribute, value) in wanted.each() {
        let attribute = attribute.to_string();
        ask(&machine, &Request::Card { attribute, value })?;
    }
    let stats: Stats = ask_json(&machine, &Request::Stat)?;
    for device in stats.devices.iter().filter(|d| !d.attributes.is_empty()) {
        let attributes = device.attributes.iter();
        let words: String = attributes
            .map(|(name, value)| format!(" {name}={value}"))
            .collect();
        say(format!("{}{words}", device.name))?;
    }
    Ok(Outcome::Passed)
}
