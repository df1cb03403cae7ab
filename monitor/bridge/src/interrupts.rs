// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupts of a guest's queues: the line of its bridge, or vectors that the guest chose.
//!
//! All of this happens on the bridge's thread. So when a command that moves an interrupt is done,
//! all earlier interrupts are requested at the old vCPU, and no later one goes there.

use crate::bridge::CONNECTIONS;
use crate::planted::{self, Fault};
use paravane_devices::{Line, Message, NoMessage};
use paravane_vbus::{Error, Kind, Notify};
use std::sync::{Arc, Mutex, PoisonError};

/// How the guest gets the interrupts of a queue.
pub struct Interrupt {
    line: Arc<dyn Line>,
    /// In place of the line.
    own: Mutex<Option<Message>>,
}

impl Interrupt {
    /// By the line.
    pub fn new(line: &Arc<dyn Line>) -> Arc<Self> {
        Arc::new(Interrupt {
            line: Arc::clone(line),
            own: Mutex::new(None),
        })
    }

    fn own(&self) -> Option<Message> {
        *self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, own: Option<Message>) {
        let mut now = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if !(planted::is(Fault::InterruptStays) && now.is_some()) {
            *now = own;
        }
    }

    /// Checks a vector of a vCPU. Vector 0 stands for the line.
    fn choose(&self, apic: u32, vector: u32) -> Result<Option<Message>, Error> {
        if vector == 0 {
            return Ok(None);
        }
        let refused = |why: NoMessage| Error::new(Kind::Invalid, why.to_string());
        self.line.message(apic, vector).map(Some).map_err(refused)
    }
}

impl Notify for Interrupt {
    fn notify(&self) {
        if planted::is(Fault::NoInterrupts) {
            return;
        }
        match self.own().filter(|_| !planted::is(Fault::OnlyLine)) {
            Some(message) => self.line.send(message),
            None => self.line.raise(),
        }
    }

    fn group(&self) -> u64 {
        // No vector is 0.
        self.own().map_or(0, |message| {
            u64::from(message.vcpu()) << 8 | u64::from(message.vector())
        })
    }
}

/// Those of all queues that are shared: a queue's number and its interrupt, by connections. A
/// device has few queues, so there are few.
#[derive(Default)]
pub struct Interrupts([Vec<(u32, Arc<Interrupt>)>; CONNECTIONS]);

impl Interrupts {
    fn of(&mut self, connection: u32) -> Option<&mut Vec<(u32, Arc<Interrupt>)>> {
        self.0.get_mut(usize::try_from(connection).ok()?)
    }

    /// A queue of a connection was shared.
    pub fn add(&mut self, connection: u32, queue: u32, interrupt: Arc<Interrupt>) {
        let Some(all) = self.of(connection) else {
            return;
        };
        // Only the planted mistake leaves one.
        if let Some(index) = all.iter().position(|(number, _)| *number == queue) {
            interrupt.set(all.swap_remove(index).1.own());
        }
        all.push((queue, interrupt));
    }

    /// A connection has ended.
    pub fn end(&mut self, connection: u32) {
        if let Some(all) = self.of(connection).filter(|_| !keeps()) {
            all.clear();
        }
    }

    /// All connections have ended.
    pub fn end_all(&mut self) {
        if !keeps() {
            *self = Interrupts::default();
        }
    }

    /// Gives a queue this vector of a vCPU, or with vector 0 the line.
    ///
    /// # Errors
    /// The queue is not shared, or there is no such vector or vCPU.
    pub fn set(
        &mut self,
        connection: u32,
        queue: u32,
        (apic, vector): (u32, u32),
    ) -> Result<(), Error> {
        let all = self.of(connection);
        let found = all.and_then(|all| all.iter().find(|(number, _)| *number == queue));
        let missing = || Error::new(Kind::NotFound, "there is no such queue");
        let (_, interrupt) = found.ok_or_else(missing)?;
        let own = match interrupt.choose(apic, vector) {
            Err(_) if planted::is(Fault::TakesAnyVector) => return Ok(()),
            own => own?,
        };
        interrupt.set(own);
        if planted::is(Fault::OneInterrupt) {
            let all = self.0.iter().flatten();
            all.for_each(|(_, interrupt)| interrupt.set(own));
        }
        Ok(())
    }
}

fn keeps() -> bool {
    planted::is(Fault::KeepsInterrupts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_guest::Count;
    use std::sync::atomic::Ordering;

    fn sent(count: &Count) -> Vec<(u32, u8)> {
        let all = count.sent.lock().unwrap();
        all.iter()
            .map(|sent| (sent.vcpu(), sent.vector()))
            .collect()
    }

    #[test]
    fn a_queue_has_the_line_until_the_guest_chooses_and_after_it_has_given_that_up() {
        let count = Arc::<Count>::default();
        let line = Arc::clone(&count) as Arc<dyn Line>;
        let mut all = Interrupts::default();
        let (one, other) = (Interrupt::new(&line), Interrupt::new(&line));
        all.add(3, 1, Arc::clone(&one));
        all.add(3, 2, Arc::clone(&other));
        all.set(3, 1, (1, 0x41)).unwrap();
        one.notify();
        other.notify();
        assert_eq!(sent(&count), [(1, 0x41)]);
        assert_eq!(count.raised.load(Ordering::SeqCst), 1);
        all.set(3, 1, (0, 0x42)).unwrap();
        one.notify();
        all.set(3, 1, (77, 0)).unwrap();
        one.notify();
        assert_eq!(sent(&count), [(1, 0x41), (0, 0x42)]);
        assert_eq!(count.raised.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let count = Arc::<Count>::default();
        let line = Arc::clone(&count) as Arc<dyn Line>;
        let mut all = Interrupts::default();
        let one = Interrupt::new(&line);
        all.add(0, 0, Arc::clone(&one));
        all.set(0, 0, (1, 0x41)).unwrap();
        for (connection, queue, apic, vector, expected) in [
            (0, 0, 2, 0x41, Kind::Invalid),
            (0, 0, 0, 31, Kind::Invalid),
            (0, 0, 0, 256, Kind::Invalid),
            (0, 1, 0, 0x41, Kind::NotFound),
            (1, 0, 0, 0x41, Kind::NotFound),
            (16, 0, 0, 0x41, Kind::NotFound),
            (u32::MAX, u32::MAX, 0, 0x41, Kind::NotFound),
        ] {
            let refused = all.set(connection, queue, (apic, vector)).unwrap_err();
            assert_eq!(
                refused.kind(),
                expected,
                "{connection} {queue} {apic} {vector}"
            );
        }
        one.notify();
        assert_eq!(sent(&count), [(1, 0x41)]);
        all.end(0);
        assert!(all.set(0, 0, (1, 0x41)).is_err());
    }
}
