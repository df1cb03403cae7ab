// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet headers (virtio 1.2, section 5.10.6).
//!
//! The crate virtio-vsock is not used: its packets have one buffer of data, and with `MSG_ZEROCOPY`
//! Linux sends each page of the data in a buffer of its own. The device reads and writes packets
//! through virtio-queue's readers and writers, which take any number of buffers.

/// Size of a header in bytes.
pub const HEADER_SIZE: usize = 44;
/// The most data in one packet in bytes.
pub const DATA_MAX: usize = 64 << 10;

/// The host's address.
pub const HOST_CID: u64 = 2;
/// `type`: a byte stream.
pub const STREAM: u16 = 1;

/// `op`.
pub mod op {
    /// Asks for a connection.
    pub const REQUEST: u16 = 1;
    /// Accepts it.
    pub const RESPONSE: u16 = 2;
    /// Refuses it, or ends it.
    pub const RST: u16 = 3;
    /// The sender will send or receive no more.
    pub const SHUTDOWN: u16 = 4;
    /// Data.
    pub const RW: u16 = 5;
    /// Reports room for more.
    pub const CREDIT_UPDATE: u16 = 6;
    /// Asks for a `CREDIT_UPDATE`.
    pub const CREDIT_REQUEST: u16 = 7;
}

/// `flags` of `SHUTDOWN`: the sender of the packet will receive no more.
pub const SHUTDOWN_RECEIVE: u32 = 1;
/// It will send no more.
pub const SHUTDOWN_SEND: u32 = 2;
/// Both.
pub const SHUTDOWN_BOTH: u32 = 3;

/// A header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub source_cid: u64,
    pub target_cid: u64,
    pub source_port: u32,
    pub target_port: u32,
    pub length: u32,
    pub kind: u16,
    pub op: u16,
    pub flags: u32,
    pub buffer_size: u32,
    pub forwarded: u32,
}

impl Header {
    /// Parses a header.
    pub fn from_bytes(bytes: &[u8; HEADER_SIZE]) -> Self {
        let byte = |at: usize| bytes[at];
        let short = |at: usize| u16::from_le_bytes([byte(at), byte(at + 1)]);
        let word = |at: usize| u32::from(short(at)) | u32::from(short(at + 2)) << 16;
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Header {
            source_cid: long(0),
            target_cid: long(8),
            source_port: word(16),
            target_port: word(20),
            length: word(24),
            kind: short(28),
            op: short(30),
            flags: word(32),
            buffer_size: word(36),
            forwarded: word(40),
        }
    }

    /// The header as it is sent.
    pub fn to_bytes(self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        let parts: [(usize, &[u8]); 10] = [
            (0, &self.source_cid.to_le_bytes()),
            (8, &self.target_cid.to_le_bytes()),
            (16, &self.source_port.to_le_bytes()),
            (20, &self.target_port.to_le_bytes()),
            (24, &self.length.to_le_bytes()),
            (28, &self.kind.to_le_bytes()),
            (30, &self.op.to_le_bytes()),
            (32, &self.flags.to_le_bytes()),
            (36, &self.buffer_size.to_le_bytes()),
            (40, &self.forwarded.to_le_bytes()),
        ];
        for (at, part) in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes: [[u8; 4]; 11]) {
            let bytes: [u8; HEADER_SIZE] = bytes.concat().try_into().unwrap();
            prop_assert_eq!(Header::from_bytes(&bytes).to_bytes(), bytes);
        }
    }
}
