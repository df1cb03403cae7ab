// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How guests get a network on this host.

use super::{Finding, Status};
use paravane_net::{passt, user};

/// The Ethernet address of the guest in the trial.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Reports whether passt works here, by starting it as `--net user` would, with the name servers of
/// this host.
pub fn finding() -> Finding {
    let config = user::Config {
        resolvers: user::host_resolvers(),
        ..user::Config::default()
    };
    let why = match passt::find() {
        None => "passt is not installed".to_string(),
        // passt ends when its link is dropped here.
        Some(program) => match passt::start(&program, &config, MAC) {
            Ok(_) => {
                let text = "works: --net user uses it; guests have IPv6 and ping if this host does";
                return Finding::new("passt", Status::Ok, true, text);
            }
            Err(error) => error.to_string(),
        },
    };
    let text = format!("--net user uses the stack in the monitor, which has IPv4 only: {why}");
    Finding::new("passt", Status::Note, false, text)
}
