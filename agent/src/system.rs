// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A root's own init, systemd, as process 1.
//!
//! `paravane.init=` on the kernel's command line asks for it: `auto` takes it if the root has it, `systemd` does not do without. The
//! agent then leaves behind, in memory, a copy of itself and a unit that starts it, and becomes that init. The unit is ready when the monitor has
//! said what the machine is to be, before anything that local file systems are needed for.

use crate::mounts::make_folder;
use crate::reap::{self, Status};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const OPTION: &str = "paravane.init=";
const INIT: &str = "/sbin/init";
/// What /sbin/init leads to.
const SYSTEMD: &str = "systemd";
const AGENT: &str = "/run/paravane/agent";
const UNITS: &str = "/run/systemd/system";
const UNIT: &str = "paravane-agent.service";
const TEXT: &str = "\
[Unit]
Description=Paravane agent: commands and settings from the host
DefaultDependencies=no
After=systemd-remount-fs.service
Before=local-fs.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=notify
ExecStart=/run/paravane/agent
TasksMax=infinity
";

/// Process 1 is to be the root's own init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// If there is one that we know.
    Auto,
    /// In any case.
    Systemd,
}

/// What the kernel's command line asks for.
pub fn wanted(line: &str) -> Option<Wanted> {
    match line
        .split_whitespace()
        .find_map(|word| word.strip_prefix(OPTION))?
    {
        "auto" => Some(Wanted::Auto),
        "systemd" => Some(Wanted::Systemd),
        _ => None,
    }
}

/// Leaves process 1 to the root's init. Comes back if that is not there and need not be. `own` is the agent's program.
pub fn hand_over(wanted: Wanted, own: &mut File) -> io::Result<()> {
    let there = fs::canonicalize(INIT)
        .is_ok_and(|path| path.file_name().is_some_and(|name| name == SYSTEMD));
    if !there {
        return match wanted {
            Wanted::Auto => Ok(()),
            Wanted::Systemd => Err(io::Error::other(format!(
                "{INIT} of the root is not systemd"
            ))),
        };
    }
    crate::mounts::mount_memory("/run")?;
    make_folder(Path::new("/run/paravane"))?;
    io::copy(own, &mut File::create(AGENT)?)?;
    fs::set_permissions(AGENT, Permissions::from_mode(0o755))?;
    let wants = Path::new(UNITS).join("local-fs.target.wants");
    make_folder(&wants)?;
    fs::write(Path::new(UNITS).join(UNIT), TEXT)?;
    symlink(Path::new("..").join(UNIT), wants.join(UNIT))?;
    Err(Command::new(INIT).env_clear().env("TERM", "linux").exec())
}

/// Whether a system's own init started this program.
pub fn is_service() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Tells that init that others may start (sd_notify(3)).
pub fn ready() -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(b"READY=1", &address)
        .map(drop)
}

/// Waits until the system has come up, well or not.
pub fn wait_until_up() {
    if !is_service() {
        return;
    }
    let started = reap::spawn(|| {
        Command::new("systemctl")
            .args(["is-system-running", "--wait"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    });
    if let Ok((_, ended)) = started {
        // It says how the system is, too, which is not for us to judge.
        let _ = Status::read(&ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_is_asked_for() {
        assert_eq!(wanted("quiet paravane.init=auto x"), Some(Wanted::Auto));
        assert_eq!(wanted("paravane.init=systemd\n"), Some(Wanted::Systemd));
        assert_eq!(wanted("paravane.init=/bin/sh"), None);
        assert_eq!(wanted("quiet init=systemd"), None);
    }
}
