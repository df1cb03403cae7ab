// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared by the end-to-end tests: runs the program, reads its output, makes small guests that
//! misbehave.

pub mod bare;
pub mod busy;
#[expect(unsafe_code, reason = "the time-stamp counter")]
pub mod clocks;
pub mod compat;
pub mod conditions;
pub mod control_group;
pub mod cpu_times;
pub mod debian;
pub mod echo;
pub mod fuzz;
pub mod gdb;
pub mod guest;
pub mod host_without;
pub mod hostile;
pub mod kvm;
pub mod kvm_host;
pub mod life;
pub mod lines;
pub mod linux;
pub mod lock_code;
pub mod net_server;
pub mod one_cpu;
pub mod over;
pub mod own_net;
pub mod planted;
pub mod planted_turns;
pub mod program;
pub mod ptrace;
pub mod quiet;
pub mod registry;
pub mod rom;
pub mod sandbox;
pub mod screen;
pub mod skip;
pub mod small_root;
pub mod system;
pub mod tracer;
pub mod tree;
pub mod user;
pub mod vbusd;
pub mod victims;
pub mod vm;
pub mod vmi_guest;
#[expect(unsafe_code, reason = "makes a descriptor of fanotify")]
pub mod volume;
pub mod volume_shell;
pub mod wait;
pub mod witness;
pub mod worker;

use std::path::{Path, PathBuf};

/// The root of the source tree.
#[must_use]
pub fn source_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
