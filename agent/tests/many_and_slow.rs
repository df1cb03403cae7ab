// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that are many, whose reader is slow, or whose processes stay.

#![allow(clippy::unwrap_used, clippy::panic)] // The way in which a test fails.

mod monitor;

use monitor::{Agent, Call, LONG, failure, shell, words};
use paravane_agent_protocol::{FromAgent, ToAgent};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The process ID of a command that has just been started.
fn started(call: &mut Call) -> u32 {
    match call.message() {
        FromAgent::Started { pid } => pid,
        other => panic!("{other:?}"),
    }
}

/// How many files the agent has open.
fn files(agent: &Agent) -> usize {
    let folder = format!("/proc/{}/fd", agent.process.id());
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn many_commands_at_once() {
    let agent = Agent::start_after("ulimit -Sn 64");
    let mut calls: Vec<Call> = (0..40)
        .map(|_| agent.exec(shell("read x; exit 9")))
        .collect();
    // Commands have the limit that the agent was given.
    let (output, _, end) = agent.run(shell("ulimit -Sn"));
    assert_eq!((&output[..], end), (&b"64\n"[..], FromAgent::Exited(0)));
    for call in &mut calls {
        call.feed(b"x\n");
        assert_eq!(call.finish().2, FromAgent::Exited(9));
    }
}

/// The command's last output is less than the agent reads at once, and the command has exited
/// before the agent reads it.
#[test]
fn a_process_that_stays_does_not_keep_a_slow_session() {
    let agent = Agent::start();
    // All that the agent and the connection hold, and part of a pipe.
    let mut call = agent.exec(shell(
        "timeout 0.5 yes
        head -c 40000 < /proc/self/fd/1 > /dev/null
        sleep 25 & exit 3",
    ));
    let pid = started(&mut call);
    let begun = Instant::now();
    while Path::new(&format!("/proc/{pid}")).exists() {
        assert!(begun.elapsed() < LONG, "the command does not exit");
        std::thread::sleep(Duration::from_millis(5));
    }
    // There is room for all of it at once.
    let process = Pid::from_child(&agent.process);
    kill_process(process, Signal::STOP).unwrap();
    call.take_what_is_there();
    kill_process(process, Signal::CONT).unwrap();
    let begun = Instant::now();
    let (output, _, end) = call.finish();
    assert_eq!(end, FromAgent::Exited(3));
    assert!(output.len() > 256 << 10, "{}", output.len());
    assert!(begun.elapsed() < Duration::from_secs(15));
}

/// Linux drops what a reader on the host has not taken 8 s after a guest has closed a connection.
#[test]
fn the_agent_closes_a_connection_after_the_monitor() {
    let agent = Agent::start();
    let mut call = agent.exec(words(&["true"]));
    assert_eq!(call.finish().2, FromAgent::Exited(0));
    // It says that it sends no more.
    assert_eq!(call.stream.read(&mut [0]).unwrap(), 0);
    for _ in 0..10 {
        call.feed(b"for a command that has ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Then it closes its own end, too.
    let before = files(&agent);
    drop(call);
    let begun = Instant::now();
    while files(&agent) >= before {
        assert!(begun.elapsed() < LONG, "the agent does not close");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Before the monitor passes a connection on, it reports to the agent that the connection is taken.
#[test]
fn a_client_that_sends_no_request_blocks_no_other() {
    let agent = Agent::start();
    let mut slow = agent.call();
    slow.say(&ToAgent::EndOfInput);
    let mut gone = agent.call();
    gone.say(&ToAgent::EndOfInput);
    drop(gone);
    assert_eq!(agent.run(words(&["true"])).2, FromAgent::Exited(0));
    slow.say(&ToAgent::Exec(words(&["echo", "late"])));
    assert_eq!(slow.finish().0, b"late\n");
}

#[test]
fn an_interpreter_that_is_missing_is_named() {
    let agent = Agent::start();
    let file = agent.folder.path().join("script");
    std::fs::write(&file, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let failure = failure(&agent, words(&[file.to_str().unwrap()]));
    assert_eq!(failure.code, 126, "{failure:?}");
    let part = "script: its interpreter or its loader is missing";
    assert!(failure.why.contains(part), "{failure:?}");
}

/// Takes a lease on a file (fcntl(2)). While the result is open, execve(2) of the file waits, for
/// at most 45 s.
fn lease(program: &Path) -> std::fs::File {
    let file = std::fs::File::open(program).unwrap();
    // SAFETY: system calls with plain numbers, on an open file. The kernel sends SIGIO to this
    // process when another one opens the file.
    unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        let taken = libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK);
        assert_eq!(taken, 0, "{}", std::io::Error::last_os_error());
    }
    file
}

/// A program on a file system that does not answer holds up its own session only.
#[test]
fn a_program_that_is_not_executed_yet_delays_no_other() {
    let agent = Agent::start();
    let program = agent.folder.path().join("program");
    std::fs::copy("/bin/true", &program).unwrap();
    // Sessions that exist must be able to end their input.
    let mut before = agent.exec(words(&["cat"]));
    started(&mut before);
    let lease = lease(&program);
    let mut late = agent.exec(words(&[program.to_str().unwrap()]));
    let begun = Instant::now();
    late.stream
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    late.stream.read(&mut [0]).unwrap_err();
    late.stream.set_read_timeout(Some(LONG)).unwrap();
    let (output, _, end) = agent.run(shell("echo yes; exit 4"));
    assert_eq!((&output[..], end), (&b"yes\n"[..], FromAgent::Exited(4)));
    before.feed(b"x");
    before.say(&ToAgent::EndOfInput);
    let (output, _, end) = before.finish();
    assert_eq!((&output[..], end), (&b"x"[..], FromAgent::Exited(0)));
    assert!(begun.elapsed() < Duration::from_secs(20));
    drop(lease);
    assert_eq!(late.finish().2, FromAgent::Exited(0));
}

/// For example, a command has started a server that prints messages from time to time.
#[test]
fn a_process_that_stays_can_print_after_its_session() {
    let agent = Agent::start();
    let mark = agent.folder.path().join("mark");
    // The agent works. It may have inherited some pipes.
    drop(agent.call());
    let inherited = pipes(agent.process.id());
    // More than the pipes hold. A shell that gets SIGPIPE or EPIPE makes no file.
    let print = format!(
        "trap '' HUP; echo ready
        (sleep 1; head -c 300000 /dev/zero && echo no >&2 && echo x > {}) &",
        mark.display()
    );
    for ends in [true, false] {
        let then = if ends { "exit 3" } else { "wait" };
        let mut call = agent.exec(shell(&format!("{print} {then}")));
        if ends {
            assert_eq!(call.finish().2, FromAgent::Exited(3));
        } else {
            call.until("ready");
        }
        drop(call);
        let begun = Instant::now();
        while !mark.exists() {
            assert!(begun.elapsed() < LONG, "the process did not print all");
            std::thread::sleep(Duration::from_millis(10));
        }
        std::fs::remove_file(&mark).unwrap();
    }
    // The agent does not keep the pipes of processes that have ended.
    let begun = Instant::now();
    while pipes(agent.process.id()) > inherited {
        assert!(begun.elapsed() < LONG, "the agent keeps pipes");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How many pipes a process has open.
fn pipes(process: u32) -> usize {
    let links = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    links
        .filter_map(|link| std::fs::read_link(link.unwrap().path()).ok())
        .filter(|to| to.to_string_lossy().starts_with("pipe:"))
        .count()
}
