// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane stat`: prints a machine's figures, once or every second.

use super::machines::running;
use crate::arguments;
use anyhow::{Context, bail};
use paravane_machine::control::{Request, ask};
use paravane_machine::stats::{Stats, table};
use paravane_machine::store::{Machine, State, Store};
use paravane_user_io::outcome::Outcome;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::time::Duration;

/// Interval of `--watch`.
const SECOND: Duration = Duration::from_secs(1);
/// Moves the cursor to the first line and erases the screen below.
const AGAIN: &str = "\x1b[H\x1b[J";
/// Largest size of an answer, in bytes. The figures of 64 vCPUs and 32 devices are far smaller.
const MAX: u64 = 1 << 20;

/// Runs the command.
pub fn run(args: &arguments::Stat) -> anyhow::Result<Outcome> {
    let machine = running(&Store::open()?, &args.name)?;
    let mut out = io::stdout().lock();
    let mut before: Option<Stats> = None;
    loop {
        let now = match figures(&machine) {
            Ok(now) => now,
            // The machine has ended in the meantime.
            Err(_) if before.is_some() && !matches!(machine.state()?, State::Running { .. }) => {
                return Ok(Outcome::Passed);
            }
            Err(error) => return Err(error),
        };
        if args.json && args.watch {
            writeln!(out, "{}", serde_json::to_string(&now)?)?;
        } else if args.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&now)?)?;
        } else {
            let again = if args.watch && io::stdout().is_terminal() {
                AGAIN
            } else {
                ""
            };
            writeln!(
                out,
                "{again}{}",
                table(&machine.name, &now, before.as_ref()).trim_end()
            )?;
        }
        out.flush()?;
        if !args.watch {
            return Ok(Outcome::Passed);
        }
        before = Some(now);
        std::thread::sleep(SECOND);
    }
}

fn figures(machine: &Machine) -> anyhow::Result<Stats> {
    let Some(file) = ask(machine, &Request::Stat)? else {
        bail!("machine {}: its monitor gave no figures", machine.name);
    };
    let mut text = Vec::new();
    File::from(file).take(MAX).read_to_end(&mut text)?;
    serde_json::from_slice(&text).with_context(|| {
        format!(
            "machine {}: its monitor's figures are damaged",
            machine.name
        )
    })
}
