// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stack traces from a kernel's ORC tables (Documentation/arch/x86/orc-unwinder.rst of Linux 6.12).
//!
//! Tables and symbols come from the kernel file, stacks from the guest. A walk ends whatever they
//! contain.

use super::elf::Image;

/// Size of struct orc_entry, in bytes.
const ENTRY: usize = 6;
/// The largest number of frames of a walk.
const DEPTH: usize = 48;

/// Base registers of a frame (arch/x86/include/asm/orc_types.h).
const PREVIOUS_SP: u8 = 1;
const BP: u8 = 4;
const SP: u8 = 5;
const BP_INDIRECT: u8 = 8;
const SP_INDIRECT: u8 = 9;
/// Types of entries.
const CALL: u8 = 2;
const REGS: u8 = 3;
const REGS_PARTIAL: u8 = 4;
/// Offsets in struct pt_regs.
const REGS_BP: u64 = 32;
const REGS_IP: u64 = 128;
const REGS_SP: u64 = 152;

/// How to find the caller of a place in the code.
#[derive(Clone, Copy, Debug)]
struct Rule {
    address: u64,
    sp_offset: i16,
    bp_offset: i16,
    sp: u8,
    bp: u8,
    kind: u8,
    /// The frame was interrupted: its address is that of the instruction, not a return address.
    signal: bool,
}

/// One position of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer.
    pub bp: u64,
}

/// A kernel's ORC tables.
#[derive(Debug)]
pub struct Orc {
    rules: Vec<Rule>,
}

impl Orc {
    /// Reads the tables of a kernel file, if it has any.
    pub fn read(image: &Image<'_>) -> Option<Self> {
        let places = image.section(".orc_unwind_ip")?;
        let entries = image.section(".orc_unwind")?;
        let mut rules: Vec<Rule> = places
            .bytes
            .chunks_exact(4)
            .zip((places.address..).step_by(4))
            .zip(entries.bytes.chunks_exact(ENTRY))
            .filter_map(|((place, at), entry)| rule(place, at, entry))
            .collect();
        rules.sort_by_key(|rule| rule.address);
        (!rules.is_empty()).then_some(Orc { rules })
    }

    /// Walks the stack from `start`, which is the first frame of the result. Addresses are link
    /// addresses. `read` reads eight bytes of the stack.
    pub fn walk(&self, start: Frame, moved: u64, read: &dyn Fn(u64) -> Option<u64>) -> Vec<u64> {
        let mut frames = vec![start.ip];
        let mut frame = start;
        let mut exact = true;
        while frames.len() < DEPTH {
            let place = frame.ip.wrapping_sub(moved).wrapping_sub(u64::from(!exact));
            let Some(rule) = self.rule(place) else { break };
            let Some(next) = step(&frame, rule, read) else {
                break;
            };
            // A stack grows downwards, but an interrupt may have switched stacks.
            if next.ip == 0 || (next.sp <= frame.sp && rule.kind == CALL) {
                break;
            }
            exact = rule.kind != CALL || rule.signal;
            frame = next;
            frames.push(frame.ip);
        }
        frames
    }

    fn rule(&self, address: u64) -> Option<&Rule> {
        let behind = self.rules.partition_point(|rule| rule.address <= address);
        self.rules.get(behind.checked_sub(1)?)
    }
}

fn rule(place: &[u8], at: u64, entry: &[u8]) -> Option<Rule> {
    let offset = i32::from_le_bytes(*place.first_chunk()?);
    let &[s0, s1, b0, b1, registers, flags] = entry else {
        return None;
    };
    Some(Rule {
        address: at.wrapping_add_signed(offset.into()),
        sp_offset: i16::from_le_bytes([s0, s1]),
        bp_offset: i16::from_le_bytes([b0, b1]),
        sp: registers & 0xf,
        bp: registers >> 4,
        kind: flags & 7,
        signal: flags & 8 != 0,
    })
}

fn step(frame: &Frame, rule: &Rule, read: &dyn Fn(u64) -> Option<u64>) -> Option<Frame> {
    let add = |value: u64, offset: i16| value.wrapping_add_signed(offset.into());
    let cfa = match rule.sp {
        SP => add(frame.sp, rule.sp_offset),
        BP => add(frame.bp, rule.sp_offset),
        SP_INDIRECT => add(read(frame.sp)?, rule.sp_offset),
        BP_INDIRECT => read(add(frame.bp, rule.sp_offset))?,
        // The register's value is no longer known.
        _ => return None,
    };
    let (ip, sp) = match rule.kind {
        CALL => (read(cfa.wrapping_sub(8))?, cfa),
        REGS => (
            read(cfa.wrapping_add(REGS_IP))?,
            read(cfa.wrapping_add(REGS_SP))?,
        ),
        REGS_PARTIAL => (read(cfa)?, read(cfa.wrapping_add(REGS_SP - REGS_IP))?),
        _ => return None,
    };
    let bp = match rule.bp {
        PREVIOUS_SP => read(add(cfa, rule.bp_offset))?,
        BP => read(add(frame.bp, rule.bp_offset))?,
        _ if rule.kind == REGS => read(cfa.wrapping_add(REGS_BP))?,
        _ => frame.bp,
    };
    Some(Frame { ip, sp, bp })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn orc(rules: &[(u64, u8, i16, u8, i16, u8)]) -> Orc {
        Orc {
            rules: rules
                .iter()
                .map(|&(address, sp, sp_offset, bp, bp_offset, kind)| Rule {
                    address,
                    sp_offset,
                    bp_offset,
                    sp,
                    bp,
                    kind,
                    signal: kind != CALL,
                })
                .collect(),
        }
    }

    #[test]
    fn calls_and_an_interrupt() {
        let orc = orc(&[
            (0x100, SP, 16, PREVIOUS_SP, -16, CALL),
            (0x200, SP, 0, 0, 0, REGS),
            (0x300, BP, 16, 0, 0, CALL),
            (0x400, 0, 0, 0, 0, 0),
        ]);
        let mut stack = HashMap::new();
        // In the first function bp was pushed after the return address into the interrupt's entry.
        stack.insert(0x1000, 0xb0);
        stack.insert(0x1008, 0x210);
        // pt_regs of the interrupted code.
        stack.insert(0x1010 + REGS_IP, 0x300);
        stack.insert(0x1010 + REGS_SP, 0x2000);
        stack.insert(0x1010 + REGS_BP, 0x2010);
        stack.insert(0x2018, 0x401);
        let start = Frame {
            ip: 0x110,
            sp: 0x1000,
            bp: 1,
        };
        let read = |at: u64| stack.get(&at).copied();
        assert_eq!(orc.walk(start, 0, &read), [0x110, 0x210, 0x300, 0x401]);
    }

    proptest! {
        #[test]
        fn every_walk_ends(
            rules in prop::collection::vec(
                (0u64..0x1000, 0u8..10, any::<i16>(), 0u8..10, any::<i16>(), 0u8..6),
                1..20
            ),
            ip in 0u64..0x1000, sp: u64, bp: u64, word: u64,
        ) {
            let mut rules = rules;
            rules.sort_unstable();
            let frames = orc(&rules).walk(Frame { ip, sp, bp }, 0, &|at| Some(at ^ word));
            prop_assert!(frames.len() <= DEPTH);
        }
    }
}
