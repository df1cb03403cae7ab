// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers of virtio over MMIO (virtio 1.2, section 4.2), version 2.
//!
//! [`Registers`] is the state that a device's thread has: it takes writes and shows their results
//! in the page that the driver reads. Writes may come in any order with any value.

use super::register_page::Page;
use super::{Device, Memory};
use std::sync::atomic::{Ordering, fence};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_mmio as reg;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_queue::{Queue, QueueT};
use vm_memory::{GuestAddress, GuestMemory};

/// Size of a device's register page in bytes.
pub const PAGE: usize = 4096;
/// Offset of the configuration space.
pub const CONFIG: usize = reg::VIRTIO_MMIO_CONFIG as usize;
/// The largest configuration space in bytes.
pub const CONFIG_MAX: usize = PAGE - CONFIG;

/// Interrupt status: the device has used buffers.
pub const INTERRUPT_USED: u32 = reg::VIRTIO_MMIO_INT_VRING;
/// Interrupt status: the configuration space has changed.
pub const INTERRUPT_CONFIG: u32 = reg::VIRTIO_MMIO_INT_CONFIG;

const MAGIC: u32 = u32::from_le_bytes(*b"virt");
const VERSION: u32 = 2;
const VENDOR: u32 = u32::from_le_bytes(*b"PVNE");

/// Device status (virtio 1.2, section 2.1).
const DRIVER_OK: u32 = 4;
const FEATURES_OK: u32 = 8;
const NEEDS_RESET: u32 = 64;
const STATUS: u32 = 0xff;

/// Features of the transport and the queues.
const COMMON: u64 =
    1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX | 1 << VIRTIO_RING_F_INDIRECT_DESC;
/// Bits 24 to 49, which are not a device's own.
const RESERVED: u64 = (1 << 50) - (1 << 24);

/// What a write requires.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    None,
    /// The driver is ready.
    Activate,
    /// The driver starts again: what was active is no longer.
    Reset,
    /// A write to the configuration space.
    Config {
        /// The offset in the configuration space.
        offset: usize,
        /// The bytes: 1, 2, 4 or 8.
        bytes: Vec<u8>,
    },
}

/// The registers of one device.
#[derive(Debug)]
pub struct Registers {
    page: Page,
    offered: u64,
    driver_features: u64,
    device_select: u32,
    driver_select: u32,
    queue_select: u32,
    status: u32,
    queues: Vec<Queue>,
    config_length: usize,
}

impl Registers {
    /// Shows a device in its page, as after a reset.
    ///
    /// # Errors
    /// The device has a queue of an invalid size.
    pub fn new(page: Page, device: &dyn Device) -> Result<Self, virtio_queue::Error> {
        let queues: Result<Vec<_>, _> = device.queue_sizes().into_iter().map(Queue::new).collect();
        let mut registers = Registers {
            page,
            offered: device.features() & !RESERVED | COMMON,
            driver_features: 0,
            device_select: 0,
            driver_select: 0,
            queue_select: 0,
            status: 0,
            queues: queues?,
            config_length: 0,
        };
        let page = &registers.page;
        page.show(at(reg::VIRTIO_MMIO_MAGIC_VALUE), MAGIC);
        page.show(at(reg::VIRTIO_MMIO_VERSION), VERSION);
        page.show(at(reg::VIRTIO_MMIO_DEVICE_ID), device.kind());
        page.show(at(reg::VIRTIO_MMIO_VENDOR_ID), VENDOR);
        // A length of all ones says that there is no shared memory.
        for register in [
            reg::VIRTIO_MMIO_SHM_LEN_LOW,
            reg::VIRTIO_MMIO_SHM_LEN_HIGH,
            reg::VIRTIO_MMIO_SHM_BASE_LOW,
            reg::VIRTIO_MMIO_SHM_BASE_HIGH,
        ] {
            page.show(at(register), u32::MAX);
        }
        registers.reset(&device.config());
        Ok(registers)
    }

    /// Resets the registers.
    pub fn reset(&mut self, config: &[u8]) {
        self.driver_features = 0;
        self.device_select = 0;
        self.driver_select = 0;
        self.queue_select = 0;
        self.status = 0;
        self.queues.iter_mut().for_each(QueueT::reset);
        self.config_length = config.len().min(CONFIG_MAX);
        self.page.show(at(reg::VIRTIO_MMIO_INTERRUPT_STATUS), 0);
        show_config(&self.page, config);
        self.show_features();
        self.show_queue();
        // Last, because a driver waits for it.
        self.show_status();
    }

    /// Whether the driver is ready.
    pub fn active(&self) -> bool {
        self.status & (DRIVER_OK | NEEDS_RESET) == DRIVER_OK
    }

    /// The negotiated features, while [`active`](Registers::active).
    pub fn features(&self) -> u64 {
        self.driver_features
    }

    /// Copies of the queues as the driver has set them up.
    pub fn queues(&self) -> Vec<Queue> {
        let copy = |queue: &Queue| {
            let state = queue.state();
            Queue::try_from(state).ok()
        };
        self.queues.iter().filter_map(copy).collect()
    }

    /// The driver has broken a rule. Reports that to it, if it still listens. The device does
    /// nothing until it is reset.
    pub fn needs_reset(&mut self) {
        self.status |= NEEDS_RESET;
        self.show_status();
        self.page
            .register(at(reg::VIRTIO_MMIO_INTERRUPT_STATUS))
            .fetch_or(INTERRUPT_CONFIG, Ordering::SeqCst);
    }

    /// Handles a write by the driver. Notifications and acknowledgements of interrupts do not come
    /// here.
    pub fn write(&mut self, memory: &Memory, offset: u32, width: u32, value: u64) -> Action {
        if offset >= reg::VIRTIO_MMIO_CONFIG {
            return self.write_config(offset, width, value);
        }
        if width != 4 || !offset.is_multiple_of(4) {
            return Action::None;
        }
        #[allow(clippy::cast_possible_truncation)] // four bytes were written
        let value = value as u32;
        match offset {
            reg::VIRTIO_MMIO_DEVICE_FEATURES_SEL => {
                self.device_select = value;
                self.show_features();
            }
            reg::VIRTIO_MMIO_DRIVER_FEATURES_SEL => self.driver_select = value,
            reg::VIRTIO_MMIO_DRIVER_FEATURES => self.set_driver_features(value),
            reg::VIRTIO_MMIO_QUEUE_SEL => {
                self.queue_select = value;
                self.show_queue();
            }
            reg::VIRTIO_MMIO_STATUS => return self.set_status(value),
            _ => self.write_queue(memory, offset, value),
        }
        Action::None
    }

    fn write_config(&self, offset: u32, width: u32, value: u64) -> Action {
        let (offset, width) = (at(offset) - CONFIG, at(width));
        let all = value.to_le_bytes();
        match all.get(..width) {
            Some(bytes)
                if width.is_power_of_two()
                    && offset
                        .checked_add(width)
                        .is_some_and(|end| end <= self.config_length) =>
            {
                Action::Config {
                    offset,
                    bytes: bytes.to_vec(),
                }
            }
            _ => Action::None,
        }
    }

    fn set_driver_features(&mut self, value: u32) {
        // Negotiated features can no longer be changed.
        if self.status & FEATURES_OK != 0 || self.driver_select > 1 {
            return;
        }
        let shift = 32 * self.driver_select;
        self.driver_features &= !(u64::from(u32::MAX) << shift);
        self.driver_features |= u64::from(value) << shift;
    }

    fn set_status(&mut self, value: u32) -> Action {
        if value == 0 {
            return Action::Reset;
        }
        let before = self.status;
        // A driver never clears a bit and does not set the device's own.
        let mut set = value & STATUS & !NEEDS_RESET & !before;
        let acceptable = self.driver_features & !self.offered == 0
            && self.driver_features >> VIRTIO_F_VERSION_1 & 1 == 1;
        if set & FEATURES_OK != 0 && !acceptable {
            // The driver reads the bit back to see whether the device agrees.
            set &= !FEATURES_OK;
        }
        if set & DRIVER_OK != 0 && (before | set) & FEATURES_OK == 0 {
            set &= !DRIVER_OK;
        }
        self.status |= set;
        self.show_status();
        if set & DRIVER_OK != 0 && self.active() {
            Action::Activate
        } else {
            Action::None
        }
    }

    fn write_queue(&mut self, memory: &Memory, offset: u32, value: u32) {
        let locked = self.status & DRIVER_OK != 0;
        let Some(queue) = usize::try_from(self.queue_select)
            .ok()
            .and_then(|index| self.queues.get_mut(index))
            .filter(|_| !locked)
        else {
            return;
        };
        if offset == reg::VIRTIO_MMIO_QUEUE_READY {
            // Rings outside memory are not accepted.
            queue.set_ready(value == 1);
            let good = rings_are_memory(queue, memory)
                && queue.desc_table() != 0
                && queue.avail_ring() != 0;
            queue.set_ready(good && value == 1);
            self.show_queue();
            return;
        }
        if queue.ready() {
            return;
        }
        match offset {
            // A size that is not a power of two, or too large, is ignored.
            reg::VIRTIO_MMIO_QUEUE_NUM => queue.set_size(u16::try_from(value).unwrap_or(0)),
            reg::VIRTIO_MMIO_QUEUE_DESC_LOW => queue.set_desc_table_address(Some(value), None),
            reg::VIRTIO_MMIO_QUEUE_DESC_HIGH => queue.set_desc_table_address(None, Some(value)),
            reg::VIRTIO_MMIO_QUEUE_AVAIL_LOW => queue.set_avail_ring_address(Some(value), None),
            reg::VIRTIO_MMIO_QUEUE_AVAIL_HIGH => queue.set_avail_ring_address(None, Some(value)),
            reg::VIRTIO_MMIO_QUEUE_USED_LOW => queue.set_used_ring_address(Some(value), None),
            reg::VIRTIO_MMIO_QUEUE_USED_HIGH => queue.set_used_ring_address(None, Some(value)),
            _ => {}
        }
    }

    fn show_features(&self) {
        let [low, high] = [self.offered & 0xffff_ffff, self.offered >> 32]
            .map(|half| u32::try_from(half).unwrap_or(0));
        let value = match self.device_select {
            0 => low,
            1 => high,
            _ => 0,
        };
        self.page.show(at(reg::VIRTIO_MMIO_DEVICE_FEATURES), value);
    }

    fn show_queue(&self) {
        let queue = usize::try_from(self.queue_select)
            .ok()
            .and_then(|i| self.queues.get(i));
        let most = queue.map_or(0, |q| u32::from(q.max_size()));
        self.page.show(at(reg::VIRTIO_MMIO_QUEUE_NUM_MAX), most);
        let ready = queue.is_some_and(QueueT::ready);
        self.page
            .show(at(reg::VIRTIO_MMIO_QUEUE_READY), u32::from(ready));
    }

    fn show_status(&self) {
        self.page.show(at(reg::VIRTIO_MMIO_STATUS), self.status);
    }
}

/// Shows a configuration space.
///
/// The driver reads the generation, the fields, and the generation again, and none of these reads
/// traps. So it may see half-changed fields under one generation. The interrupt that follows every
/// change makes it read them again.
pub fn show_config(page: &Page, config: &[u8]) {
    for (index, part) in config.chunks(4).enumerate().take(CONFIG_MAX / 4) {
        let mut word = [0; 4];
        word[..part.len()].copy_from_slice(part);
        page.show(CONFIG + index * 4, u32::from_le_bytes(word));
    }
    fence(Ordering::SeqCst);
    page.register(at(reg::VIRTIO_MMIO_CONFIG_GENERATION))
        .fetch_add(1, Ordering::SeqCst);
}

/// Offset of the interrupt status, the reason of an interrupt.
pub const INTERRUPT_STATUS: usize = reg::VIRTIO_MMIO_INTERRUPT_STATUS as usize;

const fn at(register: u32) -> usize {
    register as usize
}

/// Whether all three rings of a queue are memory as a whole (virtio 1.2, section 2.7). The queue's
/// own check is of their ends, and memory may have a gap before an end.
fn rings_are_memory(queue: &Queue, memory: &Memory) -> bool {
    let size = usize::from(queue.size());
    let rings = [
        (queue.desc_table(), 16 * size),
        (queue.avail_ring(), 6 + 2 * size),
        (queue.used_ring(), 6 + 8 * size),
    ];
    let mut rings = rings.into_iter();
    queue.is_valid(memory)
        && rings.all(|(address, bytes)| memory.check_range(GuestAddress(address), bytes))
}

#[cfg(test)]
#[path = "mmio_tests.rs"]
mod tests;
