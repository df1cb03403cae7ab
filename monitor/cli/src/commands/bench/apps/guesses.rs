// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guesses at what is faster (docs/tuning.md). Each can be turned off, and the loss of a row by
//! that is the gain by the guess.

use crate::arguments::Place;
use anyhow::bail;
use std::fmt::Write;

/// A guess with a switch.
#[derive(Debug, PartialEq, Eq)]
pub struct Guess {
    pub name: &'static str,
    /// The name of a machine without it, in results.
    pub without: &'static str,
    /// What turns it off: options of `paravane run`.
    pub options: &'static [&'static str],
    /// What turns it off for the folder of the host that is `/srv`: an option of its `--volume`.
    pub volume: Option<&'static str>,
    /// The only place where it matters, if it is one.
    place: Option<Place>,
    /// Whether it is one of a card of a virtual bus. The machine without it has such a card, and is
    /// compared with the machine that has the same card and all guesses.
    pub card: bool,
}

/// One that matters in each place.
macro_rules! guess {
    ($name:literal, $($option:literal),*) => {
        Guess {
            name: $name,
            without: concat!("without ", $name),
            options: &[$($option),*],
            volume: None,
            place: None,
            card: false,
        }
    };
}

/// In the order of docs/tuning.md.
/// `kicker-work` is not here: it matters only on KVM, on which no machine is measured.
static GUESSES: [Guess; 41] = [
    guess!("costs", "--without", "costs"),
    guess!("cpuid", "--append", "vmi.cpuid=0"),
    guess!("sites", "--append", "vmi.sites=0"),
    guess!("shared-sites", "--append", "vmi.shared_sites=0"),
    guess!("copy-ahead", "--append", "vmi.copy_ahead=0"),
    guess!("exec-fill", "--append", "vmi.exec_fill=0"),
    guess!("exec-expect", "--append", "vmi.exec_expect=0"),
    guess!("fork-copies", "--append", "vmi.fork_copies=0"),
    guess!("populate", "--append", "vmi.populate=0"),
    guess!("neighbours", "--append", "vmi.neighbours=0"),
    guess!("folios", "--append", "transparent_hugepage=never"),
    of_folder(guess!("whole-folders", "--append", "fuse.whole_folders=0")),
    of_folder(guess!("write-around", "--append", "fuse.write_around=0")),
    of_folder(guess!("read-nearby", "--append", "fuse.read_nearby=0")),
    guess!("wake-here", "--append", "vmi.wake_here=0"),
    guess!("rcu-expedite", "--append", "vmi.rcu_expedite=0"),
    guess!("pv-locks", "--append", "vmi.pv_locks=0"),
    guess!("fault-around", "--without", "fault-around"),
    guess!("short-runs", "--without", "short-runs"),
    guess!("text-match", "--without", "text-match"),
    guess!("spare-processes", "--without", "spare-processes"),
    guess!("kept-mappings", "--without", "kept-mappings"),
    guess!("replaced-pages", "--without", "replaced-pages"),
    guess!("early-drop", "--without", "early-drop"),
    guess!("idle-trim", "--without", "idle-trim"),
    guess!("page-aging", "--without", "page-aging"),
    guess!("halt-polls", "--without", "halt-polls"),
    guess!("lock-spins", "--without", "lock-spins"),
    guess!("cpu-turns", "--without", "cpu-turns"),
    guess!("large-pages", "--without", "large-pages"),
    guess!("device-place", "--without", "device-place"),
    at(Place::Disk, guess!("disk-cpus", "--without", "disk-cpus")),
    at(Place::Disk, guess!("lone-reads", "--without", "lone-reads")),
    at(
        Place::Disk,
        guess!("direct-reads", "--without", "direct-reads"),
    ),
    at(
        Place::Disk,
        guess!("early-writes", "--without", "early-writes"),
    ),
    at(
        Place::Disk,
        guess!("allocate-ahead", "--without", "allocate-ahead"),
    ),
    Guess {
        volume: Some("workers"),
        ..of_folder(guess!("folder-thread",))
    },
    Guess {
        volume: Some("cache=none"),
        ..of_folder(guess!("folder-names",))
    },
    at(
        Place::Publish,
        guess!("ack-delay", "--without", "ack-delay"),
    ),
    Guess {
        card: true,
        ..at(
            Place::Publish,
            guess!("card-looks", "--without", "card-looks"),
        )
    },
    at(Place::Publish, guess!("tx-delay", "--without", "tx-delay")),
];

/// One that matters in a single place.
const fn at(place: Place, guess: Guess) -> Guess {
    Guess {
        place: Some(place),
        ..guess
    }
}

const fn of_folder(guess: Guess) -> Guess {
    at(Place::Volume, guess)
}

/// The word for all guesses.
pub const ALL: &str = "all";

/// All guesses.
pub fn all() -> &'static [Guess] {
    &GUESSES
}

/// The guesses of these names, in the order of the table.
pub fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Guess>> {
    for name in names {
        if name != ALL && GUESSES.iter().all(|guess| guess.name != name) {
            let known: Vec<_> = GUESSES.iter().map(|guess| guess.name).collect();
            bail!("--ablate {name}: there are {ALL}, {}", known.join(", "));
        }
    }
    let wanted = |guess: &&Guess| names.iter().any(|name| name == ALL || name == guess.name);
    Ok(GUESSES.iter().filter(wanted).collect())
}

/// All guesses, for the user.
pub fn list() -> String {
    let mut out = "guesses, for --ablate:\n".to_string();
    for guess in &GUESSES {
        let place = guess.place.map(|place| format!(" ({place})"));
        let switch = match guess.volume {
            Some(option) => format!("--volume HOST:GUEST:{option}"),
            None => guess.options.join(" "),
        };
        let _ = writeln!(
            out,
            "    {}: {switch}{}",
            guess.name,
            place.unwrap_or_default()
        );
    }
    out
}

impl Guess {
    /// Whether it can matter in a place.
    pub fn matters(&self, place: Place) -> bool {
        self.place.is_none_or(|own| own == place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn names(names: &[&str]) -> anyhow::Result<Vec<&'static str>> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        Ok(chosen(&names)?.iter().map(|guess| guess.name).collect())
    }

    #[test]
    fn guesses_are_chosen_by_name() {
        assert!(names(&[]).unwrap().is_empty());
        assert_eq!(names(&["all"]).unwrap().len(), GUESSES.len());
        assert_eq!(
            names(&["populate", "exec-fill"]).unwrap(),
            ["exec-fill", "populate"]
        );
        let error = names(&["luck"]).unwrap_err().to_string();
        assert!(
            error.starts_with("--ablate luck: there are all, costs, cpuid, "),
            "{error}"
        );
    }

    #[test]
    fn a_user_sees_the_switches() {
        let list = list();
        for line in [
            "\n    costs: --without costs\n",
            "\n    card-looks: --without card-looks (publish)\n",
            "\n    exec-fill: --append vmi.exec_fill=0\n",
            "\n    folder-names: --volume HOST:GUEST:cache=none (volume)\n",
            "\n    tx-delay: --without tx-delay (publish)\n",
        ] {
            assert!(list.contains(line), "{list}");
        }
    }

    #[test]
    fn each_has_one_switch_and_a_place() {
        let different: BTreeSet<_> = GUESSES
            .iter()
            .map(|guess| (guess.options, guess.volume))
            .collect();
        assert_eq!(different.len(), GUESSES.len());
        for guess in &GUESSES {
            assert_eq!(guess.without, format!("without {}", guess.name));
            assert_ne!(guess.options.is_empty(), guess.volume.is_none());
            let places = [Place::Rootfs, Place::Disk, Place::Volume, Place::Publish];
            let places = places.iter().filter(|place| guess.matters(**place)).count();
            assert!(places == 1 || places == 4, "{guess:?}");
            // Only there is a machine with a card of a virtual bus to compare with.
            assert!(!guess.card || guess.matters(Place::Publish) && places == 1);
            // Only a folder of the host has options.
            assert!(guess.volume.is_none() || guess.matters(Place::Volume) && places == 1);
        }
    }
}
