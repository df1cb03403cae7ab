// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host's kernel did for a vCPU: the call, exception or interrupt that entered it.

use std::fs;

/// The function that all of the host's 64-bit system calls go through.
const CALLS: &str = "do_syscall_64";
/// Functions of the way in, which say nothing of the kind.
const WAY_IN: [&str; 4] = ["x64_sys_call", "entry_SYSCALL_64", "ret_from_fork", CALLS];
/// Prefixes of the functions of system calls.
const PREFIXES: [&str; 6] = [
    "__x64_sys_",
    "__se_sys_",
    "__do_sys_",
    "__ia32_sys_",
    "ksys_",
    "sys_",
];
/// Longest name of a function that is kept, in bytes.
const MAX_NAME: usize = 64;

/// The functions of the host's kernel.
#[derive(Clone, Debug, Default)]
pub struct HostKernel {
    /// Start and name, in ascending order.
    functions: Vec<(u64, String)>,
}

impl HostKernel {
    /// Reads /proc/kallsyms; `None` if the host hides it from this user.
    pub fn read() -> Option<Self> {
        Self::of(&fs::read_to_string("/proc/kallsyms").ok()?)
    }

    fn of(text: &str) -> Option<Self> {
        let line = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let code = matches!(words.next()?, "t" | "T" | "w" | "W");
            let name = words.next()?;
            let plain = name.len() <= MAX_NAME && name.bytes().all(|b| b.is_ascii_graphic());
            // Hidden addresses are zero.
            (address != 0 && code && plain).then(|| (address, name.to_string()))
        };
        let mut functions: Vec<_> = text.lines().filter_map(line).collect();
        functions.sort();
        (!functions.is_empty()).then_some(HostKernel { functions })
    }

    fn name(&self, address: u64) -> Option<&str> {
        let behind = self.functions.partition_point(|(at, _)| *at <= address);
        let (_, name) = self.functions.get(behind.checked_sub(1)?)?;
        Some(name)
    }

    /// The kind of entry, by the call chain: addresses from the innermost to the outermost.
    pub fn kind(&self, chain: &[u64]) -> String {
        // Addresses that are not in the kernel mark the parts of a chain.
        let kernel = |address: &&u64| (1 << 63..u64::MAX - 0xfff).contains(*address);
        let names: Vec<&str> = chain
            .iter()
            .filter(kernel)
            .filter_map(|address| self.name(*address))
            .collect();
        kind_of(&names)
    }
}

/// The kind of entry, by the names from the innermost function to the outermost.
fn kind_of(names: &[&str]) -> String {
    if names.contains(&"arch_do_signal_or_restart") {
        return "delivery of a signal".to_string();
    }
    let mut outermost = names.iter().rev();
    while let Some(name) = outermost.next() {
        if let Some(what) = name.strip_prefix("asm_exc_") {
            return format!("exception {what}");
        }
        if let Some(what) = name.strip_prefix("asm_sysvec_") {
            return format!("interrupt {what}");
        }
        if *name == "asm_common_interrupt" {
            return "interrupt of a device".to_string();
        }
        if *name == CALLS {
            // A function that ends in a jump leaves no trace: the chain then has the function that
            // it jumped to.
            let call = outermost.find(|name| !WAY_IN.iter().any(|way| name.starts_with(way)));
            return match call {
                None => "entry of a call".to_string(),
                Some(name) if name.starts_with("syscall_trace_enter") => {
                    "trapped system call".to_string()
                }
                Some(name) => {
                    let stripped = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
                    format!("call {}", stripped.unwrap_or(name))
                }
            };
        }
    }
    "other".to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outermost_function_says_why() {
        for (names, kind) in [
            (
                &["schedule", "__x64_sys_futex", "x64_sys_call", CALLS][..],
                "call futex",
            ),
            (
                &[
                    "do_mmap",
                    "ksys_mmap_pgoff",
                    CALLS,
                    "entry_SYSCALL_64_after_hwframe",
                ],
                "call mmap_pgoff",
            ),
            (&["do_futex", CALLS], "call do_futex"),
            (
                &[CALLS, "entry_SYSCALL_64_after_hwframe"],
                "entry of a call",
            ),
            (
                &["__seccomp_filter", "syscall_trace_enter.isra.0", CALLS],
                "trapped system call",
            ),
            (
                &["handle_mm_fault", "exc_page_fault", "asm_exc_page_fault"],
                "exception page_fault",
            ),
            (
                &["update_load", "asm_sysvec_apic_timer_interrupt"],
                "interrupt apic_timer_interrupt",
            ),
            (
                &["setup_signal", "arch_do_signal_or_restart", CALLS],
                "delivery of a signal",
            ),
            // An interrupt in a call is the call's.
            (
                &[
                    "tick",
                    "asm_sysvec_apic_timer_interrupt",
                    "do_mmap",
                    "__x64_sys_mmap",
                    CALLS,
                ],
                "call mmap",
            ),
            (&["schedule"], "other"),
            (&[], "other"),
        ] {
            assert_eq!(kind_of(names), kind, "{names:?}");
        }
    }

    #[test]
    fn addresses_are_looked_up_by_the_last_start_before_them() {
        let text = "ffffffff81000000 T do_syscall_64\nffffffff81000100 t __x64_sys_read\n\
                    ffffffff81000180 D some_data\n0000000000000010 t low\nbroken\n\
                    ffffffff81000200 t with\u{1b}escape\n";
        let kernel = HostKernel::of(text).unwrap();
        let marker = u64::MAX - 127;
        let chain = [
            marker,
            0xffff_ffff_8100_01ff,
            0xffff_ffff_8100_0001,
            0x7f00_0000,
        ];
        assert_eq!(kernel.kind(&chain), "call read");
        assert_eq!(kernel.kind(&[marker, 5]), "other");
        assert!(HostKernel::of("0000000000000000 T do_syscall_64\n").is_none());
        assert!(HostKernel::of("").is_none());
    }
}
