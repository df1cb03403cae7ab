// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sessions that are many, whose reader is slow, or whose processes stay.

#![allow(clippy::unwrap_used, clippy::panic)] // The way in which a test fails.

mod monitor;

use monitor::{Agent, Call, LONG, failure, shell, words};
use paravane_agent_protocol::{FromAgent, ToAgent};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
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

/// What the command has printed last is less than the agent reads at once. Before it is read, the
/// command has exited.
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

/// The monitor says that a connection is taken before it passes it on.
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
