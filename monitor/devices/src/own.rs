// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices with registers of their own, which are not virtio's.

use super::counters::Counters;
use super::{Device, Line, Memory, Page, Setting, Waker};
use paravane_confine::Files;
use std::fmt;
use std::sync::Arc;

/// What a machine gives a device.
pub struct Machine {
    /// Guest memory.
    pub memory: Arc<Memory>,
    /// The page in which the device shows its registers.
    pub page: Page,
    /// The device's interrupt.
    pub line: Arc<dyn Line>,
    /// What the device counts.
    pub counters: Arc<Counters>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").finish_non_exhaustive()
    }
}

/// What a round of [`OwnDevice::kicked`] was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kicked {
    /// As the result of [`OwnDevice::serve`], for the device's own thread.
    pub left: u32,
    /// There is more work than a vCPU should do: the device's own thread does it.
    pub stream: bool,
}

/// A device that is not virtio's. All methods are called on the device's own thread, except for
/// [`start`](OwnDevice::start) and [`attach`](OwnDevice::attach), which are called before, and
/// [`kicked`](OwnDevice::kicked).
pub trait OwnDevice: Send + fmt::Debug {
    /// `VMI_DEVICE_*`: what a driver must know.
    fn kind(&self) -> u32;

    /// As [`Device::name`].
    fn name(&self) -> String;

    /// The files that the device still opens while the guest runs.
    fn files(&self) -> Files {
        Files::none()
    }

    /// Attributes that its user may set at any time.
    fn attributes(&self) -> Vec<Setting> {
        Vec::new()
    }

    /// How many numbers its driver notifies it by, from 0: at most 31.
    fn numbers(&self) -> u32;

    /// Called once, before the guest starts: the place to keep the waker.
    ///
    /// # Errors
    /// The device cannot work; the machine does not start.
    fn start(&mut self, waker: &Waker) -> anyhow::Result<()>;

    /// Called once, after [`start`](OwnDevice::start): shows the registers.
    fn attach(&mut self, machine: Machine);

    /// The driver has stored `width` bytes of `value` to its registers. Nothing is checked.
    fn write(&mut self, offset: u32, width: u32, value: u64);

    /// The driver has made the call `bus.command` with this guest-physical address. Nothing is
    /// checked. Returns what the call does: a status, or an error made by [`refused`]. Called only
    /// for bridges.
    fn command(&mut self, address: u64) -> i32;

    /// Serves what happened on the host, if `host`, and the driver's notifications: a bit for each
    /// number. Returns such bits if it wants to be called again at once. May be called without
    /// reason.
    fn serve(&mut self, host: bool, notified: u32) -> u32;

    /// Whether the thread of a vCPU may call [`kicked`](OwnDevice::kicked), where the back end
    /// allows it: how long after the last notification one must come at least, to be rare.
    fn rare(&self) -> Option<Setting> {
        None
    }

    /// As [`serve`](OwnDevice::serve) for these notifications alone, a little of it: on the thread
    /// of the vCPU that notifies, while the device's own thread sleeps.
    fn kicked(&mut self, notified: u32) -> Kicked {
        Kicked {
            left: self.serve(false, notified),
            stream: false,
        }
    }
}

/// What a call of the VMI returns for one of its errors.
pub const fn refused(error: u64) -> i32 {
    assert!(error <= 0xff);
    #[allow(clippy::cast_possible_truncation)] // just asserted
    {
        -(error as i32)
    }
}

/// A device of a machine.
pub enum Model {
    /// A virtio device.
    Virtio(Box<dyn Device>),
    /// Another one.
    Own(Box<dyn OwnDevice>),
}

impl Model {
    /// A virtio device.
    pub fn virtio(device: impl Device + 'static) -> Self {
        Model::Virtio(Box::new(device))
    }

    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Model::Virtio(device) => device.name(),
            Model::Own(device) => device.name(),
        }
    }

    /// The attributes that its user may set at any time.
    pub fn attributes(&self) -> Vec<Setting> {
        match self {
            Model::Virtio(_) => Vec::new(),
            Model::Own(device) => device.attributes(),
        }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
