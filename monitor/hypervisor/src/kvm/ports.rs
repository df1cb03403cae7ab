// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's ports: a serial line, the clock chip, a counter, restart and power-off.
//!
//! Every port is a register of one byte. A wider access, or a string of them, is that many accesses
//! of the same port. A port without a device reads as ones and ignores what is written.

use super::clock_chip::{self, ClockChip};
use super::counter::{self, Counter};
use super::layout::{RESET, RESET_VALUE, SLEEP_CONTROL, SLEEP_OFF, SLEEP_STATUS};
use crate::output::{End, Output};
use crate::output_queue::Outputs;
use paravane_abi as abi;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use vm_superio::{Serial, Trigger};
use vmm_sys_util::eventfd::EventFd;

const SERIAL: u16 = 0x3f8;
const SERIAL_END: u16 = 0x3ff;
/// Resets of a PC: a register of the chip set, with the bit that resets, and the keyboard
/// controller's command.
const RESET_CONTROL: u16 = 0xcf9;
const RESET_CPU: u8 = 4;
const KEYBOARD: u16 = 0x64;
const KEYBOARD_RESET: u8 = 0xfe;
/// The port at which a conformance guest ends, and what it writes.
const TEST_EXIT: u16 = 0xf4;
const TEST_PASSED: u8 = 0x10;
const TEST_FAILED: u8 = 0x11;
/// Sleep control: the bit that begins the sleep, and the place of the type.
const SLEEP_NOW: u8 = 1 << 5;
const SLEEP_TYPE: u8 = 2;

/// The ports.
pub struct Ports {
    devices: Mutex<Devices>,
    /// The serial line's interrupt, here for threads that must not wait for the console's reader.
    line: Arc<EventFd>,
    begun: Instant,
    /// A conformance guest runs, which ends at a port.
    tests: bool,
}

struct Devices {
    serial: Serial<Line, vm_superio::serial::NoEvents, Console>,
    clock: ClockChip,
    counter: Counter,
}

/// The serial line's interrupt.
struct Line(Arc<EventFd>);

impl Trigger for Line {
    type E = io::Error;

    fn trigger(&self) -> io::Result<()> {
        self.0.write(1)
    }
}

/// Where the serial line leads.
struct Console(Arc<Outputs<Output>>);

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Waits for the reader, so that a guest that prints faster than its reader reads waits.
        self.0.push(Output::Console(bytes.to_vec()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Ports {
    /// Ports whose serial line prints to `outputs` and interrupts by `line`. With `tests`, a guest
    /// may end with a verdict.
    pub fn new(outputs: &Arc<Outputs<Output>>, line: EventFd, tests: bool) -> Self {
        let line = Arc::new(line);
        let serial = Serial::new(Line(Arc::clone(&line)), Console(Arc::clone(outputs)));
        Ports {
            devices: Mutex::new(Devices {
                serial,
                clock: ClockChip::new(),
                counter: Counter::default(),
            }),
            line,
            begun: Instant::now(),
            tests,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Devices> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Repeats the serial line's interrupt, because the guest may have missed one. Its driver
    /// ignores one too many.
    pub fn interrupt_again(&self) {
        // Fails only if the counter is full: then KVM has not taken the last ring yet.
        let _ = self.line.write(1);
    }

    /// Reads.
    pub fn read(&self, port: u16, bytes: &mut [u8]) {
        let mut devices = self.lock();
        let now = self.begun.elapsed();
        for byte in bytes {
            *byte = match port {
                SERIAL..=SERIAL_END => devices.serial.read(offset(port)),
                clock_chip::DATA => devices.clock.read(),
                counter::COUNTER => devices.counter.read(now),
                counter::GATE => devices.counter.gate(now),
                SLEEP_STATUS | SLEEP_CONTROL => 0,
                _ => 0xff,
            };
        }
    }

    /// Writes. Returns the machine's end if that ends it.
    pub fn write(&self, port: u16, bytes: &[u8]) -> Option<End> {
        bytes.iter().find_map(|byte| self.write_byte(port, *byte))
    }

    fn write_byte(&self, port: u16, value: u8) -> Option<End> {
        let now = self.begun.elapsed();
        match port {
            SERIAL..=SERIAL_END => {
                // Fails only if the interrupt's counter is full: then it is pending already.
                let _ = self.lock().serial.write(offset(port), value);
            }
            clock_chip::INDEX => self.lock().clock.select(value),
            clock_chip::DATA => self.lock().clock.write(value),
            counter::COUNTER => self.lock().counter.write(value, now),
            counter::COMMAND => self.lock().counter.command(value, now),
            counter::GATE => self.lock().counter.set_gate(value, now),
            RESET if value == RESET_VALUE => return Some(restart()),
            RESET_CONTROL if value & RESET_CPU != 0 => return Some(restart()),
            KEYBOARD if value == KEYBOARD_RESET => return Some(restart()),
            SLEEP_CONTROL if value & SLEEP_NOW != 0 => return power_off(value),
            TEST_EXIT if self.tests => return Some(verdict(value)),
            _ => {}
        }
        None
    }
}

fn offset(port: u16) -> u8 {
    u8::try_from(port - SERIAL).unwrap_or(0)
}

fn restart() -> End {
    End::Reboot(u32::try_from(abi::REBOOT_HARD).unwrap_or(0))
}

/// Other types of sleep do not exist here.
fn power_off(value: u8) -> Option<End> {
    (value >> SLEEP_TYPE & 7 == SLEEP_OFF).then_some(End::Shutdown(0))
}

fn verdict(value: u8) -> End {
    match value {
        TEST_PASSED => End::Shutdown(0),
        TEST_FAILED => End::Shutdown(1),
        other => End::Failed(format!("it ended with the value {other:#x}")),
    }
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vmm_sys_util::eventfd::EFD_NONBLOCK;

    fn ports(tests: bool) -> (Ports, Arc<Outputs<Output>>) {
        let outputs = Arc::new(Outputs::new(16).unwrap());
        let line = EventFd::new(EFD_NONBLOCK).unwrap();
        (Ports::new(&outputs, line, tests), outputs)
    }

    #[test]
    fn the_serial_line_is_the_console() {
        let (ports, outputs) = ports(false);
        let mut status = [0];
        ports.read(0x3fd, &mut status);
        assert_eq!(status[0] & 0x20, 0x20, "ready to send");
        assert_eq!(ports.write(0x3f8, b"ok"), None);
        assert_eq!(outputs.pop(), Some(Output::Console(b"o".to_vec())));
        assert_eq!(outputs.pop(), Some(Output::Console(b"k".to_vec())));
    }

    #[test]
    fn unused_ports_read_as_ones() {
        let (ports, _) = ports(false);
        for port in [0x1e8, 0x20, 0x60, 0xcf8, 0xffff] {
            let mut bytes = [0; 4];
            assert_eq!(ports.write(port, &[0x22; 4]), None);
            ports.read(port, &mut bytes);
            assert_eq!(bytes, [0xff; 4], "{port:#x}");
        }
    }

    proptest! {
        #[test]
        fn any_accesses_are_survived(
            accesses in prop::collection::vec((any::<bool>(), 0usize..14, any::<[u8; 4]>()), 0..99)
        ) {
            const PORTS: [u16; 14] = [
                0x40, 0x42, 0x43, 0x61, 0x70, 0x71, 0x3f8, 0x3f9, 0x3fb, 0x3fc, 0x3fd, 0x600, 0x64,
                0xcf9,
            ];
            let (ports, outputs) = ports(true);
            for (write, port, mut bytes) in accesses {
                if write {
                    ports.write(PORTS[port], &bytes);
                } else {
                    ports.read(PORTS[port], &mut bytes);
                }
                while outputs.pop().is_some() {}
            }
        }
    }

    #[test]
    fn each_end_has_its_ports() {
        let (normal, _) = ports(false);
        let (tests, _) = ports(true);
        for (port, value) in [(0xcf9, 6), (0x64, 0xfe), (0x602, 1)] {
            assert_eq!(
                normal.write(port, &[value]),
                Some(End::Reboot(1)),
                "{port:#x}"
            );
        }
        assert_eq!(normal.write(0xcf9, &[2]), None);
        assert_eq!(normal.write(0x600, &[0x34]), Some(End::Shutdown(0)));
        // Suspend, and the type without the sleep.
        assert_eq!(normal.write(0x600, &[0x2c]), None);
        assert_eq!(normal.write(0x600, &[0x14]), None);
        assert_eq!(normal.write(0xf4, &[0x10]), None);
        assert_eq!(tests.write(0xf4, &[0x10]), Some(End::Shutdown(0)));
        assert_eq!(tests.write(0xf4, &[0x11]), Some(End::Shutdown(1)));
        assert!(matches!(tests.write(0xf4, &[3]), Some(End::Failed(_))));
    }
}
