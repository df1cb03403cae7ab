// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane kernel`: builds and checks Linux for the guest.

use super::bench::markdown::Page;
use crate::arguments::{HypervisorKind, KernelBuild, KernelLines, KernelList, KernelVerify};
use crate::layer_file::LayerFile;
use anyhow::Context;
use paravane_kernel::{self as kernel, Recipe, Request, Wanted};
use paravane_user_io::outcome::Outcome;
use paravane_user_io::signals::Signals;
use paravane_verify::{self as verify, Check};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::time::Duration;

/// Builds, and prints where the result is.
pub fn build(args: &KernelBuild) -> anyhow::Result<Outcome> {
    let mut recipe = Recipe::new(&args.with, &args.config)?;
    if args.unpatched {
        recipe = recipe.without_port();
    }
    let request = Request {
        source: args.source.clone().map_or(
            Wanted::Debian {
                newest: args.update,
            },
            Wanted::At,
        ),
        recipe,
        jobs: args.jobs.map_or_else(kernel::jobs, |n| n as usize),
    };
    // Check the output folder before minutes of work.
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
        for file in [
            &built.files.vmlinux,
            &built.files.bzimage,
            &built.files.config,
            &built.files.builtin,
        ] {
            let to = output.join(file.file_name().unwrap_or_default());
            fs::copy(file, &to).with_context(|| format!("cannot write {}", to.display()))?;
        }
        let recipe = output.join(kernel::RECIPE);
        fs::write(&recipe, format!("{}\n", request.recipe.name()))
            .with_context(|| format!("cannot write {}", recipe.display()))?;
        folder.clone_from(output);
    }
    let how = match built.time {
        Some(time) => format!("built in {} s", time.as_secs()),
        None => "from the cache".to_string(),
    };
    writeln!(
        io::stdout(),
        "Linux {} ({how}): {}",
        built.version,
        folder.display()
    )?;
    Ok(Outcome::Passed)
}

/// Lists the optional parts, and the kernels in the cache.
pub fn list(args: &KernelList) -> anyhow::Result<Outcome> {
    let (parts, kept) = (kernel::parts(), kernel::kept()?);
    let mut out = io::stdout().lock();
    if args.json {
        let parts: Vec<_> = parts
            .iter()
            .map(|part| serde_json::json!({ "name": part.name, "about": part.about }))
            .collect();
        let kernels: Vec<_> = kept
            .iter()
            .map(|kernel| {
                serde_json::json!({
                    "with": kernel.with, "linux": kernel.version, "folder": kernel.folder,
                })
            })
            .collect();
        let all = serde_json::json!({ "parts": parts, "kernels": kernels });
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
        return Ok(Outcome::Passed);
    }
    writeln!(
        out,
        "Optional parts, for `paravane kernel build --with NAME`:"
    )?;
    for part in &parts {
        writeln!(out, "  {:12} {}", part.name, part.about)?;
    }
    writeln!(
        out,
        "Kernels of this program, for `paravane run --kernel with:NAME`:"
    )?;
    for kernel in &kept {
        let with = match kernel.with.as_slice() {
            [] => "(the default)".to_string(),
            with => with.join(","),
        };
        writeln!(
            out,
            "  {with}  Linux {}  {}",
            kernel.version,
            kernel.folder.display()
        )?;
    }
    if kept.is_empty() {
        writeln!(out, "  none was built yet")?;
    }
    Ok(Outcome::Passed)
}

/// Counts, and prints or writes the table.
pub fn lines(args: &KernelLines) -> anyhow::Result<Outcome> {
    let page = args
        .write
        .as_deref()
        .map(|path| Page::read(path, "lines"))
        .transpose()?;
    let components = kernel::lines(&Recipe::new(&[], &[])?);
    let table = || {
        let mut text = String::from(
            "| component | new | changed | moved | removed |\n\
             | --- | ---: | ---: | ---: | ---: |\n",
        );
        for c in &components {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                c.name, c.new, c.changed, c.moved, c.removed
            );
        }
        text
    };
    match page {
        Some(page) => page.replace(&table())?,
        None if args.json => writeln!(
            io::stdout(),
            "{}",
            serde_json::to_string_pretty(&components)?
        )?,
        None => write!(io::stdout(), "{}", table())?,
    }
    Ok(Outcome::Passed)
}

/// Runs all checks, prints the result of each, and then the counts.
pub fn verify(args: &KernelVerify) -> anyhow::Result<Outcome> {
    let rom = args
        .rom
        .as_deref()
        .map(|path| LayerFile::load(path, None))
        .transpose()?;
    let folder = match &args.kernel {
        Some(folder) => folder.clone(),
        None => kernel::locate_or_build()?
            .vmlinux
            .parent()
            .map(std::path::Path::to_path_buf)
            .unwrap_or_default(),
    };
    let request = verify::Request {
        folder,
        rom: rom.map(|file| verify::Rom {
            name: file.expect,
            bytes: file.rom.unwrap_or_default().into_owned(),
        }),
        on: args.on.iter().map(|on| place(*on)).collect(),
        list: args.list.clone(),
        boot: !args.no_boot,
        timeout: Duration::from_secs(args.timeout),
    };
    let signals = Signals::install().context("cannot handle signals")?;
    let checks = verify::run(&request, &signals, &mut |check| {
        if !args.json {
            // Fails only if the reader has closed the pipe.
            let _ = print(check);
        }
    })?;
    if let Some(signal) = signals.pending() {
        return Ok(Outcome::Interrupted(signal));
    }
    let failed = checks.iter().filter(|check| !check.passed).count();
    let passed = checks.len() - failed;
    let mut out = io::stdout();
    if args.json {
        let report = serde_json::json!({ "passed": passed, "failed": failed, "checks": checks });
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        writeln!(out, "{passed} passed, {failed} failed")?;
    }
    Ok(if failed == 0 {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}

fn place(on: HypervisorKind) -> verify::Where {
    match on {
        HypervisorKind::Qemu => verify::Where::Qemu,
        HypervisorKind::Process => verify::Where::Process,
        HypervisorKind::Kvm => verify::Where::Kvm,
    }
}

fn print(check: &Check) -> io::Result<()> {
    let mut out = io::stdout();
    let verdict = if check.passed { "ok    " } else { "FAILED" };
    writeln!(out, "{verdict} {}", check.what)?;
    for line in &check.lines {
        writeln!(out, "       {line}")?;
    }
    Ok(())
}
