// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report on a machine that crashed: each vCPU's registers, its stack by the kernel's symbols,
//! and the last events of the layer.
//!
//! The report follows the kernel's own log. All of it comes from memory that the guest can write,
//! so numbers are printed as numbers.

use paravane_abi::process as ph;
use paravane_hypervisor::process::debug::{Debug, RBP, RSP, Registers, State};
use paravane_vmlinux::elf::Image;
use paravane_vmlinux::orc::{Frame, Orc};
use std::fmt::Write as _;
use std::time::Duration;

/// How long running vCPUs have to stop and report their registers.
pub const STOP_TIME: Duration = Duration::from_millis(300);
/// Events printed for each vCPU.
const EVENTS: usize = 16;
/// vCPUs in the report. More would hide what matters.
const VCPUS: usize = 8;
const NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// The report, line by line.
pub fn report(debug: &Debug, kernel: &[u8]) -> String {
    debug.stop_all(STOP_TIME);
    let image = Image::read(kernel).ok();
    let book = Book {
        orc: image.as_ref().and_then(Orc::read),
        image,
        delta: debug.delta,
        user_end: debug.direct_map,
    };
    let newest = (0..debug.vcpus())
        .flat_map(|vcpu| debug.events(vcpu, 1))
        .map(|e| e.tsc)
        .max();
    let mut text = String::new();
    for vcpu in 0..debug.vcpus().min(VCPUS) {
        book.vcpu(&mut text, debug, vcpu);
        let events = debug.events(vcpu, EVENTS);
        if !events.is_empty() {
            let _ = writeln!(
                text,
                "  last events of its layer, microseconds before the machine's last:"
            );
        }
        for event in events {
            let cycles = newest.unwrap_or(0).saturating_sub(event.tsc);
            let before = u128::from(cycles) * 10_000_000 / u128::from(debug.tsc_hz.max(1));
            let _ = writeln!(
                text,
                "  {:>10}.{}  {}",
                before / 10,
                before % 10,
                book.event(&event)
            );
        }
    }
    if debug.vcpus() > VCPUS {
        let _ = writeln!(text, "and {} more vCPUs", debug.vcpus() - VCPUS);
    }
    text
}

/// Translates addresses by the kernel file's symbols.
struct Book<'a> {
    image: Option<Image<'a>>,
    orc: Option<Orc>,
    /// The load address minus the link address.
    delta: u64,
    /// The end of the guest's user range.
    user_end: u64,
}

impl Book<'_> {
    /// A place in the code: `name+0x12`, or the address and the part of the address space it is in.
    fn place(&self, address: u64) -> String {
        let kernel = (ph::PHV_HOLE_START..ph::PHV_LAYER_BASE).contains(&address);
        if !kernel {
            let whose = match address {
                ph::PHV_LAYER_BASE..ph::PHV_HOLE_END => "layer",
                _ if (ph::PHV_USER_START..self.user_end).contains(&address) => "user",
                _ => "?",
            };
            return format!("{address:#x} ({whose})");
        }
        let found = self
            .image
            .as_ref()
            .and_then(|i| i.find(address.wrapping_sub(self.delta)));
        match found {
            Some((name, offset)) => format!("{name}+{offset:#x}"),
            None => format!("{address:#x}"),
        }
    }

    /// The call site of a return address. After a call that never returns, the return address is
    /// the start of the next function.
    fn caller(&self, address: u64) -> String {
        let before = self
            .image
            .as_ref()
            .and_then(|i| i.find(address.wrapping_sub(1).wrapping_sub(self.delta)));
        match (self.place(address), before) {
            (place, Some((name, offset))) if place.ends_with("+0x0") => {
                format!("{name}+{:#x}", offset + 1)
            }
            (place, _) => place,
        }
    }

    fn vcpu(&self, text: &mut String, debug: &Debug, vcpu: usize) {
        let state = debug.state(vcpu);
        let what = match state {
            State::Off => "off",
            State::Runs => "does not stop: it is in the layer, or its processes are gone",
            State::Ending => "made the call that ended the machine",
            State::Stopped(_) => "stopped",
        };
        let _ = writeln!(text, "vCPU {vcpu}: {what}");
        let Some(registers) = debug.registers(vcpu) else {
            return;
        };
        self.registers(text, &registers, state == State::Ending);
        let read = |at: u64| {
            let mut bytes = [0; 8];
            (debug.read(&registers, at, &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
        };
        let start = Frame {
            ip: registers.rip,
            sp: registers.gpr[RSP],
            bp: registers.gpr[RBP],
        };
        let frames = match &self.orc {
            Some(orc) => orc.walk(start, self.delta, &read),
            None => vec![registers.rip],
        };
        let _ = writeln!(text, "  stack:");
        for (depth, frame) in frames.into_iter().enumerate() {
            let place = if depth == 0 {
                self.place(frame)
            } else {
                self.caller(frame)
            };
            let _ = writeln!(text, "    {place}");
        }
    }

    fn registers(&self, text: &mut String, registers: &Registers, call: bool) {
        let _ = writeln!(
            text,
            "  rip {:#x} {}, rflags {:#x}, cs {:#x}",
            registers.rip,
            self.place(registers.rip),
            registers.rflags,
            registers.cs
        );
        let _ = writeln!(
            text,
            "  cr2 {:#x}, cr3 {:#x}, fs {:#x}, gs {:#x}",
            registers.cr2, registers.cr3, registers.fs_base, registers.gs_base
        );
        // During a call into the layer only the registers that the call preserves are known.
        let known = |n: usize| !call || matches!(n, 3..=5 | 12..=15);
        let all: Vec<String> = NAMES
            .iter()
            .zip(registers.gpr)
            .enumerate()
            .filter(|(n, _)| known(*n))
            .map(|(_, (name, value))| format!("{name} {value:016x}"))
            .collect();
        for line in all.chunks(4) {
            let _ = writeln!(text, "  {}", line.join("  "));
        }
    }

    fn event(&self, event: &ph::PhvEvent) -> String {
        let (a, b) = (event.a, event.b);
        match event.kind {
            ph::PHV_EVENT_SWITCH => format!("switch to the space {a:#x}, process {b}"),
            ph::PHV_EVENT_FILL => format!("fill of {a:#x} at {}", self.place(b)),
            ph::PHV_EVENT_FLUSH => format!("flush of {a:#x} to {b:#x}"),
            ph::PHV_EVENT_FAULT => format!("page fault at {a:#x}, error code {b:#x}"),
            ph::PHV_EVENT_EXCEPTION => format!("exception {a} at {}", self.place(b)),
            ph::PHV_EVENT_INTERRUPT => format!("interrupt {a:#x} at {}", self.place(b)),
            ph::PHV_EVENT_HALT => format!("halt, interrupts {}", if b == 0 { "off" } else { "on" }),
            ph::PHV_EVENT_WAKE => format!("wake-up, pending {a:#x}"),
            ph::PHV_EVENT_KICK => format!("kick of vCPU {a}, pending {b:#x}"),
            ph::PHV_EVENT_SYSCALL => format!("system call {a} at {}", self.place(b)),
            ph::PHV_EVENT_STOP => format!("stop for a debugger at {}", self.place(b)),
            other => format!("unknown event {other}: {a:#x} {b:#x}"),
        }
    }
}
