// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Landlock rules at work: threads enter them and open files.

use super::file_rules::Files;
use super::{Domain, OnlyOwn, enter_domain, only_own_processes};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Child, Command};

/// Runs `body` on a thread of its own, which cannot leave the rules again.
fn confined<T: Send>(files: &Files, body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            files.keep_only().unwrap();
            body()
        });
        thread.join().unwrap()
    })
}

/// What the processes of a guest enter before they run guest code.
#[test]
fn a_closed_domain_reaches_nothing() {
    let Some(domain) = Domain::closed().unwrap() else {
        return crate::skip::skip("this host has no Landlock");
    };
    assert!(domain.can_be_entered());
    let (rules, version) = (domain.rules(), super::landlock_version());
    let file = tempfile::NamedTempFile::new().unwrap();
    // SAFETY: only returns a number.
    let parent = unsafe { libc::getppid() };
    // SAFETY: signal 0 is not sent; the kernel only checks whether it could be.
    let reaches = |pid| unsafe { libc::kill(pid, 0) } == 0 || last_error() != libc::EPERM;
    assert!(reaches(parent) && File::open(file.path()).is_ok());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: sets an attribute of this thread.
            let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            assert_eq!(done, 0);
            assert!(enter_domain(rules.as_raw_fd()));
            assert!(File::open(file.path()).is_err() && File::open("/dev/null").is_err());
            assert!(fs::read_dir("/proc/self").is_err());
            assert!(version < 4 || std::net::TcpListener::bind("127.0.0.1:0").is_err());
            assert!(version < super::SIGNALS_SCOPED || !reaches(parent));
        });
        thread.join().unwrap();
    });
    // No other process is in the domain.
    assert!(File::open(file.path()).is_ok() && reaches(parent));
}

fn last_error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

#[test]
fn only_the_files_that_are_given() {
    if super::landlock_version() < 2 {
        eprintln!("this host's Landlock is too old, or there is none");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
    for name in [&inside, &outside] {
        fs::create_dir_all(name.join("a")).unwrap();
        fs::create_dir(name.join("b")).unwrap();
        fs::write(name.join("a/file"), "x").unwrap();
    }
    let open = File::open(outside.join("a/file")).unwrap();
    confined(&Files::none(), || {
        assert!(File::open(inside.join("a/file")).is_err());
        assert!(fs::read_to_string("/proc/self/status").is_err());
        // Open files stay open.
        assert_eq!(open.metadata().unwrap().len(), 1);
    });
    confined(&Files::shared(&inside), || {
        fs::write(inside.join("a/new"), "y").unwrap();
        fs::rename(inside.join("a/new"), inside.join("b/new")).unwrap();
        assert!(fs::read(outside.join("a/file")).is_err());
        assert!(fs::rename(inside.join("b/new"), outside.join("b/new")).is_err());
        assert!(fs::remove_file(outside.join("a/file")).is_err());
    });
    confined(&Files::figures(), || {
        assert!(fs::read_to_string("/proc/self/status").is_ok());
        assert!(fs::write("/proc/self/comm", "x").is_err());
        assert!(File::open(inside.join("a/file")).is_err());
    });
    confined(&Files::state(Some(&inside), None), || {
        assert!(File::open("/dev/null").is_err());
        fs::remove_dir_all(&inside).unwrap();
        assert!(fs::create_dir(folder.path().join("other")).is_err());
        assert!(File::open(outside.join("a/file")).is_err());
    });
}

/// A child that waits, and ends with this.
struct Waiting(Child);

impl Waiting {
    fn new() -> Self {
        Waiting(Command::new("sleep").arg("600").spawn().unwrap())
    }

    /// Whether this thread may look at its memory and at its files.
    fn shows(&self) -> [bool; 2] {
        let folder = format!("/proc/{}", self.0.id());
        [
            File::open(format!("{folder}/mem")).is_ok(),
            fs::read_link(format!("{folder}/fd/0")).is_ok(),
        ]
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A monitor's watch opens any file, and must not open the memory of another machine.
#[test]
fn other_processes_of_the_user_are_closed() {
    let other = Waiting::new();
    assert_eq!(other.shows(), [true; 2]);
    let name = format!("paravane-confine-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _file_listener = UnixListener::bind(&path).unwrap();
    let reach = || UnixStream::connect_addr(&address).is_ok();
    assert!(reach());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if only_own_processes().unwrap() == OnlyOwn::Unknown {
                return false;
            }
            assert_eq!(other.shows(), [false; 2]);
            assert!(!reach());
            // It may look at its own, also if they enter a domain of their own, and reach files.
            let own = Waiting::new();
            assert_eq!(own.shows(), [true; 2]);
            assert!(fs::read_link("/proc/self/fd/0").is_ok());
            assert!(UnixStream::connect(&path).is_ok());
            fs::rename(&path, folder.path().join("other")).unwrap();
            assert!(File::open("/proc/self/mem").is_ok());
            true
        });
        if !thread.join().unwrap() {
            crate::skip::skip("this host has no Landlock, or an old one");
        }
    });
    // Others may look at it, and this thread is not in the domain.
    assert!(reach() && other.shows() == [true; 2]);
}
