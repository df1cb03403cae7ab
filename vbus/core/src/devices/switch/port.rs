// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port of the switch, and what the switch counts.

use super::Mac;
use crate::device::ConnectionId;
use crate::devices::Port;
use crate::ethernet::Frame;

/// The port of a connection.
#[derive(Debug)]
pub struct SwitchPort {
    pub port: Port,
    pub mac: Mac,
    /// The client has asked for its address, or been told it.
    pub settled: bool,
    pub up: bool,
    /// What was agreed on.
    pub caps: u32,
    /// The frame that is delivered or waits.
    pub frame: Frame,
    /// The port whose buffers the held frame waits for.
    pub waits_for: Option<ConnectionId>,
}

#[derive(Debug, Default)]
pub struct Dropped {
    pub no_buffer: u64,
    pub unknown: u64,
    pub source: u64,
    pub malformed: u64,
}

/// What was finished for receivers that cannot.
#[derive(Debug, Default)]
pub struct Finished {
    pub checksums: u64,
    pub segments: u64,
}

impl SwitchPort {
    pub fn new(mac: Mac) -> Self {
        SwitchPort {
            port: Port::default(),
            mac,
            settled: false,
            up: false,
            caps: 0,
            frame: Frame::default(),
            waits_for: None,
        }
    }

    /// The frame was delivered or dropped: its descriptors go back to the sender.
    pub fn forget_frame(&mut self) {
        if let Some(tx) = &mut self.port.tx {
            tx.give_back(self.frame.parts.count(), self.frame.parts.len());
        }
        self.frame.clear();
    }

    /// Agrees on capabilities that both sides have.
    pub fn agree(&mut self, group: u32, both: u32) -> u32 {
        if group != 0 {
            return 0;
        }
        self.caps = both;
        // One that waits began under others.
        self.forget_frame();
        self.caps
    }
}
