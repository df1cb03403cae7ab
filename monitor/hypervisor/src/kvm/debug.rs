// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine on KVM as a debugger sees it. Memory is read and written through the guest's page
//! tables, which the guest can write: their entries are only used as the guest's own numbers.

use super::core::Core;
use super::stops::Stops;
use crate::debug::{Debugged, Registers, Resume, State};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

const PAGE: u64 = 4096;
const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// The time between two requests to a vCPU that does not stop.
const AGAIN: Duration = Duration::from_millis(20);
/// How long vCPUs that are off may take to take breakpoints.
const TAKE: Duration = Duration::from_secs(1);
/// The time between two checks whether vCPUs have stopped.
const PAUSE: Duration = Duration::from_micros(500);

/// Access to one machine.
#[derive(Clone, Debug)]
pub struct Debug {
    core: Arc<Core>,
    memory: Arc<GuestMemoryMmap>,
}

impl Debug {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        Debug {
            core: Arc::clone(core),
            memory: core.ram.memory(),
        }
    }

    fn stops(&self) -> &Stops {
        &self.core.stops
    }

    /// Interrupts vCPUs until all those that are off have looked, and with `stop` until the others
    /// have stopped. Returns whether they have done so in this time.
    fn interrupt(&self, stop: bool, most: Duration) -> bool {
        let deadline = Instant::now() + most;
        let mut again = Instant::now();
        loop {
            let runs = |vcpu: usize| stop && self.state(vcpu) == State::Runs;
            let mut late = (0..self.vcpus())
                .filter(|&vcpu| self.stops().looks(vcpu) || runs(vcpu))
                .peekable();
            let now = Instant::now();
            if late.peek().is_none() {
                return true;
            }
            if now >= deadline || self.core.over() {
                return false;
            }
            if now >= again {
                late.filter(|&vcpu| runs(vcpu))
                    .for_each(|vcpu| self.stops().ask(vcpu));
                // One that was about to enter the guest has missed the last one.
                self.core.kick();
                again = now + AGAIN;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Looks up an address in the page tables of a processor.
fn walk(memory: &GuestMemoryMmap, registers: &Registers, address: u64) -> Option<u64> {
    let mut table = registers.cr3 & ADDRESS;
    for level in (1..=registers.levels).rev() {
        let shift = 12 + 9 * (level - 1);
        let at = GuestAddress(table + (address >> shift & 511) * 8);
        let entry: u64 = memory.read_obj(at).ok()?;
        if entry & PRESENT == 0 {
            return None;
        }
        if level == 1 || (level <= 3 && entry & LARGE != 0) {
            let inside = (1 << shift) - 1;
            return Some((entry & ADDRESS & !inside) | (address & inside));
        }
        table = entry & ADDRESS;
    }
    // Without paging.
    Some(address)
}

impl Debugged for Debug {
    fn vcpus(&self) -> usize {
        self.core.vcpus.len()
    }

    fn ending(&self) -> bool {
        self.core.stopping()
    }

    fn exit_code(&self) -> Option<u8> {
        self.core.end.exit_code()
    }

    fn fail(&self, why: String) {
        self.core.fail(why);
    }

    fn attach(&self, on: bool) {
        self.stops().attach(on);
        self.interrupt(false, TAKE);
    }

    fn state(&self, vcpu: usize) -> State {
        self.stops().state(vcpu)
    }

    fn stop_all(&self, most: Duration) -> bool {
        self.stops().look();
        self.interrupt(true, most)
    }

    fn resume(&self, vcpu: usize, how: Resume) {
        self.stops().resume(vcpu, how);
    }

    fn registers(&self, vcpu: usize) -> Option<Registers> {
        self.stops().registers(vcpu)
    }

    fn set_registers(&self, vcpu: usize, registers: &Registers) {
        self.stops().set_registers(vcpu, registers);
    }

    fn translate(&self, registers: &Registers, address: u64) -> Option<u64> {
        walk(&self.memory, registers, address)
    }

    fn read(&self, registers: &Registers, address: u64, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        for (at, size) in pieces(address, bytes.len()) {
            let to = bytes.get_mut(done..done + size).unwrap_or_default();
            let found = self.translate(registers, at);
            let failed = |gpa| self.memory.read_slice(to, GuestAddress(gpa)).is_err();
            if found.is_none_or(failed) {
                break;
            }
            done += size;
        }
        done
    }

    fn write(&self, registers: &Registers, address: u64, bytes: &[u8]) -> bool {
        let mut done = 0;
        pieces(address, bytes.len()).all(|(at, size)| {
            let from = bytes.get(done..done + size).unwrap_or_default();
            done += size;
            self.translate(registers, at)
                .is_some_and(|gpa| self.write_physical(gpa, from))
        })
    }

    fn write_physical(&self, gpa: u64, bytes: &[u8]) -> bool {
        self.memory.write_slice(bytes, GuestAddress(gpa)).is_ok()
    }

    fn set_hardware_breakpoints(&self, addresses: &[u64]) -> bool {
        let done = self.stops().set_hardware(addresses);
        self.interrupt(false, TAKE);
        done
    }
}

/// The parts of a range, each within one page: address and size.
fn pieces(address: u64, length: usize) -> impl Iterator<Item = (u64, usize)> {
    let (mut at, mut left) = (address, length);
    std::iter::from_fn(move || {
        let room = usize::try_from(PAGE - at % PAGE).unwrap_or(1);
        let part = left.min(room);
        let piece = (at, part);
        at = at.checked_add(part as u64)?;
        left -= part;
        (part > 0).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_looked_up_in_all_levels() {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
        let entry = |table: u64, index: u64, value: u64| {
            let at = GuestAddress(table + index * 8);
            memory.write_obj(value, at).unwrap();
        };
        entry(0x1000, 3, 0x2000 | PRESENT);
        entry(0x2000, 3, 0x3000 | PRESENT);
        entry(0x3000, 3, 0x4000 | PRESENT);
        entry(0x4000, 3, 0x5000 | PRESENT);
        entry(0x4000, 4, 0x20_0000 | LARGE | PRESENT);
        entry(0x5000, 3, 0x6000 | PRESENT);
        let look = |levels: u32, cr3: u64, address: u64| {
            let registers = Registers {
                gpr: [0; 16],
                rip: 0,
                rflags: 0,
                cs: 0,
                ss: 0,
                fs_base: 0,
                gs_base: 0,
                cr2: 0,
                cr3,
                kernel_root: 0,
                levels,
                fxsave: Box::new([0; 512]),
            };
            walk(&memory, &registers, address)
        };
        let below = 3 << 39 | 3 << 30 | 3 << 21 | 3 << 12 | 0xabc;
        assert_eq!(look(5, 0x1000, 3 << 48 | below), Some(0x6abc));
        assert_eq!(look(4, 0x2000, below), Some(0x6abc));
        assert_eq!(
            look(4, 0x2000, 3 << 39 | 3 << 30 | 4 << 21 | 5),
            Some(0x20_0005)
        );
        assert_eq!(look(4, 0x2000, below + PAGE), None);
        assert_eq!(look(4, 1 << 40, below), None, "a table outside memory");
        assert_eq!(look(0, 0x1000, below), Some(below), "no paging");
    }

    #[test]
    fn ranges_are_cut_at_pages() {
        let all: Vec<_> = pieces(0x1ffe, 0x1004).collect();
        assert_eq!(all, [(0x1ffe, 2), (0x2000, 0x1000), (0x3000, 2)]);
        assert_eq!(pieces(5, 0).count(), 0);
        assert_eq!(
            pieces(u64::MAX - 1, 9).count(),
            0,
            "beyond the last address"
        );
    }
}
