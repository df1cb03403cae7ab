// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The reference part of `docs/vmi.md`, between two markers.

use crate::model::{Abi, Section, Struct};
use anyhow::{Context, Result};
use std::fmt::Write;

const BEGIN: &str = "<!-- abigen begin: made from abi/vmi.toml -->\n";
const END: &str = "<!-- abigen end -->\n";

/// Replaces what stands between the markers of `page`.
pub fn replace(page: &str, abi: &Abi) -> Result<String> {
    let (before, rest) = page
        .split_once(BEGIN)
        .context("docs/vmi.md has no begin marker")?;
    let (_, after) = rest
        .split_once(END)
        .context("docs/vmi.md has no end marker")?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", reference(abi)?))
}

fn reference(abi: &Abi) -> Result<String> {
    let mut out = String::new();
    writeln!(out, "\nAPI version {}.{}.\n", abi.api.major, abi.api.minor)?;
    out.push_str("| section | id | version | calls | |\n|---|---|---|---|---|\n");
    for s in &abi.sections {
        let doc = s.doc.split_inclusive(". ").next().unwrap_or("").trim();
        writeln!(
            out,
            "| [{0}](#section-{0}) | {1} | {2} | {3} | {doc} |",
            s.name,
            s.id,
            s.version,
            s.calls.len()
        )?;
    }
    for s in &abi.sections {
        section(&mut out, s)?;
    }
    out.push_str("\n## Structures\n");
    for s in &abi.structs {
        structure(&mut out, s)?;
    }
    out.push_str("\n## Constants\n");
    for g in &abi.groups {
        writeln!(out, "\n{}:\n\n| name | value | |\n|---|---|---|", g.doc)?;
        for v in &g.values {
            writeln!(out, "| `{}` | {:#x} | {} |", v.name, v.value, v.doc)?;
        }
    }
    out.push('\n');
    Ok(out)
}

fn section(out: &mut String, s: &Section) -> Result<()> {
    writeln!(out, "\n## Section {}\n\n{}\n", s.name, s.doc)?;
    for f in &s.features {
        writeln!(out, "Feature bit {}, `{}`: {}.\n", f.bit, f.name, f.doc)?;
    }
    for (index, c) in s.calls.iter().enumerate() {
        let number = usize::from(s.id) << 8 | index;
        writeln!(
            out,
            "### {number:#05x} `{}.{}({}) -> {}`\n",
            s.name,
            c.name,
            c.args.join(", "),
            c.ret
        )?;
        writeln!(out, "{}\n", c.doc)?;
        writeln!(out, "* Bare metal: {}", c.bare.trim_end_matches('.'))?;
        if let Some(native) = &c.native {
            writeln!(out, "* At an unpatched site: `{native}`")?;
        }
        let gs = if c.any_gs { "; any GS base" } else { "" };
        writeln!(
            out,
            "* Class: {}{gs}; since section version {}",
            c.class.name(),
            c.since
        )?;
        for e in &c.errors {
            writeln!(out, "* -VMI_{}: {}", e.e, e.when)?;
        }
        out.push('\n');
    }
    Ok(())
}

fn structure(out: &mut String, s: &Struct) -> Result<()> {
    writeln!(
        out,
        "\n### `struct {}` ({} bytes)\n\n{}.\n",
        s.name,
        s.size,
        s.doc.trim_end_matches('.')
    )?;
    out.push_str("| offset | type | field | |\n|---|---|---|---|\n");
    for f in &s.fields {
        writeln!(
            out,
            "| {} | {} | `{}` | {} |",
            f.offset, f.ty, f.name, f.doc
        )?;
    }
    Ok(())
}
