// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP over IPv4 and IPv6: cuts a long segment into short ones. Internet checksums.

use super::Ip;

/// `FIN` and `PSH`: of the last segment only.
const LAST: u8 = 0x09;
/// `CWR`: of the first segment only.
const FIRST: u8 = 0x80;
/// Where the checksum of TCP is.
const CHECKSUM: usize = 16;

/// Bytes of the header of IPv6.
const SIX: usize = 40;

/// A TCP segment whose headers were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    over: Ip,
    /// Where the header of IP begins, and that of TCP.
    ip: usize,
    tcp: usize,
    /// Bytes of all headers, of the payload, and of the payload of each short segment.
    headers: usize,
    payload: usize,
    size: usize,
}

impl Tcp {
    /// Reads the headers of a frame of `len` bytes. `None`: it is no TCP segment over this that can
    /// be cut into segments of `size` bytes. One over IPv6 has no headers in between.
    pub fn read(head: &[u8], len: usize, over: Ip, size: usize) -> Option<Self> {
        // One tag of a VLAN may be in between.
        let ip = match half(head, 12)? {
            0x8100 | 0x88a8 => 18,
            _ => 14,
        };
        let (kind, version) = (half(head, ip - 2)?, *head.get(ip)?);
        let (tcp, sound) = match over {
            Ip::V4 => {
                let tcp = ip + usize::from(version & 0xf) * 4;
                let sound = (kind, version >> 4) == (0x0800, 4)
                    && tcp >= ip + 20
                    && head.get(ip + 9) == Some(&6)
                    // No fragment.
                    && half(head, ip + 6)? & 0x3fff == 0
                    && usize::from(half(head, ip + 2)?) + ip == len;
                (tcp, sound)
            }
            Ip::V6 => {
                let tcp = ip + SIX;
                let sound = (kind, version >> 4) == (0x86dd, 6)
                    && head.get(ip + 6) == Some(&6)
                    && usize::from(half(head, ip + 4)?) + tcp == len;
                (tcp, sound)
            }
        };
        let headers = tcp + usize::from(*head.get(tcp + 12)? >> 4) * 4;
        let sound = sound && headers >= tcp + 20 && headers <= len.min(head.len()) && size > 0;
        sound.then(|| Tcp {
            over,
            ip,
            tcp,
            headers,
            payload: len - headers,
            size,
        })
    }

    /// The IP that it is over.
    pub fn over(&self) -> Ip {
        self.over
    }

    /// Bytes of all headers.
    pub fn headers(&self) -> usize {
        self.headers
    }

    /// Where TCP begins, and where its checksum is.
    pub fn places(&self) -> (usize, usize) {
        (self.tcp, self.tcp + CHECKSUM)
    }

    /// The payload of the segment after `done` bytes: where it begins, its length, and whether
    /// another one follows.
    pub fn payload(&self, done: usize) -> (usize, usize, bool) {
        let first = done.min(self.payload);
        let len = self.size.min(self.payload - first);
        (first, len, first + len < self.payload)
    }

    /// Makes headers of the long segment those of a short one: its payload begins at `first` and
    /// has `len` bytes. The checksum is that of the pseudo header.
    pub fn finish(&self, headers: &mut [u8], first: usize, len: usize) {
        let Tcp { ip, tcp, .. } = *self;
        let half_of = |length: usize| u16::try_from(length).unwrap_or(0);
        let length = self.headers - tcp + len;
        let addresses = match self.over {
            Ip::V4 => {
                put(headers, ip + 2, half_of(tcp - ip + length));
                let id = half(headers, ip + 4).unwrap_or(0);
                let number = half_of(first / self.size);
                put(headers, ip + 4, id.wrapping_add(number));
                put(headers, ip + 10, 0);
                let header = !fold(sum(headers.get(ip..tcp).unwrap_or_default()));
                put(headers, ip + 10, header);
                ip + 12..ip + 20
            }
            Ip::V6 => {
                put(headers, ip + 4, half_of(length));
                ip + 8..tcp
            }
        };
        if let Some(place) = headers.get_mut(tcp + 4..).and_then(<[u8]>::first_chunk_mut) {
            let offset = u32::try_from(first).unwrap_or(0);
            *place = u32::from_be_bytes(*place)
                .wrapping_add(offset)
                .to_be_bytes();
        }
        if let Some(flags) = headers.get_mut(tcp + 13) {
            if first > 0 {
                *flags &= !FIRST;
            }
            if first + len < self.payload {
                *flags &= !LAST;
            }
        }
        // Addresses, protocol, and length of TCP.
        let addresses = sum(headers.get(addresses).unwrap_or_default());
        put(headers, tcp + CHECKSUM, fold(addresses + 6 + length as u64));
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let place = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*place))
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// The sum of words of 16 bits. At most some gigabytes.
fn sum(bytes: &[u8]) -> u64 {
    // Two words at once: the upper ones are added when it is folded.
    let (fours, rest) = bytes.as_chunks::<4>();
    let fours = fours
        .iter()
        .map(|&four| u64::from(u32::from_be_bytes(four)));
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    fours.sum::<u64>() + u64::from(u32::from_be_bytes(last))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(0)
}

/// Completes the checksum at `at`, which has the sum of the pseudo header, with all bytes from
/// `start` on. Nothing happens if the place is not among the bytes.
pub fn complete(bytes: &mut [u8], start: usize, at: usize) {
    let sum = !fold(sum(bytes.get(start..).unwrap_or_default()));
    // 0 would mean that there is none.
    put(bytes, at, if sum == 0 { 0xffff } else { sum });
}

#[cfg(test)]
mod tests {
    use super::complete;

    #[test]
    fn a_checksum_of_zero_is_stored_as_ones() {
        let mut bytes = [0xff, 0xff, 0, 0];
        complete(&mut bytes, 0, 2);
        assert_eq!(bytes, [0xff; 4]);
    }
}
