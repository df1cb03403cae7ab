// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The results of the cpuid instruction: the features of the host's processor that KVM supports,
//! and one package with a core for each vCPU. The APIC ids are the vCPUs' numbers.
//!
//! Virtualization, enclaves and performance counters are left out. This project's guests do not
//! need them, and they would let a guest reach much more code of the host's kernel.

use super::layout::{BUS_CALL, DEVICES, DOORBELLS};
use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};

/// Leaf 1.
const HYPERVISOR: u32 = 1 << 31;
const TSC_DEADLINE: u32 = 1 << 24;
const X2APIC: u32 = 1 << 21;
const XSAVE: u32 = 1 << 26;
const SEVERAL_CORES: u32 = 1 << 28;
/// Intel: virtual machines, and measured starts of them.
const VMX: u32 = 1 << 5;
const SMX: u32 = 1 << 6;
/// Intel: what the counters of the processor can do.
const PDCM: u32 = 1 << 15;
/// Threads and cores: the leaf, and its successor with further levels.
const TOPOLOGY: [u32; 2] = [0xb, 0x1f];
/// Leaf 0xd: the two states of matrix registers. Leaf 7: their instructions, in the order of eax
/// and edx of subleaf 1 and edx of subleaf 0.
const TILE_STATES: u32 = 1 << 17 | 1 << 18;
const TILES_1_EAX: u32 = 1 << 21;
const TILES_1_EDX: u32 = 1 << 8;
const TILES_EDX: u32 = 1 << 22 | 1 << 24 | 1 << 25;
/// Bytes of the states that each processor with XSAVE has.
const LEGACY_STATES: u32 = 576;
/// Leaf 7 of Intel's processors: enclaves, and keys for them.
const SGX: u32 = 1 << 2;
const SGX_KEYS: u32 = 1 << 30;
/// Leaf 80000001 of AMD's processors: topology by further leaves, virtual machines, measured starts
/// of them.
const TOPOLOGY_LEAVES: u32 = 1 << 22;
const SVM: u32 = 1 << 2;
const SKINIT: u32 = 1 << 12;
/// Counters of a core, of the memory controller and of the last cache.
const COUNTERS: u32 = 1 << 23 | 1 << 24 | 1 << 28;

/// What changes with the processor's power, and the bit for a counter that does not.
const POWER: u32 = 0x8000_0007;
const STEADY_COUNTER: u32 = 1 << 8;

/// KVM's own leaf: halts that a kick ends, interprocessor interrupts, directed yields, changes of
/// encrypted memory.
const KVM_FEATURES: u32 = 0x4000_0001;
const KVM_UNHALT: u32 = 1 << 7;
const KVM_SEND_IPI: u32 = 1 << 11;
const KVM_YIELD: u32 = 1 << 13;
const KVM_MAP_GPA: u32 = 1 << 16;

/// This program's own leaves, beside KVM's: "ParavaneVMM" and the highest of them, then where
/// bridges to virtual buses are. `layers/kvm/abi.h` has the same.
const OWN: u32 = 0x4000_0100;
const OWN_BUS: u32 = 0x4000_0101;
const OWN_SIGNATURE: [u32; 3] = [
    u32::from_le_bytes(*b"Para"),
    u32::from_le_bytes(*b"vane"),
    u32::from_le_bytes(*b"VMM\0"),
];
#[allow(clippy::cast_possible_truncation)] // asserted beside it
const REGISTERS: u32 = DEVICES as u32;
const _: () = assert!(REGISTERS as u64 == DEVICES);

/// Changes what KVM supports to what vCPU `number` of `count` shows.
///
/// # Errors
/// KVM supports so many leaves that there is no room.
pub fn adapt(cpuid: &mut CpuId, number: u32, count: u32) -> anyhow::Result<()> {
    hide_tiles(cpuid);
    for entry in cpuid.as_mut_slice() {
        adapt_entry(entry, number, count);
    }
    show_topology(cpuid, number, count)
}

/// Hides the matrix registers, unless both of their states are there. This program asks the host
/// for no permission to use the large one, and KVM then offers the small one alone (before Linux
/// 6.4) and the instructions. A guest could not enable what it sees, and no XCR0 with one of the
/// two states is valid.
fn hide_tiles(cpuid: &mut CpuId) {
    let states = |e: &&kvm_cpuid_entry2| e.function == 0xd && e.index == 0;
    let shown = cpuid.as_slice().iter().find(states).map_or(0, |e| e.eax);
    if shown & TILE_STATES == TILE_STATES {
        return;
    }
    let is_tile = |e: &kvm_cpuid_entry2| e.function == 0xd && matches!(e.index, 17 | 18);
    cpuid.retain(|e| !is_tile(e));
    // The end of the last state that is left: those of the user's are at fixed places.
    let left = |e: &&kvm_cpuid_entry2| {
        e.function == 0xd && (2..32).contains(&e.index) && shown >> e.index & 1 != 0
    };
    let ends = cpuid.as_slice().iter().filter(left);
    let ends = ends.map(|e| e.ebx.saturating_add(e.eax));
    let size = ends.fold(LEGACY_STATES, u32::max);
    for entry in cpuid.as_mut_slice() {
        match (entry.function, entry.index) {
            (7, 0) => entry.edx &= !TILES_EDX,
            (7, 1) => {
                entry.eax &= !TILES_1_EAX;
                entry.edx &= !TILES_1_EDX;
            }
            (0xd, 0) if shown & TILE_STATES != 0 => {
                entry.eax &= !TILE_STATES;
                entry.ecx = size;
            }
            // Details of the registers and of their multiplications.
            (0x1d | 0x1e, _) => (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0),
            _ => {}
        }
    }
}

/// Shows the threads of a core, then the cores, in the leaves that the host's processor has for
/// that. From Linux 6.2 on KVM reports only the first subleaf of each, without which a kernel takes
/// each vCPU for a package.
fn show_topology(cpuid: &mut CpuId, number: u32, count: u32) -> anyhow::Result<()> {
    let levels = [(0, 1, 1), (bits(count), count, 2), (0, 0, 0)];
    for function in TOPOLOGY {
        let has = cpuid.as_slice().iter().any(|e| e.function == function);
        cpuid.retain(|e| e.function != function);
        for (index, (shift, logical, kind)) in (0..).zip(levels).filter(|_| has) {
            let entry = kvm_cpuid_entry2 {
                function,
                index,
                flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
                eax: shift,
                ebx: logical,
                ecx: index | kind << 8,
                edx: number,
                ..Default::default()
            };
            add(cpuid, entry)?;
        }
    }
    Ok(())
}

fn add(cpuid: &mut CpuId, leaf: kvm_cpuid_entry2) -> anyhow::Result<()> {
    let added = cpuid.push(leaf);
    added.map_err(|error| anyhow::anyhow!("no room for a leaf of CPUID: {error:?}"))
}

/// Whether the processor is one of Intel's.
pub fn is_intel(cpuid: &CpuId) -> bool {
    let intel = [*b"Genu", *b"ineI", *b"ntel"].map(u32::from_le_bytes);
    let mut leaves = cpuid.as_slice().iter();
    leaves.any(|e| e.function == 0 && [e.ebx, e.edx, e.ecx] == intel)
}

/// Reports the bridges to a layer: a bit for each device that is one. Without any, nothing changes.
///
/// # Errors
/// KVM supports so many leaves that there is no room.
pub fn offer_bus(cpuid: &mut CpuId, bridges: u32) -> anyhow::Result<()> {
    if bridges == 0 {
        return Ok(());
    }
    let [ebx, ecx, edx] = OWN_SIGNATURE;
    let leaves = [
        kvm_cpuid_entry2 {
            function: OWN,
            eax: OWN_BUS,
            ebx,
            ecx,
            edx,
            ..Default::default()
        },
        kvm_cpuid_entry2 {
            function: OWN_BUS,
            eax: bridges,
            ebx: REGISTERS,
            ecx: u32::from(BUS_CALL) << 16 | u32::from(DOORBELLS),
            ..Default::default()
        },
    ];
    for leaf in leaves {
        add(cpuid, leaf)?;
    }
    Ok(())
}

/// The extended states that the processor has, as bits of XCR0; `None` without XSAVE.
///
/// A vCPU starts with all of them enabled in place of x87 alone. No kernel can tell: it enables
/// what it uses before it uses it. But QEMU's emulation of SVM before 8.1 does not tell KVM when it
/// does, and KVM sets XCR0 back to what it knows at the next exit. The guest would lose SSE
/// registers.
pub fn extended_state(cpuid: &CpuId) -> Option<u64> {
    let find = |function| {
        let entries = cpuid.as_slice().iter();
        entries
            .clone()
            .find(|e| e.function == function && e.index == 0)
    };
    if find(1)?.ecx & XSAVE == 0 {
        return None;
    }
    let states = find(0xd)?;
    Some(u64::from(states.edx) << 32 | u64::from(states.eax))
}

fn adapt_entry(entry: &mut kvm_cpuid_entry2, number: u32, count: u32) {
    match entry.function {
        1 => {
            entry.ebx = entry.ebx & 0xffff | (count & 0xff) << 16 | number << 24;
            entry.ecx |= HYPERVISOR | TSC_DEADLINE | X2APIC;
            entry.ecx &= !(VMX | SMX | PDCM);
            if count > 1 {
                entry.edx |= SEVERAL_CORES;
            } else {
                entry.edx &= !SEVERAL_CORES;
            }
        }
        // Intel: the cores that may share each cache, and the cores of the package.
        4 if entry.eax & 0x1f != 0 => {
            entry.eax = entry.eax & 0x3fff | (count - 1) << 26;
        }
        7 if entry.index == 0 => {
            entry.ebx &= !SGX;
            entry.ecx &= !SGX_KEYS;
        }
        0x8000_0001 => entry.ecx &= !(TOPOLOGY_LEAVES | SVM | SKINIT | COUNTERS),
        // Details of counters, enclaves, virtual machines and encrypted ones.
        0xa | 0x12 | 0x8000_0022 | 0x8000_000a | 0x8000_001f => {
            (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0);
        }
        // AMD: the cores of the package, and the bits of their numbers.
        0x8000_0008 => entry.ecx = bits(count) << 12 | (count - 1),
        #[cfg(feature = "test-hooks")]
        KVM_FEATURES => entry.eax &= !HIDDEN.load(std::sync::atomic::Ordering::Relaxed),
        0x8000_001e => {
            entry.eax = number;
            entry.ebx = number;
            entry.ecx = 0;
        }
        _ => {}
    }
}

/// Hides what a guest does by hypercalls. A KVM that emulates each instruction also emulates the
/// hypercall instruction: it rewrites the instruction and executes it again, for ever.
pub fn hide_hypercalls(cpuid: &mut CpuId) {
    for entry in cpuid.as_mut_slice() {
        if entry.function == KVM_FEATURES {
            entry.eax &= !(KVM_UNHALT | KVM_SEND_IPI | KVM_YIELD | KVM_MAP_GPA);
        }
    }
}

/// Hides that the time-stamp counter has one rate at all times. A kernel with another clock then
/// uses that one.
pub fn hide_steady_counter(cpuid: &mut CpuId) {
    for entry in cpuid.as_mut_slice() {
        if entry.function == POWER {
            entry.edx &= !STEADY_COUNTER;
        }
    }
}

/// Hides these of KVM's own features (bits of eax of its leaf) from all machines that are started
/// from now on.
#[cfg(feature = "test-hooks")]
pub fn hide_features(bits: u32) {
    HIDDEN.fetch_or(bits, std::sync::atomic::Ordering::Relaxed);
}

#[cfg(feature = "test-hooks")]
static HIDDEN: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// The bits that numbers below `count` need.
fn bits(count: u32) -> u32 {
    count.next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapted(function: u32, index: u32, number: u32, count: u32) -> kvm_cpuid_entry2 {
        let mut entry = kvm_cpuid_entry2 {
            function,
            index,
            eax: 0x1c00_4121,
            ebx: 0x0502_0800,
            ecx: 0x0040_7001,
            edx: SEVERAL_CORES | 1,
            ..Default::default()
        };
        adapt_entry(&mut entry, number, count);
        entry
    }

    #[test]
    fn each_vcpu_has_its_number() {
        let leaf = adapted(1, 0, 5, 6);
        assert_eq!(leaf.ebx, 0x0506_0800);
        assert_eq!(leaf.ecx & TSC_DEADLINE, TSC_DEADLINE);
        assert_eq!(adapted(1, 0, 0, 1).edx, 1);
        assert_eq!(adapted(0x8000_001e, 0, 5, 6).eax, 5);
    }

    #[test]
    fn extended_states_are_those_of_a_processor_with_xsave() {
        let leaf = |function, eax, ecx, edx| kvm_cpuid_entry2 {
            function,
            eax,
            ecx,
            edx,
            ..Default::default()
        };
        let all = |ecx| {
            let leaves = [leaf(1, 0, ecx, 0), leaf(0xd, 0x207, 0, 1)];
            extended_state(&CpuId::from_entries(&leaves).unwrap())
        };
        assert_eq!(all(XSAVE), Some(0x1_0000_0207));
        assert_eq!(all(!XSAVE), None);
    }

    #[test]
    fn a_layer_is_told_of_bridges_if_there_are_any() {
        let mut leaves = CpuId::from_entries(&[]).unwrap();
        offer_bus(&mut leaves, 0).unwrap();
        assert!(leaves.as_slice().is_empty());
        offer_bus(&mut leaves, 0b1010).unwrap();
        let [name, bus] = leaves.as_slice() else {
            panic!("{leaves:?}");
        };
        let text = [name.ebx, name.ecx, name.edx].map(u32::to_le_bytes);
        assert_eq!(text.concat(), b"ParavaneVMM\0");
        assert_eq!((name.function, name.eax), (0x4000_0100, bus.function));
        assert_eq!((bus.eax, bus.ebx), (0b1010, 0xd000_0000));
        assert_eq!(bus.ecx, 0xb100_b000);
    }

    #[test]
    fn hypercalls_are_hidden() {
        let mut leaves = CpuId::from_entries(&[kvm_cpuid_entry2 {
            function: KVM_FEATURES,
            eax: 0x100_7efb,
            ..Default::default()
        }])
        .unwrap();
        hide_hypercalls(&mut leaves);
        assert_eq!(leaves.as_slice()[0].eax, 0x100_567b);
    }

    #[test]
    fn a_counter_that_is_not_steady_does_not_look_so() {
        let power = kvm_cpuid_entry2 {
            edx: 0x101,
            ..leaf(0x8000_0007, 0)
        };
        let mut leaves = CpuId::from_entries(&[power]).unwrap();
        hide_steady_counter(&mut leaves);
        assert_eq!(leaves.as_slice()[0].edx, 1);
    }

    #[test]
    fn there_are_no_machines_enclaves_and_counters_inside() {
        let all = |function| kvm_cpuid_entry2 {
            function,
            eax: u32::MAX,
            ebx: u32::MAX,
            ecx: u32::MAX,
            edx: u32::MAX,
            ..Default::default()
        };
        let adapted = |function| {
            let mut entry = all(function);
            adapt_entry(&mut entry, 0, 2);
            entry
        };
        assert_eq!(adapted(1).ecx, !(1 << 5 | 1 << 6 | 1 << 15));
        assert_eq!(adapted(7).ebx, !(1 << 2));
        assert_eq!(adapted(7).ecx, !(1 << 30));
        assert_eq!(
            adapted(0x8000_0001).ecx,
            !(1 << 2 | 1 << 12 | 1 << 22 | 1 << 23 | 1 << 24 | 1 << 28)
        );
        for function in [0xa, 0x12, 0x8000_000a, 0x8000_001f, 0x8000_0022] {
            let leaf = adapted(function);
            assert_eq!((leaf.eax, leaf.ebx, leaf.ecx, leaf.edx), (0, 0, 0, 0));
        }
    }

    fn leaf(function: u32, index: u32) -> kvm_cpuid_entry2 {
        kvm_cpuid_entry2 {
            function,
            index,
            ..Default::default()
        }
    }

    /// Whether KVM reports one subleaf (from Linux 6.2 on) or more.
    #[test]
    fn the_topology_has_its_subleaves() {
        for host in [&[leaf(0xb, 0)][..], &[leaf(0xb, 0), leaf(0xb, 1)]] {
            let mut leaves = CpuId::from_entries(host).unwrap();
            adapt(&mut leaves, 5, 6).unwrap();
            let shown: Vec<_> = leaves
                .as_slice()
                .iter()
                .map(|e| [e.function, e.index, e.flags, e.eax, e.ebx, e.ecx, e.edx])
                .collect();
            assert_eq!(
                shown,
                [
                    [0xb, 0, 1, 0, 1, 0x100, 5],
                    [0xb, 1, 1, 3, 6, 0x201, 5],
                    [0xb, 2, 1, 0, 0, 2, 5],
                ]
            );
        }
        // A processor without these leaves does not get them.
        let mut leaves = CpuId::from_entries(&[leaf(1, 0)]).unwrap();
        show_topology(&mut leaves, 0, 2).unwrap();
        assert_eq!(leaves.as_slice(), [leaf(1, 0)]);
        let full = [leaf(0x1f, 0); kvm_bindings::KVM_MAX_CPUID_ENTRIES];
        let mut leaves = CpuId::from_entries(&full[1..]).unwrap();
        leaves.as_mut_slice()[1..].fill(leaf(1, 0));
        assert!(show_topology(&mut leaves, 0, 2).is_err());
    }

    #[test]
    fn matrix_registers_need_both_of_their_states() {
        let all = |function, index, eax| kvm_cpuid_entry2 {
            eax,
            ebx: 0xac0,
            ecx: 0x2b00,
            edx: u32::MAX,
            ..leaf(function, index)
        };
        let adapted = |states| {
            let mut leaves = CpuId::from_entries(&[
                all(7, 0, 1),
                all(7, 1, u32::MAX),
                all(0xd, 0, states),
                all(0xd, 9, 8),
                all(0xd, 17, 64),
                all(0xd, 18, 8192),
                all(0x1d, 1, 1),
            ])
            .unwrap();
            hide_tiles(&mut leaves);
            leaves.as_slice().to_vec()
        };
        let with = adapted(0x6_0207);
        assert_eq!((with.len(), with[0].edx), (7, u32::MAX));
        assert_eq!((with[2].ecx, with[6].eax), (0x2b00, 1));
        for (states, size) in [(0x2_0207, 0xac8), (0x207, 0x2b00), (0x2_0007, 576)] {
            let without = adapted(states);
            let [low, high, shown, _, tiles] = without[..] else {
                panic!("{without:?}");
            };
            assert_eq!(low.edx, !(1 << 22 | 1 << 24 | 1 << 25));
            assert_eq!((high.eax, high.edx), (!(1 << 21), !(1 << 8)));
            assert_eq!((shown.eax, shown.ecx), (states & 0x207, size));
            assert_eq!((tiles.eax, tiles.edx), (0, 0));
        }
    }

    #[test]
    fn the_vendor_is_told() {
        for (name, intel) in [(b"GenuineIntel", true), (b"AuthenticAMD", false)] {
            let word = |at: usize| {
                let mut bytes = [0; 4];
                bytes.copy_from_slice(&name[at..at + 4]);
                u32::from_le_bytes(bytes)
            };
            let vendor = kvm_cpuid_entry2 {
                ebx: word(0),
                edx: word(4),
                ecx: word(8),
                ..leaf(0, 0)
            };
            assert_eq!(is_intel(&CpuId::from_entries(&[vendor]).unwrap()), intel);
        }
    }

    #[test]
    fn cores_have_room_for_their_numbers() {
        for (count, width) in [(1, 0), (2, 1), (3, 2), (4, 2), (64, 6)] {
            let mut leaves = CpuId::from_entries(&[leaf(0xb, 0)]).unwrap();
            show_topology(&mut leaves, 0, count).unwrap();
            let cores = leaves.as_slice()[1];
            assert_eq!((cores.eax, cores.ebx, cores.ecx), (width, count, 0x201));
            assert_eq!(adapted(0x8000_0008, 0, 0, count).ecx >> 12, width);
            assert_eq!(adapted(4, 0, 0, count).eax >> 26, count - 1);
        }
    }
}
