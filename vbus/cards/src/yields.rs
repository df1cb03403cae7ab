// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Polls leave the CPU to other programs that want it.

use paravane_vbus::Vbus;
use std::time::{Duration, Instant};

/// A program that answers has the CPU for less than this.
const LATE: Duration = Duration::from_micros(200);

/// Lets another program have this CPU, if one waits for it and the devices do nothing but poll. If
/// it has the CPU for so long that it is none that answers, the devices learn of it.
pub fn give_way(vbus: &mut Vbus) {
    if !vbus.only_polls() {
        return;
    }
    let begun = Instant::now();
    std::thread::yield_now();
    if begun.elapsed() >= LATE {
        vbus.came_back_late();
    }
}
