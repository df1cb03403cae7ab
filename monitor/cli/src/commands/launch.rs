// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts the monitor of a machine in the background.

use anyhow::{Context, bail};
use paravane_kernel as kernel;
use paravane_machine::store::{Machine, State};
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables with a folder that count only if they are absolute, as the XDG base directories do.
const ABSOLUTE: [&str; 3] = ["HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"];

/// Starts a machine's monitor in the background, unless the machine runs. Returns when the command
/// runs, or with the monitor's error.
pub fn launch(machine: &Machine) -> anyhow::Result<()> {
    if machine.spec()?.kernel.is_none() {
        // A build can take a quarter of an hour. Here the user sees its progress and can interrupt
        // it.
        kernel::locate_or_build()?;
    }
    // Two that start the machine at once would empty each other's log.
    let _turn = machine.turn()?;
    if let State::Running { .. } = machine.state()? {
        return Ok(());
    }
    machine.forget_monitor()?;
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    let path = machine.output();
    let output = options
        .open(&path)
        .with_context(|| path.display().to_string())?;
    output.set_len(0)?;
    let _ = std::fs::remove_file(path.with_extension("1"));
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["monitor", &machine.name]);
    command
        .stdin(OwnedFd::from(theirs))
        .stdout(output.try_clone()?)
        .stderr(output);
    // The caller's folder would stay in use while the machine runs.
    command.current_dir("/");
    environment(&mut command)?;
    // SAFETY: runs between fork and exec, and makes only system calls.
    unsafe {
        command.pre_exec(|| {
            // The caller's locks and pipes would stay in use, too. The flag needs Linux 5.11.
            libc::syscall(
                libc::SYS_close_range,
                3,
                u32::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            );
            // A new session has no terminal: signals of this terminal must not reach the monitor.
            Ok(rustix::process::setsid().map(drop)?)
        });
    }
    let mut child = command
        .spawn()
        .context("cannot start the machine's monitor")?;
    drop(command);
    let mut said = Vec::new();
    ours.read_to_end(&mut said)?;
    if said == paravane_machine::RUNNING {
        return Ok(());
    }
    child.wait()?;
    let complaints = std::fs::read(&path)?;
    let complaints = String::from_utf8_lossy(&complaints);
    match complaints.lines().next_back() {
        Some(last) => bail!("{}", last.trim_start_matches("paravane: ")),
        // By another command.
        None => bail!("machine {} was ended while it started", machine.name),
    }
}

/// Makes relative paths in the monitor's environment mean the same as for the caller, although the
/// monitor works in the folder `/`.
fn environment(command: &mut Command) -> anyhow::Result<()> {
    for name in ABSOLUTE {
        if std::env::var_os(name).is_some_and(|folder| Path::new(&folder).is_relative()) {
            command.env_remove(name);
        }
    }
    // For the writes of disks with :snapshot.
    if let Some(folder) = std::env::var_os("TMPDIR").filter(|folder| !folder.is_empty()) {
        command.env("TMPDIR", std::path::absolute(folder)?);
    }
    // For passt.
    if let Some(path) = std::env::var_os("PATH")
        && let Some(path) = absolute(&path, std::env::current_dir)?
    {
        command.env("PATH", path);
    }
    Ok(())
}

/// The value of PATH without relative folders; an empty entry is the current folder. None: it has
/// none.
fn absolute(
    path: &OsStr,
    current: impl FnOnce() -> std::io::Result<PathBuf>,
) -> anyhow::Result<Option<OsString>> {
    if path.is_empty() || std::env::split_paths(path).all(|folder| folder.is_absolute()) {
        return Ok(None);
    }
    let current = current().context("PATH has a relative folder")?;
    // PATH cannot have a folder with a colon in its name. Entries below one have no effect.
    let folders = std::env::split_paths(path)
        .map(|folder| current.join(folder))
        .filter(|folder| !folder.as_os_str().as_encoded_bytes().contains(&b':'));
    Ok(Some(std::env::join_paths(folders)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_path_is_made_absolute() {
        let of = |path: &str| {
            let made = absolute(OsStr::new(path), || Ok("/here".into())).unwrap();
            made.map(|path| path.into_string().unwrap())
        };
        assert_eq!(of("/bin:/usr/bin"), None);
        assert_eq!(of(""), None);
        assert_eq!(of("bin:/bin").unwrap(), "/here/bin:/bin");
        assert_eq!(of("/bin:").unwrap(), "/bin:/here/");
        let lost = absolute(OsStr::new("x:/bin"), || Ok("/a:b".into())).unwrap();
        assert_eq!(lost.unwrap(), "/bin");
    }
}
