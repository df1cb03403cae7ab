// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Socket device (virtio 1.2, section 5.10): byte streams between programs in the guest and the
//! monitor.
//!
//! The host is CID 2. Its ports are not the host system's: a guest reaches only the ports on which
//! the monitor listens through its [`Hub`].

mod connection;
mod hub;
mod mux;
mod packet;
#[cfg(test)]
mod tests;

pub use hub::{Hub, Listener};

use super::{Broken, Device, Driver, EventFlags, Waker, kind};
use mux::Mux;
use packet::{DATA_MAX, HEADER_SIZE, Header};
use std::io::{Read, Write};

const RX: usize = 0;
const TX: usize = 1;

/// Feature: byte streams.
const F_STREAM: u64 = 1 << 0;

/// The device.
#[derive(Debug)]
pub struct Vsock {
    cid: u64,
    hub: Hub,
    mux: Mux,
    waker: Option<Waker>,
    /// Data of one packet.
    data: Vec<u8>,
}

/// A good number of connections of a guest.
pub const CONNECTIONS: usize = 1024;

impl Vsock {
    /// A device for a guest with the address `cid`, 3 to 2^32 - 2. The guest may have `most`
    /// connections at a time. Each has a descriptor and a buffer of 256 KiB.
    ///
    /// # Errors
    /// The host's error.
    pub fn new(cid: u32, hub: &Hub, most: usize) -> std::io::Result<Self> {
        Ok(Vsock {
            cid: cid.into(),
            hub: hub.clone(),
            mux: Mux::new(hub.clone(), cid.into(), most)?,
            waker: None,
            data: vec![0; DATA_MAX],
        })
    }

    /// Does all pending work.
    fn work(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        self.mux.poll();
        self.mux.connect();
        loop {
            let sent = self.send(driver)?;
            let taken = self.take(driver)?;
            if !sent && !taken {
                break;
            }
        }
        driver.signal(RX)?;
        driver.signal(TX)?;
        if let Some(waker) = &self.waker {
            if let Err(error) = waker.arm(self.mux.files(), EventFlags::IN) {
                tracing::warn!("sockets: cannot wait for the host's side: {error}");
            }
        }
        Ok(())
    }

    /// Sends pending packets to the guest, as far as it has added buffers. Returns whether anything
    /// was sent.
    fn send(&mut self, driver: &mut Driver) -> Result<bool, Broken> {
        let mut any = false;
        while self.mux.has_output() {
            let Some(chain) = driver.pop(RX)? else {
                break;
            };
            let head = chain.head_index();
            let memory = std::sync::Arc::clone(driver.memory());
            let mut writer = chain
                .writer(&memory)
                .map_err(|_| Broken::Rule("a receive buffer outside memory"))?;
            let Some(room) = writer.available_bytes().checked_sub(HEADER_SIZE) else {
                return Err(Broken::Rule("a receive buffer too small for a header"));
            };
            let most = room.min(DATA_MAX);
            let Some(header) = self.mux.send(&mut self.data[..most]) else {
                driver.put_back(RX);
                break;
            };
            let length = usize::try_from(header.length).unwrap_or(0);
            writer
                .write_all(&header.to_bytes())
                .and_then(|()| writer.write_all(&self.data[..length]))
                .map_err(|_| Broken::Rule("a receive buffer that shrank"))?;
            let written = u32::try_from(HEADER_SIZE + length).unwrap_or(0);
            driver.push(RX, head, written)?;
            any = true;
        }
        Ok(any)
    }

    /// Takes the guest's packets, as far as there is room for answers. Returns whether there were
    /// any.
    fn take(&mut self, driver: &mut Driver) -> Result<bool, Broken> {
        let mut any = false;
        while self.mux.takes() {
            let Some(chain) = driver.pop(TX)? else {
                break;
            };
            let head = chain.head_index();
            let memory = std::sync::Arc::clone(driver.memory());
            let mut reader = chain
                .reader(&memory)
                .map_err(|_| Broken::Rule("a packet outside memory"))?;
            let mut bytes = [0; HEADER_SIZE];
            reader
                .read_exact(&mut bytes)
                .map_err(|_| Broken::Rule("a packet without a header"))?;
            let header = Header::from_bytes(&bytes);
            let length = usize::try_from(header.length).unwrap_or(usize::MAX);
            let Some(data) = self.data.get_mut(..length) else {
                return Err(Broken::Rule("a packet with too much data"));
            };
            reader
                .read_exact(data)
                .map_err(|_| Broken::Rule("a packet with less data than it says"))?;
            self.mux.receive(&header, data);
            driver.push(TX, head, 0)?;
            any = true;
        }
        Ok(any)
    }
}

impl Device for Vsock {
    fn kind(&self) -> u32 {
        kind::VSOCK
    }

    fn name(&self) -> String {
        "vsock".to_string()
    }

    fn features(&self) -> u64 {
        F_STREAM
    }

    fn queue_sizes(&self) -> Vec<u16> {
        // Receive, transmit, events. The device has no events.
        vec![256, 256, 16]
    }

    fn config(&self) -> Vec<u8> {
        self.cid.to_le_bytes().to_vec()
    }

    fn start(&mut self, waker: &Waker) -> anyhow::Result<()> {
        self.waker = Some(waker.clone());
        self.hub.set_waker(waker.clone());
        Ok(())
    }

    fn notified(&mut self, driver: &mut Driver, _queue: usize) -> Result<(), Broken> {
        self.work(driver)
    }

    fn woken(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        self.work(driver)
    }

    fn reset(&mut self) {
        self.mux.reset();
    }
}
