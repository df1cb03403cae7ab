// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Attributes of a machine's cards on a virtual bus: those of vbusd's devices, with their bounds.

use crate::heuristic::Heuristic;
use crate::spec::{CardAttributes, Spec};
use crate::vm::Observer;
use anyhow::bail;
use paravane_bridge::Bridge;
use paravane_devices::Model;
use paravane_vbus::microseconds;

/// Reads words `NAME=VALUE`.
///
/// # Errors
/// There is no such attribute, the value is not possible, or one is set twice.
pub fn attributes(words: &[String]) -> anyhow::Result<CardAttributes> {
    let mut all = CardAttributes::default();
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word.as_str(), ""));
        let place = match name {
            CardAttributes::POLL => &mut all.poll_us,
            CardAttributes::KICK => &mut all.kick_us,
            _ => bail!("{word:.40}: poll-us=N and kick-us=N are possible"),
        };
        if place.replace(microseconds(name, value)?).is_some() {
            bail!("{name} is set twice");
        }
    }
    Ok(all)
}

/// Checks that the machine can have a card with attributes that are set.
///
/// # Errors
/// It cannot.
pub fn check(spec: &Spec) -> anyhow::Result<()> {
    if spec.card != CardAttributes::default() && !spec.has_card_on_bus() {
        bail!(
            "--card needs a card of a virtual bus: --net venet, venet-passt, venet-tap:NAME or \
             bus:NAME/DEVICE, or --bus"
        );
    }
    Ok(())
}

/// Sets an attribute of the cards of a machine that runs.
///
/// # Errors
/// None of its cards has such an attribute, or the value is not possible.
pub fn set(machine: &Observer, attribute: &str, value: u32) -> anyhow::Result<()> {
    // Another version of the program may have asked.
    microseconds(attribute, &value.to_string())?;
    if machine.set(attribute, value) == 0 {
        bail!("it has no card with the attribute {attribute:.40}");
    }
    Ok(())
}

/// A card on a virtual bus, set up as the machine's cards are.
pub fn model(mut bridge: Bridge, spec: &Spec) -> Model {
    if !spec.uses(Heuristic::KickerWork) {
        bridge = bridge.without_kicker_work();
    }
    let model = Model::Own(Box::new(bridge));
    for attribute in model.attributes() {
        let wanted = spec.card.each().into_iter();
        let wanted = wanted.filter(|(name, _)| *name == attribute.name());
        wanted.for_each(|(_, value)| attribute.set(value));
    }
    model
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &[&str]) -> Result<CardAttributes, String> {
        let words: Vec<_> = words.iter().map(ToString::to_string).collect();
        attributes(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn attributes_have_bounds() {
        let both = CardAttributes {
            poll_us: Some(0),
            kick_us: Some(10_000),
        };
        assert_eq!(set(&["poll-us=0", "kick-us=10000"]), Ok(both));
        assert_eq!(set(&[]), Ok(CardAttributes::default()));
        let why = "\"10001\" is no value of poll-us: 0 to 10000 are";
        assert_eq!(set(&["poll-us=10001"]).unwrap_err(), why);
        for bad in [
            "",
            "poll-us",
            "poll-us=",
            "poll-us=-1",
            "poll-us=1.5",
            "poll-us= 1",
            "kick-us=10001",
            "kick-us=99999999999999999999",
            "poll=1",
            "=1",
            "mac=1",
        ] {
            let why = set(&[bad]).unwrap_err();
            assert!(!why.is_empty() && !why.contains('\n'), "{why}");
        }
        assert!(set(&["poll-us=1", "poll-us=1"]).is_err());
    }
}
