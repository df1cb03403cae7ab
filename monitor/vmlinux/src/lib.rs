// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading a Linux kernel's ELF file: sections, symbols and relocations ([`elf`]), and stack traces
//! from its ORC tables ([`orc`]). Nothing here boots or builds a kernel.

#![forbid(unsafe_code)]

pub mod elf;
pub mod orc;
