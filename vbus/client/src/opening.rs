// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a client's connection is made, and made again: what it agrees on with the device.

use crate::control::Error;
use crate::events;
use crate::link::{Link, Options};
use crate::pairs::Pairs;
use paravane_vbus::Kind;
use paravane_vbus::ethernet::{TYPE as ETHERNET, call};

/// What a client and a device agree on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capabilities {
    /// Capabilities of an Ethernet device.
    pub wanted: u32,
    pub agreed: u32,
    /// The client shares with others of the device.
    pub shares: bool,
}

/// Joins, opens, agrees on capabilities and pairs, shares all queues, and brings the link of an
/// Ethernet device up.
pub fn open(
    options: &Options,
    pairs: &mut Pairs,
    mac: &mut Option<[u8; 6]>,
    caps: &mut Capabilities,
) -> Result<Link, Error> {
    let mut link = Link::open(options, pairs.file(), &[])?;
    pairs.renew()?;
    let ethernet = link.interface.interface == ETHERNET;
    let (mut agreed, mut many) = (0, 1);
    if ethernet && caps.wanted != 0 {
        agreed = agree(&mut link, 0, caps.wanted)?;
    }
    if let Some(events) = &mut pairs.events {
        let told = ethernet && agree(&mut link, events::GROUP, events::LINK)? != 0;
        events.agree(told);
    }
    if ethernet && pairs.wanted() > 1 {
        many = agree_on_pairs(&mut link, pairs.wanted())?;
    }
    let shares = share(&mut link, pairs)?;
    // The other side would misread data that is in the queues already: it would take a part of a
    // frame for a frame, and bytes of the sender's data for addresses.
    let others = (agreed, shares) != (caps.agreed, caps.shares);
    pairs.agree(many, others);
    link.share(&pairs.shared())?;
    pairs.attached(others)?;
    if ethernet {
        // Its old address, unless another client has it now.
        if let Some(mac) = mac {
            let _ = link.call(call::MACSET, mac);
        }
        let found = link.call(call::MACQUERY, &[])?;
        *mac = found.try_into().ok();
        link.call(call::LINKUP, &[])?;
    }
    (caps.agreed, caps.shares) = (agreed, shares);
    Ok(link)
}

/// Agrees to share with others of the device, if the client wants to. A device that does not is no
/// error: then it copies.
fn share(link: &mut Link, pairs: &mut Pairs) -> Result<bool, Error> {
    let Some(lending) = &mut pairs.lending else {
        return Ok(false);
    };
    let agreed = match link.lend(lending.offer()) {
        Ok(()) => true,
        Err(Error::Refused(why)) if why.kind() != Kind::Invalid => false,
        // The answer to a request that it does not know.
        Err(Error::Refused(why)) => {
            let text = format!("vbusd cannot share memory: {why}: it may be an older version");
            return Err(Error::Invalid(text));
        }
        Err(error) => return Err(error),
    };
    lending.agree(agreed);
    Ok(agreed)
}

/// What a device answers to a call. `None`: it has no such call.
fn answer(link: &mut Link, call: u32, argument: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    match link.call(call, argument) {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::Refused(why)) if why.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The capabilities of a group that the device has, too.
fn agree(link: &mut Link, group: u32, wanted: u32) -> Result<u32, Error> {
    let argument = [group, wanted].map(u32::to_le_bytes).concat();
    let answer = answer(link, call::NEGCAP, &argument)?.unwrap_or_default();
    let bits = answer.get(4..).and_then(<[u8]>::first_chunk);
    Ok(bits.map_or(0, |bits| u32::from_le_bytes(*bits)) & wanted)
}

/// The number of pairs that the device has, too.
fn agree_on_pairs(link: &mut Link, wanted: usize) -> Result<usize, Error> {
    let argument = u32::try_from(wanted).unwrap_or(u32::MAX).to_le_bytes();
    let Some(answer) = answer(link, call::PAIRS, &argument)? else {
        return Ok(1);
    };
    let number = answer.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let number = number.and_then(|number| usize::try_from(number).ok());
    let fits = number.filter(|number| (1..=wanted).contains(number));
    fits.ok_or_else(|| Error::Protocol(format!("{answer:?} is no number of pairs")))
}
