// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that starts passt for one that has confined itself.
//!
//! The owner makes it before it confines itself, and before it has threads. A request has the MTU,
//! whether the host's loopback is reached, the name server, and the published ports. The starter
//! reads these strictly, and makes passt's arguments of them itself: it starts no other program and
//! takes no other option. Three files come with a request: passt's end of the link, where its
//! messages go, and a socket. When the other end of this socket is closed, the starter kills passt.
//! When the owner ends, however that happens, all of these close, and the starter kills all passt
//! and ends.

use super::{SAID, answered, arguments, find, hindered, messages, resolver, stream, unfit, why};
use crate::user::Config;
use crate::{Error, Link, Publish};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use std::fmt::Write as _;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Becomes the program, with the link as descriptor 3.
const RUN: &str = r#"exec "$@" 3<&0 </dev/null"#;
/// Longest request, in bytes.
const REQUEST: usize = 1024;
/// Files of a request.
const FILES: usize = 3;
/// Most published ports of one passt.
pub const PORTS: usize = 16;
/// Most passt processes at a time.
const PROCESSES: usize = 64;
/// MTUs that a request may have, in bytes.
const MTUS: RangeInclusive<u16> = 576..=65_520;
/// Where a request has no name server.
const NO_RESOLVER: &str = "-";
const DNS_PORT: u16 = 53;
/// Begins a message of the starter itself.
pub(super) const OWN: char = '!';

/// The process, as its owner sees it. It ends with the last of these.
#[derive(Clone, Debug)]
pub struct Starter(Arc<OwnedFd>);

/// Ends a passt when it is dropped.
#[derive(Debug)]
pub struct Hold(#[expect(dead_code, reason = "closing it has the effect")] OwnedFd);

/// A passt, as the starter sees it.
struct Running {
    child: Child,
    /// Closed at the other end: it is to end.
    hold: OwnedFd,
}

fn pair(kind: SocketType) -> Result<(OwnedFd, OwnedFd), Error> {
    socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
        .map_err(|e| Error::host("cannot make a pair of sockets")(e.into()))
}

impl Starter {
    /// Makes the process. To be called while the caller has one thread.
    ///
    /// # Errors
    /// The caller has more threads, or the host makes no process.
    pub fn fork() -> Result<Self, Error> {
        const WHAT: &str = "cannot make the process that starts passt";
        let tasks = std::fs::read_dir("/proc/self/task").map_err(Error::host(WHAT))?;
        if tasks.count() != 1 {
            let error = io::Error::other("there are other threads already");
            return Err(Error::host(WHAT)(error));
        }
        let (ours, theirs) = pair(SocketType::SEQPACKET)?;
        // SAFETY: the process has one thread, so no lock is held by a thread that the child lacks,
        // and the child may do everything that its parent could.
        match unsafe { libc::fork() } {
            -1 => Err(Error::host(WHAT)(io::Error::last_os_error())),
            0 => {
                let end = Exit;
                drop(ours);
                alone(&theirs);
                serve(&theirs);
                drop(end);
                unreachable!("the process has ended");
            }
            _ => Ok(Starter(Arc::new(ours))),
        }
    }

    /// A starter on a thread of this process, for tests of its users.
    ///
    /// # Errors
    /// The host has no sockets.
    pub fn on_thread() -> Result<Self, Error> {
        let (ours, theirs) = pair(SocketType::SEQPACKET)?;
        std::thread::spawn(move || serve(&theirs));
        Ok(Starter(Arc::new(ours)))
    }

    /// Starts passt and returns when it answers. `mac` is the address of the client's card. Waits
    /// up to 20 seconds.
    ///
    /// # Errors
    /// Why passt does not run here: it is missing, too old, or cannot do what is asked for.
    pub fn start(&self, config: &Config, mac: [u8; 6]) -> Result<(Link, Hold), Error> {
        if let Some(why) = unfit(config) {
            return Err(Error::Passt(why.to_string()));
        }
        let (ours, theirs) = pair(SocketType::STREAM)?;
        let (hold, held) = pair(SocketType::STREAM)?;
        let (said, says) = messages()?;
        let request = request(config);
        let files = [theirs.as_fd(), says.as_fd(), held.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        let parts = [IoSlice::new(request.as_bytes())];
        if sendmsg(&*self.0, &parts, &mut control, SendFlags::NOSIGNAL).is_err() {
            return Err(Error::Passt("the process that starts it has ended".into()));
        }
        drop((theirs, says, held));
        let mut link = stream(ours, config)?;
        match answered(&mut link, config, mac)? {
            true => Ok((link, Hold(hold))),
            false => Err(why(&said, "")),
        }
    }
}

/// Ends the child, also by a panic: it must not return to its parent's code.
struct Exit;

impl Drop for Exit {
    fn drop(&mut self) {
        // SAFETY: ends the process at once, and runs nothing of its parent's.
        unsafe { libc::_exit(0) }
    }
}

/// Gives up all that the process has of its parent, except for standard error and the socket.
fn alone(socket: &OwnedFd) {
    // A signal of the terminal is for the parent. Fails only for the leader of a group.
    let _ = setsid();
    let own = socket.as_raw_fd().unsigned_abs();
    for (first, last) in [(3, own - 1), (own + 1, u32::MAX)] {
        if first <= last {
            // SAFETY: nothing in this process uses another descriptor from now on. Kernels before
            // 5.9 keep them open, without harm: they are closed when a program is executed.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// The request for a configuration.
fn request(config: &Config) -> String {
    let mut text = format!("{} {}", config.mtu, u8::from(config.host_loopback));
    let _ = match resolver(config) {
        Some(name) => write!(text, " {name}"),
        None => write!(text, " {NO_RESOLVER}"),
    };
    for port in &config.publish {
        let _ = write!(text, " {port}");
    }
    text
}

/// The configuration that a request asks for.
fn read(request: &[u8]) -> Result<Config, &'static str> {
    let text = std::str::from_utf8(request).map_err(|_| "a request that is no text")?;
    let mut words = text.split(' ');
    let mtu = words.next().and_then(|word| word.parse().ok());
    let mtu = mtu.filter(|mtu| MTUS.contains(mtu));
    let host_loopback = match words.next() {
        Some("0") => false,
        Some("1") => true,
        _ => return Err("a request without a word about the loopback"),
    };
    let resolvers = match words.next() {
        Some(NO_RESOLVER) => Vec::new(),
        Some(name) => {
            let name: Ipv4Addr = name.parse().map_err(|_| "a bad name server")?;
            vec![(name, DNS_PORT).into()]
        }
        None => return Err("a request without a word about the name server"),
    };
    let ports = words.map(str::parse).take(PORTS + 1);
    let publish: Vec<Publish> = ports.collect::<Result<_, _>>().map_err(|_| "a bad port")?;
    if publish.len() > PORTS {
        return Err("too many ports");
    }
    let config = Config {
        mtu: mtu.ok_or("a bad MTU")?,
        host_loopback,
        resolvers,
        publish,
        ..Config::default()
    };
    unfit(&config).map_or(Ok(config), Err)
}

/// Serves requests until the owner has ended.
fn serve(socket: &OwnedFd) {
    let mut all: Vec<Running> = Vec::new();
    loop {
        let holds = all.iter().map(|one| PollFd::new(&one.hold, PollFlags::IN));
        let mut files: Vec<_> = [PollFd::new(socket, PollFlags::IN)]
            .into_iter()
            .chain(holds)
            .collect();
        // Fails only if a signal came: nothing is reported then.
        let _ = poll(&mut files, None);
        let events: Vec<bool> = files
            .iter()
            .map(|file| !file.revents().is_empty())
            .collect();
        drop(files);
        // Before the next one starts, which may want the same ports.
        let mut ended = events.iter().skip(1).copied();
        all.retain_mut(|one| {
            let stays = !ended.next().unwrap_or_default();
            if !stays {
                end(one);
            }
            stays
        });
        if events.first().is_some_and(|event| *event) {
            match receive(socket) {
                Some((request, files)) => all.extend(begin(&request, files, all.len())),
                None => break,
            }
        }
    }
    all.iter_mut().for_each(end);
}

fn end(one: &mut Running) {
    // Both fail only after an earlier wait, and this is the only one.
    let _ = one.child.kill();
    let _ = one.child.wait();
}

/// The next request. `None`: the owner has ended.
fn receive(socket: &OwnedFd) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; REQUEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received = loop {
        match recvmsg(socket, &mut parts, &mut control, flags) {
            Err(Errno::INTR) => {}
            received => break received.ok()?,
        }
    };
    if received.bytes == 0 {
        return None;
    }
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files = files.flatten().collect();
    bytes.truncate(received.bytes);
    Some((bytes, files))
}

/// Does what a request asks for. The owner learns why not from the messages.
fn begin(request: &[u8], files: Vec<OwnedFd>, others: usize) -> Option<Running> {
    let [link, says, hold] = <[OwnedFd; FILES]>::try_from(files).ok()?;
    let refuse = |text: &str| {
        // Never blocks, and is longer than no pipe.
        let _ = rustix::io::write(&says, format!("{OWN}{text:.256}").as_bytes());
        None
    };
    if others >= PROCESSES {
        return refuse("too many of it run already");
    }
    let config = match read(request) {
        Ok(config) => config,
        Err(why) => return refuse(why),
    };
    if let Some(why) = hindered(&config) {
        return refuse(why);
    }
    let Some(program) = find() else {
        return refuse("it is not installed");
    };
    let copy = match says.try_clone() {
        Ok(copy) => copy,
        Err(error) => return refuse(&format!("dup: {error}")),
    };
    let mut command = Command::new("/bin/sh");
    command.args(["-c", RUN, "passt"]).arg(program);
    command.args(arguments(&config)).stdin(link);
    command.stdout(Stdio::null()).stderr(copy);
    // SAFETY: between fork and exec only prctl runs, which is async-signal-safe and allocates
    // nothing.
    unsafe {
        // For the time before passt enters its namespaces, which clears this. Then it ends with its
        // link.
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    match command.spawn() {
        Ok(child) => Some(Running { child, hold }),
        Err(error) => refuse(&format!("cannot run /bin/sh: {error}")),
    }
}

const _: () = assert!(REQUEST < SAID);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_strictly() {
        let ports = ["8080:80", "[::1]:53:5353/udp"];
        let config = Config {
            mtu: 9000,
            host_loopback: true,
            resolvers: ["[2001:db8::1]:53", "192.0.2.1:53"]
                .iter()
                .map(|name| name.parse().unwrap())
                .collect(),
            publish: ports.iter().map(|port| port.parse().unwrap()).collect(),
            ..Config::default()
        };
        let known = read(request(&config).as_bytes()).unwrap();
        assert_eq!(arguments(&known), arguments(&config));
        assert_eq!(known.resolvers, ["192.0.2.1:53".parse().unwrap()]);
        let none = read(b"1500 0 -").unwrap();
        assert!(none.resolvers.is_empty() && none.publish.is_empty());
        let many = format!("1500 0 -{}", " 1:2".repeat(PORTS));
        assert_eq!(read(many.as_bytes()).unwrap().publish.len(), PORTS);
        for bad in [
            "",
            "1500",
            "1500 0",
            "1500 2 -",
            "575 0 -",
            "65521 0 -",
            "1500 0 ",
            "1500 0 1.2.3",
            "1500 0 ::1",
            "1500 0 127.0.0.1",
            "1500 0 --fd",
            "1500 0 - ",
            "1500 0 - 0:80",
            "1500 0 - 1:2 1:3",
            "1500 0 - --fd",
            "1500  0 -",
            &format!("{many} 1:2"),
        ] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(read(&[0xff]).is_err());
    }

    /// A request without its files, or one that makes no sense, starts nothing and harms no other
    /// request.
    #[test]
    fn what_makes_no_sense_starts_nothing() {
        assert!(begin(b"1500 0 -", Vec::new(), 0).is_none());
        for (text, others, part) in [("1500", 0, "loopback"), ("1500 0 -", PROCESSES, "too many")] {
            let (said, says) = messages().unwrap();
            let (link, _other) = pair(SocketType::STREAM).unwrap();
            let (hold, _held) = pair(SocketType::STREAM).unwrap();
            let files = vec![link, says, hold];
            assert!(begin(text.as_bytes(), files, others).is_none());
            let error = why(&said, "").to_string();
            assert!(error.contains(part) && !error.contains(OWN), "{error}");
        }
    }

    #[test]
    fn it_ends_with_its_owner_and_then_starts_nothing() {
        let (ours, theirs) = pair(SocketType::SEQPACKET).unwrap();
        let thread = std::thread::spawn(move || serve(&theirs));
        drop(ours);
        thread.join().unwrap();
        let (ours, theirs) = pair(SocketType::SEQPACKET).unwrap();
        drop(theirs);
        let starter = Starter(Arc::new(ours));
        let error = starter.start(&Config::default(), [2; 6]).unwrap_err();
        assert!(error.to_string().contains("has ended"), "{error}");
    }
}
