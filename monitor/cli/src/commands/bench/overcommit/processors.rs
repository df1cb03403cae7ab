// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processor time of machines: of all of their processes.

use super::cpus;
use anyhow::Context;
use std::collections::BTreeMap;
use std::fs;

/// A tick of /proc/PID/stat: USER_HZ is 100 on all x86-64 hosts.
const TICK_NS: f64 = 1e9 / 100.0;

/// All processes of the host, and which are descendants of which.
#[derive(Debug)]
pub struct Families {
    all: BTreeMap<u32, Process>,
    children: BTreeMap<u32, Vec<u32>>,
}

impl Families {
    /// As they are now.
    pub fn now() -> anyhow::Result<Self> {
        let all = processes()?;
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (&pid, process) in &all {
            children.entry(process.parent).or_default().push(pid);
        }
        Ok(Families { all, children })
    }

    /// A process with its descendants.
    pub fn of(&self, root: u32) -> Vec<u32> {
        let mut family = vec![root];
        let mut next = 0;
        while let Some(&parent) = family.get(next) {
            family.extend(self.children.get(&parent).into_iter().flatten());
            next += 1;
        }
        family
    }
}

/// Processor time so far of each of these processes with its descendants, in ns. The time of a
/// process that has ended counts once its parent has waited for it, to the tick.
pub fn used(roots: &[u32]) -> anyhow::Result<Vec<f64>> {
    let families = Families::now()?;
    let time = |&root: &u32| {
        let family = families.of(root);
        let own = family.iter().filter_map(|&pid| cpus::of_process(pid));
        let ended = family.iter().filter_map(|pid| families.all.get(pid));
        own.sum::<f64>() + ended.map(|process| process.ended_ns).sum::<f64>()
    };
    Ok(roots.iter().map(time).collect())
}

/// What /proc/PID/stat says.
#[derive(Debug, PartialEq)]
struct Process {
    parent: u32,
    /// Processor time of children that it has waited for, in ns.
    ended_ns: f64,
}

/// All processes of the host.
fn processes() -> anyhow::Result<BTreeMap<u32, Process>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("/proc")? {
        let name = entry.context("/proc")?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may have ended.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if let Some(process) = parse(&stat) {
            all.insert(pid, process);
        }
    }
    Ok(all)
}

/// Parses a line of /proc/PID/stat. The name before the rest may contain anything.
fn parse(stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let words: Vec<&str> = rest.split(' ').collect();
    let ticks = |word: usize| words.get(word)?.parse::<f64>().ok();
    Some(Process {
        parent: words.get(1)?.parse().ok()?,
        ended_ns: (ticks(13)? + ticks(14)?) * TICK_NS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn lines_of_the_host_are_read() {
        let line = "7 (a) b) c) S 3 7 7 0 -1 4194304 1 2 3 4 50 60 7 8 20 0 1";
        let process = Process {
            parent: 3,
            ended_ns: 15.0 * TICK_NS,
        };
        assert_eq!(parse(line), Some(process));
        assert_eq!(parse("7 (a"), None);
        assert_eq!(parse("7 (a) S 3"), None);
    }

    #[test]
    fn a_family_is_those_that_run_and_those_that_ended() {
        let script = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
        let mut shell = Command::new("sh")
            .args([
                "-c",
                &format!("sh -c '{script}'; {script}; echo; read -r x"),
            ])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(&mut shell.stdout.take().unwrap(), &mut byte).unwrap();
        let both = used(&[shell.id()]).unwrap()[0];
        let one = cpus::of_process(shell.id()).unwrap();
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert!(one > 0.0 && both > 1.3 * one, "{one} {both}");
    }
}
