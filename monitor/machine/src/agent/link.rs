// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One connection to the agent.

use anyhow::{Context, bail};
use paravane_agent_protocol::frame::{MAX_FROM_AGENT, MAX_TO_AGENT, put_data, put_message};
use paravane_agent_protocol::{Decoder, Frame, FromAgent, Stream, ToAgent, VERSION};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

const PIECE: usize = 64 << 10;

/// A connection to the agent. No call waits.
#[derive(Debug)]
pub struct Link {
    stream: UnixStream,
    decoder: Decoder<FromAgent>,
    out: Vec<u8>,
    greeted: bool,
}

impl Link {
    /// Wraps a connection that the agent made.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Link {
            stream,
            decoder: Decoder::new(MAX_FROM_AGENT),
            out: Vec::new(),
            greeted: false,
        })
    }

    /// For poll.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether bytes wait to be sent.
    pub fn has_unsent(&self) -> bool {
        self.unsent() > 0
    }

    /// Bytes that wait to be sent.
    pub fn unsent(&self) -> usize {
        self.out.len()
    }

    /// Queues a message.
    pub fn put(&mut self, message: &ToAgent) -> anyhow::Result<()> {
        put_message(&mut self.out, message, MAX_TO_AGENT)
            .context("arguments and environment are too long")
    }

    /// Queues input for the command.
    pub fn put_input(&mut self, bytes: &[u8]) {
        put_data(&mut self.out, Stream::Input, bytes);
    }

    /// Sends as much as possible without waiting. Returns false if the agent has closed the
    /// connection. Waiting messages are then dropped; the agent's last messages can still be read.
    pub fn flush(&mut self) -> io::Result<bool> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
                    ) =>
                {
                    self.out.clear();
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Receives what has arrived. Returns false if the agent has closed the connection.
    pub fn receive(&mut self) -> io::Result<bool> {
        let mut piece = vec![0; PIECE];
        match self.stream.read(&mut piece) {
            Ok(0) => Ok(false),
            Ok(n) => {
                self.decoder.add(piece.get(..n).unwrap_or_default());
                Ok(true)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The agent's next message after its greeting, if one has arrived.
    pub fn next_frame(&mut self) -> anyhow::Result<Option<Frame<FromAgent>>> {
        loop {
            let frame = self
                .decoder
                .next()
                .context("the guest's agent does not keep to the protocol")?;
            match frame {
                Some(Frame::Message(FromAgent::Hello { version })) if !self.greeted => {
                    if version != VERSION {
                        bail!(
                            "the guest's agent speaks version {version} of the protocol, this \
                             program speaks {VERSION}"
                        );
                    }
                    self.greeted = true;
                }
                Some(_) if !self.greeted => {
                    bail!("the guest's agent does not keep to the protocol: no greeting")
                }
                other => return Ok(other),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)] // A helper that fails is a failure of the test.
mod tests {
    use super::*;
    use std::net::Shutdown;

    #[test]
    fn what_the_agent_said_before_it_left_is_read() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut said = Vec::new();
        put_message(
            &mut said,
            &FromAgent::Hello { version: VERSION },
            MAX_FROM_AGENT,
        )
        .unwrap();
        put_message(&mut said, &FromAgent::Exited(3), MAX_FROM_AGENT).unwrap();
        (&theirs).write_all(&said).unwrap();
        // A child that another test starts just now may have a copy of the descriptor.
        theirs.shutdown(Shutdown::Both).unwrap();
        drop(theirs);

        let mut link = Link::new(ours).unwrap();
        link.put(&ToAgent::EndOfInput).unwrap();
        assert!(!link.flush().unwrap());
        assert!(!link.has_unsent());
        assert!(link.receive().unwrap());
        assert!(matches!(
            link.next_frame(),
            Ok(Some(Frame::Message(FromAgent::Exited(3))))
        ));
        assert!(!link.receive().unwrap());
    }
}
