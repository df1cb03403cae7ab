// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shell completions, manual pages, JSON schema. All of them are generated from the definitions in
//! `arguments/`.

use crate::arguments::{self, Cli};
use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;
use paravane_user_io::outcome::Outcome;
use std::io::{self, Write};
use std::path::Path;

/// `completions`
pub fn completions(shell: Shell) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "paravane", &mut script);
    io::stdout().write_all(&script)?;
    Ok(Outcome::Passed)
}

/// `man`
pub fn man(folder: &Path) -> anyhow::Result<Outcome> {
    let complain = || format!("cannot write manual pages to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(complain)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(complain)?;
    Ok(Outcome::Passed)
}

/// `schema`
pub fn schema() -> anyhow::Result<Outcome> {
    writeln!(
        io::stdout(),
        "{}",
        serde_json::to_string_pretty(&arguments::schema())?
    )?;
    Ok(Outcome::Passed)
}
