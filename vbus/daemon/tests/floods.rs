// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files that clients leave for vbusd to close, and the answers that they do not read, are
//! bounded and lock no client out.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Daemon, FIRST, as_user, lingering, memory, name, open_to_all};
use common::{send, signal, soon, try_send};
use paravane_confine::pass_files;
use paravane_vbus_client::bus::{ConnectionId, Kind};
use paravane_vbus_client::protocol::{MAX, Reply, Request, decode, encode, receive};
use paravane_vbus_client::{Control, Error};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
    socket_with,
};
use rustix::process::Signal;
use std::fs;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use tempfile::TempDir;

/// A vbusd whose users come to a socket outside of its folder.
fn daemon() -> Option<(Daemon, TempDir, PathBuf)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT TESTED: floods of other users. Only root can become another user.");
        return None;
    }
    let mut daemon = Daemon::with("null");
    open_to_all(&daemon);
    daemon.kill();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(daemon.folder.path(), mode).unwrap();
    let place = tempfile::tempdir().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(place.path(), mode).unwrap();
    let socket = place.path().join("socket");
    daemon.child = Command::new(env!("CARGO_BIN_EXE_vbusd"))
        .args([daemon.folder.path(), &socket])
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    soon("it does not listen", || Control::connect(&socket).is_ok());
    Some((daemon, place, socket))
}

fn request() -> Vec<u8> {
    encode(&Request::Interfaces).unwrap()
}

/// A client that vbusd has taken.
fn taken(socket: &Path) -> Control {
    let mut control = Control::connect(socket).unwrap();
    // Refused, but not for the number of clients.
    let answer = control.ask(&Request::Classes);
    assert!(
        matches!(&answer, Err(Error::Refused(error)) if error.kind() == Kind::Denied),
        "{answer:?}"
    );
    control
}

/// Whether something that may wait without end is done in time.
fn in_time(what: impl FnOnce() + Send + 'static) -> bool {
    let (done, told) = channel();
    std::thread::spawn(move || {
        what();
        let _ = done.send(());
    });
    told.recv_timeout(Duration::from_secs(20)).is_ok()
}

fn null() -> OwnedFd {
    fs::File::open("/dev/null").unwrap().into()
}

/// Connects. `None`: too many wait to be accepted.
fn knock(socket: &Path) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let one = socket_with(family, kind, flags, None).unwrap();
    connect(&one, &SocketAddrUnix::new(socket).unwrap()).ok()?;
    Some(one)
}

/// A user has vbusd hold 64 files, of which the first takes long to close. Returns the user's
/// socket, and the other end of that file.
fn hold_files(daemon: &Daemon, socket: &Path) -> (Control, Vec<TcpStream>) {
    let (mut files, others) = lingering(1);
    files.extend((0..63).map(|_| null()));
    let control = as_user(FIRST, || taken(socket));
    // vbusd has the last copies when the close begins.
    signal(daemon, Signal::STOP);
    send(control.socket(), &request(), &files);
    drop(files);
    signal(daemon, Signal::CONT);
    soon("it does not take the files", || daemon.files() > 64);
    (control, others)
}

/// A user leaves enough files that the next sockets are refused, and continues to connect.
#[test]
fn sockets_that_carry_nothing_lock_nobody_out() {
    let Some((daemon, _place, socket)) = daemon() else {
        return;
    };
    let (control, _others) = hold_files(&daemon, &socket);
    as_user(FIRST, || {
        let mut knocks = 0;
        for _ in 0..8000 {
            knocks += usize::from(knock(&socket).is_some());
            if knocks == 1200 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    drop(control);
    let outside = socket.clone();
    assert!(
        in_time(move || drop(Control::connect(&outside).unwrap().buses().unwrap())),
        "the administrator waits"
    );
    as_user(FIRST + 1, || drop(taken(&socket)));
    // Nothing of what was refused is kept.
    assert!(daemon.files() < 120, "{}", daemon.files());
}

/// A user leaves enough files that its next sockets are refused, and sends a file with each of
/// them, more than vbusd holds at all.
#[test]
fn a_user_with_files_leaves_the_others_their_way() {
    let Some((daemon, _place, socket)) = daemon() else {
        return;
    };
    if !pass_files(&UnixStream::pair().unwrap().0, true).unwrap() {
        eprintln!(
            "NOT TESTED: that no file comes with a socket that was not admitted. The kernel is \
             older than Linux 6.16."
        );
        return;
    }
    let (control, _others) = hold_files(&daemon, &socket);
    let all = as_user(FIRST, || {
        let (mut sockets, mut knocks) = (Vec::new(), 0);
        for _ in 0..8000 {
            let sent = knock(&socket)
                .map(|one| try_send(one.as_fd(), &request(), &[null()]).map(|()| one));
            match sent {
                // vbusd may have refused it already.
                Some(Ok(one)) => sockets.push(one),
                Some(Err(error)) if error == Errno::PERM => knocks += 1,
                Some(Err(_)) | None => {}
            }
            if knocks + sockets.len() == 1200 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        (sockets, knocks)
    });
    let outside = socket.clone();
    assert!(
        in_time(move || drop(Control::connect(&outside).unwrap().buses().unwrap())),
        "the administrator waits"
    );
    as_user(FIRST + 1, || drop(taken(&socket)));
    assert!(daemon.files() < 120, "{}", daemon.files());
    drop((control, all));
}

/// Answers that wait on a socket, and how many of them have descriptors.
fn unread(control: &Control) -> (usize, usize) {
    let (mut all, mut with_files) = (0, 0);
    let mut packet = vec![0; MAX];
    while let Ok((len, files)) = receive(control.socket(), &mut packet, RecvFlags::DONTWAIT) {
        all += 1;
        let reply = decode::<Reply>(&packet[..len]).unwrap();
        let opened = matches!(reply, Reply::Opened(_));
        assert_eq!(opened, !files.is_empty(), "{reply:?}");
        with_files += usize::from(opened);
    }
    (all, with_files)
}

fn open_request() -> Vec<u8> {
    let request = Request::Open {
        interface: 1,
        version: 1,
    };
    encode(&request).unwrap()
}

/// Connections are opened and closed, and the answers never read.
#[test]
fn answers_that_nobody_reads_hold_few_descriptors() {
    let daemon = Daemon::with("null");
    let mut control = daemon.control();
    control.ask(&Request::Join { bus: name("lan") }).unwrap();
    // Otherwise a full socket ends the loop.
    rustix::io::ioctl_fionbio(control.socket(), false).unwrap();
    let memory = [memory(4096)];
    for number in 1..=64 {
        if try_send(control.socket(), &open_request(), &memory).is_err() {
            break;
        }
        let close = Request::Close {
            connection: ConnectionId(number),
        };
        let closed = rustix::net::send(
            control.socket(),
            &encode(&close).unwrap(),
            SendFlags::NOSIGNAL,
        );
        if closed.is_err() {
            break;
        }
    }
    // vbusd has answered all, or ended the socket.
    soon("it does not answer", || {
        let mut unsent = 0i32;
        let number = std::os::fd::AsRawFd::as_raw_fd(&control.socket());
        // SAFETY: the kernel writes a number.
        let done = unsafe { libc::ioctl(number, libc::TIOCOUTQ, &raw mut unsent) };
        done == 0 && unsent == 0
    });
    daemon.control().buses().unwrap();
    let (all, with_files) = unread(&control);
    assert!((1..=8).contains(&with_files), "{with_files} of {all}");
    // A client that reads its answers has as many as before.
    let mut reader = daemon.control();
    reader.ask(&Request::Join { bus: name("lan") }).unwrap();
    for _ in 0..10 {
        let request = decode::<Request>(&open_request()).unwrap();
        let files = [memory[0].as_fd()];
        let (reply, _) = reader.ask_with(&request, &files).unwrap();
        assert!(matches!(reply, Reply::Opened(_)), "{reply:?}");
    }
}
