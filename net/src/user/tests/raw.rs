// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest that sends arbitrary segments: TCP made by hand.

use super::*;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;
/// The largest window without a scale, and the option that sets one.
const WINDOW: u16 = u16::MAX;
pub const SCALE: [u8; 4] = [3, 3, 3, 1];

/// A segment, as it is made or was seen.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// The port that it comes from, where it was seen.
    pub from: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    /// After the header, as many bytes as the header says.
    pub options: Vec<u8>,
    pub data: Vec<u8>,
}

/// An end of a connection at the guest.
pub struct Raw {
    pub wire: Wire,
    pub own: SocketAddrV4,
    pub other: SocketAddrV4,
    /// The number that is sent next, and the one that is expected next.
    pub seq: u32,
    pub ack: u32,
    /// The last window that was announced, without its scale.
    pub window: u16,
}

impl Raw {
    pub fn new(config: Config) -> Raw {
        let own = SocketAddrV4::new(config.guest, 80);
        Raw {
            other: SocketAddrV4::new(config.gateway, 1024),
            wire: Guest::new(config).wire,
            own,
            seq: 7_000_000,
            ack: 0,
            window: 0,
        }
    }

    /// The next frame of this type, without an answer to others.
    pub fn frame(&mut self, kind: [u8; 2]) -> Vec<u8> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let frame = self.wire.wait(Duration::from_millis(100));
            if let Some(frame) = frame.filter(|frame| frame[12..14] == kind) {
                return frame;
            }
        }
        panic!("no frame of type {kind:?}");
    }

    /// Tells where an address is.
    pub fn arp(&mut self, address: [u8; 4]) {
        let mut frame = Vec::from(frame::ROUTER.0);
        frame.extend(MAC.0);
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
        frame.extend(MAC.0);
        frame.extend(address);
        frame.extend(frame::ROUTER.0);
        frame.extend(Config::default().gateway.octets());
        self.wire.network.take(&frame, &mut self.wire.card);
    }

    /// Gives a segment to the network, which does nothing else yet.
    pub fn take(&mut self, segment: &Segment) {
        let mut tcp = self.own.port().to_be_bytes().to_vec();
        tcp.extend(self.other.port().to_be_bytes());
        tcp.extend(segment.seq.to_be_bytes());
        tcp.extend(segment.ack.to_be_bytes());
        let words = 5 + u8::try_from(segment.options.len() / 4).unwrap();
        tcp.extend([words << 4, segment.flags]);
        tcp.extend(segment.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&segment.options);
        tcp.extend(&segment.data);
        let mut frame = Vec::from(frame::ROUTER.0);
        frame.extend(MAC.0);
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(u16::try_from(20 + tcp.len()).unwrap().to_be_bytes());
        frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
        frame.extend(self.own.ip().octets());
        frame.extend(self.other.ip().octets());
        frame.extend(tcp);
        self.wire.network.take(&frame, &mut self.wire.card);
    }

    /// The next segment with these flags, and with their numbers from now on.
    pub fn send(&mut self, flags: u8, data: &[u8]) {
        let options = if flags & SYN == 0 { 0 } else { 4 };
        self.take(&Segment {
            seq: self.seq,
            ack: self.ack,
            flags,
            window: WINDOW,
            options: SCALE[..options].to_vec(),
            data: data.to_vec(),
            ..Segment::default()
        });
        let counted = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        let length = u32::try_from(data.len()).unwrap();
        self.seq = self.seq.wrapping_add(length + counted);
    }

    /// The segment that this frame contains.
    pub fn read(&mut self, frame: &[u8]) -> Option<Segment> {
        if frame[12..14] != [8, 0] || frame[23] != 6 {
            return None;
        }
        let length = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let tcp = &frame[34..14 + length];
        let long = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
        let data = &tcp[usize::from(tcp[12] >> 4) * 4..];
        let segment = Segment {
            from: u16::from_be_bytes([tcp[0], tcp[1]]),
            seq: long(4),
            ack: long(8),
            flags: tcp[13],
            window: u16::from_be_bytes([tcp[14], tcp[15]]),
            options: Vec::new(),
            data: data.to_vec(),
        };
        self.window = segment.window;
        let counted = u32::from(tcp[13] & (SYN | FIN) != 0);
        let end = long(4).wrapping_add(u32::try_from(data.len()).unwrap() + counted);
        if end.wrapping_sub(self.ack) < 1 << 31 || tcp[13] & SYN != 0 {
            self.ack = end;
        }
        Some(segment)
    }

    /// The next segment. Answers queries for the guest's address.
    pub fn next(&mut self) -> Segment {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let Some(frame) = self.wire.wait(Duration::from_millis(100)) else {
                continue;
            };
            if frame[12..14] == [8, 6] {
                self.arp(self.own.ip().octets());
            } else if let Some(segment) = self.read(&frame) {
                return segment;
            }
        }
        panic!("no segment");
    }

    /// All segments within this time.
    pub fn all(&mut self, time: Duration) -> Vec<Segment> {
        let begun = Instant::now();
        let mut all = Vec::new();
        while begun.elapsed() < time {
            if let Some(frame) = self.wire.wait(Duration::from_millis(1)) {
                all.extend(self.read(&frame));
            }
        }
        all
    }

    /// Connects to a service of the test, and returns the service's end.
    pub fn connect(&mut self, listener: &TcpListener) -> TcpStream {
        self.other = gateway(listener.local_addr().unwrap().port());
        self.arp(self.own.ip().octets());
        self.send(SYN, b"");
        assert_eq!(self.next().flags, SYN | ACK);
        self.send(ACK, b"");
        listener.accept().unwrap().0
    }

    /// Whether an ordinary guest can still use the network.
    pub fn works(self) {
        let (port, server) = echo();
        let mut guest = Guest::new(loopback());
        guest.wire = self.wire;
        let handle = guest.connect(gateway(port), 41_000);
        guest.until("a connection afterwards", |g| g.socket(handle).may_send());
        guest.socket(handle).close();
        guest.until("end", |_| server.is_finished());
    }
}
