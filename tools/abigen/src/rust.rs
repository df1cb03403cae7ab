// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Rust view: `abi/src/generated.rs`.

use crate::model::{Abi, Class, Section, Struct, array, is_struct};
use anyhow::Result;
use std::fmt::Write;

const HEAD: &str = "\
// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
// Made by tools/abigen from abi/vmi.toml: change that, not this.
use crate::{CallInfo, Class, SectionInfo};
use core::mem::{offset_of, size_of};

";

const PROCESS_HEAD: &str = "\
// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
// Made by tools/abigen from abi/process.toml: change that, not this.
use core::mem::{offset_of, size_of};

/// Views of the memory that guests can write.
pub mod area;
";

/// Renders the private interface: constants and structures.
pub fn render_process(abi: &Abi) -> Result<String> {
    let mut out = String::from(PROCESS_HEAD);
    groups(&mut out, abi)?;
    for s in abi.structs.iter().filter(|s| !s.shared || s.copied) {
        structure(&mut out, s)?;
    }
    Ok(out)
}

/// Renders the constants.
pub fn groups(out: &mut String, abi: &Abi) -> Result<()> {
    for g in &abi.groups {
        writeln!(out, "\n// {}", g.doc)?;
        for v in &g.values {
            let doc = capital(&v.doc);
            writeln!(
                out,
                "/// {doc}.\npub const {}: u64 = {:#x};",
                v.name.trim_start_matches("VMI_"),
                v.value
            )?;
        }
    }
    Ok(())
}

/// Renders the whole module.
pub fn render(abi: &Abi) -> Result<String> {
    let mut out = String::from(HEAD);
    writeln!(
        out,
        "/// Major API version.\npub const API_MAJOR: u8 = {};",
        abi.api.major
    )?;
    writeln!(
        out,
        "/// Minor API version.\npub const API_MINOR: u8 = {};",
        abi.api.minor
    )?;
    groups(&mut out, abi)?;
    for s in &abi.structs {
        structure(&mut out, s)?;
    }
    for s in &abi.sections {
        section(&mut out, s)?;
    }
    sections(&mut out, abi)?;
    Ok(out)
}

pub fn capital(text: &str) -> String {
    let text = text.trim_end_matches('.');
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// `vmi_rom_header` becomes `RomHeader`, `phv_vcpu` becomes `PhvVcpu`.
fn camel(name: &str) -> String {
    name.trim_start_matches("vmi_")
        .split('_')
        .map(capital)
        .collect()
}

fn structure(out: &mut String, s: &Struct) -> Result<()> {
    let name = camel(&s.name);
    writeln!(out, "\n/// {}.", capital(&s.doc))?;
    writeln!(
        out,
        "#[repr(C)]\n#[derive(Clone, Copy, Debug)]\npub struct {name} {{"
    )?;
    for f in &s.fields {
        let (element, count) = array(&f.ty)?;
        let element = match element {
            "s32" => "i32".to_string(),
            e if is_struct(e) => camel(e),
            e => e.to_string(),
        };
        let ty = count.map_or(element.clone(), |n| format!("[{element}; {n}]"));
        let doc = if f.doc.is_empty() {
            capital(&f.name)
        } else {
            capital(&f.doc)
        };
        writeln!(out, "    /// {doc}.\n    pub {}: {ty},", f.name)?;
    }
    out.push_str("}\n\n");
    writeln!(
        out,
        "const _: () = assert!(size_of::<{name}>() == {});",
        s.size
    )?;
    for f in &s.fields {
        writeln!(
            out,
            "const _: () = assert!(offset_of!({name}, {}) == {});",
            f.name, f.offset
        )?;
    }
    Ok(())
}

fn section(out: &mut String, s: &Section) -> Result<()> {
    let upper = s.name.to_uppercase();
    out.push('\n');
    for f in &s.features {
        let doc = capital(&f.doc);
        writeln!(
            out,
            "/// {doc}.\npub const {}: u32 = {:#x};",
            f.name.trim_start_matches("VMI_"),
            1u32 << f.bit
        )?;
    }
    for (index, c) in s.calls.iter().enumerate() {
        let number = usize::from(s.id) << 8 | index;
        let doc = capital(c.doc.split_inclusive(". ").next().unwrap_or("").trim());
        writeln!(
            out,
            "/// {doc}.\npub const CALL_{upper}_{}: u16 = {number:#05x};",
            c.name.to_uppercase()
        )?;
    }
    Ok(())
}

fn sections(out: &mut String, abi: &Abi) -> Result<()> {
    out.push_str(
        "\n/// Every section with its calls, in the order of their numbers.\n\
         pub const SECTIONS: &[SectionInfo] = &[\n",
    );
    for s in &abi.sections {
        writeln!(out, "    SectionInfo {{")?;
        writeln!(out, "        id: {},\n        name: \"{}\",", s.id, s.name)?;
        writeln!(
            out,
            "        version: {},\n        compat: {},\n        calls: &[",
            s.version, s.compat
        )?;
        for (index, c) in s.calls.iter().enumerate() {
            let number = usize::from(s.id) << 8 | index;
            let class = match c.class {
                Class::Primitive => "Primitive",
                Class::Sysv => "Sysv",
                Class::Jump => "Jump",
            };
            writeln!(out, "            CallInfo {{")?;
            writeln!(out, "                number: {number:#05x},")?;
            writeln!(out, "                name: \"{}.{}\",", s.name, c.name)?;
            writeln!(out, "                class: Class::{class},")?;
            writeln!(out, "                since: {},", c.since)?;
            writeln!(out, "            }},")?;
        }
        writeln!(out, "        ],\n    }},")?;
    }
    out.push_str("];\n");
    Ok(())
}
