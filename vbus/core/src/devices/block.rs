// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What devices of the type `virtual-block` share: a disk's geometry, and requests from the
//! descriptors of a ring. All that the client has written is copied once.

use crate::endpoint::{Broken, Endpoint};
use crate::error::{Error, Kind};
use paravane_vbus_shm::layout::{self, BlockGeometry, BlockRequest};
use paravane_vbus_shm::south::Place;
use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};

/// The interface's type.
pub const TYPE: &str = "virtual-block";
/// Bytes of a sector, the unit of everything.
pub const SECTOR: u64 = 512;
/// The most data descriptors of a request.
pub const SEGMENTS: usize = 128;
/// Bytes of a block that a host writes as a whole.
const PHYSICAL: u32 = 4096;
/// Bytes of a serial number.
const SERIAL: usize = size_of::<BlockGeometry>() - offset_of!(BlockGeometry, serial);
const HEADER: usize = size_of::<BlockRequest>();
const MORE: u32 = 1;
const _: () = assert!(layout::VBUS_BLOCK_MORE == MORE as u64);

/// A disk that reads, writes and flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Its size.
    pub sectors: u64,
    /// Whatever changes it fails.
    pub read_only: bool,
    /// Its serial number, which zeroes follow.
    pub serial: [u8; SERIAL],
}

/// Bytes of an encoded geometry.
pub const GEOMETRY: usize = size_of::<BlockGeometry>();

/// A call of virtual-block, for a disk with this geometry. Returns the bytes of the result.
///
/// # Errors
/// There is no such call, or no room for the result.
pub fn call(call: u32, geometry: &[u8; GEOMETRY], result: &mut [u8]) -> Result<usize, Error> {
    if call != word(layout::VBUS_BLOCK_GEOMETRY) {
        let text = format!("{TYPE} has no call {call}");
        return Err(Error::new(Kind::NotFound, text));
    }
    let no_room = || Error::new(Kind::Invalid, "there is no room for the result");
    let place = result.get_mut(..GEOMETRY).ok_or_else(no_room)?;
    place.copy_from_slice(geometry);
    Ok(GEOMETRY)
}

fn word(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn put(all: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = all.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn field<const N: usize>(all: &[u8], at: usize) -> Option<[u8; N]> {
    all.get(at..at + N)?.try_into().ok()
}

impl Geometry {
    /// With as much of a serial number as fits.
    #[must_use]
    pub fn new(sectors: u64, read_only: bool, serial: &str) -> Self {
        let mut all = [0; SERIAL];
        for (place, byte) in all.iter_mut().zip(serial.bytes()) {
            *place = byte;
        }
        Geometry {
            sectors,
            read_only,
            serial: all,
        }
    }

    /// As the result of `VBUS_BLOCK_GEOMETRY`.
    #[must_use]
    pub fn encode(&self) -> [u8; GEOMETRY] {
        let mut flags = layout::VBUS_BLOCK_HAS_FLUSH;
        if self.read_only {
            flags |= layout::VBUS_BLOCK_READ_ONLY;
        }
        let mut all = [0; GEOMETRY];
        put(
            &mut all,
            offset_of!(BlockGeometry, sectors),
            &self.sectors.to_le_bytes(),
        );
        for (at, value) in [
            (offset_of!(BlockGeometry, flags), word(flags)),
            (offset_of!(BlockGeometry, block), word(SECTOR)),
            (offset_of!(BlockGeometry, physical), PHYSICAL),
            (offset_of!(BlockGeometry, segments), word(SEGMENTS as u64)),
        ] {
            put(&mut all, at, &value.to_le_bytes());
        }
        put(&mut all, offset_of!(BlockGeometry, serial), &self.serial);
        all
    }

    /// Of such a result. `None`: it is too short, or has blocks that are larger than sectors.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let flags = u32::from_le_bytes(field(bytes, offset_of!(BlockGeometry, flags))?);
        let block = u32::from_le_bytes(field(bytes, offset_of!(BlockGeometry, block))?);
        if u64::from(block) != SECTOR {
            return None;
        }
        Some(Geometry {
            sectors: u64::from_le_bytes(field(bytes, offset_of!(BlockGeometry, sectors))?),
            read_only: u64::from(flags) & layout::VBUS_BLOCK_READ_ONLY != 0,
            serial: field(bytes, offset_of!(BlockGeometry, serial))?,
        })
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The bytes from this sector on.
    Read(u64),
    /// To write them.
    Write(u64),
    /// Makes all written data survive a power failure.
    Flush,
    /// It makes no sense: it has this status at once.
    Refused(u64),
}

/// The descriptors of a request so far.
#[derive(Debug)]
pub struct Parts {
    header: [u8; HEADER],
    /// Address of the header.
    at: u64,
    /// Addresses and lengths of the data.
    data: Vec<(u64, usize)>,
}

impl Parts {
    /// Takes the first descriptor.
    ///
    /// # Errors
    /// The client broke a rule.
    pub fn begin(endpoint: &Endpoint, place: &Place) -> Result<Self, Broken> {
        if place.len as usize != HEADER || !place.ptr.is_multiple_of(8) {
            return Err(Broken::Parts);
        }
        let mut header = [0; HEADER];
        endpoint.read(place.ptr, &mut header)?;
        Ok(Parts {
            header,
            at: place.ptr,
            data: Vec::new(),
        })
    }

    /// Takes another descriptor.
    ///
    /// # Errors
    /// The client broke a rule.
    pub fn add(&mut self, place: &Place) -> Result<(), Broken> {
        if self.data.len() == SEGMENTS || place.len == 0 {
            return Err(Broken::Parts);
        }
        self.data.push((place.ptr, place.len as usize));
        Ok(())
    }

    /// Takes the descriptors of the next request from a ring. `parts` has those of a request of
    /// which some are missing.
    ///
    /// # Errors
    /// The client broke a rule.
    pub fn next(endpoint: &mut Endpoint, parts: &mut Option<Self>) -> Result<Option<Self>, Broken> {
        // A request has a bounded number of descriptors.
        while let Some(place) = endpoint.next_place()? {
            let so_far = match parts.take() {
                None => Parts::begin(endpoint, &place)?,
                Some(mut so_far) => {
                    so_far.add(&place)?;
                    so_far
                }
            };
            if place.flags & MORE == 0 {
                return Ok(Some(so_far));
            }
            *parts = Some(so_far);
        }
        Ok(None)
    }

    /// Number of descriptors.
    #[must_use]
    pub fn descriptors(&self) -> u32 {
        word(self.data.len() as u64 + 1)
    }

    /// Bytes of the data.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let add = usize::saturating_add;
        self.data.iter().map(|part| part.1).fold(0, add)
    }

    fn number(&self, at: usize) -> u32 {
        field(&self.header, at).map_or(0, u32::from_le_bytes)
    }

    /// What the request asks for, of a disk like this, in at most `most` bytes.
    #[must_use]
    pub fn wanted(&self, disk: &Geometry, most: usize) -> Wanted {
        let refused = Wanted::Refused(layout::VBUS_BLOCK_FAILED);
        let operation = u64::from(self.number(offset_of!(BlockRequest, operation)));
        let sector = field(&self.header, offset_of!(BlockRequest, sector));
        let sector = sector.map_or(u64::MAX, u64::from_le_bytes);
        let sectors = u64::from(self.number(offset_of!(BlockRequest, sectors)));
        let known = [
            layout::VBUS_BLOCK_READ,
            layout::VBUS_BLOCK_WRITE,
            layout::VBUS_BLOCK_FLUSH,
        ];
        if self.number(offset_of!(BlockRequest, flags)) != 0 || !known.contains(&operation) {
            return Wanted::Refused(layout::VBUS_BLOCK_UNSUPPORTED);
        }
        if operation == layout::VBUS_BLOCK_FLUSH {
            let bare = sectors == 0 && self.data.is_empty();
            return if bare { Wanted::Flush } else { refused };
        }
        let bytes = self.bytes();
        let end = sector.checked_add(sectors);
        let inside = end.is_some_and(|end| end <= disk.sectors);
        if !inside || sectors * SECTOR != bytes as u64 || bytes > most || bytes == 0 {
            return refused;
        }
        match operation == layout::VBUS_BLOCK_READ {
            true => Wanted::Read(sector),
            false if disk.read_only => refused,
            false => Wanted::Write(sector),
        }
    }

    /// The places of `len` bytes of the data, from byte `start` on.
    fn places(&self, start: usize, len: usize) -> impl Iterator<Item = (u64, usize)> {
        let (mut skip, mut left) = (start, len);
        self.data.iter().filter_map(move |&(ptr, len)| {
            let first = skip.min(len);
            let count = (len - first).min(left);
            (skip, left) = (skip - first, left - count);
            (count > 0).then(|| (ptr.wrapping_add(first as u64), count))
        })
    }

    /// Copies data to `to`, from byte `start` of it on.
    ///
    /// # Errors
    /// A buffer is outside of the client's memory.
    pub fn read(&self, endpoint: &Endpoint, start: usize, to: &mut [u8]) -> Result<(), Broken> {
        let mut rest = to;
        for (ptr, count) in self.places(start, rest.len()) {
            let all = std::mem::take(&mut rest);
            let (part, after) = all.split_at_mut(count.min(all.len()));
            endpoint.read(ptr, part)?;
            rest = after;
        }
        Ok(())
    }

    /// Copies `from` to the data, from byte `start` of it on.
    ///
    /// # Errors
    /// A buffer is outside of the client's memory.
    pub fn write(&self, endpoint: &Endpoint, start: usize, from: &[u8]) -> Result<(), Broken> {
        let mut rest = from;
        for (ptr, count) in self.places(start, rest.len()) {
            let (part, after) = rest.split_at(count.min(rest.len()));
            endpoint.write(ptr, part)?;
            rest = after;
        }
        Ok(())
    }

    /// Stores the status for the client. Nothing of the request is touched after this.
    ///
    /// # Errors
    /// The header is outside of the client's memory.
    pub fn finish(&self, endpoint: &Endpoint, status: u64) -> Result<(), Broken> {
        // A client that sees the status sees the data. Its value is one byte, which cannot be torn.
        fence(Ordering::Release);
        let at = self.at + offset_of!(BlockRequest, status) as u64;
        endpoint.write(at, &word(status).to_le_bytes())
    }
}
