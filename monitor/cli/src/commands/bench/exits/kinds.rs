// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits are for. Each exit has one kind.

use anyhow::{Context, bail};
use std::collections::BTreeMap;

/// The kinds, in the order of the table.
pub const KINDS: [(&str, &str); 11] = [
    ("eoi", "ends of interrupts"),
    ("ipi", "interrupts to other vCPUs"),
    ("timer", "settings of timers"),
    ("kick", "wake-ups of vCPUs that wait for a lock"),
    ("yield", "yields to a vCPU"),
    ("pause", "spinning"),
    ("io_delay", "I/O delays"),
    ("halt", "halts"),
    ("interrupt", "interrupts of the host"),
    ("memory", "memory that the host gives"),
    ("rest", "all others"),
];

/// Kinds that grow with what else the host does, whatever its guest does.
const BY_HOST: [&str; 2] = ["interrupt", "memory"];

/// The numbers of a processor's exits.
struct Numbers {
    interrupt: u64,
    cpuid: u64,
    halt: u64,
    pause: u64,
    /// A timer of the processor that the host's KVM uses for the guest's.
    timer: Option<u64>,
    /// A page is not there. With `apic_page` also an access to the APIC's registers.
    memory: u64,
    apic_page: bool,
    names: &'static [(u64, &'static str)],
}

/// AMD's, and the value of the field `isa` of KVM's trace.
const SVM: (u64, Numbers) = (
    2,
    Numbers {
        interrupt: 0x60,
        cpuid: 0x72,
        halt: 0x78,
        pause: 0x77,
        timer: None,
        memory: 0x400,
        apic_page: true,
        names: &[
            (0x60, "interrupt"),
            (0x64, "vintr"),
            (0x72, "cpuid"),
            (0x77, "pause"),
            (0x78, "hlt"),
            (0x7b, "io"),
            (0x7c, "msr"),
            (0x81, "vmmcall"),
            (0x89, "wbinvd"),
            (0x8d, "xsetbv"),
            (0x400, "npf"),
        ],
    },
);
/// Intel's.
const VMX: (u64, Numbers) = (
    1,
    Numbers {
        interrupt: 1,
        cpuid: 10,
        halt: 12,
        pause: 40,
        timer: Some(52),
        memory: 48,
        apic_page: false,
        names: &[
            (0, "exception"),
            (1, "interrupt"),
            (7, "interrupt_window"),
            (10, "cpuid"),
            (12, "hlt"),
            (18, "vmcall"),
            (28, "cr"),
            (30, "io"),
            (31, "rdmsr"),
            (32, "wrmsr"),
            (40, "pause"),
            (44, "apic_access"),
            (45, "eoi_induced"),
            (48, "ept_violation"),
            (49, "ept_misconfig"),
            (52, "preemption_timer"),
            (54, "wbinvd"),
            (55, "xsetbv"),
            (56, "apic_write"),
        ],
    },
);

/// Registers of the APIC, as offsets in its page.
const EOI: u64 = 0xb0;
const ICR: [u64; 2] = [0x300, 0x310];
const TIMER: [u64; 2] = [0x320, 0x380];
/// The model-specific registers of the same, and the one of the timer's deadline.
const X2APIC: std::ops::Range<u64> = 0x800..0x900;
const TSC_DEADLINE: u64 = 0x6e0;
/// The port to which a kernel writes to lose time.
const DELAY_PORT: u64 = 0x80;
/// Hypercalls of KVM.
const KICK_CPU: u64 = 5;
const SEND_IPI: u64 = 10;
const SCHED_YIELD: u64 = 11;
/// Exits of another vCPU that has just begun, or not ended, at a mark.
const EDGE: u64 = 16;

/// Looks up the keys of an entry; `u64::MAX` for one that it lacks.
type Key<'a> = &'a dyn Fn(&str) -> u64;
type Entries = BTreeMap<&'static str, Vec<(BTreeMap<String, u64>, u64)>>;

/// The exits of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By kind, in the order of [`KINDS`].
    pub kinds: [u64; KINDS.len()],
    /// By the processor's reason.
    pub reasons: BTreeMap<String, u64>,
    /// By the number of the hypercall.
    pub hypercalls: BTreeMap<u64, u64>,
}

impl Counts {
    /// From the histograms of KVM's events. With the number of marks, the exit of the last one is
    /// left out.
    ///
    /// # Errors
    /// There is no mark, or an exit seems to have two kinds.
    pub fn new(entries: &Entries, mark: Option<u64>) -> anyhow::Result<Self> {
        let sum = |event: &str, wanted: &dyn Fn(Key<'_>) -> bool| -> u64 {
            let entries = entries.get(event).into_iter().flatten();
            let of_it = |keys: &BTreeMap<String, u64>| {
                wanted(&|name| keys.get(name).copied().unwrap_or(u64::MAX))
            };
            entries
                .filter(|(keys, _)| of_it(keys))
                .map(|(_, count)| count)
                .sum()
        };
        let isa = [SVM, VMX].into_iter().find(|(isa, _)| {
            let of_it = sum("kvm_exit", &|key| key("isa") == *isa);
            of_it > 0
        });
        let (_, numbers) = isa.context("the host's trace shows no exit of this machine")?;
        let exits = |number: u64| sum("kvm_exit", &|key| key("exit_reason") == number);
        let marks = u64::from(mark.is_some());
        if exits(numbers.cpuid) < marks {
            bail!("the host's trace shows no mark of the program");
        }
        let hypercalls = |number: u64| sum("kvm_hypercall", &|key| key("nr") == number);
        let apic = |registers: &[u64]| sum("kvm_apic", &|key| registers.contains(&key("reg")));
        let deadline = sum("kvm_msr", &|key| {
            key("ecx") == TSC_DEADLINE && key("write") == 1
        });
        let timer = numbers.timer.map_or(0, exits);
        let by_page = if numbers.apic_page {
            let by_msr = sum("kvm_msr", &|key| X2APIC.contains(&key("ecx")));
            sum("kvm_apic", &|_| true).saturating_sub(by_msr)
        } else {
            0
        };
        let total = sum("kvm_exit", &|_| true) - marks;
        let mut counts = Counts {
            kinds: [
                apic(&[EOI]),
                apic(&ICR) + hypercalls(SEND_IPI),
                apic(&TIMER) + deadline + timer,
                hypercalls(KICK_CPU),
                hypercalls(SCHED_YIELD),
                exits(numbers.pause),
                sum("kvm_pio", &|key| {
                    key("port") == DELAY_PORT && key("rw") == 1
                }),
                exits(numbers.halt),
                exits(numbers.interrupt),
                exits(numbers.memory).saturating_sub(by_page),
                0,
            ],
            ..Counts::default()
        };
        let known = counts.total();
        if known > total + EDGE {
            bail!("of {total} exits {known} have a kind");
        }
        if let Some(rest) = counts.kinds.last_mut() {
            *rest = total.saturating_sub(known);
        }
        for (keys, count) in entries.get("kvm_exit").into_iter().flatten() {
            let reason = keys.get("exit_reason").copied().unwrap_or(u64::MAX);
            let name = numbers.names.iter().find(|(number, _)| *number == reason);
            let name = name.map_or(format!("{reason:#x}"), |(_, name)| (*name).to_string());
            *counts.reasons.entry(name).or_default() += count;
        }
        if let Some(count) = counts.reasons.get_mut("cpuid") {
            *count -= marks;
        }
        counts.reasons.retain(|_, count| *count > 0);
        for (keys, count) in entries.get("kvm_hypercall").into_iter().flatten() {
            if let Some(&number) = keys.get("nr").filter(|&&number| Some(number) != mark) {
                *counts.hypercalls.entry(number).or_default() += count;
            }
        }
        Ok(counts)
    }

    /// All exits.
    pub fn total(&self) -> u64 {
        self.kinds.iter().sum()
    }

    /// Without the kinds that the host causes.
    pub fn by_guest(&self) -> u64 {
        let kinds = KINDS.iter().zip(self.kinds);
        kinds
            .filter(|((kind, _), _)| !BY_HOST.contains(kind))
            .map(|(_, count)| count)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(keys: &[(&str, u64)], count: u64) -> (BTreeMap<String, u64>, u64) {
        let keys = keys.iter().map(|(name, value)| (name.to_string(), *value));
        (keys.collect(), count)
    }

    fn exit(reason: u64, count: u64) -> (BTreeMap<String, u64>, u64) {
        entry(&[("exit_reason", reason), ("isa", 2)], count)
    }

    fn kind(counts: &Counts, name: &str) -> u64 {
        let index = KINDS.iter().position(|(kind, _)| *kind == name).unwrap();
        counts.kinds[index]
    }

    #[test]
    fn each_exit_has_one_kind_and_the_mark_none() {
        let apic = |reg, rw, count| entry(&[("reg", reg), ("rw", rw)], count);
        let msr = |ecx, write, count| entry(&[("ecx", ecx), ("write", write)], count);
        let entries = BTreeMap::from([
            (
                "kvm_exit",
                vec![
                    exit(0x72, 4),
                    exit(0x78, 5),
                    exit(0x60, 7),
                    exit(0x400, 30),
                    exit(0x7c, 11),
                    exit(0x7b, 3),
                    exit(0x81, 6),
                ],
            ),
            (
                "kvm_apic",
                vec![
                    apic(0xb0, 1, 10),
                    apic(0x300, 0, 2),
                    apic(0x310, 1, 2),
                    apic(0x20, 0, 1),
                ],
            ),
            ("kvm_msr", vec![msr(0x6e0, 1, 9), msr(0x6e0, 0, 1)]),
            (
                "kvm_pio",
                vec![
                    entry(&[("port", 0x80), ("rw", 1)], 2),
                    entry(&[("port", 0x3f8), ("rw", 1)], 1),
                ],
            ),
            (
                "kvm_hypercall",
                vec![
                    entry(&[("nr", 10)], 3),
                    entry(&[("nr", 5)], 2),
                    entry(&[("nr", 99)], 1),
                ],
            ),
        ]);
        let counts = Counts::new(&entries, Some(99)).unwrap();
        assert_eq!(counts.total(), 65);
        for (name, count) in [
            ("eoi", 10),
            ("ipi", 7),
            ("timer", 9),
            ("kick", 2),
            ("io_delay", 2),
            ("halt", 5),
            ("interrupt", 7),
            ("memory", 15),
            ("rest", 8),
        ] {
            assert_eq!(kind(&counts, name), count, "{name}");
        }
        assert_eq!((counts.reasons["cpuid"], counts.reasons["npf"]), (3, 30));
        assert_eq!(counts.hypercalls, BTreeMap::from([(5, 2), (10, 3)]));
    }

    #[test]
    fn the_mark_is_one_exit_of_all_vcpus() {
        let of = |thread, count| {
            let keys = [("exit_reason", 0x72), ("isa", 2), ("common_pid", thread)];
            entry(&keys, count)
        };
        let cpuid = |entries| {
            let entries = BTreeMap::from([("kvm_exit", entries)]);
            let counts = Counts::new(&entries, Some(99)).unwrap();
            let total: u64 = counts.reasons.values().sum();
            assert_eq!(total, counts.total());
            counts.reasons.get("cpuid").copied()
        };
        assert_eq!(cpuid(vec![of(1, 4), of(2, 3)]), Some(6));
        assert_eq!(cpuid(vec![of(1, 1)]), None);
    }

    #[test]
    fn registers_of_the_apic_by_msr_are_no_pages() {
        let entries = BTreeMap::from([
            (
                "kvm_exit",
                vec![exit(0x72, 1), exit(0x7c, 4), exit(0x400, 3)],
            ),
            ("kvm_apic", vec![entry(&[("reg", 0xb0), ("rw", 1)], 4)]),
            ("kvm_msr", vec![entry(&[("ecx", 0x80b), ("write", 1)], 4)]),
        ]);
        let counts = Counts::new(&entries, Some(99)).unwrap();
        assert_eq!((kind(&counts, "eoi"), kind(&counts, "memory")), (4, 3));
        assert_eq!(kind(&counts, "rest"), 0);
    }

    #[test]
    fn no_mark_and_no_exit_are_errors() {
        let none = BTreeMap::from([("kvm_exit", Vec::new())]);
        assert!(Counts::new(&none, Some(99)).is_err());
        let unmarked = BTreeMap::from([("kvm_exit", vec![exit(0x78, 5)])]);
        let error = Counts::new(&unmarked, Some(99)).unwrap_err().to_string();
        assert!(error.contains("no mark"), "{error}");
        assert_eq!(Counts::new(&unmarked, None).unwrap().total(), 5);
    }
}
