// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent as a process of this host, with the test as its monitor.

#![allow(clippy::unwrap_used, clippy::panic)] // The way in which a test fails.

mod monitor;

use monitor::{Agent, Call, LONG, failure, shell, words};
use paravane_agent_protocol::frame::put_data;
use paravane_agent_protocol::{Exec, Frame, FromAgent, INPUT_WINDOW, Size, Stream, ToAgent};
use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn streams_are_separate_and_the_exit_code_is_last() {
    let agent = Agent::start();
    for code in [0, 1, 7, 255] {
        let (output, error, end) = agent.run(shell(&format!(
            "printf 'a\\000b\\377'; echo no >&2; exit {code}"
        )));
        assert_eq!((&output[..], &error[..]), (&b"a\0b\xff"[..], &b"no\n"[..]));
        assert_eq!(end, FromAgent::Exited(code));
    }
    assert_eq!(agent.run(shell("kill -9 $$")).2, FromAgent::Killed(9));
}

#[test]
fn no_output_is_lost_at_exit() {
    let agent = Agent::start();
    let (output, _, end) = agent.run(shell("head -c 3000000 /dev/zero"));
    assert_eq!((output.len(), end), (3_000_000, FromAgent::Exited(0)));
}

#[test]
fn input_flows_as_fast_as_it_is_read() {
    let agent = Agent::start();
    let mut call = agent.exec(words(&["cat"]));
    let sent: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    let (mut at, mut window, mut seen, mut ended) = (0, INPUT_WINDOW as usize, Vec::new(), false);
    loop {
        let end = (at + window).min(sent.len());
        call.feed(&sent[at..end]);
        window -= end - at;
        at = end;
        if at == sent.len() && !ended {
            call.say(&ToAgent::EndOfInput);
            ended = true;
        }
        match call.frame() {
            Some(Frame::Data(Stream::Output, bytes)) => seen.extend(bytes),
            Some(Frame::Message(FromAgent::Taken(n))) => window += n as usize,
            Some(Frame::Message(FromAgent::Started { .. })) => {}
            Some(Frame::Message(FromAgent::Exited(0))) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(seen == sent);
}

#[test]
fn a_command_that_reads_nothing_blocks_nothing() {
    let agent = Agent::start();
    let mut call = agent.exec(shell("exec <&-; sleep 0.2; exit 4"));
    call.feed(&[0; 200_000]);
    assert_eq!(call.finish().2, FromAgent::Exited(4));
    // A command that does not read its input still receives signals.
    let mut call = agent.exec(shell("trap 'exit 5' TERM; echo ready; sleep 30 & wait"));
    call.until("ready");
    call.feed(&vec![0; INPUT_WINDOW as usize]);
    call.say(&ToAgent::Signal(15));
    assert_eq!(call.finish().2, FromAgent::Exited(5));
}

#[test]
fn more_input_than_the_window_ends_the_connection() {
    let agent = Agent::start();
    let mut call = agent.exec(words(&["sleep", "30"]));
    let mut frames = Vec::new();
    put_data(
        &mut frames,
        Stream::Input,
        &vec![0; 2 * INPUT_WINDOW as usize],
    );
    // Fails if the agent closes the connection before all is sent.
    let _ = call.stream.write_all(&frames);
    let mut rest = Vec::new();
    // Ends, or is reset because the agent has not read everything.
    if call.stream.read_to_end(&mut rest).is_ok() {
        assert!(rest.len() < 100, "{} bytes", rest.len());
    }
    assert_eq!(agent.run(words(&["true"])).2, FromAgent::Exited(0));
}

#[test]
fn no_input() {
    let agent = Agent::start();
    let exec = Exec {
        input: false,
        ..words(&["cat"])
    };
    assert_eq!(agent.run(exec).2, FromAgent::Exited(0));
}

#[test]
fn commands_that_cannot_run() {
    let agent = Agent::start();
    let file = agent.folder.path().join("data");
    std::fs::write(&file, "no program").unwrap();
    let file = file.to_str().unwrap();
    let in_folder = Exec {
        cwd: Some(b"/no/such".to_vec()),
        ..words(&["true"])
    };
    let as_user = Exec {
        user: Some("nobody-at-all".to_string()),
        ..words(&["true"])
    };
    for (exec, code, part) in [
        (
            words(&["no-such-command"]),
            127,
            "no-such-command: no such command",
        ),
        (words(&["/no/such"]), 127, "/no/such: no such command"),
        (words(&[file]), 126, "may not be executed"),
        (words(&["/"]), 126, "may not be executed"),
        (words(&[]), 127, "no such command"),
        (words(&["true", "a\0b"]), 125, "zero byte"),
        (in_folder, 125, "no directory /no/such"),
        (as_user, 125, "no user nobody-at-all"),
    ] {
        let failure = failure(&agent, exec);
        assert_eq!(failure.code, code, "{failure:?}");
        assert!(failure.why.contains(part), "{failure:?}");
    }
    // The same connection accepts the next request.
    let mut call = agent.exec(words(&["no-such-command"]));
    assert!(matches!(call.message(), FromAgent::Failed(_)));
    call.say(&ToAgent::EndOfInput);
    call.say(&ToAgent::Exec(words(&["echo", "yes"])));
    assert_eq!(call.finish().0, b"yes\n");
}

#[test]
fn environment_and_folder() {
    let agent = Agent::start();
    let exec = Exec {
        env: vec![
            (b"NAME".to_vec(), b"a b=c".to_vec()),
            (b"PATH".to_vec(), b"/bin:/usr/bin".to_vec()),
        ],
        cwd: Some(b"/usr".to_vec()),
        ..shell("echo $NAME $PATH $PWD; env | grep -c ^CARGO")
    };
    let (output, _, end) = agent.run(exec);
    assert_eq!(
        String::from_utf8(output).unwrap(),
        "a b=c /bin:/usr/bin /usr\n0\n"
    );
    assert_eq!(end, FromAgent::Exited(1));
}

#[test]
fn another_user() {
    if !rustix::process::geteuid().is_root() {
        // Only root can change its user.
        return;
    }
    let agent = Agent::start();
    let exec = Exec {
        user: Some("65534:7".to_string()),
        ..shell("id -u; id -g; id -G")
    };
    let (output, error, end) = agent.run(exec);
    let complaint = String::from_utf8_lossy(&error);
    assert_eq!(
        String::from_utf8(output).unwrap(),
        "65534\n7\n7\n",
        "{complaint}"
    );
    assert_eq!(end, FromAgent::Exited(0));
}

#[test]
fn signals_reach_the_whole_group() {
    let agent = Agent::start();
    let mut call = agent.exec(shell("echo ready; sleep 100 | sleep 100; echo not here"));
    call.until("ready");
    call.say(&ToAgent::Signal(2));
    assert_eq!(call.finish().2, FromAgent::Killed(2));
}

#[test]
fn descendants_with_open_streams_are_not_waited_for() {
    let agent = Agent::start();
    let start = Instant::now();
    let (output, _, end) = agent.run(shell("echo first; sleep 25 & exit 3"));
    assert_eq!((&output[..], end), (&b"first\n"[..], FromAgent::Exited(3)));
    // It does not wait for a process that prints without end, either.
    let end = agent.run(shell("timeout 20 yes & sleep 0.1; exit 6")).2;
    assert_eq!(end, FromAgent::Exited(6));
    assert!(start.elapsed() < Duration::from_secs(15));
}

#[test]
fn term_is_as_requested() {
    let agent = Agent::start();
    let exec = |env| Exec {
        terminal: Some(Size {
            columns: 80,
            rows: 24,
        }),
        env,
        ..shell("echo .$TERM.")
    };
    agent.exec(exec(vec![])).until(".linux.");
    let said = (b"TERM".to_vec(), b"vt100".to_vec());
    agent.exec(exec(vec![said])).until(".vt100.");
}

#[test]
fn a_terminal() {
    let agent = Agent::start();
    let size = |columns, rows| Size { columns, rows };
    let exec = Exec {
        terminal: Some(size(99, 33)),
        ..shell(
            "trap 'stty size' WINCH; tty; stty size; read line; echo got $line
            while :; do sleep 0.05; done",
        )
    };
    let mut call = agent.exec(exec);
    let seen = call.until("33 99");
    assert!(seen.contains("/dev/pts/"), "{seen}");
    call.feed(b"word\r");
    call.until("got word");
    call.say(&ToAgent::Resize(size(50, 20)));
    call.until("20 50");
    // The terminal sends SIGINT for this character.
    call.feed(b"\x03");
    assert!(matches!(
        call.finish().2,
        FromAgent::Killed(2) | FromAgent::Exited(130)
    ));
}

#[test]
fn several_at_once() {
    let agent = Agent::start();
    let script = |n: u8| format!("read x; echo {n}$x; exit {n}");
    let mut calls: Vec<Call> = (0..8).map(|n| agent.exec(shell(&script(n)))).collect();
    for call in calls.iter_mut().rev() {
        call.feed(b"!\n");
    }
    for (n, call) in calls.iter_mut().enumerate() {
        let (output, _, end) = call.finish();
        assert_eq!(output, format!("{n}!\n").into_bytes());
        assert_eq!(end, FromAgent::Exited(n.try_into().unwrap()));
    }
}

#[test]
fn a_closed_connection_hangs_up() {
    let agent = Agent::start();
    let mark = agent.folder.path().join("mark");
    let script = format!(
        "trap 'echo x > {}; exit' HUP; echo ready; sleep 100 & wait",
        mark.display()
    );
    let mut call = agent.exec(shell(&script));
    call.until("ready");
    drop(call);
    let deadline = Instant::now() + LONG;
    while !mark.exists() {
        assert!(Instant::now() < deadline, "no SIGHUP came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn invalid_frames_end_only_their_connection() {
    let agent = Agent::start();
    for bytes in [
        &b"GET / HTTP/1.0\r\n\r\n"[..],
        &[0, 255, 255, 255, 255],
        &[0, 1, 0, 0, 0, 200],
    ] {
        let mut call = agent.call();
        call.stream.write_all(bytes).unwrap();
        let mut rest = Vec::new();
        if call.stream.read_to_end(&mut rest).is_ok() {
            assert!(rest.is_empty());
        }
    }
    assert_eq!(agent.run(words(&["true"])).2, FromAgent::Exited(0));
}

#[test]
fn an_unknown_option_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paravane-agent"));
    let output = command.arg("--what").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let line = b"paravane-agent: usage: paravane-agent [--connect-unix PATH]\n";
    assert_eq!(output.stderr, line);
}
