// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
//! The VMI for Rust: the numbers and structures of `vmi.toml`, and a list of all calls.
//!
//! `cargo run -p abigen` makes the modules of tables from `abi/*.toml`. The rules that are not
//! tables are in `docs/vmi.md`. Structures are plain data in the guest's byte order
//! (little-endian). Every field is naturally aligned, without implicit padding: sizes and offsets
//! are asserted at build time, here and in the C header.
#![no_std]

#[rustfmt::skip]
mod generated;
/// What the monitor and the process layer share; see `process.toml`.
#[rustfmt::skip]
pub mod process;

/// What views of shared memory are made of.
pub mod view;

pub use generated::*;

/// How a call passes its arguments and what it preserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Preserves every register but rax and the arithmetic flags.
    Primitive,
    /// A System V AMD64 function.
    Sysv,
    /// Never returns; all registers but rsp reach the destination.
    Jump,
}

/// One call of the interface.
#[derive(Clone, Copy, Debug)]
pub struct CallInfo {
    /// Call number: section << 8 | index.
    pub number: u16,
    /// Name, `section.call`.
    pub name: &'static str,
    /// Calling convention.
    pub class: Class,
    /// Section version that brought it.
    pub since: u16,
}

/// One section of the interface.
#[derive(Clone, Copy, Debug)]
pub struct SectionInfo {
    /// Section id.
    pub id: u16,
    /// Name.
    pub name: &'static str,
    /// Version that `vmi.toml` describes.
    pub version: u16,
    /// Lowest version of a kernel that a layer of this version serves.
    pub compat: u16,
    /// Its calls, by index.
    pub calls: &'static [CallInfo],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_the_lists() {
        for section in SECTIONS {
            for (index, call) in section.calls.iter().enumerate() {
                assert_eq!(
                    usize::from(call.number),
                    usize::from(section.id) << 8 | index,
                    "{}",
                    call.name
                );
                assert!(
                    call.since >= 1 && call.since <= section.version,
                    "{}",
                    call.name
                );
            }
        }
    }

    #[test]
    fn calls_of_a_section_only_grow() {
        for section in SECTIONS {
            assert!(
                section.calls.windows(2).all(|w| w[0].since <= w[1].since),
                "{}",
                section.name
            );
        }
    }
}
