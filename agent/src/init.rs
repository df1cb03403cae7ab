// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The work of an init: startup, configuration of the machine, power-off.

use crate::{hosts, mounts, network, runtime, system};
use paravane_agent_protocol::Configuration;
use rustix::system::{RebootCommand, reboot, sethostname};
use std::fs;
use std::io;

/// The machine's exit status when process 1 has failed.
pub const FAILED: u8 = 254;
/// VMI-Linux reports the value of this parameter as the machine's exit status at power-off.
const EXIT_STATUS: &str = "/sys/module/vmi/parameters/exit_status";

/// Prepares a root whose own init does not run.
pub fn start() -> io::Result<()> {
    let hidden = runtime::hidden();
    mounts::mount_all()?;
    if let Err(error) = network::loopback_up() {
        eprintln!("paravane-agent: no loopback network: {error}");
    }
    runtime::prepare(hidden);
    Ok(())
}

/// Turns off proactive compaction, for which the kernel wakes twice a second. A virtual machine
/// gains little from large pages, and an idle one would wake for nothing else. A guest can turn it
/// on again.
const NO_COMPACTION: (&str, &str) = ("/proc/sys/vm/compaction_proactiveness", "0");

/// Applies the monitor's configuration.
pub fn configure(wanted: &Configuration) -> Result<(), String> {
    // Fails on kernels without compaction, which need nothing done.
    let _ = fs::write(NO_COMPACTION.0, NO_COMPACTION.1);
    // A system with its own init keeps its own name.
    if let (Some(name), false) = (&wanted.hostname, system::is_service()) {
        sethostname(name.as_bytes())
            .map_err(|error| format!("cannot name the machine {name}: {error}"))?;
        // The machine is usable without this.
        if let Err(error) = hosts::add(name) {
            eprintln!("paravane-agent: {}: {error}", hosts::HOSTS);
        }
    }
    for entry in &wanted.mounts {
        mounts::mount_one(entry)?;
    }
    if let Some(network) = &wanted.network {
        let done = if system::is_service() {
            network::leave_to_networkd(network)
        } else {
            network::configure(network)
        };
        done.map_err(|error| format!("cannot configure the network: {error}"))?;
    }
    system::ready().map_err(|error| format!("cannot notify this system's init: {error}"))
}

/// Powers the machine off with this exit status. Returns only if that fails, with the reason. With
/// a system's own init, returns when that init has been asked.
pub fn power_off(status: u8) -> String {
    let first = std::process::id() == 1;
    // Exists in VMI-Linux only.
    let _ = std::fs::write(EXIT_STATUS, status.to_string());
    if !first {
        // To systemd this signal means: start poweroff.target.
        // SAFETY: kill() takes plain numbers and accesses no memory of this process.
        return if unsafe { libc::kill(1, libc::SIGRTMIN() + 4) } == 0 {
            "this system's init powers the machine off".to_string()
        } else {
            let error = io::Error::last_os_error();
            format!("cannot ask this system's init to power the machine off: {error}")
        };
    }
    // Without processes, nothing is written after the sync and file systems are not busy.
    // SAFETY: kill() takes plain numbers and accesses no memory of this process; -1 stands for all
    // processes except process 1.
    unsafe {
        libc::kill(-1, libc::SIGKILL);
    }
    rustix::fs::sync();
    mounts::unmount_all();
    match reboot(RebootCommand::PowerOff) {
        Ok(()) => "the kernel did not power the machine off".to_string(),
        Err(error) => format!("cannot power the machine off: {error}"),
    }
}
