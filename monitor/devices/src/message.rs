// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts whose vector and vCPU the guest chose.

use std::fmt;

/// The lowest vector that a guest can choose: those below are exceptions.
const VECTOR_MIN: u32 = 32;

/// A vector of a vCPU, checked: the guest's choice for an interrupt of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    vcpu: u32,
    vector: u8,
}

/// Why there is no such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMessage {
    /// The vector is none of an interrupt.
    Vector,
    /// The machine has no such vCPU.
    Vcpu,
}

impl Message {
    /// Checks what a guest asks for, in a machine of `vcpus` vCPUs. The APIC ids of a machine are
    /// the numbers of its vCPUs.
    ///
    /// # Errors
    /// What is wrong.
    pub fn new(apic: u32, vector: u32, vcpus: usize) -> Result<Self, NoMessage> {
        let vector = u8::try_from(vector).ok();
        let vector = vector.filter(|&vector| u32::from(vector) >= VECTOR_MIN);
        let vector = vector.ok_or(NoMessage::Vector)?;
        if usize::try_from(apic).map_or(true, |vcpu| vcpu >= vcpus) {
            return Err(NoMessage::Vcpu);
        }
        Ok(Message { vcpu: apic, vector })
    }

    /// The vCPU's number, which is below the number of vCPUs.
    pub fn vcpu(self) -> u32 {
        self.vcpu
    }

    /// The vector, which is that of an interrupt.
    pub fn vector(self) -> u8 {
        self.vector
    }
}

impl fmt::Display for NoMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoMessage::Vector => "the vector is not that of an interrupt",
            NoMessage::Vcpu => "there is no such vCPU",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_is_a_vector_of_a_vcpu() {
        for (apic, vector, expected) in [
            (0, 32, Ok(32)),
            (1, 255, Ok(255)),
            (0, 31, Err(NoMessage::Vector)),
            (0, 0, Err(NoMessage::Vector)),
            (0, 256, Err(NoMessage::Vector)),
            (0, 256 + 32, Err(NoMessage::Vector)),
            (2, 32, Err(NoMessage::Vcpu)),
            (u32::MAX, 32, Err(NoMessage::Vcpu)),
        ] {
            let made = Message::new(apic, vector, 2);
            assert_eq!(made.map(Message::vector), expected, "{apic} {vector}");
        }
    }

    proptest! {
        #[test]
        fn no_choice_reaches_outside(apic: u32, vector: u32, vcpus in 1usize..65) {
            if let Ok(made) = Message::new(apic, vector, vcpus) {
                prop_assert!((made.vcpu() as usize) < vcpus && made.vector() >= 32);
                prop_assert_eq!((made.vcpu(), u32::from(made.vector())), (apic, vector));
            }
        }
    }
}
