// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mistakes of buses that a test can plant, to prove that drivers' tests find them. Only builds
//! with the feature `test-hooks` have them.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fault {
    /// The list of interfaces lacks the last one.
    ListsLess = 1,
    /// Arguments of any length are cut instead of refused.
    CutsArguments = 2,
    /// The first byte of what a device writes is another one.
    WrongByte = 3,
    /// Devices do nothing.
    IdleDevices = 4,
    /// The guest is not interrupted.
    NoInterrupts = 5,
    /// There are no events.
    NoEvents = 6,
    /// A new driver has the connections of the last one.
    KeepsConnections = 7,
    /// Queues have the line only.
    OnlyLine = 8,
    /// An interrupt of a queue's own stays where it was at first.
    InterruptStays = 9,
    /// A vector or vCPU that does not exist is not refused.
    TakesAnyVector = 10,
    /// All queues have the interrupt that was chosen last for one of them.
    OneInterrupt = 11,
    /// A connection has the interrupts of the last one with its number.
    KeepsInterrupts = 12,
    /// A device's read outside of memory gives zeroes.
    ReadsOutside = 13,
    /// The result of a call that is as long as its argument is lost.
    LosesResults = 14,
}

#[cfg(feature = "test-hooks")]
mod hooks {
    use super::Fault;
    use std::sync::atomic::{AtomicU32, Ordering};

    static PLANTED: AtomicU32 = AtomicU32::new(0);

    /// All mistakes, by their names.
    const ALL: [(&str, Fault); 14] = [
        ("lists-less", Fault::ListsLess),
        ("cuts-arguments", Fault::CutsArguments),
        ("wrong-byte", Fault::WrongByte),
        ("idle-devices", Fault::IdleDevices),
        ("no-interrupts", Fault::NoInterrupts),
        ("no-events", Fault::NoEvents),
        ("keeps-connections", Fault::KeepsConnections),
        ("only-line", Fault::OnlyLine),
        ("interrupt-stays", Fault::InterruptStays),
        ("takes-any-vector", Fault::TakesAnyVector),
        ("one-interrupt", Fault::OneInterrupt),
        ("keeps-interrupts", Fault::KeepsInterrupts),
        ("reads-outside", Fault::ReadsOutside),
        ("loses-results", Fault::LosesResults),
    ];

    /// Plants the mistake of this name in all buses of the process. False: there is none.
    pub fn plant(name: &str) -> bool {
        let found = ALL.iter().find(|(known, _)| *known == name);
        if let Some((_, fault)) = found {
            PLANTED.store(*fault as u32, Ordering::SeqCst);
        }
        found.is_some()
    }

    pub fn is(fault: Fault) -> bool {
        PLANTED.load(Ordering::Relaxed) == fault as u32
    }
}

#[cfg(feature = "test-hooks")]
pub use hooks::{is, plant};

#[cfg(not(feature = "test-hooks"))]
#[inline(always)]
pub const fn is(_: Fault) -> bool {
    false
}
