// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores of vCPUs to the registers of devices. Loads are no exits: the guest sees the pages.
//!
//! A notification (QueueNotify) rings an event counter inside the host's kernel and reaches the
//! device's thread, so it comes here only if the number is no queue's. An acknowledgement clears
//! bits of the page. Any other store waits for the device's thread.

use super::layout::DEVICES;
use paravane_devices::Page;
use paravane_devices::mmio::{INTERRUPT_STATUS, PAGE};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vmm_sys_util::eventfd::EventFd;

/// QueueNotify and InterruptACK (virtio 1.2, section 4.2.2).
pub const QUEUE_NOTIFY: u64 = 0x50;
const INTERRUPT_ACK: u64 = 0x64;
/// How long a vCPU waits before it looks whether the machine ends.
const PATIENCE: Duration = Duration::from_millis(50);

/// A store to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// The register.
    pub offset: u32,
    /// Bytes: 1, 2, 4 or 8.
    pub width: u32,
    /// What was stored.
    pub value: u64,
}

/// One device, as its thread and the vCPUs share it.
#[derive(Debug)]
pub struct Port {
    page: Page,
    /// Wakes the device's thread.
    pub bell: EventFd,
    /// What the thread is woken for; see [`Port::take`].
    reasons: AtomicU32,
    /// The store that a vCPU waits for.
    store: Mutex<Option<Store>>,
    done: Condvar,
    /// One vCPU at a time.
    turn: Mutex<()>,
}

/// Something happened on the host.
pub const HOST: u32 = 1;
/// A vCPU waits for a store.
pub const STORE: u32 = 2;

impl Port {
    /// Without anything to do.
    pub fn new(page: Page, bell: EventFd) -> Self {
        Port {
            page,
            bell,
            reasons: AtomicU32::new(0),
            store: Mutex::new(None),
            done: Condvar::new(),
            turn: Mutex::new(()),
        }
    }

    /// Wakes the device's thread.
    pub fn wake(&self, reason: u32) {
        self.reasons.fetch_or(reason, Ordering::SeqCst);
        // Fails only if the counter is full: then the thread has not looked yet.
        let _ = self.bell.write(1);
    }

    /// Why the thread was woken: [`HOST`], [`STORE`]. The caller has read the bell before.
    pub fn take(&self) -> u32 {
        self.reasons.swap(0, Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Store>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the device's thread: the store that a vCPU waits for.
    pub fn asked(&self) -> Option<Store> {
        *self.lock()
    }

    /// For the device's thread: the page shows the result.
    pub fn answer(&self) {
        *self.lock() = None;
        self.done.notify_all();
    }

    fn ask(&self, store: Store, over: impl Fn() -> bool) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        *self.lock() = Some(store);
        self.wake(STORE);
        let mut waiting = self.lock();
        while waiting.is_some() && !over() {
            let woken = self.done.wait_timeout(waiting, PATIENCE);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// All devices, by their numbers.
#[derive(Debug, Default)]
pub struct Bus(Vec<std::sync::Arc<Port>>);

impl Bus {
    /// These devices, in the order of their pages.
    pub fn new(ports: Vec<std::sync::Arc<Port>>) -> Self {
        Bus(ports)
    }

    /// Carries out a store of a vCPU. `over`: the machine ends, and nobody answers.
    pub fn store(&self, address: u64, bytes: &[u8], over: impl Fn() -> bool) {
        let Some((port, offset)) = self.find(address) else {
            return;
        };
        let mut word = [0; 8];
        let Some(start) = word.get_mut(..bytes.len()) else {
            return;
        };
        start.copy_from_slice(bytes);
        let value = u64::from_le_bytes(word);
        if offset == QUEUE_NOTIFY {
            return;
        }
        if offset == INTERRUPT_ACK {
            if let [a, b, c, d] = *bytes {
                let bits = u32::from_le_bytes([a, b, c, d]);
                let status = port.page.register(INTERRUPT_STATUS);
                status.fetch_and(!bits, Ordering::SeqCst);
            }
            return;
        }
        let (Ok(offset), Ok(width)) = (u32::try_from(offset), u32::try_from(bytes.len())) else {
            return;
        };
        let store = Store {
            offset,
            width,
            value,
        };
        port.ask(store, over);
    }

    fn find(&self, address: u64) -> Option<(&Port, u64)> {
        let (size, offset) = (PAGE as u64, address.checked_sub(DEVICES)?);
        let port = self.0.get(usize::try_from(offset / size).ok()?)?;
        Some((port, offset % size))
    }

    /// Wakes every device's thread.
    pub fn wake_all(&self) {
        self.0.iter().for_each(|port| port.wake(HOST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paravane_devices::Area;
    use std::sync::Arc;
    use vmm_sys_util::eventfd::EFD_NONBLOCK;

    fn bus() -> (Bus, Arc<Port>, Page) {
        let page = Area::new(1).unwrap().page(0);
        let bell = EventFd::new(EFD_NONBLOCK).unwrap();
        let port = Arc::new(Port::new(page.clone(), bell));
        (Bus::new(vec![Arc::clone(&port)]), port, page)
    }

    #[test]
    fn an_acknowledgement_clears_bits() {
        let (bus, port, page) = bus();
        page.show(INTERRUPT_STATUS, 3);
        bus.store(DEVICES + 0x64, &1u32.to_le_bytes(), || false);
        bus.store(DEVICES + 0x64, &[2], || false);
        assert_eq!(page.register(INTERRUPT_STATUS).load(Ordering::SeqCst), 2);
        assert_eq!(port.take(), 0);
    }

    #[test]
    fn a_store_waits_for_the_device() {
        let (bus, port, _) = bus();
        let expected = Store {
            offset: 0x70,
            width: 4,
            value: 0x0403_0201,
        };
        std::thread::scope(|scope| {
            scope.spawn(|| bus.store(DEVICES + 0x70, &[1, 2, 3, 4], || false));
            while port.take() & STORE == 0 {
                std::thread::yield_now();
            }
            assert_eq!(port.asked(), Some(expected));
            port.answer();
        });
        assert_eq!(port.asked(), None);
    }

    #[test]
    fn the_end_does_not_wait_and_other_addresses_are_nobodys() {
        let (bus, port, _) = bus();
        bus.store(DEVICES + 0x1000, &[0; 4], || false);
        bus.store(0, &[0; 4], || false);
        bus.store(DEVICES + 0x50, &[7; 4], || false);
        assert_eq!(port.asked(), None);
        bus.store(DEVICES + 0x70, &[0; 4], || true);
        assert!(port.asked().is_some());
    }
}
