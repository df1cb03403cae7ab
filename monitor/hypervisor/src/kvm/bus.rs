// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stores of vCPUs to the registers of devices, and commands for bridges. Loads cause no exits: the
//! guest sees the pages.
//!
//! A notification (QueueNotify) rings an event counter inside the host's kernel and reaches the
//! device's thread. It comes here only if no queue has the number. An acknowledgement clears bits
//! of the page. Any other store waits for the device's thread, and so does a command. A
//! notification by a port comes here only if the device may do its work on the vCPU's thread
//! ([`Kicks`]).

use super::kicks::Kicks;
use super::layout::{DEVICE_PIN, DEVICES, DOORBELL_SIZE, doorbell};
use paravane_devices::mmio::{INTERRUPT_STATUS, PAGE};
use paravane_devices::{Page, refused};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
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

/// What a vCPU asks a device's thread for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A store to a register.
    Store(Store),
    /// The command of a bridge's driver at this guest-physical address.
    Command(u64),
}

/// A request until its answer, and the answer to the last one.
#[derive(Debug, Default)]
struct Exchange {
    asked: Option<Request>,
    answer: i32,
}

/// One device, as its thread and the vCPUs share it.
#[derive(Debug)]
pub struct Port {
    page: Page,
    /// It is a bridge, which has commands.
    bridge: bool,
    /// Wakes the device's thread.
    pub bell: EventFd,
    /// Gives the guest the device's interrupt.
    pub line: EventFd,
    /// The line has rung since the pin of the I/O APIC got its route.
    rung: AtomicBool,
    /// What the thread is woken for; see [`Port::take`].
    reasons: AtomicU32,
    /// What a vCPU waits for.
    exchange: Mutex<Exchange>,
    done: Condvar,
    /// One vCPU at a time.
    turn: Mutex<()>,
    /// The device's work, if vCPUs may do it. The thread owns it, which ends before this.
    kicks: OnceLock<Weak<Kicks>>,
}

/// Something happened on the host.
pub const HOST: u32 = 1;
/// A vCPU waits for a request.
pub const REQUEST: u32 = 2;
/// A vCPU has left some of the work that it has begun.
pub const LEFT: u32 = 4;

impl Port {
    /// Without anything to do.
    pub fn new(page: Page, bell: EventFd, line: EventFd, bridge: bool) -> Self {
        Port {
            page,
            bridge,
            bell,
            line,
            rung: AtomicBool::new(false),
            reasons: AtomicU32::new(0),
            exchange: Mutex::default(),
            done: Condvar::new(),
            turn: Mutex::new(()),
            kicks: OnceLock::new(),
        }
    }

    /// Wakes the device's thread.
    pub fn wake(&self, reason: u32) {
        self.reasons.fetch_or(reason, Ordering::SeqCst);
        // Fails only if the counter is full: then the thread has not looked yet.
        let _ = self.bell.write(1);
    }

    /// vCPUs may do this work.
    pub fn share(&self, kicks: &Arc<Kicks>) {
        // A device is started once.
        let _ = self.kicks.set(Arc::downgrade(kicks));
    }

    /// Gives the guest the device's interrupt.
    pub fn interrupt(&self) {
        // Before the ring, so that a ring without a route is always seen by `interrupt_again`.
        self.rung.store(true, Ordering::SeqCst);
        self.ring();
    }

    fn ring(&self) {
        // Fails only if the counter is full: then KVM has not taken the last ring yet.
        let _ = self.line.write(1);
    }

    /// Gives the interrupt once more, because the guest may have missed one. A virtio device shows
    /// whether its driver has acknowledged the last one. A bridge does not, but its driver ignores
    /// one too many.
    fn interrupt_again(&self) {
        let rung = self.rung.swap(false, Ordering::SeqCst);
        let status = self.page.register(INTERRUPT_STATUS);
        if self.bridge && rung || !self.bridge && status.load(Ordering::SeqCst) != 0 {
            self.ring();
        }
    }

    /// Why the thread was woken: [`HOST`], [`REQUEST`], [`LEFT`]. The caller has read the bell
    /// before.
    pub fn take(&self) -> u32 {
        self.reasons.swap(0, Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the device's thread: what a vCPU waits for.
    pub fn asked(&self) -> Option<Request> {
        self.lock().asked
    }

    /// For the device's thread: it is done, with this answer to a command.
    pub fn answer(&self, answer: i32) {
        *self.lock() = Exchange {
            asked: None,
            answer,
        };
        self.done.notify_all();
    }

    /// Returns the answer. If it is over, no vCPU uses the answer.
    fn ask(&self, request: Request, over: impl Fn() -> bool) -> i32 {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.lock().asked = Some(request);
        self.wake(REQUEST);
        let mut waiting = self.lock();
        while waiting.asked.is_some() && !over() {
            let woken = self.done.wait_timeout(waiting, PATIENCE);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        waiting.answer
    }
}

/// All devices, by their numbers.
#[derive(Debug, Default)]
pub struct Bus(Vec<Arc<Port>>);

impl Bus {
    /// These devices, in the order of their pages.
    pub fn new(ports: Vec<Arc<Port>>) -> Self {
        Bus(ports)
    }

    /// Carries out a store of a vCPU. `over`: the machine ends, and no thread answers.
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
        port.ask(Request::Store(store), over);
    }

    /// Carries out the command at an address of guest memory, for the bridge whose registers are at
    /// `bridge`. Both are the guest's numbers. Returns what `bus.command` does.
    pub fn command(&self, bridge: u64, command: u64, over: impl Fn() -> bool) -> i32 {
        match self.find(bridge) {
            Some((port, 0)) if port.bridge => port.ask(Request::Command(command), over),
            _ => refused(paravane_abi::ENOENT),
        }
    }

    /// A notification by a port. False: it is the port of no device.
    pub fn kick(&self, port: u16, bytes: &[u8]) -> bool {
        let Some(offset) = port.checked_sub(doorbell(0)) else {
            return false;
        };
        let size = u16::from(DOORBELL_SIZE);
        let Some(device) = self.0.get(usize::from(offset / size)) else {
            return false;
        };
        // As KVM does it for others: one word at the first port, and nothing else.
        if let (0, &[a, b, c, d]) = (offset % size, bytes) {
            let kicks = device.kicks.get().and_then(Weak::upgrade);
            if let Some(kicks) = kicks {
                kicks.kick(u32::from_le_bytes([a, b, c, d]));
            }
        }
        true
    }

    /// Repeats the interrupts of the devices with these pins of the I/O APIC, a bit for each.
    pub fn interrupt_again(&self, pins: u64) {
        let with_pins = self.0.iter().zip(DEVICE_PIN..);
        for (port, _) in with_pins.filter(|(_, pin)| pins >> pin & 1 != 0) {
            port.interrupt_again();
        }
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
    use proptest::prelude::*;
    use vmm_sys_util::eventfd::EFD_NONBLOCK;

    fn counter() -> EventFd {
        EventFd::new(EFD_NONBLOCK).unwrap()
    }

    fn bus() -> (Bus, Arc<Port>, Page) {
        let page = Area::new(1).unwrap().page(0);
        let port = Arc::new(Port::new(page.clone(), counter(), counter(), true));
        (Bus::new(vec![Arc::clone(&port)]), port, page)
    }

    /// The device's thread until it has seen a request, which it gives this answer.
    fn serve(port: &Port, answer: i32) -> Request {
        while port.take() & REQUEST == 0 {
            std::thread::yield_now();
        }
        let asked = port.asked().unwrap();
        port.answer(answer);
        asked
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

    /// The interrupt of a virtio device is repeated until its driver has acknowledged it, and so is
    /// that of a bridge.
    #[test]
    fn an_interrupt_is_repeated() {
        let area = Area::new(3).unwrap();
        let port = |number, bridge| {
            let page = area.page(number);
            Arc::new(Port::new(page, counter(), counter(), bridge))
        };
        let bus = Bus::new(vec![port(0, false), port(1, false), port(2, true)]);
        area.page(1).show(INTERRUPT_STATUS, 1);
        let rings = |pins: u64| {
            bus.interrupt_again(pins);
            let rung = bus.0.iter().map(|port| port.line.read().is_ok());
            rung.collect::<Vec<_>>()
        };
        assert_eq!(rings(u64::MAX), [false, true, false]);
        for port in &bus.0 {
            port.interrupt();
            port.line.read().unwrap();
        }
        assert_eq!(rings(!(7 << 16)), [false; 3]);
        assert_eq!(rings(1 << 18 | 1 << 4), [false, false, true]);
        assert_eq!(rings(u64::MAX), [false, true, false]);
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
            assert_eq!(serve(&port, 0), Request::Store(expected));
        });
        assert_eq!(port.asked(), None);
    }

    #[test]
    fn a_command_waits_for_the_bridge_and_has_its_answer() {
        let (bus, port, _) = bus();
        std::thread::scope(|scope| {
            let vcpu = scope.spawn(|| bus.command(DEVICES, u64::MAX, || false));
            assert_eq!(serve(&port, -14), Request::Command(u64::MAX));
            assert_eq!(vcpu.join().unwrap(), -14);
            let vcpu = scope.spawn(|| bus.command(DEVICES, 0x1000, || false));
            assert_eq!(serve(&port, 3), Request::Command(0x1000));
            assert_eq!(vcpu.join().unwrap(), 3);
        });
    }

    proptest! {
        /// Only a bridge gets commands, and only by the address of its registers.
        #[test]
        fn no_other_address_has_commands(
            near in -0x2000i64..0x3000, any: u64, command: u64, bridge: bool
        ) {
            let page = Area::new(1).unwrap().page(0);
            let port = Arc::new(Port::new(page, counter(), counter(), bridge));
            let bus = Bus::new(vec![Arc::clone(&port)]);
            for address in [DEVICES.wrapping_add_signed(near), DEVICES, any] {
                // No thread answers.
                let answer = bus.command(address, command, || true);
                let right = bridge && address == DEVICES;
                prop_assert_eq!(port.asked().is_some(), right);
                prop_assert!(right || answer == refused(paravane_abi::ENOENT));
                port.answer(0);
            }
        }
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
