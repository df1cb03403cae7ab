// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The least speeds that are promised of an application, where the host's speed is 1.

use super::figures::STATES;
use serde::Deserialize;

/// A promise of a row in one place.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
pub enum Promise {
    /// Of all machines.
    Same(f64),
    /// Of machines with one vCPU, and of those with several.
    Vcpus(ByVcpus),
    /// Of the first run in a new machine, and of the second one.
    States(ByState),
}

/// By the number of vCPUs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ByVcpus {
    one: f64,
    several: f64,
}

/// By the state of the guest's caches. A state without a figure has no promise.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ByState {
    cold: Option<f64>,
    warm: Option<f64>,
}

impl Promise {
    /// Of machines with one vCPU, and of those with several.
    pub const fn by_vcpus(one: f64, several: f64) -> Self {
        Promise::Vcpus(ByVcpus { one, several })
    }

    /// What is promised of a machine with this number of vCPUs, in one of [`STATES`] or in none.
    pub fn of(self, vcpus: u32, state: &str) -> Option<f64> {
        match self {
            Promise::Same(bar) => Some(bar),
            Promise::Vcpus(ByVcpus { one, several }) => {
                Some(if vcpus == 1 { one } else { several })
            }
            Promise::States(ByState { cold, warm }) => {
                let bars = STATES.iter().zip([cold, warm]);
                bars.filter(|(name, _)| **name == state)
                    .find_map(|(_, bar)| bar)
            }
        }
    }

    /// Whether it is of the first and the second run in a new machine.
    pub fn has_states(self) -> bool {
        matches!(self, Promise::States(_))
    }

    /// Whether all its figures are speeds.
    pub fn is_speed(self) -> bool {
        let bars = match self {
            Promise::Same(bar) => [Some(bar), None],
            Promise::Vcpus(ByVcpus { one, several }) => [Some(one), Some(several)],
            Promise::States(ByState { cold, warm }) => [cold, warm],
        };
        bars.iter().flatten().all(|bar| *bar > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Promise, toml::de::Error> {
        #[derive(Deserialize)]
        struct Row {
            bar: Promise,
        }
        toml::from_str::<Row>(&format!("bar = {text}")).map(|row| row.bar)
    }

    #[test]
    fn a_promise_is_of_all_machines_or_of_some() {
        let of = |text: &str, vcpus, state| read(text).unwrap().of(vcpus, state);
        assert_eq!(of("0.85", 2, "-warm"), Some(0.85));
        let vcpus = "{ one = 0.85, several = 0.8 }";
        assert_eq!(of(vcpus, 1, ""), Some(0.85));
        assert_eq!(of(vcpus, 2, ""), Some(0.8));
        let states = "{ cold = 0.33, warm = 0.67 }";
        assert_eq!(of(states, 2, "-cold"), Some(0.33));
        assert_eq!(of(states, 2, "-warm"), Some(0.67));
        assert_eq!(of("{ warm = 0.67 }", 1, "-cold"), None);
        assert_eq!(of(states, 1, ""), None);
    }

    #[test]
    fn other_promises_are_refused() {
        for text in ["'much'", "{ one = 0.85 }", "{ hot = 1 }"] {
            assert!(read(text).is_err(), "{text}");
        }
        for text in ["0", "{ cold = -1 }", "{ one = 1, several = 0 }"] {
            assert!(!read(text).unwrap().is_speed(), "{text}");
        }
    }
}
