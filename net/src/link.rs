// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames to and from a network.

use crate::MAX_FRAME;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::io::{self, IoSlice};

/// How a link separates frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// Each read of the descriptor is a frame (tap).
    Read,
    /// A stream. Before each frame stands its length in four bytes, most significant first (passt,
    /// QEMU).
    Length,
}

/// Bytes of frames that a stream keeps for one call. A link that keeps as many takes no more.
const BATCH: usize = 256 << 10;

/// Length of the header before each frame on a link with [`Link::headers`]: `struct
/// virtio_net_hdr_v1`, with its count of buffers.
pub const HEADER: usize = 12;
/// Its `flags`: the checksum has to be completed.
pub const NEEDS_CSUM: u8 = 1;
/// Its `flags`: the checksum is correct.
pub const DATA_VALID: u8 = 2;
/// Its `gso_type`: one packet.
pub const GSO_NONE: u8 = 0;
/// Its `gso_type`: TCP over IPv4, longer than the MTU.
pub const GSO_TCPV4: u8 = 1;

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// One frame of at most [`MAX_FRAME`] bytes, after its header if the link has headers.
    Frame(&'a [u8]),
    /// No frame now. The descriptor becomes readable when there is one.
    Empty,
    /// The network has ended.
    Gone,
}

/// A connection to a network. No operation blocks: poll its descriptor (`AsFd`) to wait.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    framing: Framing,
    /// The largest IP packet that the network takes, in bytes.
    pub mtu: u16,
    /// Whether each frame follows a header of [`HEADER`] bytes, which the host's kernel obeys
    /// (tap).
    pub headers: bool,
    /// The index of the tap's interface, in the network namespace of this process.
    pub index: Option<u32>,
    /// The tap was down when the last frame was sent.
    pub down: bool,
    /// Drops packets to addresses that mean the host itself. For networks that do not check for
    /// them.
    pub(crate) outside_only: bool,
    /// Drops packets to link-local IPv4 addresses.
    pub(crate) no_link_local: bool,
    /// Buffer for a frame. For a stream, `start..end` has been read and is not handed out yet.
    space: Vec<u8>,
    start: usize,
    end: usize,
    /// The last read of the stream has returned less than it could.
    drained: bool,
    /// Frames for the stream, of which it has accepted the first `accepted` bytes.
    left: Vec<u8>,
    accepted: usize,
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Link {
    fn new(fd: OwnedFd, framing: Framing, mtu: u16, headers: bool) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        // Try twice for a stream: a read may end in the middle of a frame.
        let room = HEADER + MAX_FRAME;
        let space = vec![
            0;
            if framing == Framing::Length {
                4 * room
            } else {
                room
            }
        ];
        Ok(Link {
            fd,
            framing,
            mtu,
            headers,
            index: None,
            down: false,
            outside_only: false,
            no_link_local: false,
            space,
            start: 0,
            end: 0,
            drained: false,
            left: Vec::new(),
            accepted: 0,
        })
    }

    /// A tap's link: each read and each write of the descriptor is a frame after its header.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking.
    pub fn reads(fd: OwnedFd, mtu: u16) -> io::Result<Self> {
        Link::new(fd, Framing::Read, mtu, true)
    }

    /// A link over a stream, on which the length of each frame precedes it in four bytes. Packets
    /// have at most `mtu` bytes.
    ///
    /// # Errors
    /// The descriptor cannot be made non-blocking.
    pub fn stream(fd: OwnedFd, mtu: u16) -> io::Result<Self> {
        Link::new(fd, Framing::Length, mtu, false)
    }

    /// Sends one frame of a link with headers, and its header. Otherwise as [`send`](Link::send).
    ///
    /// # Errors
    /// The network has ended.
    pub fn send_parts(&mut self, header: &[u8; HEADER], frame: &[u8]) -> io::Result<bool> {
        if !self.headers || self.framing != Framing::Read {
            return self.send(&[header, frame].concat());
        }
        if frame.is_empty() || frame.len() > MAX_FRAME {
            return Ok(true);
        }
        let parts = [IoSlice::new(header), IoSlice::new(frame)];
        let written = again(|| rustix::io::writev(&self.fd, &parts));
        self.written(written)
    }

    /// What a write of a frame to a tap says.
    fn written(&mut self, written: Result<usize, Errno>) -> io::Result<bool> {
        match written {
            Ok(_) => {
                self.down = false;
                Ok(true)
            }
            // One that was removed gives `BADFD`.
            Err(Errno::IO) => {
                self.down = true;
                Ok(true)
            }
            Err(Errno::MSGSIZE | Errno::INVAL | Errno::NOBUFS | Errno::NOMEM) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends one frame, after its header if the link has headers. A stream may keep it until
    /// [`flush`](Link::flush), which must follow the last frame of a batch. False: the link is full
    /// and the frame was not sent; the descriptor becomes writable. A frame that the network
    /// refuses because of its contents (too long, for example) is dropped, as on a wire. So is one
    /// for a tap that is down, or for which the host has no memory.
    ///
    /// # Errors
    /// The network has ended.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        let header = if self.headers { HEADER } else { 0 };
        if frame.len() <= header || frame.len() > header + MAX_FRAME {
            return Ok(true);
        }
        let refused = (self.outside_only && means_the_host(frame))
            || (self.no_link_local && is_link_local(frame));
        if refused {
            return Ok(true);
        }
        match self.framing {
            Framing::Read => {
                let written = again(|| rustix::io::write(&self.fd, frame));
                self.written(written)
            }
            Framing::Length => {
                if self.left.len() >= BATCH {
                    self.flush()?;
                }
                if self.left.len() >= BATCH {
                    return Ok(false);
                }
                self.left
                    .extend(u32::try_from(frame.len()).unwrap_or(0).to_be_bytes());
                self.left.extend(frame);
                Ok(true)
            }
        }
    }

    /// Sends what a stream has kept, as far as it accepts it. If [`stuck`](Link::stuck) then, call
    /// it again when the descriptor is writable.
    ///
    /// # Errors
    /// The network has ended.
    pub fn flush(&mut self) -> io::Result<()> {
        while let Some(rest) = self.left.get(self.accepted..).filter(|r| !r.is_empty()) {
            match again(|| rustix::net::send(&self.fd, rest, SendFlags::NOSIGNAL)) {
                Ok(sent) => self.accepted += sent,
                Err(Errno::AGAIN) => {
                    self.left.drain(..self.accepted);
                    self.accepted = 0;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.left.clear();
        self.accepted = 0;
        Ok(())
    }

    /// Whether the stream has not accepted all frames.
    pub fn stuck(&self) -> bool {
        !self.left.is_empty()
    }

    /// Receives one frame.
    pub fn receive(&mut self) -> io::Result<Received<'_>> {
        if self.framing == Framing::Length {
            return self.receive_stream();
        }
        let space = self.space.as_mut_slice();
        match again(|| rustix::io::read(&self.fd, &mut *space)) {
            Ok(0) => Ok(Received::Gone),
            Ok(length) => Ok(Received::Frame(
                self.space.get(..length).unwrap_or_default(),
            )),
            Err(Errno::AGAIN) => Ok(Received::Empty),
            Err(error) => Err(error.into()),
        }
    }

    fn receive_stream(&mut self) -> io::Result<Received<'_>> {
        loop {
            let have = self.space.get(self.start..self.end).unwrap_or_default();
            if let Some((head, rest)) = have.split_first_chunk::<4>() {
                let length = u32::from_be_bytes(*head) as usize;
                if length > MAX_FRAME {
                    return Err(io::Error::other(format!("a frame of {length} bytes")));
                }
                if rest.len() >= length {
                    let at = self.start + head.len();
                    self.start = at + length;
                    return Ok(Received::Frame(
                        self.space.get(at..at + length).unwrap_or_default(),
                    ));
                }
            }
            self.space.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if std::mem::take(&mut self.drained) {
                // A frame that came since makes the descriptor readable.
                return Ok(Received::Empty);
            }
            let room = self.space.get_mut(self.end..).unwrap_or_default();
            match again(|| rustix::io::read(&self.fd, &mut *room)) {
                Ok(0) => return Ok(Received::Gone),
                Ok(length) => {
                    self.drained = length < room.len();
                    self.end += length;
                }
                Err(Errno::AGAIN) => return Ok(Received::Empty),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether a frame without header goes to an address by which a host means itself. Such packets
/// must not appear on a wire (RFC 1122, section 3.2.1.3; RFC 4291, section 2.5.3; RFC 6890).
fn means_the_host(frame: &[u8]) -> bool {
    let Some((kind, packet)) = frame
        .get(12..)
        .and_then(|rest| rest.split_first_chunk::<2>())
    else {
        return false;
    };
    match *kind {
        [0x08, 0x00] => packet
            .get(16)
            .is_none_or(|&first| first == 0 || first == 127),
        [0x86, 0xdd] => packet.get(24..40).is_none_or(|to| {
            let (zeroes, last) = to.split_at(12);
            // `::`, `::1` and IPv4-mapped addresses.
            let low = last.iter().take(3).all(|&b| b == 0) && last.last().is_some_and(|&b| b < 2);
            let mapped = zeroes.ends_with(&[0xff, 0xff]) && zeroes.iter().take(10).all(|&b| b == 0);
            mapped || (low && zeroes.iter().all(|&b| b == 0))
        }),
        _ => false,
    }
}

/// Whether a frame without header goes to a link-local IPv4 address (RFC 3927).
fn is_link_local(frame: &[u8]) -> bool {
    let (kind, to) = (frame.get(12..14), frame.get(30..32));
    kind == Some(&[8, 0]) && to == Some(&[169, 254])
}

fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Link, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Link::stream(ours.into(), 1500).unwrap(), theirs)
    }

    /// The next frame, `None` at the end.
    fn next(link: &mut Link) -> Option<Vec<u8>> {
        loop {
            match link.receive().unwrap() {
                Received::Frame(frame) => return Some(frame.to_vec()),
                Received::Gone => return None,
                Received::Empty => std::thread::yield_now(),
            }
        }
    }

    proptest! {
        /// The frames are the same wherever the stream is cut.
        #[test]
        fn a_stream_gives_back_its_frames(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 1..12),
            cut in 1usize..40,
        ) {
            let (mut link, mut theirs) = pair();
            let length = |f: &Vec<u8>| u32::try_from(f.len()).unwrap().to_be_bytes();
            let bytes: Vec<u8> = frames
                .iter()
                .flat_map(|f| length(f).into_iter().chain(f.iter().copied()))
                .collect();
            let writer = std::thread::spawn(move || {
                bytes.chunks(cut).for_each(|c| theirs.write_all(c).unwrap());
            });
            for frame in frames {
                prop_assert_eq!(next(&mut link), Some(frame));
            }
            writer.join().unwrap();
            prop_assert_eq!(next(&mut link), None);
        }
    }

    #[test]
    fn packets_for_the_host_itself_are_told_apart() {
        let v4 = |to: [u8; 4]| [&[0; 12][..], &[8, 0], &[0x45; 16], &to].concat();
        for (to, own) in [
            ([127, 0, 0, 1], true),
            ([127, 9, 9, 9], true),
            ([0, 0, 0, 0], true),
            ([0, 1, 2, 3], true),
            ([10, 0, 2, 2], false),
            ([128, 0, 0, 1], false),
        ] {
            assert_eq!(means_the_host(&v4(to)), own, "{to:?}");
        }
        let v6 = |to: &str| {
            let to: std::net::Ipv6Addr = to.parse().unwrap();
            [&[0; 12][..], &[0x86, 0xdd], &[0x60; 24], &to.octets()].concat()
        };
        for (to, own) in [
            ("::1", true),
            ("::", true),
            ("::ffff:127.0.0.1", true),
            ("::2", false),
            ("fe80::1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(means_the_host(&v6(to)), own, "{to}");
        }
        // Too short to have a destination.
        assert!(means_the_host(&v4([10, 0, 0, 1])[..30]));
        assert!(!means_the_host(&[0; 13]));
    }

    #[test]
    fn link_local_packets_are_dropped_where_they_are_refused() {
        let (mut link, mut theirs) = pair();
        let packet = |to: [u8; 4]| [&[0; 12][..], &[8, 0], &[0x45; 16], &to].concat();
        for refused in [true, false] {
            link.no_link_local = refused;
            for to in [[169, 254, 169, 254], [169, 253, 0, 1], [168, 254, 0, 1]] {
                assert!(link.send(&packet(to)).unwrap());
            }
            // The frame is neither IPv4 nor long enough.
            assert!(link.send(&packet([169, 254, 0, 1])[..31]).unwrap());
            link.flush().unwrap();
            let mut bytes = vec![0; if refused { 2 * 38 + 35 } else { 3 * 38 + 35 }];
            std::io::Read::read_exact(&mut theirs, &mut bytes).unwrap();
            let found = bytes.windows(4).any(|part| part == [169, 254, 169, 254]);
            assert_eq!(found, !refused);
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_an_error() {
        let (mut link, mut theirs) = pair();
        theirs.write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert!(link.receive().is_err());
    }

    #[test]
    fn a_full_stream_loses_nothing_that_it_took() {
        let (mut link, theirs) = pair();
        let mut other = Link::stream(theirs.into(), 1500).unwrap();
        let frame = |i: u32| i.to_be_bytes().repeat(10_000);
        let mut taken = 0;
        while link.send(&frame(taken)).unwrap() {
            taken += 1;
        }
        assert!(link.stuck());
        let reader =
            std::thread::spawn(move || (0..taken).all(|i| next(&mut other) == Some(frame(i))));
        while link.stuck() {
            link.flush().unwrap();
        }
        assert!(reader.join().unwrap());
    }
}
