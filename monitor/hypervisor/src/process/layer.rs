// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the monitor needs to know about the layer's program.
//!
//! The program is built together with the monitor and is part of it, so these checks find mistakes
//! in the build.

use super::kernel::{Header, LE};
use anyhow::{Context, bail};
use object::elf::{PT_LOAD, SHT_SYMTAB};
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use paravane_abi::process as ph;

/// The symbol of the address after the layer's only host-call instruction.
const HOST_CALL: &str = "ph_host_call_end";

/// The layer's program.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// An ELF file that the host can execute.
    pub program: &'a [u8],
    /// Bytes of memory that it occupies, from [`ph::PHV_LAYER_BASE`] on.
    pub size: u64,
    /// The instruction pointer that the host sees in a host call of the layer.
    pub host_call: u64,
}

impl<'a> Layer<'a> {
    /// Reads the program.
    ///
    /// # Errors
    /// The build produced an unusable program.
    pub fn read(program: &'a [u8]) -> anyhow::Result<Self> {
        let header =
            Header::parse(program).context("the process layer's program is not an ELF file")?;
        let mut end = 0;
        for segment in header
            .program_headers(LE, program)?
            .iter()
            .filter(|s| s.p_type(LE) == PT_LOAD)
        {
            if segment.p_vaddr(LE) < ph::PHV_LAYER_BASE {
                bail!(
                    "the process layer is not linked at {:#x}",
                    ph::PHV_LAYER_BASE
                );
            }
            end = end.max(segment.p_vaddr(LE).saturating_add(segment.p_memsz(LE)));
        }
        if end <= ph::PHV_LAYER_BASE || end > ph::PHV_HOLE_END {
            bail!(
                "the process layer ends at {end:#x}, but its range ends at {:#x}",
                ph::PHV_HOLE_END
            );
        }
        let symbols = header
            .sections(LE, program)?
            .symbols(LE, program, SHT_SYMTAB)?;
        let host_call = symbols
            .iter()
            .find(|s| {
                s.name(LE, symbols.strings())
                    .is_ok_and(|n| n == HOST_CALL.as_bytes())
            })
            .with_context(|| format!("the process layer has no symbol {HOST_CALL}"))?
            .st_value(LE);
        if !(ph::PHV_LAYER_BASE..end).contains(&host_call) {
            bail!("the process layer's {HOST_CALL} is at {host_call:#x}, outside the layer");
        }
        Ok(Layer {
            program,
            size: end - ph::PHV_LAYER_BASE,
            host_call,
        })
    }
}
