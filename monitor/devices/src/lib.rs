// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtio devices (OASIS virtio 1.2), and others with registers of their own, for any
//! hypervisor.
//!
//! A virtio device implements [`Device`], another one [`OwnDevice`]. The hypervisor gives it a
//! thread of its own, on which it calls every method, so a device needs no locks and never makes a
//! vCPU wait. [`mmio`] has the registers that a driver sees, [`Driver`] its queues; both treat what
//! the guest writes as hostile.
//!
//! To write a device, do the work in [`Device::notified`] while [`Driver::pop`] returns chains. For
//! events on the host call [`Waker::wake`], directly or through [`Waker::arm`], and handle them in
//! [`Device::woken`].

#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "returns guest memory to the host")]
pub mod balloon;
pub mod blk;
#[expect(unsafe_code, reason = "vectored I/O on guest memory")]
mod buffers;
pub mod console;
pub mod counters;
mod driver;
#[cfg(test)]
mod driver_tests;
mod end_flag;
#[cfg(test)]
#[expect(unsafe_code, reason = "maps two files side by side")]
mod file_boundary_tests;
#[expect(
    unsafe_code,
    reason = "attributes of one thread, reads into guest memory"
)]
pub mod fs;
#[cfg(test)]
mod fuzz;
mod interfaces;
mod message;
pub mod mmio;
pub mod net;
mod own;
#[expect(unsafe_code, reason = "a call of the host that rustix does not have")]
mod page_cache;
mod pool;
mod reactor;
#[expect(unsafe_code, reason = "maps memory that the guest can read")]
mod register_page;
pub mod rng;
mod setting;
#[cfg(test)]
#[path = "../../../tests/src/skip.rs"]
mod skip;
#[cfg(test)]
mod test_guest;
pub mod vsock;

use paravane_confine::Files;

pub use buffers::Buffers;
pub use driver::{Broken, Chain, Driver, Interrupt, Line, Memory};
pub use end_flag::Ending;
pub use interfaces::Interfaces;
pub use message::{Message, NoMessage};
pub use own::{Kicked, Machine, Model, OwnDevice, refused};
pub use reactor::{EventFlags, Reactor, Wake, Waker};
pub use register_page::{Area, Page};
pub use setting::Setting;

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

/// A virtio device. All methods are called on the device's own thread.
///
/// Before [`activate`](Device::activate) and after [`reset`](Device::reset) there is no driver:
/// then only the descriptions, the configuration and [`start`](Device::start) are used.
pub trait Device: Send {
    /// The device type, one of [`kind`].
    fn kind(&self) -> u32;

    /// A word for messages, for the name of the device's thread (at most 15 bytes), and for that
    /// thread's policy in `monitor/policies/monitor.json`.
    fn name(&self) -> String;

    /// The device's own feature bits: bits 0 to 23 and 50 to 63. The transport adds its own and
    /// those of queues.
    fn features(&self) -> u64 {
        0
    }

    /// The largest size of each queue: powers of two up to 32768.
    fn queue_sizes(&self) -> Vec<u16>;

    /// The present configuration space, at most [`mmio::CONFIG_MAX`] bytes. After a change, call
    /// [`Driver::config_changed`].
    fn config(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The driver has written 1, 2, 4 or 8 bytes to the configuration space. Neither the offset nor
    /// the bytes are checked.
    fn write_config(&mut self, offset: usize, bytes: &[u8]) {
        let _ = (offset, bytes);
    }

    /// The files that the device still opens while the guest runs.
    fn files(&self) -> Files {
        Files::none()
    }

    /// Called once, before the guest starts: the place to keep the waker.
    ///
    /// # Errors
    /// The device cannot work; the machine does not start.
    fn start(&mut self, waker: &Waker) -> anyhow::Result<()> {
        let _ = waker;
        Ok(())
    }

    /// The driver is ready and [`Driver::features`] are negotiated. One call of
    /// [`woken`](Device::woken) follows, for what happened before.
    ///
    /// # Errors
    /// The driver has broken a rule.
    fn activate(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        let _ = driver;
        Ok(())
    }

    /// The driver has put buffers into a queue, one of the device's queues. May be called without
    /// reason.
    ///
    /// # Errors
    /// The driver has broken a rule.
    fn notified(&mut self, driver: &mut Driver, queue: usize) -> Result<(), Broken>;

    /// [`Waker::wake`] was called, or an armed file is ready. Several events may become one call.
    /// May be called without reason.
    ///
    /// # Errors
    /// The driver has broken a rule.
    fn woken(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        let _ = driver;
        Ok(())
    }

    /// The driver has reset the device, which forgets everything of the driver's. After the return
    /// no thread may touch its buffers.
    fn reset(&mut self) {}
}
