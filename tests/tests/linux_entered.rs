// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux that a hypervisor enters with the image in the upper half: the layer that it hands over,
//! or the one in an option ROM.

#![allow(clippy::unwrap_used, clippy::panic)] // A failed setup fails the test.

use paravane_abi::HEADER_IN_PLACE;
use paravane_tests::bare::{TROUBLE, boot_with, calls, make, outsider, root};
use paravane_tests::program::Run;
use paravane_tests::{linux, rom};
use std::ffi::OsStr;
use std::fs;
use tempfile::TempDir;

/// A hypervisor (`tests/guest/entry`) enters the kernel at its VMI entry, with the image in the
/// upper half and all privilege. It hands over a layer; an empty one is none. `more` are options of
/// QEMU.
fn entered(folder: &TempDir, smp: &str, layer: &[u8], more: &[&OsStr]) -> Run {
    make("tests/guest/entry", folder.path());
    let (mut kernel, root) = (fs::read(linux::kernel()).unwrap(), root(folder));
    // The initial RAM disk begins with a page. Before it are four numbers, the kernel and the ROM.
    let before = 32 + kernel.len() + layer.len();
    kernel.resize(kernel.len() + 4096 - before % 4096, 0);
    let mut files = 0x5041_5241_5641_4e45_u64.to_le_bytes().to_vec();
    for file in [&kernel[..], layer, &root] {
        files.extend((file.len() as u64).to_le_bytes());
    }
    for file in [&kernel[..], layer, &root] {
        files.extend(file);
    }
    let path = folder.path().join("files");
    fs::write(&path, files).unwrap();
    let run = boot_with(smp, &folder.path().join("entry.elf"), &path, more);
    let run = run.unwrap_or_else(|why| panic!("{why}"));
    assert!(
        run.stdout.contains("log VMI: entered by a hypervisor\n"),
        "{run:?}"
    );
    for word in TROUBLE {
        assert!(!run.stdout.contains(word), "{word}: {run:?}");
    }
    run
}

/// The layer is not yet in its place. The kernel starts as on bare metal, by the boot information
/// alone, and uses the layer as one from a ROM. The hypervisor is older than the devices in that
/// information.
#[test]
fn linux_is_entered_by_a_hypervisor_in_the_upper_half() {
    let folder = tempfile::tempdir().unwrap();
    let layer = fs::read(outsider(folder.path())).unwrap();
    let run = entered(&folder, "2", &layer, &[]);
    assert!(run.stdout.contains("log VMI: layer outsider 1."), "{run:?}");
    let calls = calls(&run.stdout);
    assert!(calls["cpu.irq_enable"].1["inline"] > 100, "{run:?}");
    for cpu in ["0", "1"] {
        let start = format!("count {cpu} set_cr3 ");
        let mut lines = run.stdout.lines();
        let count = lines.find_map(|line| line.strip_prefix(&start)?.parse::<u64>().ok());
        assert!(count.is_some_and(|count| count > 100), "{start}: {run:?}");
    }
}

/// A hypervisor that hands over no layer, one of another name than the kernel wants, one outside
/// the direct map, or one that needs a kernel in the lower half: the kernel finds the one in the
/// option ROM.
#[test]
#[ignore = "four boots in an emulator: make test-release"]
fn a_layer_in_an_option_rom_is_found_after_an_entry() {
    let folder = tempfile::tempdir().unwrap();
    let layer = fs::read(outsider(folder.path())).unwrap();
    let place = usize::try_from(HEADER_IN_PLACE).unwrap() | rom::word(&layer, rom::FLAGS);
    let place = u32::try_from(place).unwrap().to_le_bytes();
    let placed = rom::with(&layer, rom::FLAGS, &place);
    let file = folder.path().join("native.rom");
    fs::write(&file, paravane_blobs::NATIVE_ROM).unwrap();
    let line = |more: &str| format!("console=ttyS0 quiet panic=-1 {more}");
    for (layer, line, said) in [
        (&[][..], line(""), ""),
        (&layer, line("vmi=native"), "outsider, not native, skipped"),
        (
            &layer,
            line("entry.rom=low"),
            "not in the direct map, skipped",
        ),
        (
            &placed,
            line(""),
            "outsider is for kernels in the lower half, skipped",
        ),
    ] {
        let more = ["-option-rom".as_ref(), file.as_os_str(), "-append".as_ref()];
        let run = entered(&folder, "1", layer, &[&more[..], &[line.as_ref()]].concat());
        let of_boot = "log VMI: layer of the boot information: ";
        let lines = run
            .stdout
            .lines()
            .filter_map(|line| line.strip_prefix(of_boot));
        assert_eq!(lines.collect::<String>(), said, "{run:?}");
        assert!(run.stdout.contains("log VMI: layer native 1."), "{run:?}");
    }
}
