// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root's own init, systemd, as process 1.
//!
//! `paravane.init=` on the kernel's command line requests it: with `auto` if the root has it; with
//! `systemd` its absence is an error. The agent copies itself and a unit to /run, which is in
//! memory, and executes systemd. The unit starts the agent again, before `local-fs.target`. It is
//! ready when the monitor's configuration has been applied.
//!
//! Commands are processes of that unit. If the kernel kills one of them for lack of memory, systemd
//! would stop the whole unit, and the machine would end. So the unit's settings make it continue.
//! The agent itself is never chosen; its commands are, as any other process ([`crate::spawn`]).

use crate::mounts::make_directory;
use crate::path;
use crate::reap::{self, Status};
use crate::spawn::Program;
use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const OPTION: &str = "paravane.init=";
const INIT: &str = "/sbin/init";
/// The file name of the program that /sbin/init links to.
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
OOMPolicy=continue
OOMScoreAdjust=-1000
";

/// The request for the root's own init as process 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// If the root has systemd.
    Auto,
    /// Otherwise the machine fails.
    Systemd,
}

/// Parses the kernel's command line.
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

/// Executes the root's init in place of the agent. Returns Ok only if the root does not have it and
/// need not. `own` is the agent's program.
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
    make_directory(Path::new("/run/paravane"))?;
    io::copy(own, &mut File::create(AGENT)?)?;
    fs::set_permissions(AGENT, Permissions::from_mode(0o755))?;
    let wants = Path::new(UNITS).join("local-fs.target.wants");
    make_directory(&wants)?;
    fs::write(Path::new(UNITS).join(UNIT), TEXT)?;
    symlink(Path::new("..").join(UNIT), wants.join(UNIT))?;
    Err(Command::new(INIT).env_clear().env("TERM", "linux").exec())
}

/// Whether a system's own init started this program.
pub fn is_service() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Notifies that init that the unit is ready (sd_notify(3)).
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

/// Waits until the system's startup has ended, successfully or not.
pub fn wait_until_up() {
    if !is_service() {
        return;
    }
    let started = query().and_then(|program| reap::spawn(&program));
    if let Ok((_, ended)) = started {
        // The status says whether units have failed, which does not matter here.
        let _ = Status::read(&ended);
    }
}

/// The program that waits for the end of the startup, with the agent's own environment.
fn query() -> io::Result<Program> {
    let variables: Vec<_> = std::env::vars_os().collect();
    let search = std::env::var_os("PATH").unwrap_or_else(|| path::DEFAULT.into());
    let file = path::find(b"systemctl", search.as_bytes(), Path::new("/"))?;
    let word = |bytes: Vec<u8>| CString::new(bytes).map_err(io::Error::other);
    let null = || File::options().read(true).write(true).open("/dev/null");
    Ok(Program {
        file: word(file.into_os_string().into_vec())?,
        argv: vec![
            c"systemctl".into(),
            c"is-system-running".into(),
            c"--wait".into(),
        ],
        env: variables
            .into_iter()
            .map(|(key, value)| word([key.into_vec(), value.into_vec()].join(&b'=')))
            .collect::<io::Result<_>>()?,
        folder: c"/".into(),
        streams: [null()?.into(), null()?.into(), null()?.into()],
        terminal: false,
        identity: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_request_nothing() {
        assert_eq!(wanted("quiet paravane.init=auto x"), Some(Wanted::Auto));
        assert_eq!(wanted("paravane.init=systemd\n"), Some(Wanted::Systemd));
        assert_eq!(wanted("paravane.init=/bin/sh"), None);
        assert_eq!(wanted("quiet init=systemd"), None);
    }
}
