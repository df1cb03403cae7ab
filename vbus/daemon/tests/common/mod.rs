// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A vbusd of a test's own.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

pub mod disks;
pub mod fuse;

use paravane_vbus_client::bus::{Access, Name};
use paravane_vbus_client::protocol::{Reply, Request};
use paravane_vbus_client::{Client, Control, Error, Options};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg,
    sockopt::{set_socket_linger, set_socket_recv_buffer_size, set_socket_send_buffer_size},
};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Users from here on may join the bus of [`open_to_all`].
pub const FIRST: u32 = 70_000;
/// How long the last close of a connection of [`lingering`] takes.
const LINGER: Duration = Duration::from_secs(30);

/// How long a client may wait for progress. Then the test has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long the build of the library of C may take. A busy host builds slowly, and the build waits
/// for other builds in the same folder.
const BUILD: Duration = Duration::from_secs(600);

/// Tells other threads to end, also if the test fails: otherwise a scope waits for them for ever.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A process that is killed with the value: a test that fails leaves none.
pub struct Process(pub Child);

impl Process {
    /// Waits until it has ended by itself.
    pub fn end(&mut self, time: Duration) -> ExitStatus {
        let deadline = Instant::now() + time;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "a process does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// It is killed with the value.
pub struct Daemon {
    pub child: Child,
    pub folder: TempDir,
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn spawn(folder: &Path) -> Child {
    spawn_by(vbusd(folder).stderr(Stdio::inherit()), folder)
}

/// The command that starts vbusd.
pub fn vbusd(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vbusd"));
    command.arg(folder);
    command
}

/// Starts vbusd by this command, and waits until it listens.
pub fn spawn_by(command: &mut Command, folder: &Path) -> Child {
    let mut child = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while Control::connect(&folder.join("socket")).is_err() {
        assert!(Instant::now() < deadline, "vbusd does not listen");
        assert!(child.try_wait().unwrap().is_none(), "vbusd has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

impl Daemon {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = spawn(folder.path());
        Daemon { child, folder }
    }

    /// With a bus `lan` and a device `dev` of this class on it.
    pub fn with(class: &str) -> Self {
        let daemon = Daemon::start();
        let mut control = daemon.control();
        create_bus(&mut control, "lan");
        create_device(&mut control, "dev", class);
        link(&mut control, "lan", "dev");
        daemon
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub fn control(&self) -> Control {
        Control::connect(&self.socket()).unwrap()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.folder.path());
    }

    pub fn options(&self, bus: &str, device: &str) -> Options {
        Options {
            socket: self.socket(),
            bus: bus.to_string(),
            device: device.to_string(),
            count: 64,
            buffer: 2048,
        }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.options("lan", "dev")).unwrap()
    }

    /// An attribute of a device.
    pub fn attribute(&self, device: &str, attribute: &str) -> u64 {
        let devices = self.control().devices().unwrap();
        let found = devices.iter().find(|info| info.name == device).unwrap();
        let found = found.attributes.iter().find(|a| a.name == attribute);
        found.unwrap().value.parse().unwrap()
    }

    /// A line of `/proc/PID/status`.
    pub fn status(&self, key: &str) -> String {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().trim_start_matches(':').trim().to_string()
    }

    /// User and system time of vbusd, in hundredths of a second.
    pub fn cpu_ticks(&self) -> u64 {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = std::fs::read_to_string(path).unwrap();
        let after = text.rsplit_once(')').unwrap().1;
        let fields: Vec<&str> = after.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// Sets an attribute of the device `dev`.
    pub fn set(&self, attribute: &str, value: &str) {
        let request = Request::SetAttribute {
            device: name("dev"),
            attribute: attribute.to_string(),
            value: value.to_string(),
        };
        assert_eq!(self.control().ask(&request), Ok(Reply::Done));
    }

    /// Open descriptors.
    pub fn files(&self) -> usize {
        let path = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(path).unwrap().count()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn create_bus(control: &mut Control, bus: &str) {
    let request = Request::CreateBus { bus: name(bus) };
    assert_eq!(control.ask(&request), Ok(Reply::Done));
}

pub fn create_device(control: &mut Control, device: &str, class: &str) {
    let request = Request::CreateDevice {
        device: name(device),
        class: class.to_string(),
        attributes: vec![],
    };
    assert_eq!(control.ask(&request), Ok(Reply::Done));
}

pub fn link(control: &mut Control, bus: &str, device: &str) {
    let (bus, device) = (name(bus), name(device));
    let request = Request::Link { bus, device };
    assert!(matches!(control.ask(&request), Ok(Reply::Number(_))));
}

pub fn unlink(control: &mut Control, bus: &str, device: &str) {
    let (bus, device) = (name(bus), name(device));
    let request = Request::Unlink { bus, device };
    assert_eq!(control.ask(&request), Ok(Reply::Done));
}

/// Waits for a condition.
pub fn soon(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !check() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the next packet of a client.
pub fn receive(client: &mut Client) -> Vec<u8> {
    let mut packet = vec![0; 4096];
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(len) = client.receive(&mut packet).unwrap() {
            packet.truncate(len);
            return packet;
        }
        assert!(Instant::now() < deadline, "no packet");
        client.wait(Some(Duration::from_secs(1)), false).unwrap();
    }
}

pub fn c_example() -> (TempDir, PathBuf) {
    compiled("echo")
}

/// An example in C, compiled: the folder that it is in, and its path.
pub fn compiled(example: &str) -> (TempDir, PathBuf) {
    compiled_in("c/examples", example)
}

/// A program in C of these tests, compiled.
pub fn compiled_test(name: &str) -> (TempDir, PathBuf) {
    compiled_in("daemon/tests/c", name)
}

fn compiled_in(sources: &str, name: &str) -> (TempDir, PathBuf) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(name);
    // Nothing that cargo builds for this test depends on the library of C.
    let here = std::env::current_exe().unwrap();
    let target = here.ancestors().nth(3).unwrap();
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--package",
            "paravane-vbus-c",
            "--manifest-path",
        ])
        .arg(root.join("c/Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .spawn();
    assert!(Process(built.unwrap()).end(BUILD).success());
    let library = target.join("debug/libparavane_vbus_c.a");
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
        .arg(root.join("include"))
        .arg(root.join(sources).join(format!("{name}.c")))
        .arg(library)
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    (folder, program)
}

/// Lets others reach the socket. Users from [`FIRST`] on may join the bus.
pub fn open_to_all(daemon: &Daemon) {
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(daemon.folder.path(), mode).unwrap();
    let access = Access {
        uids: (FIRST..FIRST + 60).collect(),
        gids: [].into(),
    };
    let bus = name("lan");
    let request = Request::SetAccess { bus, access };
    daemon.control().ask(&request).unwrap();
}

/// Runs something on a thread that is another user's.
pub fn as_user<R: Send>(uid: u32, what: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // SAFETY: only numbers. The call changes this thread alone, other than that of the C
            // library.
            let done = unsafe { libc::syscall(libc::SYS_setresuid, -1, uid, -1) };
            assert_eq!(done, 0);
            what()
        });
        thread.join().unwrap()
    })
}

/// A client of the bus, if it is admitted.
pub fn join(daemon: &Daemon) -> Result<Control, Error> {
    let mut control = Control::connect(&daemon.socket())?;
    control.ask(&Request::Join { bus: name("lan") })?;
    Ok(control)
}

/// Memory for a connection.
pub fn memory(len: u64) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("test", flags).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, len).unwrap();
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Connections full of data that the other ends, which come too, do not take.
pub fn lingering(count: usize) -> (Vec<OwnedFd>, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let address = listener.local_addr().unwrap();
    (0..count)
        .map(|_| {
            let mut ours = TcpStream::connect(address).unwrap();
            let theirs = listener.accept().unwrap().0;
            set_socket_send_buffer_size(&ours, 4096).unwrap();
            ours.set_nonblocking(true).unwrap();
            // Twice, for what the other end still takes.
            for _ in 0..2 {
                while ours.write(&[0; 4096]).is_ok() {}
                std::thread::sleep(Duration::from_millis(50));
            }
            set_socket_linger(&ours, Some(LINGER)).unwrap();
            (OwnedFd::from(ours), theirs)
        })
        .unzip()
}

/// Sends a packet with files.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], files: &[OwnedFd]) {
    try_send(socket, bytes, files).unwrap();
}

/// Sends a packet with files, unless vbusd has ended the socket.
pub fn try_send(socket: BorrowedFd<'_>, bytes: &[u8], files: &[OwnedFd]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    if !files.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    }
    let parts = [IoSlice::new(bytes)];
    sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Sends vbusd a signal, and waits until it has stopped or continues.
pub fn signal(daemon: &Daemon, signal: Signal) {
    let id = Pid::from_child(&daemon.child);
    kill_process(id, signal).unwrap();
    if signal == Signal::STOP {
        soon("it does not stop", || {
            daemon.status("State").starts_with('T')
        });
    }
}
