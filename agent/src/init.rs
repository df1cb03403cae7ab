// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an init does: mounting, the machine's name, its end.

use crate::{hosts, mounts, network, runtime, system};
use paravane_agent_protocol::Configuration;
use rustix::system::{RebootCommand, reboot, sethostname};
use std::fs;
use std::io;

/// The machine's exit status if process 1 could not do its work.
pub const FAILED: u8 = 254;
/// What a power-off gives as the machine's exit status.
const EXIT_STATUS: &str = "/sys/module/vmi/parameters/exit_status";

/// Makes an empty root a system.
pub fn start() -> io::Result<()> {
    let hidden = runtime::hidden();
    mounts::mount_all()?;
    if let Err(error) = network::loopback_up() {
        eprintln!("paravane-agent: no loopback network: {error}");
    }
    runtime::prepare(hidden);
    Ok(())
}

/// The kernel looks twice a second whether to make large pages of small ones, from which a virtual machine has little: an idle one
/// would wake for nothing else. Whoever wants it says so again.
const QUIET: (&str, &str) = ("/proc/sys/vm/compaction_proactiveness", "0");

/// Does what the monitor wants of the machine.
pub fn configure(wanted: &Configuration) -> Result<(), String> {
    // A kernel without it has nothing to be told.
    let _ = fs::write(QUIET.0, QUIET.1);
    // A system with its own init has its own name.
    if let (Some(name), false) = (&wanted.hostname, system::is_service()) {
        sethostname(name.as_bytes())
            .map_err(|error| format!("cannot name the machine {name}: {error}"))?;
        // A root that cannot be written to goes without.
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
    system::ready().map_err(|error| format!("cannot tell this system's init: {error}"))
}

/// Ends the machine with this status. Comes back only when that is not possible, and says why; under a system's own init
/// comes back when that was asked to.
pub fn power_off(status: u8) -> String {
    let first = std::process::id() == 1;
    // Not on every kernel.
    let _ = std::fs::write(EXIT_STATUS, status.to_string());
    if !first {
        // systemd: start poweroff.target.
        // SAFETY: a system call with plain numbers.
        return if unsafe { libc::kill(1, libc::SIGRTMIN() + 4) } == 0 {
            "this system's init ends the machine".to_string()
        } else {
            let error = io::Error::last_os_error();
            format!("cannot ask this system's init to end the machine: {error}")
        };
    }
    // Nobody writes any more.
    // SAFETY: a system call with plain numbers; -1 is everybody but process 1.
    unsafe {
        libc::kill(-1, libc::SIGKILL);
    }
    rustix::fs::sync();
    mounts::unmount_all();
    match reboot(RebootCommand::PowerOff) {
        Ok(()) => "the machine did not end".to_string(),
        Err(error) => format!("cannot end the machine: {error}"),
    }
}
