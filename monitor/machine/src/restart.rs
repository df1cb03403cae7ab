// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When a machine starts again: the policy of `--restart`, and its bounds. This does no I/O.
//!
//! A restart waits for a moment, twice as long after each life that was short, so that a machine
//! that cannot work does not keep the host busy.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A life that is shorter is a short one.
const SHORT: Duration = Duration::from_secs(10);
/// A machine that reboots in this number of short lives in a row is in a loop.
const LOOP: u32 = 5;
/// The wait after a short life. It doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// What [`Restart`] is read from.
const WORDS: &str = "no, on-reboot, on-failure, on-failure:N (N is 1 or more), always or auto is \
                     expected";

/// When a machine starts again that has ended by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Restart {
    /// `on-reboot` where the root's own init may run, else `no`.
    #[default]
    Auto,
    /// Never.
    No,
    /// When its guest reboots.
    OnReboot,
    /// When its guest reboots, and when it or its command fails: at most this often, if there is a
    /// number.
    OnFailure(Option<u32>),
    /// Whenever it ends.
    Always,
}

impl FromStr for Restart {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Ok(match word {
            "auto" => Restart::Auto,
            "no" => Restart::No,
            "on-reboot" => Restart::OnReboot,
            "on-failure" => Restart::OnFailure(None),
            "always" => Restart::Always,
            _ => {
                let number = word
                    .strip_prefix("on-failure:")
                    .and_then(|number| number.parse().ok())
                    .filter(|&number| number > 0);
                Restart::OnFailure(Some(number.ok_or(WORDS)?))
            }
        })
    }
}

impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Restart::Auto => f.write_str("auto"),
            Restart::No => f.write_str("no"),
            Restart::OnReboot => f.write_str("on-reboot"),
            Restart::OnFailure(None) => f.write_str("on-failure"),
            Restart::OnFailure(Some(number)) => write!(f, "on-failure:{number}"),
            Restart::Always => f.write_str("always"),
        }
    }
}

impl TryFrom<String> for Restart {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        word.parse()
    }
}

impl From<Restart> for String {
    fn from(restart: Restart) -> String {
        restart.to_string()
    }
}

/// How a life of a machine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeEnd {
    /// Its guest rebooted.
    Reboot,
    /// With this exit code.
    Code(u8),
    /// On request.
    Asked,
    /// It did not start: a resource is missing, or the input is bad.
    NotStarted,
}

/// What follows from the end of a life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The machine starts again after this time.
    Start(Duration),
    /// The machine has ended.
    Stop,
    /// The machine has ended, for this reason.
    GiveUp(String),
}

/// The restarts of one machine.
#[derive(Debug)]
pub struct Restarts {
    policy: Restart,
    /// How often it has started again.
    count: u32,
    /// Short lives in a row.
    short: u32,
    /// Those of them that ended by a reboot, or did not start.
    loops: u32,
    /// Restarts after a failure.
    failures: u32,
}

impl Restarts {
    /// None yet. `policy` is not [`Restart::Auto`].
    pub fn new(policy: Restart) -> Self {
        Restarts {
            policy,
            count: 0,
            short: 0,
            loops: 0,
            failures: 0,
        }
    }

    /// How often the machine has started again.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The consequence of the end of a life that has lasted for `lasted`.
    pub fn next(&mut self, end: LifeEnd, lasted: Duration) -> Next {
        // The first start is reported to the user, who can mend it.
        if end == LifeEnd::Asked || (end == LifeEnd::NotStarted && self.count == 0) {
            return Next::Stop;
        }
        let reboots = matches!(end, LifeEnd::Reboot | LifeEnd::NotStarted);
        if lasted < SHORT {
            self.short = self.short.saturating_add(1);
            self.loops = if reboots { self.loops + 1 } else { 0 };
        } else {
            (self.short, self.loops) = (0, 0);
        }
        let failed = !matches!(end, LifeEnd::Reboot | LifeEnd::Code(0));
        let wanted = match self.policy {
            Restart::Auto | Restart::No => false,
            Restart::OnReboot => reboots,
            Restart::OnFailure(_) => reboots || failed,
            Restart::Always => true,
        };
        if !wanted {
            return Next::Stop;
        }
        if self.policy != Restart::Always && self.loops >= LOOP {
            return Next::GiveUp(format!(
                "the machine rebooted or did not start {LOOP} times in a row within {} s: it is \
                 not started again",
                SHORT.as_secs()
            ));
        }
        if let (Restart::OnFailure(Some(most)), true) = (self.policy, failed) {
            if self.failures >= most {
                return Next::GiveUp(format!(
                    "the machine failed again after {most} restarts: it is not started again"
                ));
            }
            self.failures += 1;
        }
        self.count = self.count.saturating_add(1);
        // The first reboot after a long life is as quick as that of a computer.
        let step = match (end, self.short) {
            (LifeEnd::Reboot, 0 | 1) => return Next::Start(Duration::ZERO),
            (_, short) => short.saturating_sub(1).min(16),
        };
        Next::Start((FIRST_WAIT * (1 << step)).min(LONGEST_WAIT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_secs(1);
    const LONG: Duration = Duration::from_secs(60);

    fn ms(ms: u64) -> Next {
        Next::Start(Duration::from_millis(ms))
    }

    fn gives_up(next: &Next) -> bool {
        matches!(next, Next::GiveUp(_))
    }

    #[test]
    fn words() {
        for word in [
            "auto",
            "no",
            "on-reboot",
            "on-failure",
            "on-failure:3",
            "always",
        ] {
            assert_eq!(word.parse::<Restart>().unwrap().to_string(), word);
        }
        for bad in [
            "",
            "on",
            "on-failure:",
            "on-failure:0",
            "on-failure:-1",
            "on-failure:x",
        ] {
            assert_eq!(bad.parse::<Restart>(), Err(WORDS.to_string()), "{bad}");
        }
    }

    #[test]
    fn each_policy_and_each_end() {
        let ends = [
            LifeEnd::Reboot,
            LifeEnd::Code(0),
            LifeEnd::Code(3),
            LifeEnd::Asked,
        ];
        for (policy, wanted) in [
            (Restart::No, [false; 4]),
            (Restart::OnReboot, [true, false, false, false]),
            (Restart::OnFailure(None), [true, false, true, false]),
            (Restart::OnFailure(Some(1)), [true, false, true, false]),
            (Restart::Always, [true, true, true, false]),
        ] {
            for (end, wanted) in ends.into_iter().zip(wanted) {
                let mut restarts = Restarts::new(policy);
                let next = restarts.next(end, LONG);
                assert_eq!(matches!(next, Next::Start(_)), wanted, "{policy} {end:?}");
                assert_eq!(restarts.count(), u32::from(wanted));
                let first = Restarts::new(policy).next(LifeEnd::NotStarted, QUICK);
                assert_eq!(first, Next::Stop, "{policy}: the user sees why");
            }
        }
    }

    #[test]
    fn a_loop_of_reboots_ends() {
        let mut restarts = Restarts::new(Restart::OnReboot);
        for wait in [0, 200, 400, 800] {
            assert_eq!(restarts.next(LifeEnd::Reboot, QUICK), ms(wait));
        }
        assert!(gives_up(&restarts.next(LifeEnd::Reboot, QUICK)));
        // A long life ends the row.
        let mut restarts = Restarts::new(Restart::OnFailure(None));
        for _ in 0..20 {
            assert_eq!(restarts.next(LifeEnd::Reboot, QUICK), ms(0));
            assert_eq!(restarts.next(LifeEnd::Reboot, LONG), ms(0));
        }
        assert_eq!(restarts.count(), 40);
        // A restart for which the host has no room is tried again, and ends, too.
        let mut restarts = Restarts::new(Restart::OnReboot);
        assert_eq!(restarts.next(LifeEnd::Reboot, LONG), ms(0));
        for wait in [100, 200, 400, 800] {
            assert_eq!(restarts.next(LifeEnd::NotStarted, QUICK), ms(wait));
        }
        assert!(gives_up(&restarts.next(LifeEnd::NotStarted, QUICK)));
    }

    #[test]
    fn failures_are_counted() {
        let mut restarts = Restarts::new(Restart::OnFailure(Some(2)));
        assert_eq!(restarts.next(LifeEnd::Code(1), LONG), ms(100));
        assert_eq!(restarts.next(LifeEnd::Reboot, LONG), ms(0));
        assert_eq!(restarts.next(LifeEnd::Code(1), LONG), ms(100));
        assert!(gives_up(&restarts.next(LifeEnd::Code(1), LONG)));
        let mut restarts = Restarts::new(Restart::OnFailure(Some(2)));
        assert_eq!(restarts.next(LifeEnd::Code(0), LONG), Next::Stop);
    }

    #[test]
    fn waits_are_bounded() {
        let mut restarts = Restarts::new(Restart::Always);
        let waits: Vec<_> = (0..40)
            .map(|_| restarts.next(LifeEnd::Reboot, QUICK))
            .collect();
        assert_eq!(waits[..3], [ms(0), ms(200), ms(400)]);
        assert_eq!(waits[39], Next::Start(LONGEST_WAIT));
    }
}
