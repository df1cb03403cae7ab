// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The views of shared memory: `abi/src/process/area.rs` and `vbus/shm/src/layout.rs`.
//!
//! A guest can write this memory at any time, so a view has no plain fields: every access is an
//! atomic load or store, and the number of an enum's variant is checked when it is read.

use crate::model::{Abi, Group, Struct, array, is_struct};
use crate::rust::{capital, groups};
use anyhow::Result;
use std::fmt::Write;

const HEAD: &str = "\
// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
// Made by tools/abigen from abi/process.toml: change that, not this.
use crate::view::{Choice, Enumerated, View};
use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
";

const VBUS_HEAD: &str = "\
// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
// Made by tools/abigen from abi/vbus.toml: change that, not this.
//! The memory that both sides share: constants, and views of atomic fields.

use crate::atomic::{AtomicU32, AtomicU64};
#[cfg(not(loom))]
use core::mem::{offset_of, size_of};
#[cfg(not(loom))]
use paravane_abi::view::View;
";

/// Renders the module of the process layer.
pub fn render(abi: &Abi) -> Result<String> {
    let mut out = String::from(HEAD);
    for g in &abi.groups {
        if let Some(name) = &g.enumeration {
            enumeration(&mut out, g, name)?;
        }
    }
    for s in abi.structs.iter().filter(|s| s.shared) {
        view(&mut out, s, &abi.api.prefix, "")?;
    }
    Ok(out)
}

/// Renders the module of the virtual bus. Loom's atomics have sizes of their own.
pub fn render_vbus(abi: &Abi) -> Result<String> {
    let mut out = String::from(VBUS_HEAD);
    groups(&mut out, abi)?;
    for s in abi.structs.iter().filter(|s| s.shared) {
        view(&mut out, s, &abi.api.prefix, "#[cfg(not(loom))]\n")?;
    }
    Ok(out)
}

/// `DEBUG_STOPPED` becomes `DebugStopped`.
fn variant(name: &str) -> String {
    name.to_lowercase().split('_').map(capital).collect()
}

fn enumeration(out: &mut String, g: &Group, name: &str) -> Result<()> {
    let prefix = format!("{}_", g.group);
    writeln!(
        out,
        "\n/// {}.\n#[derive(Clone, Copy, Debug, PartialEq, Eq)]\n#[repr(u32)]\npub enum {name} {{",
        capital(&g.doc)
    )?;
    for v in &g.values {
        writeln!(
            out,
            "    /// {}.\n    {} = {},",
            capital(&v.doc),
            variant(v.name.trim_start_matches(&prefix)),
            v.value
        )?;
    }
    writeln!(
        out,
        "}}\n\nimpl Enumerated for {name} {{\n    \
         fn from_raw(raw: u32) -> Option<Self> {{\n        match raw {{"
    )?;
    for v in &g.values {
        let variant = variant(v.name.trim_start_matches(&prefix));
        writeln!(out, "            {} => Some(Self::{variant}),", v.value)?;
    }
    writeln!(
        out,
        "            _ => None,\n        }}\n    }}\n\n    \
         fn raw(self) -> u32 {{\n        self as u32\n    }}\n}}"
    )?;
    Ok(())
}

/// `phv_vcpu` becomes `Vcpu`.
fn short(name: &str, prefix: &str) -> String {
    let name = name.strip_prefix(prefix).unwrap_or(name);
    name.split('_').map(capital).collect()
}

/// `guard` precedes what holds only for the memory itself.
fn view(out: &mut String, s: &Struct, prefix: &str, guard: &str) -> Result<()> {
    let name = short(&s.name, prefix);
    writeln!(
        out,
        "\n/// {}.\n#[repr(C)]\n#[derive(Debug)]\npub struct {name} {{",
        capital(&s.doc)
    )?;
    for f in &s.fields {
        let (element, count) = array(&f.ty)?;
        let element = match (&f.enumeration, element) {
            (Some(choice), _) => format!("Choice<{choice}>"),
            (None, e) if is_struct(e) => short(e, prefix),
            (None, e) => format!("AtomicU{}", &e[1..]),
        };
        let ty = count.map_or(element.clone(), |n| format!("[{element}; {n}]"));
        writeln!(
            out,
            "    /// {}.\n    pub {}: {ty},",
            capital(&f.doc),
            f.name
        )?;
    }
    out.push_str("}\n\n");
    writeln!(
        out,
        "// SAFETY: the assertions below leave no padding, \
         and every field is an atomic or a view.\n\
         {guard}unsafe impl View for {name} {{}}\n\
         {guard}const _: () = assert!(size_of::<{name}>() == {});",
        s.size
    )?;
    for f in &s.fields {
        writeln!(
            out,
            "{guard}const _: () = assert!(offset_of!({name}, {}) == {});",
            f.name, f.offset
        )?;
    }
    Ok(())
}
