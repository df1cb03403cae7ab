// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ways for packets of one size between two processes: a bus, a socket pair, two pipes.

use anyhow::{Context, bail};
use paravane_vbus_client::Client;
use std::io::{Read, Write};
use std::time::Duration;

/// The longest wait for a packet.
const PATIENCE: Duration = Duration::from_secs(20);
/// An Ethernet header.
const HEADER: usize = 14;

/// What a packet asks of its receiver: the first byte.
pub const ECHO: u8 = 1;
/// Nothing: more follow.
pub const DATA: u8 = 2;

/// One end of a way. Both functions wait.
pub trait End {
    /// Sends a packet of the size that both ends know.
    fn send(&mut self, packet: &[u8]) -> anyhow::Result<()>;
    /// Receives one. False: the other end has closed.
    fn receive(&mut self, packet: &mut [u8]) -> anyhow::Result<bool>;
    /// Returns when the other side has taken over all packets, if the way can say that.
    fn settle(&mut self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// A socket, or a pipe for each direction.
pub struct Stream<R, W> {
    pub from: R,
    pub to: W,
}

impl<R: Read, W: Write> End for Stream<R, W> {
    fn send(&mut self, packet: &[u8]) -> anyhow::Result<()> {
        Ok(self.to.write_all(packet)?)
    }

    fn receive(&mut self, packet: &mut [u8]) -> anyhow::Result<bool> {
        match self.from.read_exact(packet) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// A client of a bus. On a switch, packets are in Ethernet frames.
pub struct Bus {
    client: Client,
    frame: Vec<u8>,
    /// Bytes of the header: 0 or [`HEADER`].
    header: usize,
}

impl Bus {
    /// A connection whose device takes packets as they are.
    pub fn plain(client: Client) -> Self {
        Bus {
            client,
            frame: Vec::new(),
            header: 0,
        }
    }

    /// One end of two on a switch: each says its address until it has heard the other one's.
    pub fn framed(mut client: Client, first: bool) -> anyhow::Result<Self> {
        let mac = client.mac().context("the device has no address")?;
        let hello = [&[0xff; 6][..], &mac, &[0x88, 0xb5]].concat();
        let mut heard = [0; HEADER];
        for _ in 0..2000 {
            if first {
                client.send(&hello)?;
            }
            client.wait(Some(Duration::from_millis(10)), false)?;
            while client.event()?.is_some() {}
            if client.receive(&mut heard)?.is_some() {
                if !first {
                    client.send(&hello)?;
                }
                let frame = [&heard[6..12], &mac, &[0x88, 0xb5]].concat();
                let header = HEADER;
                return Ok(Bus {
                    client,
                    frame,
                    header,
                });
            }
        }
        bail!("no other client of the bus was heard")
    }
}

impl End for Bus {
    fn send(&mut self, packet: &[u8]) -> anyhow::Result<()> {
        self.frame.truncate(self.header);
        self.frame.extend_from_slice(packet);
        while !self.client.send(&self.frame)? {
            self.client.wait(Some(PATIENCE), true)?;
        }
        Ok(())
    }

    fn receive(&mut self, packet: &mut [u8]) -> anyhow::Result<bool> {
        self.frame.resize(self.header + packet.len(), 0);
        let mut header = [0; HEADER];
        header[..self.header].copy_from_slice(&self.frame[..self.header]);
        loop {
            match self.client.receive(&mut self.frame)? {
                // Not an address that was said once more.
                Some(len) if len > self.header => break,
                Some(_) => {}
                None => {
                    self.client.wait(Some(PATIENCE), false)?;
                }
            }
        }
        packet.copy_from_slice(&self.frame[self.header..]);
        self.frame[..self.header].copy_from_slice(&header[..self.header]);
        Ok(true)
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        while self.client.reclaim()? > 0 {
            self.client.wait(Some(PATIENCE), true)?;
        }
        Ok(())
    }
}

/// The other process: echoes what asks for it, until its peer closes or kills it.
pub fn serve(end: &mut dyn End, size: usize) -> anyhow::Result<()> {
    let mut packet = vec![0; size];
    while end.receive(&mut packet)? {
        if packet.first() == Some(&ECHO) {
            end.send(&packet)?;
        }
    }
    Ok(())
}
