// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane image`: root file systems.

use crate::arguments::ImageBuild;
use anyhow::Context;
use paravane_images::{self as image, Request, oci};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;

/// Builds a Debian image.
pub fn build(args: &ImageBuild) -> anyhow::Result<Outcome> {
    let signals = Signals::install().context("cannot handle signals")?;
    let request = Request {
        suite: &args.suite,
        include: &args.include,
        size: args.size,
        format: args.format,
        file: &args.file,
    };
    match (image::build(&request, &signals), signals.pending()) {
        // The error is a consequence of the signal.
        (Err(_), Some(signal)) => Ok(Outcome::Interrupted(signal)),
        (done, _) => done.map(|()| Outcome::Passed),
    }
}

/// Pulls a container image and prints its digest.
pub fn pull(name: &str) -> anyhow::Result<Outcome> {
    super::say(oci::fetch(name)?.digest)?;
    Ok(Outcome::Passed)
}
