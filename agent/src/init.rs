// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The work of an init: startup, configuration of the machine, power-off.

use crate::{hosts, mounts, network, reap, runtime, system};
use paravane_agent_protocol::Configuration;
use rustix::system::{RebootCommand, reboot, sethostname};
use std::fs;
use std::io;
use std::time::Duration;

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
    end(RebootCommand::PowerOff, "power the machine off")
}

/// Ends the machine. Returns only if that fails, with the reason.
fn end(how: RebootCommand, what: &str) -> String {
    // Without processes, nothing is written after the sync and file systems are not busy.
    kill_all(libc::SIGKILL);
    rustix::fs::sync();
    mounts::unmount_all();
    match reboot(how) {
        Ok(()) => format!("the kernel did not {what}"),
        Err(error) => format!("cannot {what}: {error}"),
    }
}

fn kill_all(signal: i32) {
    // SAFETY: kill() takes plain numbers and accesses no memory of this process; -1 stands for all
    // processes except process 1.
    unsafe {
        libc::kill(-1, signal);
    }
}

/// What `poweroff`, `halt` and `reboot` of busybox send to process 1, as its init takes them.
const REQUESTS: [i32; 3] = [libc::SIGUSR2, libc::SIGUSR1, libc::SIGTERM];
/// Processes have this time to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(1);

/// For process 1: blocks these signals in this thread and those that it will start, and starts a
/// thread that takes them. Commands begin with no signal blocked (spawn.rs).
pub fn take_requests() -> io::Result<()> {
    // SAFETY: the set is initialized before it is used, and outlives the calls.
    let (set, result) = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in REQUESTS {
            libc::sigaddset(&raw mut set, signal);
        }
        let old = std::ptr::null_mut();
        let result = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, old);
        (set, result)
    };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(result));
    }
    let wait = move || {
        let mut signal = 0;
        // SAFETY: both point to values that outlive the call.
        unsafe { libc::sigwait(&raw const set, &raw mut signal) };
        // The monitor must not take the death of a command for the end of its work.
        reap::stop();
        kill_all(libc::SIGTERM);
        std::thread::sleep(GRACE);
        let why = if signal == libc::SIGTERM {
            end(RebootCommand::Restart, "restart the machine")
        } else {
            end(RebootCommand::PowerOff, "power the machine off")
        };
        eprintln!("paravane-agent: {why}");
    };
    std::thread::Builder::new()
        .name("requests".to_string())
        .spawn(wait)?;
    Ok(())
}
