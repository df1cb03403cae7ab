// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! A slot that is lent: the sender, the device and the receiver. The receiver's reads come before
//! the sender's next write.

use super::{Memory, buffer, finds, sound};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::thread;
use paravane_vbus_shm::fault::Fault;
use paravane_vbus_shm::loans::{Loans, words};
use paravane_vbus_shm::north::{North, Posted};
use paravane_vbus_shm::ring::Role;
use paravane_vbus_shm::south::South;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often each side looks. A side that waited would give the model too many orders.
const TRIES: usize = 3;
/// In some order of the accesses the slot was written again.
static REUSED: AtomicBool = AtomicBool::new(false);

/// The bytes of the slot. loom reports an access while another thread writes.
struct Slot(UnsafeCell<u32>);

// SAFETY: loom checks each access.
unsafe impl Sync for Slot {}

impl Slot {
    fn write(&self, value: u32) {
        // SAFETY: loom checks that no other thread accesses it.
        self.0.with_mut(|slot| unsafe { *slot = value });
    }

    fn read(&self) -> u32 {
        // SAFETY: loom checks that no thread writes it.
        self.0.with(|slot| unsafe { *slot })
    }
}

fn north(memory: &'static Memory, role: Role) -> North<'static, Vec<Posted>> {
    North::begin(memory.ring(), role, vec![Posted::default()], 7).unwrap()
}

fn lend() {
    loom::model(|| {
        let words: Vec<AtomicU32> = (0..words(1)).map(|_| AtomicU32::new(0)).collect();
        let loans = Loans::new(Box::leak(words.into_boxed_slice())).unwrap();
        let slot: &'static Slot = Box::leak(Box::new(Slot(UnsafeCell::new(0))));
        let (sent, received) = (Memory::new(1), Memory::new(1));
        let mut tx = north(sent, Role::Transmit);
        let mut rx = north(received, Role::Receive);
        rx.post(buffer(0)).unwrap();
        slot.write(1);
        tx.post(buffer(0)).unwrap();
        let mut from = South::attach(sent.ring(), Role::Transmit).unwrap();
        let mut to = South::attach(received.ring(), Role::Receive).unwrap();
        let device = thread::spawn(move || {
            from.take().unwrap().unwrap();
            loans.lend(0, true);
            let index = to.index();
            let place = to.take().unwrap().unwrap();
            assert!(to.fill(&place, 1, 0) && from.complete());
            for _ in 0..TRIES {
                thread::yield_now();
                if to.returned(index) {
                    loans.lend(0, false);
                    break;
                }
            }
        });
        let receiver = thread::spawn(move || {
            for _ in 0..TRIES {
                thread::yield_now();
                if rx.take().unwrap().is_some() {
                    assert_eq!(slot.read(), 1, "it was overwritten");
                    rx.post(buffer(0)).unwrap();
                    break;
                }
            }
        });
        let mut back = false;
        for _ in 0..TRIES {
            thread::yield_now();
            back |= tx.take().unwrap().is_some();
            if back && loans.is_free(0) {
                slot.write(2);
                REUSED.store(true, Ordering::Relaxed);
                break;
            }
        }
        device.join().unwrap();
        receiver.join().unwrap();
    });
}

#[test]
fn a_slot_is_written_after_its_receiver_has_read_it() {
    sound(lend);
    assert!(REUSED.load(Ordering::Relaxed), "it is never free again");
}

#[test]
fn a_slot_that_is_lent_and_taken_for_free_is_found() {
    finds(Fault::LentIsFree, lend);
}

#[test]
fn a_descriptor_that_is_taken_back_at_once_is_found() {
    finds(Fault::ReturnedAtOnce, lend);
}
