// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts commands.

use crate::spawn::{Identity, Program};
use crate::user::{Accounts, User};
use crate::{path, reap};
use paravane_agent_protocol::{Exec, Failure, Size};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

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

    let mut env: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    env.insert(b"PATH".to_vec(), path::DEFAULT.into());
    env.insert(b"HOME".to_vec(), user.home.clone().into());
    env.insert(b"USER".to_vec(), user.name.clone().into());
    if exec.terminal.is_some() {
        env.insert(b"TERM".to_vec(), b"linux".to_vec());
    }
    env.extend(exec.env);
    let (ours, theirs) = match exec.terminal {
        Some(size) => terminal(&user, size),
        None => pipes(exec.input),
    }
    .map_err(|error| other(format!("cannot make the streams of a command: {error}")))?;
    let described = Program {
        file: word(program.clone().into_os_string().into_vec())?,
        argv: exec.argv.into_iter().map(word).collect::<Result<_, _>>()?,
        env: env
            .into_iter()
            .map(|(key, value)| word([key, value].join(&b'=')))
            .collect::<Result<_, _>>()?,
        folder: word(PathBuf::into_os_string(folder).into_vec())?,
        streams: theirs,
        terminal: exec.terminal.is_some(),
        identity: identity(&user),
    };
    let (pid, ended) = reap::spawn(&described).map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound && program.exists() {
            no_interpreter(&name)
        } else {
            cannot_run(&name, &error)
        }
    })?;
    Ok(Running {
        pid,
        ended,
        input: ours.input,
        output: ours.output,
        error: ours.error,
        terminal: ours.terminal,
    })
}

/// The agent's ends of a command's streams, which are nonblocking.
#[derive(Default)]
struct Streams {
    input: Option<OwnedFd>,
    output: Option<OwnedFd>,
    error: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
}

/// Creates pipes: the agent's ends and the command's.
fn pipes(input: bool) -> io::Result<(Streams, [OwnedFd; 3])> {
    let mut ours = Streams::default();
    let stdin = if input {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        nonblocking(&write)?;
        ours.input = Some(write);
        read
    } else {
        rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?
    };
    let (output, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (error, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    nonblocking(&output)?;
    nonblocking(&error)?;
    (ours.output, ours.error) = (Some(output), Some(error));
    Ok((ours, [stdin, stdout, stderr]))
}

/// Creates a terminal: the agent's end and the command's.
fn terminal(user: &User, size: Size) -> io::Result<(Streams, [OwnedFd; 3])> {
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
    nonblocking(&ours)?;
    let streams = [theirs.try_clone()?, theirs.try_clone()?, theirs];
    let ours = Streams {
        terminal: Some(ours),
        ..Streams::default()
    };
    Ok((ours, streams))
}

/// The user that a process must become, unless the agent is that user.
fn identity(user: &User) -> Option<Identity> {
    let same =
        user.uid == geteuid().as_raw() && user.gid == getegid().as_raw() && user.groups.is_empty();
    let groups = user.groups.iter();
    (!same).then(|| Identity {
        uid: Uid::from_raw(user.uid),
        gid: Gid::from_raw(user.gid),
        groups: groups.map(|&group| Gid::from_raw(group)).collect(),
    })
}

fn word(bytes: Vec<u8>) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|error| other(error.to_string()))
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
