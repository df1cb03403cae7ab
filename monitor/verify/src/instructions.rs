// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds instructions in a kernel's code that do not work as the kernel expects outside of
//! privilege level 0.
//!
//! There are two kinds: instructions that fault there, and those that behave differently without a
//! fault (pushf, popf, iret, cpuid, and instructions that read a selector or a table register). The
//! scan decodes from symbol to symbol, so that data between functions does not confuse it.

use super::alternatives::Dead;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use paravane_vmlinux::elf::Image;
use std::collections::BTreeMap;

/// The symbol that contains an instruction, and the instruction's name.
pub type Site = (String, String);

/// The result of a scan.
#[derive(Debug, Default)]
pub struct Found {
    /// Sensitive instructions that may run, by symbol and name, with the addresses of each.
    pub sites: BTreeMap<Site, Vec<u64>>,
    /// Number of decoded instructions.
    pub instructions: u64,
    /// Number of sensitive instructions that never run under a layer, because patching replaces
    /// them.
    pub patched_out: u64,
}

/// Scans all code of a kernel.
pub fn scan(image: &Image<'_>, dead: &Dead) -> Found {
    let mut found = Found::default();
    for section in image.sections.iter().filter(|s| s.code) {
        let end = section.address + section.bytes.len() as u64;
        let mut start = section.address;
        let from = image.symbols.partition_point(|(at, _)| *at <= start);
        let starts = image
            .symbols
            .get(from..)
            .unwrap_or_default()
            .iter()
            .map(|(at, _)| *at);
        for next in starts.take_while(|at| *at < end).chain([end]) {
            let at =
                |address: u64| usize::try_from(address - section.address).unwrap_or(usize::MAX);
            let bytes = section.bytes.get(at(start)..at(next)).unwrap_or_default();
            let name = image.symbol(start);
            for instruction in Decoder::with_ip(64, bytes, start, DecoderOptions::NONE) {
                found.instructions += 1;
                let Some(what) = sensitive(&instruction) else {
                    continue;
                };
                if dead.contains(instruction.ip()) {
                    found.patched_out += 1;
                    continue;
                }
                let site = (plain(name).to_string(), what);
                found.sites.entry(site).or_default().push(instruction.ip());
            }
            start = next;
        }
    }
    found
}

/// A function's name without the suffixes that a compiler adds to its parts and clones.
fn plain(name: &str) -> &str {
    match name.split_once('.') {
        Some((first, _)) if !first.is_empty() => first,
        _ => name,
    }
}

/// The name of an instruction that an unprivileged program must not use.
fn sensitive(instruction: &Instruction) -> Option<String> {
    use Mnemonic as M;
    let mnemonic = instruction.mnemonic();
    let name = || format!("{mnemonic:?}").to_lowercase();
    let register =
        |n: u32| match instruction.op_count() > n && instruction.op_kind(n) == OpKind::Register {
            true => instruction.op_register(n),
            false => Register::None,
        };
    match mnemonic {
        M::Mov => {
            let special = |r: Register| r.is_cr() || r.is_dr() || r.is_tr();
            let text = |r: Register| format!("{r:?}").to_lowercase();
            match (register(0), register(1)) {
                (to, _) if special(to) || to == Register::SS => {
                    Some(format!("mov to {}", text(to)))
                }
                (_, from) if special(from) || from == Register::CS => {
                    Some(format!("mov from {}", text(from)))
                }
                _ => None,
            }
        }
        // These do not fault, but have another effect.
        M::Pushf | M::Pushfd | M::Pushfq | M::Popf | M::Popfd | M::Popfq => Some(name()),
        M::Iret | M::Iretd | M::Iretq | M::Retf | M::Cpuid | M::Rdtscp | M::Rdpid => Some(name()),
        M::Sgdt | M::Sidt | M::Sldt | M::Str | M::Smsw | M::Lsl | M::Lar => Some(name()),
        // These fault.
        M::Stac | M::Clac | M::Rdpmc | M::Monitor | M::Mwait | M::Mwaitx | M::Monitorx => {
            Some(name())
        }
        M::Xsaves
        | M::Xsaves64
        | M::Xrstors
        | M::Xrstors64
        | M::Swapgs
        | M::Sysret
        | M::Sysretq => Some(name()),
        M::Syscall | M::Sysenter | M::Sysexit | M::Sysexitq | M::Vmcall | M::Vmmcall => {
            Some(name())
        }
        // The layer delivers the kernel's own breakpoints. Any other gate would be the host's.
        M::Int if instruction.code() == Code::Int_imm8 => Some(name()),
        M::Call | M::Jmp if instruction.is_call_far() || instruction.is_call_far_indirect() => {
            Some("call far".into())
        }
        M::Jmp if instruction.is_jmp_far() || instruction.is_jmp_far_indirect() => {
            Some("jmp far".into())
        }
        _ if instruction.is_privileged() => Some(name()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(bytes: &[u8]) -> Vec<Option<String>> {
        Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE)
            .into_iter()
            .map(|i| sensitive(&i))
            .collect()
    }

    #[test]
    fn what_counts() {
        for (bytes, name) in [
            (&[0xfa][..], "cli"),
            (&[0xfb], "sti"),
            (&[0xf4], "hlt"),
            (&[0x9c], "pushfq"),
            (&[0x9d], "popfq"),
            (&[0x48, 0xcf], "iretq"),
            (&[0x48, 0xcb], "retf"),
            (&[0xec], "in"),
            (&[0xee], "out"),
            (&[0x6c], "insb"),
            (&[0x0f, 0x01, 0xf8], "swapgs"),
            (&[0x48, 0x0f, 0x07], "sysretq"),
            (&[0x0f, 0x30], "wrmsr"),
            (&[0x0f, 0x32], "rdmsr"),
            (&[0x0f, 0x33], "rdpmc"),
            (&[0x0f, 0x22, 0xd8], "mov to cr3"),
            (&[0x0f, 0x20, 0xe0], "mov from cr4"),
            (&[0x0f, 0x23, 0xf8], "mov to dr7"),
            (&[0x8e, 0xd0], "mov to ss"),
            (&[0x8c, 0xc8], "mov from cs"),
            (&[0x0f, 0x01, 0x38], "invlpg"),
            (&[0x0f, 0x01, 0x10], "lgdt"),
            (&[0x0f, 0x01, 0x18], "lidt"),
            (&[0x0f, 0x00, 0xd8], "ltr"),
            (&[0x0f, 0x09], "wbinvd"),
            (&[0x0f, 0x06], "clts"),
            (&[0x0f, 0x01, 0xd1], "xsetbv"),
            (&[0x0f, 0x01, 0xcb], "stac"),
            (&[0x0f, 0xa2], "cpuid"),
            (&[0xcd, 0x80], "int"),
            (&[0x66, 0x0f, 0x38, 0x82, 0x00], "invpcid"),
        ] {
            assert_eq!(names(bytes), [Some(name.to_string())], "{bytes:x?}");
        }
    }

    #[test]
    fn what_does_not() {
        // nop; ret; int3; ud2; mov %eax,%ds; rdtsc; pause; mov (%rax),%rax; call
        for bytes in [
            &[0x90][..],
            &[0xc3],
            &[0xcc],
            &[0x0f, 0x0b],
            &[0x8e, 0xd8],
            &[0x0f, 0x31],
            &[0xf3, 0x90],
            &[0x48, 0x8b, 0x00],
            &[0xe8, 0, 0, 0, 0],
        ] {
            assert_eq!(names(bytes), [None], "{bytes:x?}");
        }
    }

    #[test]
    fn parts_and_copies_are_the_function() {
        assert_eq!(plain("mtrr_add.isra.0.cold"), "mtrr_add");
        assert_eq!(plain(".entry"), ".entry");
    }
}
