// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The workload `ticket`: the conformance guest, whose vCPUs contend for one ticket lock. Waiters
//! sleep in the layer and are kicked, or spin. Each turn is a machine of its own.

use super::super::super::conformance::MEMORY_MIB;
use super::super::{cpus, guest};
use super::Bench;
use super::machines::Hog;
use super::processors;
use super::rows::Turn;
use crate::layer_file::LayerFile;
use anyhow::{Context, ensure};
use paravane_hypervisor::{KernelFile, Layer, Machine};
use std::sync::Arc;
use std::time::Instant;

/// The name of the workload.
pub const NAME: &str = "ticket";

/// Critical sections of all vCPUs, and with `--quick`.
const SECTIONS: u32 = 1600;
const QUICK_SECTIONS: u32 = 800;

/// What the guest printed.
#[derive(Debug, PartialEq)]
struct Figures {
    seconds: f64,
    /// How often a slow path was taken, and how many kicks releases made.
    slow: u64,
    kicked: u64,
}

/// Runs the sections once, with the slow path or without it.
pub fn turn(
    bench: &Bench<'_>,
    kernel: &Arc<KernelFile>,
    slow_path: bool,
    hogs: &[Hog<'_>],
) -> anyhow::Result<Turn> {
    let sections = if bench.args.quick {
        QUICK_SECTIONS
    } else {
        SECTIONS
    };
    let locks = if slow_path { "" } else { " locks=spin" };
    let file = LayerFile::built_in(Layer::Process);
    let machine = Machine {
        guest: kernel,
        layer: None,
        command_line: format!(
            "layer={} bench=ticket sections={sections}{locks}",
            file.expect
        ),
        cpus: bench.vcpus,
        memory_mib: MEMORY_MIB,
        count_instructions: false,
        devices: || Ok(Vec::new()),
    };
    let load: Vec<u32> = hogs.iter().map(Hog::id).collect();
    let (used, load_used, begun) = (cpus::all_usage(), processors::used(&load)?, Instant::now());
    let mut figures = None;
    let terms = bench.terms;
    guest::run(&machine, terms.timeout, terms.signals, |line| {
        if let Some(text) = line.strip_prefix("ticket ") {
            let read = parse(text).with_context(|| format!("the guest printed `{line}`"))?;
            figures = Some(read);
        }
        Ok(())
    })?;
    let (after, load_after) = (cpus::all_usage(), processors::used(&load)?);
    let passed = begun.elapsed().as_secs_f64();
    let figures = figures.context("the guest printed no figures")?;
    // Locks that spin and yet make calls would be compared with themselves.
    ensure!(
        slow_path || (figures.slow, figures.kicked) == (0, 0),
        "a guest with locks=spin took {} slow paths",
        figures.slow
    );
    let mean = |ns: f64| ns / 1e9 / passed;
    Ok(Turn {
        seconds: figures.seconds,
        machine: mean(after.cpu_ns - used.cpu_ns),
        // A sum of nothing is -0.
        load: mean(load_after.iter().sum::<f64>() - load_used.iter().sum::<f64>() + 0.0),
    })
}

/// Parses `NS SECTIONS SLOW KICKED`.
fn parse(text: &str) -> anyhow::Result<Figures> {
    let words: Result<Vec<u64>, _> = text.split(' ').map(str::parse).collect();
    let words = words.context("numbers were expected")?;
    let &[ns, _, slow, kicked] = &words[..] else {
        anyhow::bail!("four numbers were expected");
    };
    ensure!(ns > 0, "no time has passed");
    #[allow(clippy::cast_precision_loss)] // minutes
    let seconds = ns as f64 / 1e9;
    Ok(Figures {
        seconds,
        slow,
        kicked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_strictly() {
        let figures = Figures {
            seconds: 2.5,
            slow: 7,
            kicked: 6,
        };
        assert_eq!(parse("2500000000 800 7 6").unwrap(), figures);
        for bad in ["", "1 2 3", "1 2 3 4 5", "1 2 3 x", "0 2 3 4", "-1 2 3 4"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
