// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Turns `abi/vmi.toml` into the C header, the Rust module and the reference in `docs/vmi.md`, and
//! `abi/process.toml` and `abi/vbus.toml` into headers and modules. With `--check` it only reports
//! whether they are up to date.

mod area;
mod c;
mod doc;
mod model;
mod rust;

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Generates the views of abi/vmi.toml.
#[derive(Parser)]
struct Args {
    /// Write nothing; fail when a view is out of date
    #[arg(long)]
    check: bool,
    /// Root of the source tree
    #[arg(long, default_value = ".")]
    root: PathBuf,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("abigen: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let abi = load(&args.root.join("abi/vmi.toml"))?;
    let process = load(&args.root.join("abi/process.toml"))?;
    let vbus = load(&args.root.join("abi/vbus.toml"))?;
    let manual = args.root.join("docs/vmi.md");
    let views = [
        (
            args.root.join("abi/include/paravane/vmi.h"),
            c::render(&abi)?,
        ),
        (args.root.join("abi/src/generated.rs"), rust::render(&abi)?),
        (
            args.root.join("abi/include/paravane/process.h"),
            c::render_process(&process)?,
        ),
        (
            args.root.join("abi/src/process.rs"),
            rust::render_process(&process)?,
        ),
        (
            args.root.join("abi/src/process/area.rs"),
            area::render(&process)?,
        ),
        (
            args.root.join("vbus/include/paravane/vbus_layout.h"),
            c::render_vbus(&vbus)?,
        ),
        (
            args.root.join("vbus/shm/src/layout.rs"),
            area::render_vbus(&vbus)?,
        ),
        (manual.clone(), doc::replace(&read(&manual)?, &abi)?),
    ];
    let mut stale = Vec::new();
    for (path, wanted) in &views {
        if fs::read_to_string(path).ok().as_ref() == Some(wanted) {
            continue;
        }
        if args.check {
            stale.push(path.display().to_string());
        } else {
            fs::write(path, wanted).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    if !stale.is_empty() {
        bail!(
            "{} out of date with abi/*.toml: run `cargo run -p abigen`",
            stale.join(", ")
        );
    }
    Ok(())
}

fn load(path: &Path) -> Result<model::Abi> {
    model::read(&read(path)?).with_context(|| path.display().to_string())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
