// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C and assembler views: `abi/include/paravane/*.h`, `vbus/include/paravane/vbus_layout.h`.

use crate::model::{Abi, Call, Section, Struct, array, is_struct};
use anyhow::Result;
use std::fmt::Write;

const SPDX: &str = "/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */\n";

const VMI_HEAD: &str = "\
/*
 * The VMI. Made by tools/abigen from abi/vmi.toml: change that, not this.
 * The rules that are not tables are in docs/vmi.md.
 */
#ifndef PARAVANE_VMI_H
#define PARAVANE_VMI_H

";

const PROCESS_HEAD: &str = "\
/*
 * What the monitor and the process layer share. Made by tools/abigen from
 * abi/process.toml: change that, not this.
 */
#ifndef PARAVANE_PROCESS_H
#define PARAVANE_PROCESS_H

#include \"vmi.h\"

";

const VBUS_HEAD: &str = "\
/*
 * The memory that both sides of a virtual-bus connection share. Made by
 * tools/abigen from abi/vbus.toml: change that, not this. The rules that are
 * not tables are in docs/vbus.md.
 */
#ifndef PARAVANE_VBUS_LAYOUT_H
#define PARAVANE_VBUS_LAYOUT_H
";

const TYPES: &str = "\
#ifndef __ASSEMBLER__

#ifdef __KERNEL__
#include <linux/types.h>
#include <linux/stddef.h>
#else
#include <stddef.h>
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef signed int __s32;
typedef unsigned long long __u64;
typedef signed long long __s64;
#endif

";

/// Renders the header of the private interface: constants and structures.
pub fn render_process(abi: &Abi) -> Result<String> {
    let mut out = format!("{SPDX}{PROCESS_HEAD}");
    groups(&mut out, abi)?;
    for s in &abi.structs {
        offsets(&mut out, s)?;
    }
    out.push_str("\n#ifndef __ASSEMBLER__\n\n");
    for s in &abi.structs {
        structure(&mut out, s)?;
    }
    out.push_str("#endif /* __ASSEMBLER__ */\n#endif /* PARAVANE_PROCESS_H */\n");
    Ok(out)
}

/// Renders the header of the virtual bus: constants and structures.
pub fn render_vbus(abi: &Abi) -> Result<String> {
    let mut out = format!("{SPDX}{VBUS_HEAD}");
    groups(&mut out, abi)?;
    for s in &abi.structs {
        offsets(&mut out, s)?;
    }
    out.push('\n');
    out.push_str(TYPES);
    for s in &abi.structs {
        structure(&mut out, s)?;
    }
    out.push_str("#endif /* __ASSEMBLER__ */\n#endif /* PARAVANE_VBUS_LAYOUT_H */\n");
    Ok(out)
}

fn groups(out: &mut String, abi: &Abi) -> Result<()> {
    for g in &abi.groups {
        writeln!(out, "\n/* {} */", g.doc)?;
        for v in &g.values {
            writeln!(out, "#define {} {:#x} /* {} */", v.name, v.value, v.doc)?;
        }
    }
    Ok(())
}

/// Renders the whole header of the VMI.
pub fn render(abi: &Abi) -> Result<String> {
    let mut out = format!("{SPDX}{VMI_HEAD}");
    writeln!(out, "#define VMI_API_MAJOR {}", abi.api.major)?;
    writeln!(out, "#define VMI_API_MINOR {}", abi.api.minor)?;
    writeln!(
        out,
        "#define VMI_API_VERSION (VMI_API_MAJOR << 16 | VMI_API_MINOR)"
    )?;
    groups(&mut out, abi)?;
    for s in &abi.structs {
        offsets(&mut out, s)?;
    }
    for s in &abi.sections {
        section(&mut out, s)?;
    }
    writeln!(out, "\n#define VMI_SECTION_COUNT {}", abi.sections.len())?;
    each_call(&mut out, abi)?;
    out.push('\n');
    out.push_str(TYPES);
    for s in &abi.structs {
        structure(&mut out, s)?;
    }
    out.push_str("/* One function type for each call */\n");
    for s in &abi.sections {
        for c in &s.calls {
            prototype(&mut out, s, c)?;
        }
    }
    out.push_str("\n#endif /* __ASSEMBLER__ */\n#endif /* PARAVANE_VMI_H */\n");
    Ok(out)
}

/// `size_macro` of `vmi_rom_header` is `VMI_SIZE_ROM_HEADER`.
fn size_macro(s: &Struct) -> String {
    kind_macro(s, "SIZE")
}

/// `VMI_OFF_ROM_HEADER_NAME`.
fn offset_macro(s: &Struct, field: &str) -> String {
    format!("{}_{}", kind_macro(s, "OFF"), field.to_uppercase())
}

fn kind_macro(s: &Struct, kind: &str) -> String {
    let (prefix, name) = s.name.split_once('_').unwrap_or(("", &s.name));
    format!("{prefix}_{kind}_{name}").to_uppercase()
}

fn offsets(out: &mut String, s: &Struct) -> Result<()> {
    writeln!(out, "\n/* struct {} */", s.name)?;
    writeln!(out, "#define {} {}", size_macro(s), s.size)?;
    for f in &s.fields {
        writeln!(out, "#define {} {}", offset_macro(s, &f.name), f.offset)?;
    }
    Ok(())
}

fn structure(out: &mut String, s: &Struct) -> Result<()> {
    writeln!(out, "/* {} */\nstruct {} {{", s.doc, s.name)?;
    for f in &s.fields {
        let (element, count) = array(&f.ty)?;
        let prefix = if is_struct(element) { "struct " } else { "__" };
        let suffix = count.map(|n| format!("[{n}]")).unwrap_or_default();
        let doc = if f.doc.is_empty() {
            String::new()
        } else {
            format!(" /* {} */", f.doc)
        };
        writeln!(out, "\t{prefix}{element} {}{suffix};{doc}", f.name)?;
    }
    out.push_str("};\n");
    writeln!(
        out,
        "_Static_assert(sizeof(struct {}) == {}, \"{}\");",
        s.name,
        size_macro(s),
        s.name
    )?;
    for f in &s.fields {
        let name = format!("{}.{}", s.name, f.name);
        let constant = offset_macro(s, &f.name);
        writeln!(
            out,
            "_Static_assert(offsetof(struct {}, {}) == {constant}, \"{name}\");",
            s.name, f.name
        )?;
    }
    out.push('\n');
    Ok(())
}

fn section(out: &mut String, s: &Section) -> Result<()> {
    let name = s.name.to_uppercase();
    writeln!(out, "\n/* Section {}: {} */", s.name, s.doc)?;
    writeln!(out, "#define VMI_SECTION_{name} {}", s.id)?;
    writeln!(out, "#define VMI_SECTION_{name}_VERSION {}", s.version)?;
    writeln!(out, "#define VMI_SECTION_{name}_COMPAT {}", s.compat)?;
    writeln!(out, "#define VMI_SECTION_{name}_CALLS {}", s.calls.len())?;
    for f in &s.features {
        writeln!(
            out,
            "#define {} {:#x} /* {} */",
            f.name,
            1u32 << f.bit,
            f.doc
        )?;
    }
    for (index, c) in s.calls.iter().enumerate() {
        let number = usize::from(s.id) << 8 | index;
        writeln!(
            out,
            "#define VMI_CALL_{name}_{} {number:#05x}",
            c.name.to_uppercase()
        )?;
    }
    for c in &s.calls {
        if let Some(native) = &c.native {
            let symbol = format!("{name}_{}", c.name.to_uppercase());
            writeln!(out, "#define VMI_NATIVE_{symbol} {native}")?;
            writeln!(
                out,
                "#define VMI_NATIVE_STR_{symbol} \"{}\"",
                native.replace('%', "%%")
            )?;
        }
    }
    Ok(())
}

/// X-macros over all calls: X(SECTION, section, NAME, name, number, class, since). In assembler a
/// macro makes one line, so each X is followed by a semicolon.
fn each_call(out: &mut String, abi: &Abi) -> Result<()> {
    for s in &abi.sections {
        let upper = s.name.to_uppercase();
        write!(out, "\n#define VMI_FOR_EACH_{upper}_CALL(X)")?;
        for (index, c) in s.calls.iter().enumerate() {
            let number = usize::from(s.id) << 8 | index;
            write!(
                out,
                " \\\n\tX({upper}, {}, {}, {}, {number:#05x}, {}, {})",
                s.name,
                c.name.to_uppercase(),
                c.name,
                c.class.name().to_uppercase(),
                c.since
            )?;
        }
        out.push('\n');
    }
    out.push_str("\n#define VMI_FOR_EACH_CALL(X)");
    for s in &abi.sections {
        write!(out, " \\\n\tVMI_FOR_EACH_{}_CALL(X)", s.name.to_uppercase())?;
    }
    out.push('\n');
    out.push_str(
        "\n/* Y(SECTION, section, id, version, compat, calls) */\n#define VMI_FOR_EACH_SECTION(Y)",
    );
    for s in &abi.sections {
        let upper = s.name.to_uppercase();
        write!(
            out,
            " \\\n\tY({upper}, {}, {}, {}, {}, {})",
            s.name,
            s.id,
            s.version,
            s.compat,
            s.calls.len()
        )?;
    }
    out.push('\n');
    Ok(())
}

fn prototype(out: &mut String, s: &Section, c: &Call) -> Result<()> {
    let ret = match c.ret.as_str() {
        "void" | "noreturn" => "void",
        "int" => "int",
        "s64" => "__s64",
        _ => "__u64",
    };
    let args = if c.args.is_empty() {
        "void".to_string()
    } else {
        c.args
            .iter()
            .map(|a| argument(a))
            .collect::<Vec<_>>()
            .join(", ")
    };
    writeln!(out, "typedef {ret} vmi_{}_{}_fn({args});", s.name, c.name)?;
    Ok(())
}

/// `u64 *slot` becomes `__u64 *slot`.
fn argument(text: &str) -> String {
    text.split(' ')
        .map(|word| match word {
            "u8" | "u16" | "u32" | "u64" => format!("__{word}"),
            _ => word.to_string(),
        })
        .collect::<Vec<_>>()
        .join(" ")
}
