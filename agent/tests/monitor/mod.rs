// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts the agent as a process of this host, and plays its monitor.

#![allow(dead_code)] // No test uses all of it.

use paravane_agent_protocol::frame::{MAX_FROM_AGENT, MAX_TO_AGENT, put_data, put_message};
use paravane_agent_protocol::{Decoder, Exec, Failure, Frame, FromAgent, Stream, ToAgent, VERSION};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A timeout for operations that normally take milliseconds.
pub const LONG: Duration = Duration::from_secs(30);
/// A timeout for all output of a command. Frames that come without end would keep a test for ever.
const LONGEST: Duration = Duration::from_secs(300);

/// The agent, and the socket to which it connects.
pub struct Agent {
    pub process: Child,
    listener: UnixListener,
    pub folder: TempDir,
}

impl Agent {
    pub fn start() -> Self {
        Self::start_after("true")
    }

    /// Starts it from a shell that executes this line before.
    pub fn start_after(line: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        // A shell that starts a program in the background ignores SIGINT and SIGQUIT. The agent's
        // commands must not inherit that.
        let script = format!(r#"trap '' INT QUIT; {line}; exec "$0" --connect-unix "$1""#);
        let process = Command::new("sh")
            .args(["-c", &script])
            .arg(env!("CARGO_BIN_EXE_paravane-agent"))
            .arg(&path)
            .spawn()
            .unwrap();
        Agent {
            process,
            listener,
            folder,
        }
    }

    /// The agent's next connection, after Hello.
    pub fn call(&self) -> Call {
        let begun = Instant::now();
        let stream = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
            assert!(begun.elapsed() < LONG, "the agent does not connect");
            std::thread::sleep(Duration::from_millis(1));
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        let mut call = Call {
            stream,
            decoder: Decoder::new(MAX_FROM_AGENT),
        };
        assert_eq!(call.message(), FromAgent::Hello { version: VERSION });
        call
    }

    pub fn exec(&self, exec: Exec) -> Call {
        let mut call = self.call();
        call.say(&ToAgent::Exec(exec));
        call
    }

    pub fn run(&self, exec: Exec) -> (Vec<u8>, Vec<u8>, FromAgent) {
        self.exec(exec).finish()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A connection of the agent.
pub struct Call {
    pub stream: UnixStream,
    decoder: Decoder<FromAgent>,
}

impl Call {
    pub fn say(&mut self, message: &ToAgent) {
        let mut bytes = Vec::new();
        put_message(&mut bytes, message, MAX_TO_AGENT).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        let mut frames = Vec::new();
        put_data(&mut frames, Stream::Input, bytes);
        self.stream.write_all(&frames).unwrap();
    }

    /// Receives what has arrived, for [`Call::frame`].
    pub fn take_what_is_there(&mut self) {
        let mut piece = [0; 1 << 16];
        self.stream.set_nonblocking(true).unwrap();
        while let Ok(n @ 1..) = self.stream.read(&mut piece) {
            self.decoder.add(&piece[..n]);
        }
        self.stream.set_nonblocking(false).unwrap();
    }

    /// The next frame. None if the agent has closed the connection.
    pub fn frame(&mut self) -> Option<Frame<FromAgent>> {
        let mut piece = [0; 1 << 16];
        loop {
            if let Some(frame) = self.decoder.next().unwrap() {
                return Some(frame);
            }
            match self.stream.read(&mut piece).unwrap() {
                0 => return None,
                n => self.decoder.add(&piece[..n]),
            }
        }
    }

    pub fn message(&mut self) -> FromAgent {
        match self.frame() {
            Some(Frame::Message(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    /// Reads output until it contains `wanted`.
    pub fn until(&mut self, wanted: &str) -> String {
        let (mut seen, begun) = (Vec::new(), Instant::now());
        loop {
            assert!(begun.elapsed() < LONGEST, "no {wanted}, and no end");
            match self.frame() {
                Some(Frame::Data(Stream::Output, bytes)) => seen.extend(bytes),
                Some(Frame::Message(FromAgent::Started { .. } | FromAgent::Taken(_))) => {}
                other => panic!("{other:?} after {}", String::from_utf8_lossy(&seen)),
            }
            let text = String::from_utf8_lossy(&seen);
            if text.contains(wanted) {
                return text.into_owned();
            }
        }
    }

    /// Standard output, standard error and the last message.
    pub fn finish(&mut self) -> (Vec<u8>, Vec<u8>, FromAgent) {
        let (mut output, mut error) = (Vec::new(), Vec::new());
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < LONGEST, "the command does not end");
            match self.frame() {
                Some(Frame::Data(Stream::Output, bytes)) => output.extend(bytes),
                Some(Frame::Data(Stream::Error, bytes)) => error.extend(bytes),
                Some(Frame::Message(FromAgent::Started { .. } | FromAgent::Taken(_))) => {}
                Some(Frame::Message(end)) => return (output, error, end),
                other => panic!("{other:?}"),
            }
        }
    }
}

pub fn words(argv: &[&str]) -> Exec {
    Exec {
        argv: argv.iter().map(|word| word.as_bytes().to_vec()).collect(),
        env: Vec::new(),
        cwd: None,
        user: None,
        terminal: None,
        input: true,
    }
}

pub fn shell(script: &str) -> Exec {
    words(&["sh", "-c", script])
}

pub fn failure(agent: &Agent, exec: Exec) -> Failure {
    match agent.run(exec).2 {
        FromAgent::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}
