// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane image`: root file systems.

use super::Outcome;
use crate::cli::ImageBuild;
use crate::image::{self, Request};

/// Makes a Debian.
pub fn build(args: &ImageBuild) -> anyhow::Result<Outcome> {
    image::build(&Request {
        suite: &args.suite,
        include: &args.include,
        size: args.size,
        format: args.format,
        file: &args.file,
    })?;
    Ok(Outcome::Passed)
}
