// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux in the lower half on layers that differ from those of this repository: the process layer
//! with a header that a test has changed. Linux accepts what the specification allows, and refuses
//! the rest with one line that has the reason.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use object::{Object, ObjectSection};
use paravane_abi::process::PHV_LAYER_BASE;
use paravane_abi::{
    Inline, RELOC_CALL, RELOC_INLINE, RELOC_JUMP, RELOC_NONE, RELOC_NOP, ROM_SIGNATURE, SIGNATURE,
};
use paravane_tests::bare::{TROUBLE, calls};
use paravane_tests::program::{self, Run};
use paravane_tests::{rom, vm};
use std::fs;
use std::ops::Range;

/// The process layer's program, and where the image of the layer is in it.
struct Layer {
    program: Vec<u8>,
    image: Range<usize>,
    /// Offset in the image of bytes that nothing uses.
    free: usize,
}

impl Layer {
    fn new() -> Self {
        let program = paravane_blobs::PROCESS_LAYER.to_vec();
        let file = object::File::parse(&program[..]).unwrap();
        let header = file.section_by_name(".vmi.header").unwrap();
        assert_eq!(header.address(), PHV_LAYER_BASE);
        let (start, size) = header.file_range().unwrap();
        let (start, size) = (
            usize::try_from(start).unwrap(),
            usize::try_from(size).unwrap(),
        );
        // The next section begins with a page.
        let free = size.next_multiple_of(16);
        let room = size.next_multiple_of(4096) - free;
        let image = start..program.len();
        let layer = Layer {
            program,
            image,
            free,
        };
        assert!(room >= 64, "{room} bytes are free: use another place");
        assert!(
            layer.image()[free..free + room]
                .iter()
                .all(|byte| *byte == 0)
        );
        let signature = u16::from_le_bytes([layer.image()[0], layer.image()[1]]);
        assert_eq!(u64::from(signature), ROM_SIGNATURE);
        let signature = rom::word(layer.image(), rom::VMI_SIGNATURE);
        assert_eq!(signature as u64, SIGNATURE);
        layer
    }

    fn image(&self) -> &[u8] {
        &self.program[self.image.clone()]
    }

    /// With bytes at an offset of the image.
    fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        let at = self.image.start + at;
        self.program[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Without a call.
    fn without(self, call: &str) -> Self {
        let at = rom::call(self.image(), call);
        self.with(at, &[0; 4])
    }

    /// With another relocation record of a call.
    fn record(self, call: &str, record: u64) -> Self {
        let at = rom::call(self.image(), call);
        self.with(at + rom::RELOC, &[u8::try_from(record).unwrap()])
    }

    /// With inline code of a call.
    fn inline(mut self, call: &str, code: &[u8]) -> Self {
        let (at, free) = (rom::call(self.image(), call), self.free);
        let mut bytes = [0; size_of::<Inline>()];
        bytes[0] = u8::try_from(code.len()).unwrap();
        bytes[1..=code.len()].copy_from_slice(code);
        self.free += bytes.len();
        let offset = u32::try_from(free).unwrap().to_le_bytes();
        self.record(call, RELOC_INLINE)
            .with(free, &bytes)
            .with(at + rom::INLINE, &offset)
    }

    /// With linear addresses that the hypervisor keeps.
    fn keeps(self, start: u64, end: u64) -> Self {
        let bytes = [start.to_le_bytes(), end.to_le_bytes()].concat();
        self.with(rom::RESERVE_START, &bytes)
    }

    /// Runs a script in a machine with the layer.
    fn run(&self, options: &[&str], script: &str) -> Run {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("layer.elf");
        fs::write(&file, &self.program).unwrap();
        let mut command = vm::command_with_hooks(["--plant-layer"]);
        command.arg(&file).args(options);
        program::finish(command.args(["--", "sh", "-c", script]))
    }

    /// What the kernel says before it ends the machine.
    fn refused(&self, why: &str) {
        let run = self.run(&[], "echo runs");
        let line = format!("VMI: {why}\n");
        let said = run.stdout.replace('\r', "") + &run.stderr.replace('\r', "");
        assert!(said.contains(&line), "{line}{run:?}");
        assert!(!run.stdout.contains("runs"), "{run:?}");
        assert_ne!(run.code, 0, "{run:?}");
    }
}

/// Tests the hook of these tests.
#[test]
fn a_layer_that_is_missing_is_named() {
    let mut command = vm::command_with_hooks(["--plant-layer", "/no/such/layer"]);
    let run = program::finish(command.args(["--", "true"]));
    let line = "paravane: cannot read layer /no/such/layer: No such file or directory (os error 2)";
    assert_eq!((run.code, run.stderr.trim_end()), (2, line), "{run:?}");
}

/// Layer data that do not fit into the kernel's image are in RAM, for each vCPU.
#[test]
fn large_layer_data() {
    for size in [96_u32 << 10, 1 << 20] {
        let layer = Layer::new().with(rom::PERCPU_SIZE, &size.to_le_bytes());
        let run = layer.run(
            &["--cpus", "2"],
            "nproc; dmesg | grep -c -e WARNING -e BUG:",
        );
        assert_eq!((run.code, run.stdout.as_str()), (1, "2\n0\n"), "{run:?}");
    }
}

/// The kernel makes a call that the layer lacks, with a native form or without: it prints the
/// call's name and does not jump to a wrong address.
#[test]
fn an_absent_call_is_named() {
    for call in [
        "cpu.iret",
        "cpu.sysret",
        "cpu.clts",
        "cpu.get_cr4",
        "cpu.halt",
        "cpu.irq_flag",
        "cpu.write_msr",
        "apic.eoi",
    ] {
        Layer::new()
            .without(call)
            .refused(&format!("{call} is absent"));
    }
}

/// A record that the kernel is not built for, or whose instruction needs privilege.
#[test]
fn a_record_that_cannot_be_obeyed_is_named() {
    for (call, record, why) in [
        ("cpu.swapgs", RELOC_CALL, "its record is not NOP"),
        ("cpu.iret", RELOC_INLINE, "bad relocation record"),
        ("cpu.iret", RELOC_NONE, "its record is not JUMP"),
        ("cpu.sysret", RELOC_NONE, "its record is not JUMP"),
        ("cpu.read_tsc", RELOC_CALL, "its record is not NONE"),
        ("cpu.pause", RELOC_NOP, "its record is not NONE"),
        ("cpu.halt", RELOC_JUMP, "bad relocation record"),
        (
            "mmu.set_cr3",
            RELOC_NONE,
            "the instruction does not work here",
        ),
    ] {
        let layer = Layer::new().record(call, record);
        layer.refused(&format!("{call}: {why}"));
    }
}

/// The kernel needs a call that has no native form: it makes the call, even if the record claims a
/// native form.
#[test]
fn a_call_without_a_native_form_is_made() {
    let calls = [
        "cpu.cpuid",
        "cpu.set_gdt",
        "cpu.set_idt",
        "cpu.write_idt",
        "cpu.set_kernel_stack",
        "mmu.register_page_table",
        "mmu.flush_tlb",
    ];
    let layer = calls
        .iter()
        .fold(Layer::new(), |layer, call| layer.record(call, RELOC_NONE));
    let run = layer.run(&[], "echo runs");
    assert_eq!((run.code, run.stdout.as_str()), (0, "runs\n"), "{run:?}");
}

/// The hypervisor may keep addresses in a hole of the user range, but not those of the kernel and
/// of programs.
#[test]
fn addresses_in_use_are_refused() {
    const TIB: u64 = 1 << 40;
    for (start, end) in [
        // Programs, the image, the direct map, vmalloc, vmemmap, the CPU entry areas, the fixmap.
        (TIB, TIB + 4096),
        (0x7a00_0000, 0x7a00_1000),
        (64 * TIB, 64 * TIB + 4096),
        (80 * TIB, 81 * TIB),
        (112 * TIB, 112 * TIB + 1),
        (125 * TIB, 125 * TIB + 4096),
        (126 * TIB - 4096, 126 * TIB),
        // A hole and what is beside it.
        (0, 0x20000),
    ] {
        let why = format!("the layer keeps addresses {start:#x} to {end:#x}, which are in use");
        Layer::new().keeps(start, end).refused(&why);
    }
    // Nothing, a hole, and what is between the halves.
    for (start, end) in [(0, 0), (0, 0x10000), (126 * TIB, 200 * TIB)] {
        let run = Layer::new().keeps(start, end).run(&[], "echo runs");
        assert_eq!((run.code, run.stdout.as_str()), (0, "runs\n"), "{run:?}");
    }
}

/// Records of inline code: code that is too long for a site is called, shorter code is put into the
/// site. No privileged instruction may stay.
#[test]
fn inline_code_is_obeyed_without_privilege() {
    let entry = |call: &str| {
        let layer = Layer::new();
        let offset = rom::word(layer.image(), rom::call(layer.image(), call)) as u64;
        u32::try_from(PHV_LAYER_BASE + offset).unwrap()
    };
    // mov $ENTRY,%eax; call *%rax: 7 bytes, where sites have 6.
    let code = |call: &str| [&[0xb8][..], &entry(call).to_le_bytes(), &[0xff, 0xd0]].concat();
    let layer = Layer::new()
        .inline("cpu.irq_flag", &code("cpu.irq_flag"))
        .inline("cpu.irq_disable", &code("cpu.irq_disable"))
        .inline("cpu.wbinvd", &[0x90]);
    let script = "mount -t debugfs none /sys/kernel/debug; \
        sed 's/^/sites /' /sys/kernel/debug/vmi/calls; dmesg; uname";
    let run = layer.run(&["--cpus", "2"], script);
    assert_eq!(run.code, 0, "{run:?}");
    for word in TROUBLE {
        assert!(!run.stdout.contains(word), "{word}: {run:?}");
    }
    let calls = calls(&run.stdout);
    for (call, hold, least) in [
        ("cpu.irq_flag", "call", 100),
        ("cpu.irq_disable", "call", 100),
        ("cpu.wbinvd", "inline", 1),
    ] {
        let (record, sites) = &calls[call];
        assert_eq!(*record, "inline", "{call}: {run:?}");
        for (holds, count) in sites {
            let good = if *holds == hold {
                *count >= least
            } else {
                *count == 0
            };
            assert!(good, "{call}: {holds} {count}: {run:?}");
        }
    }
}
