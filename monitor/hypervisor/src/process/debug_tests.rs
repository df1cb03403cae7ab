// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs that the test answers for, and page tables of every shape.

use super::*;
use crate::process::shared::Shared;
use proptest::prelude::*;

fn machine() -> Debug {
    let core = Arc::new(Core::new(Shared::new(0).unwrap(), 2).unwrap());
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 16 << 20)]).unwrap();
    let windows = [ph::PhvSegment {
        addr: 0x7a20_0000,
        gpa: 0x10_0000,
        size: 0x2000,
    }];
    Debug::new(core, Arc::new(memory), &windows, 0, ph::PHV_DIRECT_MAP, 1)
}

fn registers() -> Registers {
    Registers {
        gpr: [0; 16],
        rip: 0,
        rflags: 0,
        cs: 0,
        ss: 0,
        fs_base: 0,
        gs_base: 0,
        cr2: 0,
        cr3: 0x1000,
        kernel_root: 0,
        levels: 4,
        fxsave: Box::new([0; 512]),
    }
}

#[test]
fn addresses_are_looked_up() {
    let machine = machine();
    let entry = |table: u64, index: u64, value: u64| {
        assert!(machine.write_physical(table + index * 8, &value.to_le_bytes()));
    };
    entry(0x1000, 0, 0x2000 | PRESENT);
    entry(0x2000, 0, 0x3000 | PRESENT);
    entry(0x3000, 2, 0x4000 | PRESENT);
    entry(0x3000, 3, 0x20_0000 | PRESENT | LARGE);
    entry(0x4000, 1, 0x5000 | PRESENT);
    let registers = registers();
    assert_eq!(machine.translate(&registers, 0x40_1234), Some(0x5234));
    assert_eq!(machine.translate(&registers, 0x40_2234), None);
    assert_eq!(machine.translate(&registers, 0x61_2345), Some(0x21_2345));
    assert_eq!(machine.translate(&registers, 0x7a20_0010), Some(0x10_0010));
    assert_eq!(
        machine.translate(&registers, ph::PHV_DIRECT_MAP + 5),
        Some(5)
    );
    assert!(machine.write(&registers, 0x40_1ffe, b"ab"));
    // Nothing is mapped after the page.
    let mut bytes = [0; 4];
    assert_eq!(machine.read(&registers, 0x40_1ffe, &mut bytes), 2);
    assert_eq!(&bytes, b"ab\0\0");
    assert!(!machine.write(&registers, 0x40_1ffe, b"abc"));
}

#[test]
fn events_come_in_order() {
    let machine = machine();
    assert!(machine.events(1, 16).is_empty());
    for n in 0..40u64 {
        let event = machine.core.shared.event(1, size(n % ph::PHV_EVENTS));
        event.tsc.store(n, Ordering::Relaxed);
        event.kind.store(ph::PHV_EVENT_HALT, Ordering::Relaxed);
        event.a.store(n, Ordering::Relaxed);
    }
    machine
        .core
        .shared
        .vcpu(1)
        .events
        .store(40, Ordering::Relaxed);
    let last: Vec<u64> = machine.events(1, 3).iter().map(|e| e.a).collect();
    assert_eq!(last, [37, 38, 39]);
    assert_eq!(machine.events(1, 100).len(), 32);
}

proptest! {
    #[test]
    fn any_guest_content_is_survived(
        tables in prop::collection::vec((0u64..0x800, any::<u64>()), 0..64),
        root: u64, address: u64, state: u32,
    ) {
        let machine = machine();
        for (entry, value) in tables {
            machine.write_physical(0x1000 + entry * 8, &value.to_le_bytes());
        }
        let debug = machine.core.shared.debug(0);
        debug.state.word().store(state, Ordering::Relaxed);
        let mut registers = machine.registers(0).unwrap_or_else(registers);
        registers.cr3 = root;
        let mut bytes = [0; 32];
        machine.read(&registers, address, &mut bytes);
        machine.write(&registers, address, &bytes);
        machine.events(0, 16);
    }
}
