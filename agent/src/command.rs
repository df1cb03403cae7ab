// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts commands.

use crate::user::{Accounts, User};
use crate::{path, reap};
use paravane_agent_protocol::{Exec, Failure, Size};
use rustix::process::{
    Gid, Resource, Rlimit, Uid, getegid, geteuid, getrlimit, ioctl_tiocsctty, setrlimit, setsid,
};
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
use std::sync::OnceLock;

/// A running command, with the agent's ends of its streams.
#[derive(Debug)]
pub struct Running {
    /// Its process ID, which is also its process group.
    pub pid: u32,
    /// Becomes readable when it has exited, for [`reap::Status::read`].
    pub ended: OwnedFd,
    /// Standard input, if it has a pipe for that.
    pub input: Option<OwnedFd>,
    /// Standard output, if that is a pipe.
    pub output: Option<OwnedFd>,
    /// Standard error, if that is a pipe.
    pub error: Option<OwnedFd>,
    /// The terminal, in place of the three pipes.
    pub terminal: Option<OwnedFd>,
}

/// Starts a command.
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
            "a word of the command contains a zero byte".to_string(),
        ));
    }
    let folder = match exec.cwd.map(path::from_bytes) {
        Some(folder) if folder.is_dir() => folder,
        Some(folder) => return Err(other(format!("there is no directory {}", folder.display()))),
        None if Path::new(&user.home).is_dir() => user.home.clone().into(),
        // A missing home directory does not keep a command from starting.
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

    let mut command = Command::new(&program);
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
    let (pid, ended) = started.map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound && program.exists() {
            no_interpreter(&name)
        } else {
            cannot_run(&name, &error)
        }
    })?;
    // Close the command's ends of the streams here: while they are open, the streams do not end.
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

/// The agent's ends of a command's streams, as far as they exist before the command.
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
    // A process group of its own, for signals.
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
        // The user may open it again as /dev/tty or by its name.
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

/// The limit of open files that commands get.
static OPEN_FILES: OnceLock<Rlimit> = OnceLock::new();

/// Raises the agent's own limit of open files to its maximum: each command takes some of them.
/// Commands get the limit that holds now.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Called once.
    let _ = OPEN_FILES.set(limit);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // If it fails, there is room for fewer commands.
    let _ = setrlimit(Resource::Nofile, most);
}

/// Resets all signals to their default in the new process, whatever the agent's parent ignored, and
/// blocks none: the agent's threads block SIGCHLD. The kernel may choose the process when memory is
/// short, whatever holds for the agent. The limit of open files is the usual one.
pub fn fresh(command: &mut Command) {
    let open_files = OPEN_FILES.get().copied();
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe functions may be
    // called. These are some; signal() fails for signals that cannot be changed.
    unsafe {
        command.pre_exec(move || {
            if let Some(limit) = open_files {
                setrlimit(Resource::Nofile, limit)?;
            }
            for signal in 1..=libc::SIGRTMAX() {
                libc::signal(signal, libc::SIG_DFL);
            }
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
            // Without /proc, the agent is process 1 and has not changed its own.
            if score >= 0 {
                libc::write(score, c"0".as_ptr().cast(), 1);
                libc::close(score);
            }
            Ok(())
        });
    }
}

/// Changes user and groups of the new process, and makes the terminal its controlling terminal.
fn become_user(command: &mut Command, user: &User, terminal: Option<OwnedFd>) {
    fresh(command);
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
    // SAFETY: the closure runs between fork and exec. It only makes system calls and allocates
    // nothing.
    unsafe {
        command.pre_exec(move || {
            if let Some(terminal) = &terminal {
                setsid()?;
                ioctl_tiocsctty(terminal.as_fd())?;
            }
            if !same {
                // After fork there is only this thread.
                set_thread_groups(&groups)?;
                set_thread_gid(gid)?;
                set_thread_uid(uid)?;
            }
            Ok(())
        });
    }
}

/// Converts a terminal size to Linux's structure.
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

/// The file exists, so what it needs does not: the program in its first line, or the loader of its
/// libraries.
fn no_interpreter(name: &[u8]) -> Failure {
    let name = String::from_utf8_lossy(name);
    Failure {
        code: 126,
        why: format!("{name}: its interpreter or its loader is missing"),
    }
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
