// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane stat`: prints a machine's figures, once or every second.

use super::machines::running;
use crate::arguments;
use paravane_machine::control::{Request, ask_json};
use paravane_machine::stats::{Stats, table};
use paravane_machine::store::{State, Store};
use paravane_user_io::outcome::Outcome;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Interval of `--watch`.
const SECOND: Duration = Duration::from_secs(1);
/// Moves the cursor to the first line and erases the screen below.
const AGAIN: &str = "\x1b[H\x1b[J";

/// Runs the command.
pub fn run(args: &arguments::Stat) -> anyhow::Result<Outcome> {
    let machine = running(&Store::open()?, &args.name)?;
    let mut out = io::stdout().lock();
    let mut before: Option<Stats> = None;
    loop {
        let now = match ask_json(&machine, &Request::Stat) {
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
