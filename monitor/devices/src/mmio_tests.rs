// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drivers that write to the registers in good and in bad order.

use super::*;
use crate::register_page::Area;
use crate::rng::Rng;
use proptest::prelude::*;
use vm_memory::{GuestAddress, GuestMemoryMmap};

struct Machine {
    registers: Registers,
    page: Page,
    memory: Memory,
}

fn machine() -> Machine {
    let page = Area::new(1).unwrap().page(0);
    Machine {
        registers: Registers::new(page.clone(), &Rng::default()).unwrap(),
        page,
        memory: GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap(),
    }
}

impl Machine {
    fn write(&mut self, register: u32, value: u32) -> Action {
        self.registers
            .write(&self.memory, register, 4, value.into())
    }

    fn read(&self, register: u32) -> u32 {
        self.page.register(at(register)).load(Ordering::SeqCst)
    }

    /// Sets everything up to the status before DRIVER_OK.
    fn agree(&mut self, low: u32, high: u32) -> u32 {
        self.write(reg::VIRTIO_MMIO_STATUS, 1);
        self.write(reg::VIRTIO_MMIO_STATUS, 3);
        self.write(reg::VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
        self.write(reg::VIRTIO_MMIO_DRIVER_FEATURES, low);
        self.write(reg::VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
        self.write(reg::VIRTIO_MMIO_DRIVER_FEATURES, high);
        self.write(reg::VIRTIO_MMIO_STATUS, 11);
        self.read(reg::VIRTIO_MMIO_STATUS)
    }

    fn set_queue(&mut self, size: u32, descriptors: u32) {
        self.write(reg::VIRTIO_MMIO_QUEUE_SEL, 0);
        self.write(reg::VIRTIO_MMIO_QUEUE_NUM, size);
        self.write(reg::VIRTIO_MMIO_QUEUE_DESC_LOW, descriptors);
        self.write(reg::VIRTIO_MMIO_QUEUE_AVAIL_LOW, 0x2000);
        self.write(reg::VIRTIO_MMIO_QUEUE_USED_LOW, 0x3000);
        self.write(reg::VIRTIO_MMIO_QUEUE_READY, 1);
    }
}

#[test]
fn a_driver_comes_up_and_starts_again() {
    let mut m = machine();
    assert_eq!(m.read(reg::VIRTIO_MMIO_MAGIC_VALUE), 0x7472_6976);
    assert_eq!(m.read(reg::VIRTIO_MMIO_VERSION), 2);
    assert_eq!(m.read(reg::VIRTIO_MMIO_DEVICE_ID), 4);
    m.write(reg::VIRTIO_MMIO_DEVICE_FEATURES_SEL, 1);
    assert_eq!(m.read(reg::VIRTIO_MMIO_DEVICE_FEATURES), 1);
    m.write(reg::VIRTIO_MMIO_DEVICE_FEATURES_SEL, 7);
    assert_eq!(m.read(reg::VIRTIO_MMIO_DEVICE_FEATURES), 0);
    assert_eq!(m.agree(1 << 29, 1), 11);
    assert_eq!(m.read(reg::VIRTIO_MMIO_QUEUE_NUM_MAX), 64);
    m.set_queue(32, 0x1000);
    assert_eq!(m.read(reg::VIRTIO_MMIO_QUEUE_READY), 1);
    assert_eq!(m.write(reg::VIRTIO_MMIO_STATUS, 15), Action::Activate);
    // Only once.
    assert_eq!(m.write(reg::VIRTIO_MMIO_STATUS, 15), Action::None);
    assert!(m.registers.active());
    assert_eq!(m.registers.features(), 1 << 32 | 1 << 29);
    let queue = &m.registers.queues()[0];
    assert_eq!(
        (queue.size(), queue.desc_table(), queue.ready()),
        (32, 0x1000, true)
    );
    // The rings stay where they are.
    m.write(reg::VIRTIO_MMIO_QUEUE_DESC_LOW, 0x8000);
    assert_eq!(m.registers.queues()[0].desc_table(), 0x1000);
    assert_eq!(m.write(reg::VIRTIO_MMIO_STATUS, 0), Action::Reset);
    m.registers.reset(&[]);
    assert_eq!(m.read(reg::VIRTIO_MMIO_STATUS), 0);
    assert_eq!(m.read(reg::VIRTIO_MMIO_QUEUE_READY), 0);
    assert!(!m.registers.active());
}

#[test]
fn features_that_are_not_offered_are_not_agreed_upon() {
    assert_eq!(machine().agree(1 << 5, 1), 3);
    // An old driver: not version 1.
    assert_eq!(machine().agree(0, 0), 3);
    let mut m = machine();
    assert_eq!(m.agree(0, 1), 11);
    m.write(reg::VIRTIO_MMIO_DRIVER_FEATURES, 3);
    assert_eq!(m.write(reg::VIRTIO_MMIO_STATUS, 15), Action::Activate);
    assert_eq!(m.registers.features(), 1 << 32);
    // Not without features.
    let mut m = machine();
    assert_eq!(m.write(reg::VIRTIO_MMIO_STATUS, 7), Action::None);
    assert_eq!(m.read(reg::VIRTIO_MMIO_STATUS), 3);
}

#[test]
fn rings_outside_memory_are_none() {
    for (size, descriptors) in [(64, 0xff_f000), (64, 0x0010_0000 - 1008), (64, 0)] {
        let mut m = machine();
        m.agree(0, 1);
        m.set_queue(size, descriptors);
        assert_eq!(
            m.read(reg::VIRTIO_MMIO_QUEUE_READY),
            0,
            "{size} {descriptors:#x}"
        );
    }
    let mut m = machine();
    m.agree(0, 1);
    // Invalid sizes are ignored.
    m.set_queue(63, 0x1000);
    assert_eq!(m.registers.queues()[0].size(), 64);
}

#[test]
fn a_broken_driver_is_asked_to_start_again() {
    let mut m = machine();
    m.agree(0, 1);
    m.write(reg::VIRTIO_MMIO_STATUS, 15);
    m.registers.needs_reset();
    assert!(!m.registers.active());
    assert_eq!(m.read(reg::VIRTIO_MMIO_STATUS), 15 | 64);
    assert_eq!(m.read(reg::VIRTIO_MMIO_INTERRUPT_STATUS), INTERRUPT_CONFIG);
}

#[test]
fn the_configuration_is_shown_and_written_in_its_bounds() {
    let mut m = machine();
    let generation = m.read(reg::VIRTIO_MMIO_CONFIG_GENERATION);
    m.registers.reset(&[1, 2, 3, 4, 5, 6]);
    assert_eq!(m.read(reg::VIRTIO_MMIO_CONFIG), 0x0403_0201);
    assert_eq!(m.read(reg::VIRTIO_MMIO_CONFIG + 4), 0x0605);
    assert_ne!(m.read(reg::VIRTIO_MMIO_CONFIG_GENERATION), generation);
    let mut write = |offset, width| {
        m.registers
            .write(&m.memory, 0x100 + offset, width, 0x0102_0304_0506_0708)
    };
    let expected = Action::Config {
        offset: 4,
        bytes: vec![8, 7],
    };
    assert_eq!(write(4, 2), expected);
    for (offset, width) in [
        (4, 4),
        (6, 1),
        (0, 8),
        (0, 3),
        (0, 0),
        (0, 16),
        (u32::MAX - 0x100, 2),
    ] {
        assert_eq!(write(offset, width), Action::None, "{offset} {width}");
    }
}

proptest! {
    #[test]
    fn writes_in_any_order_leave_good_queues(writes in prop::collection::vec(
        (prop_oneof![(0u32..64).prop_map(|r| r * 4), any::<u32>()],
         prop_oneof![Just(4u32), any::<u32>()],
         prop_oneof![0u64..0x4000, any::<u64>()]), 0..100)
    ) {
        let mut m = machine();
        for (offset, width, value) in writes {
            if m.registers.write(&m.memory, offset, width, value) == Action::Reset {
                m.registers.reset(&[]);
            }
        }
        for queue in m.registers.queues() {
            prop_assert!(!queue.ready() || rings_are_memory(&queue, &m.memory));
        }
    }
}

#[test]
fn a_ring_with_a_gap_in_it_is_not_accepted() {
    let part = |start| (GuestAddress(start), 1 << 16);
    // The table has 1 KiB. It begins before the gap or in it, and its end is memory.
    for (table, good) in [(0x8000, 1), (0x1_0100, 0), (0xff00, 0), (0x1_0200, 1)] {
        let mut m = machine();
        m.memory = GuestMemoryMmap::from_ranges(&[part(0), part(0x1_0200)]).unwrap();
        m.agree(0, 1);
        m.set_queue(64, table);
        let ready = m.read(reg::VIRTIO_MMIO_QUEUE_READY);
        assert_eq!(ready, good, "{table:#x}");
    }
}
