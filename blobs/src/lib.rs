// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of Paravane that run elsewhere, as bytes. `build.rs` builds them from `layers/`,
//! `guest/conformance/`, `bench/` and `agent/`. Also the port of Linux, from `guest/linux/`, and
//! the descriptions of `bench/apps/`.
//!
//! They are inside the program, so that only one file must be installed, and a guest never gets a
//! layer of another build by accident. `--rom` and `--guest` select others on purpose.
#![no_std]
#![forbid(unsafe_code)]

/// The layer that implements every call with the native instruction: an option ROM.
pub static NATIVE_ROM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/layers/native.rom"));

/// The native layer with a counter and a histogram of cycles for each call: an option ROM.
pub static NATIVE_STATS_ROM: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/layers/native-stats.rom"));

/// The layer for guests on KVM, which falls back to the native one's ways: an option ROM.
pub static KVM_ROM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/layers/kvm.rom"));

/// The layer of the process hypervisor: a program for the host. Its image begins with the ROM
/// header.
pub static PROCESS_LAYER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/layers/process.elf"));

/// The layer of the process hypervisor with a counter and a histogram of cycles for each call.
pub static PROCESS_STATS_LAYER: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/layers/process-stats.elf"));

/// The guest kernel that tests every call: an ELF file with a PVH note and a VMI note.
pub static CONFORMANCE_GUEST: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/conformance/conformance.elf"));

/// The measuring program of `paravane bench micro`: a static Linux program.
pub static MICRO: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/micro/micro"));

/// The measuring program of `paravane bench net`: a static Linux program.
pub static NET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/net/net"));

/// The program of `paravane bench exits`: a static Linux program.
pub static EXITS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/exits/exits"));

/// The input of the row `compile` of `paravane bench micro`: the main file of that program, and its
/// header.
pub static MICRO_SOURCES: [(&str, &[u8]); 2] = [
    ("main.c", include_bytes!("../../bench/micro/main.c")),
    ("micro.h", include_bytes!("../../bench/micro/micro.h")),
];

/// The program that runs in Linux guests and starts commands for the monitor: statically linked.
pub static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent/paravane-agent"));

include!(concat!(env!("OUT_DIR"), "/files.rs"));
