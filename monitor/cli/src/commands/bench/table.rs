// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of instruction counts.

use anyhow::bail;
use serde::Serialize;
use std::fmt::Write;

/// One line of the guest's output: the cost of an operation at its VMI site and as the plain
/// instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub operation: String,
    pub site: Hundredths,
    /// `None` if no plain instruction does what the call does.
    pub plain: Option<Hundredths>,
}

/// Instructions per operation, in hundredths. Counts are exact, so they are no floating-point
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hundredths(u64);

impl Hundredths {
    fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.')?;
        if part.len() != 2 || !(whole.bytes().chain(part.bytes())).all(|b| b.is_ascii_digit()) {
            return None;
        }
        Some(Hundredths(
            whole
                .parse::<u64>()
                .ok()?
                .checked_mul(100)?
                .checked_add(part.parse().ok()?)?,
        ))
    }
}

impl std::fmt::Display for Hundredths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

impl Serialize for Hundredths {
    #[allow(clippy::cast_precision_loss)] // Small numbers; JSON has no other kind.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 100.0)
    }
}

impl Row {
    /// Parses `NAME SITE PLAIN`. A PLAIN of `-` means none.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        if let [operation, site, plain] = words[..] {
            let (site, number) = (Hundredths::parse(site), Hundredths::parse(plain));
            if let (Some(site), true) = (site, plain == "-" || number.is_some()) {
                return Ok(Row {
                    operation: operation.to_string(),
                    site,
                    plain: number,
                });
            }
        }
        bail!("a name, and two numbers with two decimals, were expected")
    }
}

fn plain(count: Option<Hundredths>) -> String {
    count.map_or_else(|| "-".to_string(), |c| c.to_string())
}

/// The figures of all layers side by side.
#[derive(Debug, Default, Serialize)]
pub struct Table {
    unit: &'static str,
    layers: Vec<String>,
    operations: Vec<Operation>,
}

#[derive(Debug, Serialize)]
struct Operation {
    name: String,
    plain: Option<Hundredths>,
    /// In the order of the layers.
    site: Vec<Hundredths>,
}

impl Table {
    /// Adds the figures of one layer. Every layer must have the same operations, because the guest
    /// is the same.
    pub fn add(&mut self, layer: &str, rows: Vec<Row>) -> anyhow::Result<()> {
        self.unit = "instructions per operation";
        if self.layers.is_empty() {
            let operation = |r: &Row| Operation {
                name: r.operation.clone(),
                plain: r.plain,
                site: Vec::new(),
            };
            self.operations = rows.iter().map(operation).collect();
        }
        if self.operations.len() != rows.len() {
            bail!(
                "layer {layer}: figures for {} operations, {} were expected",
                rows.len(),
                self.operations.len()
            );
        }
        for (operation, row) in self.operations.iter_mut().zip(rows) {
            if operation.name != row.operation {
                bail!(
                    "layer {layer}: figures for {}, {} was expected",
                    row.operation,
                    operation.name
                );
            }
            if operation.plain != row.plain {
                // The layer does not affect the plain instruction. If its count differs, the
                // measurement is not exact.
                let (now, before) = (plain(row.plain), plain(operation.plain));
                bail!(
                    "layer {layer}: plain {} takes {now}, before it was {before}",
                    operation.name
                );
            }
            operation.site.push(row.site);
        }
        self.layers.push(layer.to_string());
        Ok(())
    }

    pub fn markdown(&self) -> String {
        let mut out = String::from("| operation | plain instruction |");
        for layer in &self.layers {
            let _ = write!(
                out,
                " site, {} |",
                if layer == "none" { "no layer" } else { layer }
            );
        }
        out.push_str("\n| --- | ---: |");
        out.push_str(&" ---: |".repeat(self.layers.len()));
        out.push('\n');
        for operation in &self.operations {
            let _ = write!(out, "| {} | {} |", operation.name, plain(operation.plain));
            for site in &operation.site {
                let _ = write!(out, " {site} |");
            }
            out.push('\n');
        }
        out
    }

    pub fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_strictly() {
        let row = Row::parse("cpu.irq_disable 1.00 12.34").unwrap();
        assert_eq!(
            (row.site.to_string(), plain(row.plain)),
            ("1.00".into(), "12.34".into())
        );
        assert_eq!(Row::parse("core.version 14.00 -").unwrap().plain, None);
        for bad in [
            "",
            "a 1.00",
            "a 1 2",
            "a 1.0 2.00",
            "a 1.00 2.000",
            "a -1.00 2.00",
            "a 1.00 2.00 3.00",
            "a - 1.00",
        ] {
            assert!(Row::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn layers_stand_side_by_side() {
        let mut table = Table::default();
        table
            .add("none", vec![Row::parse("a 1.00 1.00").unwrap()])
            .unwrap();
        table
            .add("native", vec![Row::parse("a 2.50 1.00").unwrap()])
            .unwrap();
        assert_eq!(
            table.markdown(),
            "| operation | plain instruction | site, no layer | site, native |\n\
             | --- | ---: | ---: | ---: |\n\
             | a | 1.00 | 1.00 | 2.50 |\n"
        );
        assert!(table.json().unwrap().contains("2.5"));
        assert!(
            table
                .add("x", vec![Row::parse("b 1.00 1.00").unwrap()])
                .is_err()
        );
        assert!(
            table
                .add("x", vec![Row::parse("a 1.00 1.50").unwrap()])
                .is_err()
        );
        assert!(table.add("x", Vec::new()).is_err());
    }
}
