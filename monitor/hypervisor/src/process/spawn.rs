// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts the layer's program with as little access to the host as possible.
//!
//! Between fork and exec there are only system calls: the monitor has threads, and one of them may
//! have held a lock.

use super::program_file::program_file;
use super::signal_scope::{self, SignalScope};
use paravane_abi::process as ph;
use paravane_confine::{self as confine, Domain, Kept};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Descriptors below this are the program's. The monitor's copies are above it until they are moved
/// there.
const ABOVE: RawFd = 64;
const FIRST: RawFd = 3;

const _: () = assert!(ph::PHV_FD_CONTROL == FIRST as u64);
const _: () = assert!(
    ph::PHV_FD_SHARED == ph::PHV_FD_CONTROL + 1 && ph::PHV_FD_RAM == ph::PHV_FD_CONTROL + 2
);
// RAM and the devices' register pages.
const _: () = assert!(ph::PHV_FD_RAM + ph::PHV_MAX_REGIONS < ABOVE as u64);

/// A step between fork and exec, for error messages.
const STEPS: [&str; 6] = [
    "",
    "its parent ended",
    "no_new_privs",
    "Landlock",
    "descriptors",
    "execveat",
];

/// The layer's program, running.
#[derive(Debug)]
pub struct Child {
    pub pid: libc::pid_t,
    pub control: OwnedFd,
    /// What keeps its signals inside the machine.
    pub signal_scope: SignalScope,
    /// Always refers to this process. The parent kills it through this, and needs no right to
    /// signal any other.
    process: Arc<Kept>,
    /// Its report before its exec, which closes the other end.
    report: File,
}

/// What the child needs, prepared before the fork.
struct Plan {
    sources: Vec<RawFd>,
    program: RawFd,
    report: RawFd,
    parent: libc::pid_t,
    /// The monitor's end of the control socket, of which the child has a copy.
    ours: RawFd,
    signal_scope: SignalScope,
    /// Rules of a Landlock domain, where the host has Landlock.
    domain: Option<RawFd>,
}

/// Starts the program without waiting for it: [`Child::executed`] says when it runs. The host
/// kernel kills it when the *thread* that calls this ends.
///
/// # Errors
/// The host's error.
pub fn start(
    program: &[u8],
    shared: BorrowedFd<'_>,
    ram: &[BorrowedFd<'_>],
    signal_scope: SignalScope,
) -> io::Result<Child> {
    let program = program_file(program)?;
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    if signal_scope == SignalScope::PidNamespace {
        // Ids inside the namespace mean nothing outside, so the host must say who sends.
        rustix::net::sockopt::set_socket_passcred(&ours, true)?;
    }
    let (report_read, report_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&report_read, true)?;
    let mut moved = vec![above(theirs.as_fd())?, above(shared)?];
    for file in ram {
        moved.push(above(*file)?);
    }
    let program = above(program.as_fd())?;
    let report = above(report_write.as_fd())?;
    let domain = match Domain::closed().map_err(io::Error::other)? {
        Some(domain) => Some(above(domain.rules().as_fd())?),
        None => None,
    };
    drop((report_write, theirs));
    let plan = Plan {
        sources: moved.iter().map(AsRawFd::as_raw_fd).collect(),
        program: program.as_raw_fd(),
        report: report.as_raw_fd(),
        parent: pid_t(std::process::id()),
        ours: ours.as_raw_fd(),
        signal_scope,
        domain: domain.as_ref().map(AsRawFd::as_raw_fd),
    };
    let pid = match signal_scope {
        // The child only calls `child`, which makes system calls and touches no memory except
        // `plan` and its stack.
        SignalScope::PidNamespace => signal_scope::fork_apart()?,
        // SAFETY: as above.
        SignalScope::Landlock | SignalScope::Monitor => unsafe { libc::fork() },
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        child(&plan);
    }
    drop(report);
    let process = match descriptor(pid) {
        Ok(process) => process,
        Err(error) => {
            // SAFETY: the process is our child and has not been waited for, so its id is still its
            // own.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            }
            return Err(io::Error::new(
                error.kind(),
                format!("a descriptor of a process (pidfd_open): {error}"),
            ));
        }
    };
    Ok(Child {
        pid,
        control: ours,
        signal_scope,
        process,
        report: File::from(report_read),
    })
}

impl Child {
    /// For others that may have to kill it.
    pub fn process(&self) -> Arc<Kept> {
        Arc::clone(&self.process)
    }

    /// For poll: readable when [`Child::executed`] has an answer.
    pub fn report(&self) -> BorrowedFd<'_> {
        self.report.as_fd()
    }

    /// Whether it executes the layer's program yet. Does not wait: what precedes that, such as its
    /// namespaces, can take the host kernel seconds.
    ///
    /// # Errors
    /// Which step failed, and the host's error.
    pub fn executed(&self) -> io::Result<bool> {
        let mut words = [0u8; 8];
        match (&self.report).read_exact(&mut words) {
            Ok(()) => Err(failure(words)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // Closed by the exec.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Kills it.
    pub fn kill(&self) {
        self.process.kill();
    }
}

/// A descriptor of a child that has not been waited for.
fn descriptor(pid: libc::pid_t) -> io::Result<Arc<Kept>> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(Arc::new(confine::keep(&process)?))
}

/// What the child reported before its exec, as an error. It wrote all of it at once.
fn failure([a, b, c, d, e, f, g, h]: [u8; 8]) -> io::Error {
    let step = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(0);
    let error = io::Error::from_raw_os_error(i32::from_le_bytes([e, f, g, h]));
    let step = STEPS.get(step).copied().unwrap_or("?");
    io::Error::new(error.kind(), format!("{step}: {error}"))
}

/// A copy of a descriptor above those of the program.
fn above(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(file, ABOVE)?)
}

fn pid_t(pid: u32) -> libc::pid_t {
    libc::pid_t::try_from(pid).unwrap_or(0)
}

/// Runs in the child. Ends in the program, or with a report.
fn child(plan: &Plan) -> ! {
    let step = prepare(plan);
    let error = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let mut words = [0u8; 8];
    for (to, from) in words
        .iter_mut()
        .zip(step.to_le_bytes().into_iter().chain(error.to_le_bytes()))
    {
        *to = from;
    }
    // SAFETY: the buffer is ours; _exit runs none of the monitor's code in this copy of it.
    unsafe {
        libc::write(plan.report, words.as_ptr().cast(), words.len());
        libc::_exit(127)
    }
}

/// Returns the step that failed.
fn prepare(plan: &Plan) -> u32 {
    // SAFETY: system calls with plain numbers and pointers to local values, which are safe between
    // fork and exec.
    unsafe {
        // First of all: what follows can wait for the host kernel for seconds.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if !parent_lives(plan) {
            return 1;
        }
        // While no signal comes: what is typed there is for the monitor.
        leave_terminal();
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        isolate();
        drop_privileges();
        let no_core = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        // Again, because changes of credentials clear it.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // If the monitor ended before the call, the kernel would never kill this process.
        if !parent_lives(plan) {
            return 1;
        }
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return 2;
        }
        // Before the first fork, so that all processes are in one domain and can signal each other.
        // Where Landlock keeps signals inside, this must succeed. Elsewhere it is one more wall, if
        // the host offers it.
        if plan
            .domain
            .is_some_and(|rules| !confine::enter_domain(rules))
            && plan.signal_scope == SignalScope::Landlock
        {
            return 3;
        }
        let mut next = FIRST;
        for &source in &plan.sources {
            // The copy stays open across exec, unlike its source.
            if libc::dup2(source, next) < 0 {
                return 4;
            }
            next += 1;
        }
        for standard in 0..FIRST {
            libc::close(standard);
        }
        close_at_exec(next);
        let name = c"paravane-space".as_ptr();
        let (arguments, environment) =
            ([name, std::ptr::null()], [std::ptr::null::<libc::c_char>()]);
        libc::syscall(
            libc::SYS_execveat,
            plan.program,
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    5
}

/// Whether the monitor still runs, checked after this process has asked the kernel to kill it at
/// the monitor's end.
fn parent_lives(plan: &Plan) -> bool {
    if plan.signal_scope != SignalScope::PidNamespace {
        // SAFETY: only returns a number.
        return unsafe { libc::getppid() } == plan.parent;
    }
    // The monitor is outside the namespace and has no id inside. But its end of the control socket
    // closes with it. Another child may have a copy for a moment. That does no harm: the layer's
    // program also ends when that end is closed.
    let Some(&theirs) = plan.sources.first() else {
        return false;
    };
    let mut poll = libc::pollfd {
        fd: theirs,
        events: 0,
        revents: 0,
    };
    // SAFETY: closes this process's copy of a descriptor that it does not use, and polls another
    // one.
    unsafe {
        libc::close(plan.ours);
        libc::poll(&raw mut poll, 1, 0) == 0
    }
}

/// Leaves the terminal of the user: no signal that is typed there comes, and nothing can be typed
/// into it. The session stays that of the monitor. Linux can share processors among sessions first
/// (autogroup), and the threads of one machine must be equal: vCPUs, and those of devices.
fn leave_terminal() {
    // SAFETY: system calls with plain numbers and a constant string.
    unsafe {
        let terminal = libc::open(c"/dev/tty".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        let left = if terminal < 0 {
            io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO)
        } else {
            let left = libc::ioctl(terminal, libc::TIOCNOTTY) == 0;
            libc::close(terminal);
            left
        };
        // The terminal cannot be opened, such as in a root without /dev/tty. A new session has
        // none, either. The leader of a group could not make one, so this is before setpgid.
        if !left {
            libc::setsid();
        }
        libc::setpgid(0, 0);
    }
}

/// Enters namespaces of its own, as far as the host allows. Where a PID namespace is needed, the
/// process is in it from the start ([`SignalScope::PidNamespace`]).
fn isolate() {
    let others = [
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
    ];
    // SAFETY: system calls with plain numbers, in a process with one thread.
    unsafe {
        // An ordinary user gets the others only together with a user namespace.
        if libc::unshare(libc::CLONE_NEWUSER | others.iter().fold(0, |all, flag| all | flag)) != 0 {
            libc::unshare(libc::CLONE_NEWUSER);
            for flag in others {
                libc::unshare(flag);
            }
        }
    }
}

/// Gives up root's privileges, so that a hole in the filter is no worse for root than for others.
fn drop_privileges() {
    #[repr(C)]
    struct CapHeader {
        version: u32,
        pid: i32,
    }
    /// `_LINUX_CAPABILITY_VERSION_3`: two sets of three words.
    const VERSION: u32 = 0x2008_0522;
    /// `SECBIT_NOROOT` and `SECBIT_NO_SETUID_FIXUP`, each with its lock: being root gives nothing
    /// at exec.
    const NO_ROOT: libc::c_ulong = 0xf;
    let (header, none) = (
        CapHeader {
            version: VERSION,
            pid: 0,
        },
        [0u32; 6],
    );
    // SAFETY: system calls with plain numbers and pointers to local values of the expected sizes.
    // They fail for a process that has nothing to give up.
    unsafe {
        libc::prctl(libc::PR_SET_SECUREBITS, NO_ROOT, 0, 0, 0);
        for capability in 0..64 {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr());
    }
}

/// Marks all descriptors from `first` on to be closed by exec, including those that the monitor
/// inherited without the flag.
fn close_at_exec(first: RawFd) {
    /// Below this, one by one, where the host (before 5.11) cannot do it at once.
    const MANY: RawFd = 65536;
    // SAFETY: changes flags of descriptors in a copy of the monitor that is about to be replaced.
    unsafe {
        let range = libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
        if range != 0 {
            for file in first..MANY {
                libc::fcntl(file, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
}

/// Reads one control message, with the host's id of the sender if that was requested; `None` when
/// the other side has closed.
pub fn receive(control: BorrowedFd<'_>) -> io::Result<Option<(ph::PhvMessage, Option<u32>)>> {
    let mut bytes = [0u8; 32];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let length =
        rustix::net::recvmsg(control, &mut into, &mut ancillary, RecvFlags::DONTWAIT)?.bytes;
    let sender = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => {
            u32::try_from(sender.pid.as_raw_nonzero().get()).ok()
        }
        _ => None,
    });
    if length == 0 {
        return Ok(None);
    }
    if length != size_of::<ph::PhvMessage>() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of {length} bytes"),
        ));
    }
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let message = ph::PhvMessage {
        op: word(0),
        index: word(4),
        pid: word(8),
        value: word(12),
    };
    Ok(Some((message, sender)))
}

/// Sends one control message.
pub fn send(control: BorrowedFd<'_>, message: &ph::PhvMessage) -> io::Result<()> {
    let words = [message.op, message.index, message.pid, message.value];
    let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    rustix::net::send(control, &bytes, rustix::net::SendFlags::NOSIGNAL)?;
    Ok(())
}
