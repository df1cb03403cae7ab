// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices: virtio (OASIS virtio 1.2), whatever hypervisor the machine runs on.
//!
//! A device is a [`Device`]: what it is, what it offers, and what it does with buffers. A hypervisor gives it a thread of
//! its own, on which every method is called, so a device needs no locks and never keeps a vCPU waiting. The registers
//! that a driver sees are in [`mmio`], its queues in [`Driver`]; both take what the guest writes for hostile.
//!
//! How to write one: do the work in [`Device::notified`], for as long as [`Driver::pop`] gives chains.
//! It gives a bounded number of them in a round of work, and [`Driver::end_round`] returns what was left.
//! Have what happens on the host (a file becomes readable, a worker is done) call [`Waker::wake`], directly
//! or through [`Waker::arm`], and look at it in [`Device::woken`].

pub mod balloon;
pub mod blk;
mod buffers;
pub mod console;
pub mod counters;
mod driver;
#[cfg(test)]
mod driver_tests;
mod end_flag;
pub mod fs;
#[cfg(test)]
mod fuzz;
pub mod mmio;
pub mod net;
mod pool;
mod reactor;
#[cfg(test)]
mod region_tests;
mod register_page;
pub mod rng;
#[cfg(test)]
mod test_guest;
pub mod vsock;

use paravane_confine::Files;

pub use driver::{Broken, Chain, Driver, Interrupt, Memory};
pub use end_flag::Ending;
pub use reactor::{EventFlags, Reactor, Wake, Waker};
pub use register_page::{Area, Page};

/// Device types (virtio 1.2, section 5).
pub mod kind {
    /// Network card.
    pub const NET: u32 = 1;
    /// Block device.
    pub const BLOCK: u32 = 2;
    /// Console.
    pub const CONSOLE: u32 = 3;
    /// Source of entropy.
    pub const RNG: u32 = 4;
    /// Memory balloon.
    pub const BALLOON: u32 = 5;
    /// Socket device.
    pub const VSOCK: u32 = 19;
    /// File system.
    pub const FS: u32 = 26;
}

/// A virtio device. All methods are called on one thread, which belongs to the device.
///
/// Before [`activate`](Device::activate) and after [`reset`](Device::reset) there is no driver: only the descriptions, the
/// configuration and [`start`](Device::start) are used then.
pub trait Device: Send {
    /// Its type, one of [`kind`].
    fn kind(&self) -> u32;

    /// A word for messages, for the name of its thread, at most 15 bytes, and for that thread's policy in
    /// `policies/monitor.json`.
    fn name(&self) -> String;

    /// Feature bits that it offers, bits 0 to 23 and 50 to 63; those of transport and queues are not its business.
    fn features(&self) -> u64 {
        0
    }

    /// The largest size of each queue: powers of two up to 32768.
    fn queue_sizes(&self) -> Vec<u16>;

    /// Its configuration space as it is now, at most [`mmio::CONFIG_MAX`] bytes. After a change of it, call
    /// [`Driver::config_changed`].
    fn config(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The driver has written to the configuration space: 1, 2, 4 or 8 bytes at an offset, both unchecked.
    fn write_config(&mut self, offset: usize, bytes: &[u8]) {
        let _ = (offset, bytes);
    }

    /// The files that it goes on opening while the guest runs.
    fn files(&self) -> Files {
        Files::none()
    }

    /// Called once, before there is a guest: the place to keep the waker.
    fn start(&mut self, waker: &Waker) -> anyhow::Result<()> {
        let _ = waker;
        Ok(())
    }

    /// The driver is ready, [`Driver::features`] are agreed upon. Followed by one call of [`woken`](Device::woken),
    /// for what happened before.
    fn activate(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        let _ = driver;
        Ok(())
    }

    /// The driver says that there are buffers in a queue. The number is one of the device's queues. May come without
    /// reason.
    fn notified(&mut self, driver: &mut Driver, queue: usize) -> Result<(), Broken>;

    /// Somebody has called [`Waker::wake`], or a file that was armed is ready. Several calls may become one. May
    /// come without reason.
    fn woken(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        let _ = driver;
        Ok(())
    }

    /// The driver has reset the device: everything that belongs to it is forgotten. Buffers must not be touched any
    /// more when this has returned, by no thread.
    fn reset(&mut self) {}
}
