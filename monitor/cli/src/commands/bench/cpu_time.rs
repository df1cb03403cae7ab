// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time of processes, as /proc shows it.

use std::collections::HashMap;
use std::fs;

/// Ticks of a second in /proc/PID/stat, which is a constant of the ABI on x86-64.
const USER_HZ: f64 = 100.0;

/// What /proc/PID/stat says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// User and system time of it and of its children that have ended.
    ticks: u64,
}

/// Seconds of all processes that /proc shows, those that have ended included where their parents
/// are there.
#[allow(clippy::cast_precision_loss)] // hundredths of seconds
pub fn of_all() -> f64 {
    all().values().map(|stat| stat.ticks).sum::<u64>() as f64 / USER_HZ
}

/// Seconds of a process and its descendants.
#[allow(clippy::cast_precision_loss)] // hundredths of seconds
pub fn of_tree(root: u32) -> f64 {
    tree(&all(), root) as f64 / USER_HZ
}

fn all() -> HashMap<u32, Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return HashMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let process = entry.file_name().to_string_lossy().parse().ok()?;
            let text = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((process, parse(&text)?))
        })
        .collect()
}

fn tree(all: &HashMap<u32, Stat>, root: u32) -> u64 {
    // A process may be there whose parent is not any more.
    let under = |&process: &u32| {
        let mut at = process;
        for _ in 0..all.len() {
            if at == root {
                return true;
            }
            match all.get(&at) {
                Some(stat) => at = stat.parent,
                None => return false,
            }
        }
        false
    };
    let mine = all.iter().filter(|(process, _)| under(process));
    mine.map(|(_, stat)| stat.ticks).sum()
}

/// Fields 4 and 14 to 17. The name, field 2, may contain anything.
fn parse(stat: &str) -> Option<Stat> {
    let rest = stat.get(stat.rfind(')')? + 1..)?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        ticks: ticks
            .map(|field| field.parse::<u64>().ok())
            .sum::<Option<u64>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_hides_no_time() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 1 0 0 0 11 22 33 44 20 0 1 0 9";
        let expected = Stat {
            parent: 1,
            ticks: 110,
        };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse("7 (a"), None);
        assert!(of_all() > 0.0);
        assert!(of_tree(std::process::id()) <= of_all());
    }

    #[test]
    fn a_tree_has_its_descendants_and_no_others() {
        let processes = [
            (1, 0, 1),
            (5, 1, 10),
            (6, 5, 100),
            (7, 6, 1000),
            (8, 1, 10_000),
        ];
        let all = processes
            .into_iter()
            .map(|(process, parent, ticks)| (process, Stat { parent, ticks }))
            .collect();
        assert_eq!(tree(&all, 5), 1110);
        assert_eq!(tree(&all, 9), 0);
    }
}
