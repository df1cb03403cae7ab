// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The changes to Linux' source (overlay, patches, configuration), and the key of the result.

use anyhow::{Context, bail};
use paravane_user_io::text::hex;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// Version of the build method. Increase it when the steps of `make` or their commands change.
const METHOD: u32 = 3;

/// The changes to Linux' source.
#[derive(Debug)]
pub struct Recipe {
    /// Added files: path in the source, contents.
    pub overlay: Vec<(&'static str, &'static [u8])>,
    /// Patches in order: name, contents.
    pub patches: Vec<(&'static str, &'static [u8])>,
    /// Fragments of the configuration in order. A later one overrides an earlier one.
    pub config: Vec<(String, Vec<u8>)>,
    /// The optional fragments, if this is the port without the user's own ones: the last result is
    /// found again by these names.
    pub parts: Option<Vec<String>>,
    /// Linux without the port.
    pub unpatched: bool,
}

impl Recipe {
    /// The default recipe, with optional fragments by name, in whatever order, and with the user's
    /// own fragments.
    pub fn new(optional: &[String], own: &[PathBuf]) -> anyhow::Result<Self> {
        let find = |list: &[(&'static str, &'static [u8])], name: &str| {
            list.iter().find(|f| f.0 == name).copied()
        };
        let (_, series) = find(paravane_blobs::LINUX_PATCHES, "series")
            .context("this program has no series of patches")?;
        let mut patches = Vec::new();
        for name in std::str::from_utf8(series)?
            .lines()
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
        {
            patches.push(
                find(paravane_blobs::LINUX_PATCHES, name)
                    .with_context(|| format!("this program has no {name}"))?,
            );
        }
        let mut config: Vec<(String, Vec<u8>)> = paravane_blobs::LINUX_CONFIG
            .iter()
            .filter(|(name, _)| !name.contains('/'))
            .map(|(name, bytes)| (name.to_string(), bytes.to_vec()))
            .collect();
        let parts: BTreeSet<&String> = optional.iter().collect();
        for name in &parts {
            let Some((path, bytes)) = find(
                paravane_blobs::LINUX_CONFIG,
                &format!("optional/{name}.config"),
            ) else {
                let names: Vec<_> = optional_names().collect();
                bail!(
                    "the kernel has no part `{name}`; it has {}",
                    names.join(", ")
                );
            };
            config.push((path.to_string(), bytes.to_vec()));
        }
        for path in own {
            let bytes =
                fs::read(path).with_context(|| format!("configuration {}", path.display()))?;
            config.push((path.display().to_string(), bytes));
        }
        Ok(Recipe {
            overlay: paravane_blobs::LINUX_OVERLAY.to_vec(),
            patches,
            config,
            parts: own.is_empty().then(|| parts.into_iter().cloned().collect()),
            unpatched: false,
        })
    }

    /// Changes the recipe to Linux without the port, for comparison. Options of the port are left
    /// out.
    pub fn without_port(mut self) -> Self {
        self.overlay.clear();
        self.patches.clear();
        for (_, bytes) in &mut self.config {
            let kept: Vec<&[u8]> = bytes
                .split_inclusive(|&byte| byte == b'\n')
                .filter(|line| !is_of_port(line))
                .collect();
            *bytes = kept.concat();
        }
        self.parts = None;
        self.unpatched = true;
        self
    }

    /// The hashes of all inputs, one in a line. The key is the hash of this text.
    pub fn inputs(&self, source: &str, compiler: &str) -> String {
        format!("source {source}\ncompiler {compiler}\n{}", self.lines())
    }

    fn lines(&self) -> String {
        let mut text = format!("method {METHOD}\n");
        let mut add = |kind: &str, name: &str, bytes: &[u8]| {
            let _ = writeln!(text, "{kind} {name} {}", hex(&digest(bytes)));
        };
        for (name, bytes) in &self.overlay {
            add("overlay", name, bytes);
        }
        for (name, bytes) in &self.patches {
            add("patch", name, bytes);
        }
        for (n, (_, bytes)) in self.config.iter().enumerate() {
            // The path of a fragment does not matter.
            add("config", &n.to_string(), bytes);
        }
        text
    }

    /// The name of a result in the cache.
    pub fn key(&self, source: &str, compiler: &str) -> String {
        short(&self.inputs(source, compiler))
    }

    /// The name of this recipe, without source and compiler.
    pub fn name(&self) -> String {
        short(&self.lines())
    }
}

/// Reports whether a line sets an option of the port.
fn is_of_port(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    let option = line
        .trim_start_matches("# ")
        .strip_prefix("CONFIG_")
        .unwrap_or_default();
    let name = option.split(['=', ' ']).next().unwrap_or_default();
    name.split('_').any(|word| word == "VMI")
}

/// The names of optional fragments.
pub fn optional_names() -> impl Iterator<Item = &'static str> {
    paravane_blobs::LINUX_CONFIG
        .iter()
        .filter_map(|(name, _)| name.strip_prefix("optional/")?.strip_suffix(".config"))
}

fn short(text: &str) -> String {
    hex(digest(text.as_bytes()).get(..16).unwrap_or_default())
}

/// The SHA-256 of bytes.
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_in_the_key() {
        let recipe = Recipe::new(&[], &[]).unwrap();
        assert!(!recipe.patches.is_empty() && !recipe.config.is_empty());
        assert_eq!(recipe.parts, Some(Vec::new()));
        let key = recipe.key("a", "b");
        assert_eq!(key.len(), 32);
        assert_eq!(key, Recipe::new(&[], &[]).unwrap().key("a", "b"));
        assert_ne!(key, recipe.key("c", "b"));
        assert_ne!(key, recipe.key("a", "c"));
        let other = Recipe::new(&["debug-info".to_string()], &[]).unwrap();
        assert_eq!(other.parts, Some(vec!["debug-info".to_string()]));
        assert_ne!(other.key("a", "b"), key);
        // The order of parts does not matter, and one is one.
        let parts = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            Recipe::new(&names, &[]).unwrap().name()
        };
        let both = parts(&["network", "storage"]);
        assert_eq!(both, parts(&["storage", "network", "storage"]));
        assert_ne!(both, parts(&["network"]));
        let inputs = recipe.inputs("a", "b");
        for part in [
            "overlay arch/x86/vmi/start.c ",
            "overlay arch/x86/vmi/include/paravane/vmi.h ",
            "patch 0001-",
        ] {
            assert!(inputs.contains(part), "{part} is not in {inputs}");
        }
    }

    /// `git am` takes them: a subject, the reason, a summary of what changes.
    #[test]
    fn patches_are_in_gits_format() {
        let recipe = Recipe::new(&[], &[]).unwrap();
        let present = paravane_blobs::LINUX_PATCHES.len() - 1;
        assert_eq!(recipe.patches.len(), present, "series names each patch");
        let mut last = 0;
        for (name, patch) in &recipe.patches {
            let text = std::str::from_utf8(patch).unwrap();
            // In the order of their numbers, so that `git am *.patch` applies them in this one.
            let number = name.split_once('-').map(|(number, _)| number).unwrap();
            assert_eq!(number.len(), 4, "{name}");
            let number: u32 = number.parse().unwrap();
            assert!(number > last, "{name}");
            last = number;
            assert!(text.lines().count() < 500, "{name} is too long to review");
            let (header, rest) = text.split_once("\n\n").unwrap();
            assert!(header.starts_with("From 0000"), "{name}: {header}");
            for field in ["\nFrom: ", "\nDate: ", "\nSubject: [PATCH] "] {
                assert!(header.contains(field), "{name} has no {field:?}");
            }
            let (reason, rest) = rest.split_once("\n---\n").unwrap();
            assert!(reason.contains("No overlay file"), "{name}: {reason}");
            let (summary, _) = rest.split_once("\ndiff --git a/").unwrap();
            assert!(summary.contains(" changed, "), "{name}: {summary}");
        }
    }

    #[test]
    fn without_the_port() {
        assert!(
            is_of_port(b"CONFIG_VMI_GUEST=y\n") && is_of_port(b"# CONFIG_HVC_VMI is not set\n")
        );
        assert!(!is_of_port(b"CONFIG_LOCALVERSION=\"-vmi\"\n") && !is_of_port(b"CONFIG_SMP=y\n"));
        let with = Recipe::new(&[], &[]).unwrap();
        let key = with.key("a", "b");
        let without = with.without_port();
        assert_ne!(without.key("a", "b"), key);
        let text: Vec<u8> = without
            .config
            .iter()
            .flat_map(|(_, bytes)| bytes.clone())
            .collect();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("CONFIG_SMP=y") && !text.contains("VMI_GUEST"),
            "{text}"
        );
    }

    #[test]
    fn an_unknown_option_names_the_others() {
        let error = Recipe::new(&["speed".to_string()], &[])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("speed") && error.contains("debug-info"),
            "{error}"
        );
    }
}
