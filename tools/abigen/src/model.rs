// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads and checks the tables.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abi {
    pub api: Api,
    #[serde(rename = "constant")]
    pub groups: Vec<Group>,
    #[serde(rename = "struct")]
    pub structs: Vec<Struct>,
    #[serde(rename = "section", default)]
    pub sections: Vec<Section>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Api {
    pub major: u8,
    pub minor: u8,
    /// The prefix of every name of the table, in lower case: `vmi` or `phv`.
    pub prefix: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    pub group: String,
    pub doc: String,
    /// Name of the Rust enum that the values make, if they are the only ones that a field may have.
    /// Its variants are the constants without `PREFIX_GROUP_`.
    #[serde(default, rename = "enum")]
    pub enumeration: Option<String>,
    pub values: Vec<Constant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    pub name: String,
    pub value: u64,
    pub doc: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Struct {
    pub name: String,
    pub doc: String,
    pub size: usize,
    /// Whether it is part of memory that a guest can write: Rust gets a view of atomic fields.
    #[serde(default)]
    pub shared: bool,
    /// Whether Rust gets a plain structure of a shared one, too, for copies.
    #[serde(default)]
    pub copied: bool,
    pub fields: Vec<Field>,
    /// Largest alignment of a field; filled by `check`.
    #[serde(skip)]
    pub align: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    pub name: String,
    #[serde(rename = "type")]
    pub ty: String,
    /// The enum that its values belong to.
    #[serde(default, rename = "enum")]
    pub enumeration: Option<String>,
    pub doc: String,
    /// Filled by `check`.
    #[serde(skip)]
    pub offset: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    pub id: u16,
    pub name: String,
    pub version: u16,
    pub compat: u16,
    pub doc: String,
    #[serde(default)]
    pub features: Vec<Feature>,
    #[serde(rename = "call")]
    pub calls: Vec<Call>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    pub name: String,
    pub bit: u8,
    pub doc: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Primitive,
    Sysv,
    Jump,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    pub name: String,
    pub args: Vec<String>,
    pub ret: String,
    pub class: Class,
    #[serde(default = "first_version")]
    pub since: u16,
    #[serde(default)]
    pub any_gs: bool,
    #[serde(default)]
    pub native: Option<String>,
    pub doc: String,
    pub bare: String,
    pub errors: Vec<CallError>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallError {
    pub e: String,
    pub when: String,
}

fn first_version() -> u16 {
    1
}

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Self::Primitive => "primitive",
            Self::Sysv => "sysv",
            Self::Jump => "jump",
        }
    }
}

/// Scalar types of fields, with their sizes, which are their alignments too.
const SCALARS: [(&str, usize); 5] = [("u8", 1), ("u16", 2), ("u32", 4), ("s32", 4), ("u64", 8)];

/// Whether a field's element type names a structure of the table.
pub fn is_struct(element: &str) -> bool {
    SCALARS.iter().all(|&(name, _)| name != element)
}

/// Splits `u8[4]` into the element's type and how many there are.
pub fn array(ty: &str) -> Result<(&str, Option<usize>)> {
    let Some((element, rest)) = ty.split_once('[') else {
        return Ok((ty, None));
    };
    let count = rest.strip_suffix(']').and_then(|n| n.parse().ok());
    let count = count.with_context(|| format!("type {ty}: not element[count]"))?;
    Ok((element, Some(count)))
}

/// Reads the text of `vmi.toml`, checks what a compiler would not see, and computes offsets.
pub fn read(text: &str) -> Result<Abi> {
    let mut abi: Abi = toml::from_str(text)?;
    lay_out(&mut abi.structs)?;
    check_names(&abi)?;
    check_enums(&abi)?;
    check_shared(&abi)?;
    check_sections(&abi)?;
    Ok(abi)
}

/// Gives every field its offset. Each field must be naturally aligned, and the sum must be the size
/// that the table states, so that no padding is left to a compiler.
fn lay_out(structs: &mut [Struct]) -> Result<()> {
    let mut known: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (name, size) in SCALARS {
        known.insert(name.into(), (size, size));
    }
    for s in structs {
        let mut offset = 0;
        s.align = 1;
        for f in &mut s.fields {
            let (element, count) = array(&f.ty)?;
            let &(size, align) = known
                .get(element)
                .with_context(|| format!("{}.{}: unknown type {element}", s.name, f.name))?;
            ensure!(
                offset % align == 0,
                "{}.{}: offset {offset} is not aligned to {align}",
                s.name,
                f.name
            );
            f.offset = offset;
            offset += size * count.unwrap_or(1);
            s.align = s.align.max(align);
        }
        ensure!(
            offset == s.size,
            "{}: fields take {offset} bytes, size says {}",
            s.name,
            s.size
        );
        ensure!(
            offset % s.align == 0,
            "{}: size {offset} is not a multiple of {}",
            s.name,
            s.align
        );
        known.insert(s.name.clone(), (s.size, s.align));
    }
    Ok(())
}

fn check_names(abi: &Abi) -> Result<()> {
    let prefix = format!("{}_", abi.api.prefix);
    let mut seen = BTreeSet::new();
    let constants = abi
        .groups
        .iter()
        .flat_map(|g| g.values.iter().map(|v| &v.name));
    let features = abi
        .sections
        .iter()
        .flat_map(|s| s.features.iter().map(|f| &f.name));
    for name in constants
        .chain(features)
        .chain(abi.structs.iter().map(|s| &s.name))
    {
        ensure!(seen.insert(name), "{name}: defined twice");
        ensure!(
            name.to_lowercase().starts_with(&prefix),
            "{name}: does not start with {prefix}"
        );
    }
    Ok(())
}

/// An enum has constants of its group alone, and its fields are 32 bits wide.
fn check_enums(abi: &Abi) -> Result<()> {
    let mut known = BTreeSet::new();
    for g in &abi.groups {
        let Some(name) = &g.enumeration else {
            continue;
        };
        ensure!(known.insert(name.as_str()), "enum {name}: defined twice");
        let prefix = format!("{}_", g.group);
        for v in &g.values {
            ensure!(
                v.name.starts_with(&prefix) && u32::try_from(v.value).is_ok(),
                "{}: not {prefix}... of 32 bits, as enum {name} needs it",
                v.name
            );
        }
    }
    for s in &abi.structs {
        for f in &s.fields {
            if let Some(name) = &f.enumeration {
                ensure!(
                    s.shared && f.ty == "u32" && known.contains(name.as_str()),
                    "{}.{}: not a u32 of a shared structure, or no enum {name}",
                    s.name,
                    f.name
                );
            }
        }
    }
    Ok(())
}

/// A shared structure is made of scalars and shared structures.
fn check_shared(abi: &Abi) -> Result<()> {
    let shared: BTreeSet<_> = abi
        .structs
        .iter()
        .filter(|s| s.shared)
        .map(|s| s.name.as_str())
        .collect();
    for s in abi.structs.iter().filter(|s| s.shared) {
        for f in &s.fields {
            let (element, _) = array(&f.ty)?;
            ensure!(
                !is_struct(element) || shared.contains(element),
                "{}.{}: {element} is not shared",
                s.name,
                f.name
            );
        }
    }
    Ok(())
}

fn check_sections(abi: &Abi) -> Result<()> {
    let errors: BTreeSet<_> = abi
        .groups
        .iter()
        .filter(|g| g.group == "ERROR")
        .flat_map(|g| g.values.iter().map(|v| v.name.as_str()))
        .collect();
    for (index, s) in abi.sections.iter().enumerate() {
        ensure!(
            usize::from(s.id) == index,
            "section {}: ids must be 0, 1, 2 ... in order",
            s.name
        );
        ensure!(
            1 <= s.compat && s.compat <= s.version,
            "section {}: compat is not 1 to version",
            s.name
        );
        ensure!(
            s.calls.len() <= 256,
            "section {}: more than 256 calls",
            s.name
        );
        let mut names = BTreeSet::new();
        let mut since = 1;
        for c in &s.calls {
            let full = format!("{}.{}", s.name, c.name);
            ensure!(names.insert(&c.name), "{full}: defined twice");
            ensure!(
                since <= c.since && c.since <= s.version,
                "{full}: since is out of order or above the version"
            );
            since = c.since;
            if c.class == Class::Jump {
                ensure!(
                    c.ret == "noreturn" && c.args.is_empty(),
                    "{full}: a jump has no arguments and no result"
                );
            }
            if c.class == Class::Primitive {
                ensure!(
                    c.native.is_some() && c.args.len() <= 1,
                    "{full}: a primitive has a native form, one argument at most"
                );
            }
            if !["void", "int", "u64", "s64", "noreturn"].contains(&c.ret.as_str()) {
                bail!("{full}: unknown result type {}", c.ret);
            }
            for e in &c.errors {
                ensure!(
                    errors.contains(format!("VMI_{}", e.e).as_str()),
                    "{full}: unknown error {}",
                    e.e
                );
                ensure!(
                    c.ret == "int" || c.ret == "s64",
                    "{full}: has errors but returns {}",
                    c.ret
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "[api]\nmajor=1\nminor=0\nprefix='vmi'\n[[constant]]\ngroup='ERROR'\ndoc=''\nvalues=[]\n";

    fn error(tail: &str) -> String {
        read(&format!("{HEAD}{tail}"))
            .err()
            .map(|e| format!("{e:#}"))
            .unwrap_or_default()
    }

    fn structure(size: usize, fields: &str) -> String {
        format!(
            "[[struct]]\nname='vmi_s'\ndoc=''\nsize={size}\nfields=[{fields}]\n\
             [[section]]\nid=0\nname='c'\nversion=1\ncompat=1\ndoc=''\ncall=[]\n"
        )
    }

    #[test]
    fn padding_is_refused() {
        let fields = "{name='a',type='u8',doc=''},{name='b',type='u32',doc=''}";
        assert!(error(&structure(8, fields)).contains("vmi_s.b: offset 1 is not aligned to 4"));
        let fields = "{name='a',type='u32',doc=''},{name='b',type='u8',doc=''}";
        assert!(error(&structure(5, fields)).contains("not a multiple of 4"));
    }

    #[test]
    fn sizes_must_match() {
        assert!(
            error(&structure(8, "{name='a',type='u32',doc=''}"))
                .contains("take 4 bytes, size says 8")
        );
        assert_eq!(error(&structure(4, "{name='a',type='u8[4]',doc=''}")), "");
    }

    #[test]
    fn unknown_types_are_named() {
        assert!(error(&structure(4, "{name='a',type='int',doc=''}")).contains("unknown type int"));
    }
}
