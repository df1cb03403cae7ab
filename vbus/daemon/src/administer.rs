// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The administrator's requests.

use crate::store::Store;
use paravane_vbus::{Error, Kind, Name, Vbus};
use paravane_vbus_protocol::{MAX, Reply, Request};

/// Answers a request of an administrator. `None`: it is a client's.
pub fn answer(vbus: &mut Vbus, store: &Store, request: &Request) -> Option<Result<Reply, Error>> {
    let reply = match request {
        Request::Classes => {
            let names = vbus.classes().into_iter().map(str::to_string);
            return Some(Ok(Reply::Names(names.collect())));
        }
        Request::Buses { after } => {
            let all = vbus.bus_infos();
            return Some(Ok(Reply::Buses(page(all, after.as_ref(), |bus| &bus.name))));
        }
        Request::Devices { after } => {
            let all = vbus.device_infos();
            let page = page(all, after.as_ref(), |device| &device.name);
            return Some(Ok(Reply::Devices(page)));
        }
        Request::CreateBus { bus } => vbus.create_bus(bus).map(|()| Reply::Done),
        Request::RemoveBus { bus } => vbus.remove_bus(bus).map(|()| Reply::Done),
        Request::SetAccess { bus, access } => {
            vbus.set_access(bus, access.clone()).map(|()| Reply::Done)
        }
        Request::CreateDevice {
            device,
            class,
            attributes,
        } => vbus
            .create_device(device, class, attributes)
            .map(|()| Reply::Done),
        Request::RemoveDevice { device } => vbus.remove_device(device).map(|()| Reply::Done),
        Request::Link { bus, device } => vbus.link(bus, device).map(|id| Reply::Number(id.into())),
        Request::Unlink { bus, device } => vbus.unlink(bus, device).map(|()| Reply::Done),
        Request::SetAttribute {
            device,
            attribute,
            value,
        } => vbus
            .set_attribute(device, attribute, value)
            .map(|()| Reply::Done),
        Request::Reset { device } => {
            // Nothing that survives a restart changes.
            let closed = vbus.reset(device);
            return Some(closed.map(|count| Reply::Number(count as u64)));
        }
        Request::Join { .. }
        | Request::Interfaces
        | Request::Open { .. }
        | Request::Share { .. }
        | Request::Call { .. }
        | Request::Close { .. }
        | Request::Prioritize { .. }
        | Request::Lend { .. } => return None,
    };
    Some(reply.and_then(|reply| match store.save(vbus) {
        Ok(()) => Ok(reply),
        Err(error) => Err(Error::new(
            Kind::Host,
            format!("it is done, but will be lost when vbusd ends: cannot save the state: {error}"),
        )),
    }))
}

/// The first of the items after a name that fit into a packet, at least one.
fn page<T: serde::Serialize>(
    all: Vec<T>,
    after: Option<&Name>,
    name: impl Fn(&T) -> &String,
) -> Vec<T> {
    let mut left = MAX - 64;
    let rest = all
        .into_iter()
        .skip_while(|item| after.is_some_and(|after| name(item).as_str() <= after.as_str()));
    rest.take_while(|item| {
        let size = paravane_vbus_protocol::encode(item).map_or(MAX, |packet| packet.len());
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    })
    .collect()
}
