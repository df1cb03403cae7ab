// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane kernel`.

use super::Outcome;
use crate::cli::KernelBuild;
use crate::kernel::{self, Recipe, Request, Wanted};
use anyhow::Context;
use std::fs;
use std::io::{self, Write};

/// Builds, and says where the result is.
pub fn build(args: &KernelBuild) -> anyhow::Result<Outcome> {
    let request = Request {
        source: args
            .source
            .clone()
            .map_or(Wanted::Debian { newest: args.update }, Wanted::At),
        recipe: Recipe::new(&args.with, &args.config)?,
        jobs: args.jobs.map_or_else(kernel::jobs, |n| n as usize),
    };
    // Before minutes of work: is there a place for it?
    if let Some(folder) = &args.output {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let built = kernel::build(&request)?;
    let mut folder = built
        .files
        .vmlinux
        .parent()
        .map(std::path::Path::to_path_buf)
        .unwrap_or_default();
    if let Some(output) = &args.output {
        for file in [&built.files.vmlinux, &built.files.bzimage, &built.files.config] {
            let to = output.join(file.file_name().unwrap_or_default());
            fs::copy(file, &to).with_context(|| format!("cannot write {}", to.display()))?;
        }
        folder.clone_from(output);
    }
    let how = match built.time {
        Some(time) => format!("built in {} s", time.as_secs()),
        None => "from the cache".to_string(),
    };
    writeln!(io::stdout(), "Linux {} ({how}): {}", built.version, folder.display())?;
    Ok(Outcome::Passed)
}
