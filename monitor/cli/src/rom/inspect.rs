// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prints a ROM for people.

use super::{CallEntry, Reloc, Rom, Section};
use paravane_abi as abi;
use std::io::{self, Write};

/// Prints the header, then every section with its calls.
pub fn inspect(rom: &Rom, out: &mut impl Write) -> io::Result<()> {
    let h = &rom.header;
    writeln!(out, "layer        {}", h.name)?;
    writeln!(out, "VMI          {}.{}", h.api_major, h.api_minor)?;
    writeln!(out, "ROM          {} bytes, checksum right", h.rom_bytes)?;
    writeln!(out, "header       {} bytes", h.header_size)?;
    writeln!(out, "image        {} bytes", h.image_size)?;
    writeln!(
        out,
        "loaded       {} bytes, and {} for each vCPU",
        h.load_size, h.percpu_size
    )?;
    if h.reserve_end == 0 {
        writeln!(out, "reserves     no linear addresses")?;
    } else {
        writeln!(
            out,
            "reserves     {:#x} to {:#x}",
            h.reserve_start,
            h.reserve_end - 1
        )?;
    }
    writeln!(out, "flags        {}", flags(h.flags))?;
    writeln!(
        out,
        "exceptions   {} instructions may fault",
        rom.extable.len()
    )?;
    for entry in &rom.extable {
        writeln!(
            out,
            "  at {:#07x} go on at {:#07x}",
            entry.insn, entry.fixup
        )?;
    }
    for section in &rom.sections {
        writeln!(out)?;
        inspect_section(section, out)?;
    }
    Ok(())
}

fn flags(flags: u32) -> String {
    let mut names = Vec::new();
    let mut rest = u64::from(flags);
    for (bit, name) in [
        (abi::HEADER_IN_PLACE, "in-place"),
        (abi::HEADER_PARAVIRT, "paravirt"),
    ] {
        if rest & bit != 0 {
            names.push(name.to_string());
            rest &= !bit;
        }
    }
    if rest != 0 {
        names.push(format!("unknown {rest:#x}"));
    }
    if names.is_empty() {
        "none".to_string()
    } else {
        names.join(", ")
    }
}

fn inspect_section(section: &Section, out: &mut impl Write) -> io::Result<()> {
    let known = abi::SECTIONS.iter().find(|s| s.id == section.id);
    let name = known.map_or("unknown", |s| s.name);
    writeln!(
        out,
        "section {} {name}: version {}, for kernels from version {}, features {:#x}",
        section.id, section.version, section.compat, section.features
    )?;
    for (index, call) in section.calls.iter().enumerate() {
        let name = known
            .and_then(|s| s.calls.get(index))
            .map_or_else(|| format!("unknown {index}"), |c| c.name.to_string());
        writeln!(out, "  {name:<26} {}", describe(call))?;
    }
    Ok(())
}

fn describe(call: &CallEntry) -> String {
    let entry = call
        .offset
        .map_or_else(|| "absent ".to_string(), |o| format!("{o:#07x}"));
    let site = match &call.reloc {
        Reloc::None => "none    the site keeps the native instruction".to_string(),
        Reloc::Call => "call".to_string(),
        Reloc::Jump => "jump".to_string(),
        Reloc::Nop => "nop     the site is erased".to_string(),
        Reloc::Inline(code) => {
            let bytes: Vec<String> = code.iter().map(|b| format!("{b:02x}")).collect();
            format!("inline  {}", bytes.join(" "))
        }
    };
    format!("{entry}  {site}")
}
