// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The I/O APIC: the table in which a kernel says where the interrupt of each pin goes.
//!
//! KVM sees only the result: an MSI route for each pin whose entry is complete and unmasked. The
//! guest's entries are checked before, so that a device can cause nothing but an ordinary
//! interrupt. All pins are edge-triggered.

use super::layout::PINS;
use kvm_bindings::{
    KVM_IRQ_ROUTING_MSI, KvmIrqRouting, kvm_irq_routing_entry, kvm_irq_routing_entry__bindgen_ty_1,
    kvm_irq_routing_msi,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Offsets of the two registers through which the others are reached.
const SELECT: u64 = 0x00;
const WINDOW: u64 = 0x10;
/// Registers.
const ID: u8 = 0x00;
const VERSION: u8 = 0x01;
const ARBITRATION: u8 = 0x02;
const TABLE: u8 = 0x10;
/// The version of an I/O APIC without a register for the end of interrupts.
const VERSION_VALUE: u32 = 0x11;
const ID_MASK: u32 = 0x0f00_0000;

/// Bits of an entry.
const VECTOR: u64 = 0xff;
const MODE: u64 = 7 << 8;
const MODE_FIXED: u64 = 0;
const MODE_LOWEST: u64 = 1 << 8;
const LOGICAL: u64 = 1 << 11;
const LEVEL: u64 = 1 << 15;
const MASKED: u64 = 1 << 16;
const DESTINATION: u32 = 56;
/// What a driver can write; the rest reads as 0. The pending bits are never set here.
const WRITABLE: u64 = 0xff << DESTINATION | MASKED | LEVEL | 1 << 13 | LOGICAL | MODE | VECTOR;
/// The lowest vector that a local APIC accepts.
const FIRST_VECTOR: u64 = 16;

/// Where the interrupt of a pin goes, in the form of an MSI message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The pin.
    pub pin: u32,
    /// The message's address.
    pub address: u32,
    /// The message.
    pub data: u32,
}

/// The registers.
#[derive(Debug)]
pub struct Ioapic(Mutex<State>);

#[derive(Debug)]
struct State {
    select: u8,
    id: u32,
    table: [u64; PINS as usize],
    /// What was given to KVM last.
    routes: Vec<Route>,
}

impl Ioapic {
    /// As after a reset: all pins are masked.
    pub fn new() -> Self {
        Ioapic(Mutex::new(State {
            select: 0,
            id: 0,
            table: [MASKED; PINS as usize],
            routes: Vec::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a register.
    pub fn read(&self, offset: u64) -> u32 {
        let state = self.lock();
        match offset {
            SELECT => state.select.into(),
            WINDOW => state.window(),
            _ => 0,
        }
    }

    /// Writes a register. If that changes the routes, `apply` gets all of them. Returns the pins
    /// that had no route before and have one now, a bit for each: KVM has dropped an interrupt of
    /// such a pin that came before, so the caller rings its line again.
    ///
    /// # Errors
    /// Those of `apply`.
    pub fn write<E>(
        &self,
        offset: u64,
        value: u32,
        apply: impl FnOnce(&[Route]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut state = self.lock();
        match offset {
            SELECT => state.select = value.to_le_bytes()[0],
            WINDOW => state.set_window(value),
            _ => {}
        }
        let routes = state.all_routes();
        if routes == state.routes {
            return Ok(0);
        }
        // Under the lock, so that the last of two writes takes effect.
        apply(&routes)?;
        let gained = pins(&routes) & !pins(&state.routes);
        state.routes = routes;
        Ok(gained)
    }
}

impl State {
    /// The entry that is selected, and whether its high half is.
    fn entry(&self) -> Option<(usize, bool)> {
        let index = usize::from(self.select.checked_sub(TABLE)?);
        (index / 2 < self.table.len()).then_some((index / 2, index % 2 == 1))
    }

    fn window(&self) -> u32 {
        if let Some((pin, high)) = self.entry() {
            let [low, high_half] = halves(self.table[pin]);
            return if high { high_half } else { low };
        }
        match self.select {
            ID | ARBITRATION => self.id,
            VERSION => VERSION_VALUE | (PINS - 1) << 16,
            _ => 0,
        }
    }

    fn set_window(&mut self, value: u32) {
        if let Some((pin, high)) = self.entry() {
            let [low, high_half] = halves(self.table[pin]);
            let (low, high_half) = if high {
                (low, value)
            } else {
                (value, high_half)
            };
            self.table[pin] = (u64::from(high_half) << 32 | u64::from(low)) & WRITABLE;
        } else if self.select == ID {
            self.id = value & ID_MASK;
        }
    }

    fn all_routes(&self) -> Vec<Route> {
        (0..)
            .zip(&self.table)
            .filter_map(|(pin, entry)| route(pin, *entry))
            .collect()
    }
}

fn halves(entry: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = entry.to_le_bytes();
    [
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    ]
}

/// The route of an entry, if it asks for an ordinary interrupt by an edge.
fn route(pin: u32, entry: u64) -> Option<Route> {
    let mode = entry & MODE;
    let good = entry & (MASKED | LEVEL) == 0
        && (mode == MODE_FIXED || mode == MODE_LOWEST)
        && entry & VECTOR >= FIRST_VECTOR;
    if !good {
        return None;
    }
    let [low, high] = halves(entry);
    let logical = u32::from(entry & LOGICAL != 0);
    let lowest = u32::from(mode == MODE_LOWEST);
    Some(Route {
        pin,
        address: super::layout::APIC | high >> 24 << 12 | lowest << 3 | logical << 2,
        data: low & 0x7ff,
    })
}

/// The pins of routes, a bit for each.
fn pins(routes: &[Route]) -> u64 {
    const { assert!(PINS <= u64::BITS) };
    routes.iter().fold(0, |all, route| all | 1 << route.pin)
}

/// The routes as KVM takes them.
pub fn table(routes: &[Route]) -> Option<KvmIrqRouting> {
    let entry = |route: &Route| kvm_irq_routing_entry {
        gsi: route.pin,
        type_: KVM_IRQ_ROUTING_MSI,
        u: kvm_irq_routing_entry__bindgen_ty_1 {
            msi: kvm_irq_routing_msi {
                address_lo: route.address,
                data: route.data,
                ..Default::default()
            },
        },
        ..Default::default()
    };
    let entries: Vec<_> = routes.iter().map(entry).collect();
    KvmIrqRouting::from_entries(&entries).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(ioapic: &Ioapic, register: u8, value: u32) -> Option<Vec<Route>> {
        let mut seen = None;
        let mut note = |routes: &[Route]| {
            seen = Some(routes.to_vec());
            Ok::<(), ()>(())
        };
        ioapic.write(SELECT, register.into(), &mut note).unwrap();
        ioapic.write(WINDOW, value, &mut note).unwrap();
        seen
    }

    #[test]
    fn an_unmasked_entry_is_a_route() {
        let ioapic = Ioapic::new();
        assert_eq!(set(&ioapic, 0x10 + 2 * 17 + 1, 3 << 24), None);
        let routes = set(&ioapic, 0x10 + 2 * 17, 0x41).unwrap();
        let expected = Route {
            pin: 17,
            address: 0xfee0_3000,
            data: 0x41,
        };
        assert_eq!(routes, [expected]);
        // A store of the same value is no change.
        assert_eq!(set(&ioapic, 0x10 + 2 * 17, 0x41), None);
        assert_eq!(set(&ioapic, 0x10 + 2 * 17, 0x1_0041), Some(Vec::new()));
    }

    /// KVM drops what a masked pin's line rings. A change of an existing route drops nothing.
    #[test]
    fn a_pin_that_gains_a_route_is_reported() {
        let ioapic = Ioapic::new();
        let write = |register: u8, value| {
            let route = |_: &[Route]| Ok::<(), ()>(());
            assert_eq!(ioapic.write(SELECT, register.into(), route), Ok(0));
            ioapic.write(WINDOW, value, route).unwrap()
        };
        let low = |pin: u8| TABLE + 2 * pin;
        assert_eq!(write(low(17) + 1, 3 << 24), 0);
        assert_eq!(write(low(17), 0x41), 1 << 17);
        assert_eq!(write(low(17), 0x42), 0);
        assert_eq!(write(low(17) + 1, 1 << 24), 0);
        assert_eq!(write(low(63), 0x43), 1 << 63);
        assert_eq!(write(low(17), 0x1_0042), 0);
        assert_eq!(write(low(17), 0x42), 1 << 17);
    }

    #[test]
    fn what_is_no_ordinary_interrupt_is_no_route() {
        // A system management interrupt, NMI, INIT, external; level; exceptions' vectors.
        for entry in [0x241, 0x441, 0x541, 0x741, 0x8041, 0x0f, 0x1_0041] {
            assert_eq!(route(0, entry), None, "{entry:#x}");
        }
        let logical = route(5, 0x0200_0000_0000_0941).unwrap();
        assert_eq!((logical.address, logical.data), (0xfee0_200c, 0x141));
    }

    #[test]
    fn the_version_tells_the_pins() {
        let ioapic = Ioapic::new();
        set(&ioapic, VERSION, 0xffff_ffff);
        assert_eq!(ioapic.read(WINDOW), 0x003f_0011);
        set(&ioapic, 0x10, 0xffff_ffff);
        assert_eq!(ioapic.read(WINDOW), 0x0001_afff);
        assert_eq!(ioapic.read(0x40), 0);
    }

    proptest! {
        #[test]
        fn any_writes_give_good_routes(
            writes in prop::collection::vec(any::<(u8, u32)>(), 0..200)
        ) {
            let ioapic = Ioapic::new();
            for (register, value) in writes {
                for route in set(&ioapic, register, value).unwrap_or_default() {
                    prop_assert!(route.pin < PINS);
                    prop_assert_eq!(route.address >> 20, 0xfee);
                    prop_assert!(route.data & 0xff >= 16 && route.data >> 8 <= 1);
                }
            }
        }
    }
}
