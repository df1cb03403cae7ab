// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ports of a switch that have agreed on capabilities.

use super::common::{Client, buffer, large, settle};
use paravane_vbus::ethernet::{cap, flag};
use paravane_vbus::{MemoryContext, Vbus};
use paravane_vbus_shm::north::Returned;

pub type Mac = [u8; 6];

/// Bytes of the buffers of `common`.
const BUFFER: usize = 2048;

/// A client whose link is up, with buffers.
pub struct Port {
    pub client: Client,
    pub caps: u32,
    pub mac: Mac,
}

/// A frame as its receiver sees it.
#[derive(Debug)]
pub struct Got {
    pub frame: Vec<u8>,
    pub flags: u32,
}

impl Port {
    pub fn open(vbus: &mut Vbus, process: u64, caps: u32) -> Self {
        let mut client = Client::open(vbus, process);
        let argument = [0, caps | 1 << 20].map(u32::to_le_bytes).concat();
        let agreed = vbus.call(client.member, client.id, 3, &argument).unwrap();
        // The switch does not agree to capabilities that it does not know.
        assert_eq!(agreed, [0, caps].map(u32::to_le_bytes).concat());
        vbus.call(client.member, client.id, 0, &[]).unwrap();
        let mac = vbus.call(client.member, client.id, 2, &[]).unwrap();
        client.post(vbus);
        let mac = mac.try_into().unwrap();
        Port { client, caps, mac }
    }

    pub fn has(&self, caps: u32) -> bool {
        self.caps & caps == caps
    }

    /// Posts a frame in parts that end at these places, or in one.
    pub fn send(&mut self, vbus: &mut Vbus, frame: &[u8], flags: u32, cuts: &[usize]) {
        self.client.memory.write(large(1), frame).unwrap();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % frame.len()).collect();
        ends.retain(|&end| end > 0 && self.has(cap::CHAIN));
        ends.push(frame.len());
        ends.sort_unstable();
        ends.dedup();
        let (mut start, mut flags) = (0, flags);
        for &end in &ends {
            let mut part = buffer(large(1) + start as u64, end - start);
            part.flags = flags & !flag::MORE;
            if end < frame.len() {
                part.flags |= flag::MORE;
            }
            self.client.tx.post(part).unwrap();
            (start, flags) = (end, 0);
        }
        vbus.notified(self.client.id);
    }

    /// Takes the next frame, and posts its buffers again.
    pub fn receive(&mut self, vbus: &mut Vbus) -> Option<Got> {
        let mut got = Got {
            frame: Vec::new(),
            flags: 0,
        };
        let mut first = true;
        loop {
            let Returned {
                cookie,
                used,
                flags,
                ..
            } = self.client.rx.take().unwrap()?;
            let mut part = vec![0; used as usize];
            self.client.memory.read(cookie, &mut part).unwrap();
            got.frame.extend(part);
            self.client.rx.post(buffer(cookie, BUFFER)).unwrap();
            if first {
                got.flags = flags & !flag::MORE;
            }
            if flags & flag::MORE == 0 {
                break;
            }
            assert!(self.has(cap::CHAIN), "several buffers");
            first = false;
        }
        vbus.notified(self.client.id);
        Some(got)
    }

    /// Lets the switch work, and takes all frames.
    pub fn receive_all(&mut self, vbus: &mut Vbus) -> Vec<Got> {
        let mut all = Vec::new();
        loop {
            settle(vbus);
            let before = all.len();
            while let Some(got) = self.receive(vbus) {
                all.push(got);
            }
            if all.len() == before {
                return all;
            }
        }
    }
}
