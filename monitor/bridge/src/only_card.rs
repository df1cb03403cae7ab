// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network of a bus that has one only.

use crate::card::TYPE;
use paravane_vbus::Name;
use paravane_vbus_client::protocol::{Reply, Request};
use paravane_vbus_client::{Control, Error};
use std::path::Path;

/// The name of the device of type `virtual-ethernet` on a bus of the vbusd at `socket`.
///
/// # Errors
/// vbusd cannot be reached or refuses. The bus has no such device, or has several.
pub fn only_card(socket: &Path, bus: &str) -> Result<String, Error> {
    let mut control = Control::connect(socket)?;
    let name = Name::new(bus)?;
    control.ask(&Request::Join { bus: name })?;
    let interfaces = match control.ask(&Request::Interfaces)? {
        Reply::Interfaces(all) => all,
        other => return Err(Error::Protocol(format!("{other:?}"))),
    };
    let mut cards = interfaces.into_iter().filter(|one| one.interface == TYPE);
    match (cards.next(), cards.next()) {
        (Some(card), None) => Ok(card.name.to_string()),
        (None, _) => Err(Error::Invalid(format!("bus {bus} has no network"))),
        (Some(first), Some(second)) => Err(Error::Invalid(format!(
            "bus {bus} has several networks: name one, as in bus:{bus}/{} or bus:{bus}/{}",
            first.name, second.name
        ))),
    }
}
