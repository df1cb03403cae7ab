// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The attribute `kick-us`: which notifications are rare, so that the processor that notifies
//! should do the work itself and not wake a thread for it.
//!
//! Only a client does work in this way, never a device of a bus: a monitor is a client, and its
//! vCPUs notify the monitor's card. The device has the attribute, and its clients read it when they
//! connect. So an administrator sets it in one place for all machines.

use crate::administration::microseconds;
use crate::device::Attribute;
use crate::error::{Error, Kind};
use crate::limits;

/// Its name.
pub const KICK: &str = "kick-us";

/// Microseconds within which a notification follows another one soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kick(u32);

impl Kick {
    /// As it is at first: the original's `burstthresh`.
    pub const FIRST: Kick = Kick(20);

    /// The attribute.
    #[must_use]
    pub fn attribute(self) -> Attribute {
        Attribute::setting(KICK, self.0.to_string())
    }

    /// Reads a value of the attribute.
    ///
    /// # Errors
    /// It is not possible.
    pub fn read(value: &str) -> Result<Self, Error> {
        microseconds(KICK, value).map(Kick)
    }

    /// Microseconds.
    #[must_use]
    pub fn microseconds(self) -> u32 {
        self.0
    }

    /// Answers [`call::KICK`](super::call::KICK).
    ///
    /// # Errors
    /// There is no room for the result.
    pub fn answer(self, result: &mut [u8]) -> Result<usize, Error> {
        let bytes = self.0.to_le_bytes();
        let place = result.get_mut(..bytes.len());
        let place =
            place.ok_or_else(|| Error::new(Kind::Invalid, "there is no room for the result"))?;
        place.copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    /// What a device has answered. `None`: no value that is possible.
    #[must_use]
    pub fn answered(result: &[u8]) -> Option<Self> {
        let number = u32::from_le_bytes(result.try_into().ok()?);
        (number <= limits::MICROSECONDS).then_some(Kick(number))
    }
}

/// The error of a device that exchanges no frames: only its thread does its work.
pub(crate) fn none(interface: &str) -> Error {
    let text = format!(
        "{KICK} is an attribute of networks: only the thread of a device of type {interface:.40} \
         does its work"
    );
    Error::new(Kind::NotFound, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_the_value_or_none() {
        for value in ["0", "20", "10000"] {
            let (kick, mut result) = (Kick::read(value).unwrap(), [0; 8]);
            assert_eq!(kick.answer(&mut result), Ok(4));
            assert_eq!(Kick::answered(&result[..4]), Some(kick));
            assert_eq!(kick.attribute().value, value);
        }
        assert!(Kick::FIRST.answer(&mut [0; 3]).is_err());
        for bad in [
            &[][..],
            &[20],
            &[20, 0, 0, 0, 0],
            &[0x11, 0x27, 0, 0],
            &[0xff; 4],
        ] {
            assert_eq!(Kick::answered(bad), None, "{bad:?}");
        }
    }
}
