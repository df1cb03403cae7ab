// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A Markdown page with marked places for generated tables.

use crate::arguments::BenchOutput;
use anyhow::{Context, bail};
use std::fs;
use std::path::Path;

/// A page and one of its places, between `<!-- bench:NAME begin -->` and `<!-- bench:NAME end -->`.
pub struct Page<'a> {
    path: &'a Path,
    before: String,
    after: String,
}

impl<'a> Page<'a> {
    /// The page that the user wants the table in, if any.
    pub fn chosen(output: &'a BenchOutput, name: &str) -> anyhow::Result<Option<Self>> {
        let path = output.write.as_deref();
        path.map(|path| Page::read(path, name)).transpose()
    }

    /// Reads and checks the page. Call it before minutes of work.
    pub fn read(path: &'a Path, name: &str) -> anyhow::Result<Self> {
        let (begin, end) = (
            format!("<!-- bench:{name} begin -->"),
            format!("<!-- bench:{name} end -->"),
        );
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let parts = text
            .split_once(&begin)
            .and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
        match parts {
            Some((before, after)) => Ok(Page {
                path,
                before: format!("{before}{begin}"),
                after: format!("{end}{after}"),
            }),
            None => bail!(
                "{}: the lines `{begin}` and `{end}` are not there",
                path.display()
            ),
        }
    }

    /// Writes the page with this table.
    pub fn replace(&self, table: &str) -> anyhow::Result<()> {
        let text = format!("{}\n\n{table}\n{}", self.before, self.after);
        fs::write(self.path, text).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.md");
        let (begin, end) = ("<!-- bench:x begin -->", "<!-- bench:x end -->");
        fs::write(&path, format!("# A\n{begin}\nold\n{end}\ntail\n")).unwrap();
        for table in ["| a |\n", "| b |\n"] {
            Page::read(&path, "x").unwrap().replace(table).unwrap();
        }
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            format!("# A\n{begin}\n\n| b |\n\n{end}\ntail\n")
        );
        assert!(Page::read(&path, "y").is_err());
    }
}
