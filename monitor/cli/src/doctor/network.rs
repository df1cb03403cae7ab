// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest's network is made of here.

use super::{Finding, Status};
use paravane_net::{passt, user};

/// The guest's card in the trial.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Whether passt runs here: tried, as `--net user` would.
pub fn finding() -> Finding {
    let why = match passt::find() {
        None => "passt is not installed".to_string(),
        // It ends with its link, which is dropped here.
        Some(program) => match passt::start(&program, &user::Config::default(), MAC) {
            Ok(_) => {
                let text =
                    "runs: --net user takes it, so guests have IPv6 and ping where this host has";
                return Finding::new("passt", Status::Ok, true, text);
            }
            Err(error) => error.to_string(),
        },
    };
    let text = format!("--net user takes the stack in the monitor, which has IPv4 alone: {why}");
    Finding::new("passt", Status::Note, false, text)
}
