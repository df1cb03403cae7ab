// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starting a command.

use crate::user::{Accounts, User};
use crate::{path, reap};
use paravane_agent_protocol::{Exec, Failure, Size};
use rustix::process::{Gid, Uid, getegid, geteuid, ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A command that runs.
#[derive(Debug)]
pub struct Running {
    /// Its process, and its process group.
    pub pid: u32,
    /// Readable when it has ended.
    pub ended: OwnedFd,
    /// What it reads, if anything.
    pub input: Option<OwnedFd>,
    /// What it prints.
    pub output: Option<OwnedFd>,
    /// Where it complains.
    pub error: Option<OwnedFd>,
    /// Its terminal, which is input and output then.
    pub terminal: Option<OwnedFd>,
}

/// Starts it.
pub fn start(exec: Exec) -> Result<Running, Failure> {
    let name = exec.user.unwrap_or_else(|| geteuid().as_raw().to_string());
    let user = Accounts::read()
        .and_then(|accounts| accounts.find(&name))
        .map_err(other)?;
    let name = exec.argv.first().cloned().unwrap_or_default();
    let words = exec
        .argv
        .iter()
        .chain(exec.env.iter().flat_map(|(key, value)| [key, value]));
    if words.chain(&exec.cwd).any(|word| word.contains(&0)) {
        return Err(other(
            "a word of the command has a zero byte in it".to_string(),
        ));
    }
    let folder = match exec.cwd.map(path::from_bytes) {
        Some(folder) if folder.is_dir() => folder,
        Some(folder) => return Err(other(format!("there is no folder {}", folder.display()))),
        None if Path::new(&user.home).is_dir() => user.home.clone().into(),
        // A home that is not there is no reason not to start.
        None => "/".into(),
    };
    let variable = |wanted: &[u8]| {
        exec.env
            .iter()
            .rev()
            .find(|(key, _)| key == wanted)
            .map(|(_, value)| value.as_slice())
    };
    let search = variable(b"PATH").unwrap_or(path::DEFAULT.as_bytes());
    let program = path::find(&name, search, &folder).map_err(|error| cannot_run(&name, &error))?;

    let mut command = Command::new(program);
    command.arg0(OsString::from_vec(name.clone()));
    command.args(exec.argv.into_iter().skip(1).map(OsString::from_vec));
    command
        .env_clear()
        .env("PATH", path::DEFAULT)
        .env("HOME", &user.home)
        .env("USER", &user.name);
    if exec.terminal.is_some() {
        command.env("TERM", "linux");
    }
    command.envs(
        exec.env
            .into_iter()
            .map(|(key, value)| (OsString::from_vec(key), OsString::from_vec(value))),
    );
    command.current_dir(&folder);
    let streams = match exec.terminal {
        Some(size) => terminal(&mut command, &user, size),
        None => pipes(&mut command, &user, exec.input),
    };
    let mut running =
        streams.map_err(|error| other(format!("cannot make the streams of a command: {error}")))?;
    let started = reap::spawn(|| {
        let mut child = command.spawn()?;
        running.input = running
            .input
            .take()
            .or(child.stdin.take().map(OwnedFd::from));
        running.output = child.stdout.take().map(OwnedFd::from);
        running.error = child.stderr.take().map(OwnedFd::from);
        Ok(child)
    });
    let (pid, ended) = started.map_err(|error| cannot_run(&name, &error))?;
    // The command has its own copies of the other ends; ours keep the streams from ending.
    drop(command);
    for stream in [
        &running.input,
        &running.output,
        &running.error,
        &running.terminal,
    ]
    .into_iter()
    .flatten()
    {
        nonblocking(stream).map_err(|error| other(error.to_string()))?;
    }
    Ok(Running {
        pid,
        ended,
        input: running.input,
        output: running.output,
        error: running.error,
        terminal: running.terminal,
    })
}

/// Our ends of a command's streams.
#[derive(Default)]
struct Streams {
    input: Option<OwnedFd>,
    output: Option<OwnedFd>,
    error: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
}

fn pipes(command: &mut Command, user: &User, input: bool) -> io::Result<Streams> {
    command.stdin(if input { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own, for signals. Without a change of user nothing more is to do, and the start is a cheap one
    // that copies no page tables.
    command.process_group(0);
    become_user(command, user, None);
    Ok(Streams::default())
}

fn terminal(command: &mut Command, user: &User, size: Size) -> io::Result<Streams> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    tcsetwinsize(&ours, window(size))?;
    if geteuid().is_root() {
        // Whoever it becomes may open it again.
        rustix::fs::fchown(&theirs, Some(Uid::from_raw(user.uid)), None)?;
    }
    command
        .stdin(theirs.try_clone()?)
        .stdout(theirs.try_clone()?)
        .stderr(theirs.try_clone()?);
    become_user(command, user, Some(theirs));
    Ok(Streams {
        terminal: Some(ours),
        ..Streams::default()
    })
}

/// Has the new process begin with every signal's default, whatever the agent and who started it ignore.
fn default_signals(command: &mut Command) {
    // SAFETY: runs between fork and exec, where only system calls may be made: it makes no others. Those that cannot be changed fail.
    unsafe {
        command.pre_exec(|| {
            for signal in 1..=libc::SIGRTMAX() {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
}

/// Has the new process become who it is to be, and the owner of its terminal.
fn become_user(command: &mut Command, user: &User, terminal: Option<OwnedFd>) {
    default_signals(command);
    let same =
        user.uid == geteuid().as_raw() && user.gid == getegid().as_raw() && user.groups.is_empty();
    if same && terminal.is_none() {
        return;
    }
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let groups: Vec<Gid> = user
        .groups
        .iter()
        .map(|&group| Gid::from_raw(group))
        .collect();
    // SAFETY: runs between fork and exec, where only system calls may be made: it makes no others, and stores nothing.
    unsafe {
        command.pre_exec(move || {
            if let Some(terminal) = &terminal {
                setsid()?;
                ioctl_tiocsctty(terminal.as_fd())?;
            }
            if !same {
                // Of the only thread that there is here.
                set_thread_groups(&groups)?;
                set_thread_gid(gid)?;
                set_thread_uid(uid)?;
            }
            Ok(())
        });
    }
}

/// Linux's form of a terminal's size.
pub fn window(size: Size) -> Winsize {
    Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn nonblocking(file: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(
        file,
        flags | rustix::fs::OFlags::NONBLOCK,
    )?)
}

fn other(why: String) -> Failure {
    Failure { code: 125, why }
}

fn cannot_run(name: &[u8], error: &io::Error) -> Failure {
    let code = if error.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    };
    let name = String::from_utf8_lossy(name);
    let why = match error.kind() {
        io::ErrorKind::NotFound => format!("{name}: no such command"),
        io::ErrorKind::PermissionDenied => format!("{name}: it may not be executed"),
        _ => format!("{name}: {error}"),
    };
    Failure { code, why }
}
