// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Equal shares of the processors: all machines are in one session.
//!
//! Linux may share processors among sessions first, and among the threads of each then (autogroup).
//! Of two sessions with as many busy threads, the one whose threads sleep now and then gets more,
//! up to twice as much. A machine in a session of its own whose vCPUs wait would have more than its
//! share beside machines that only burn. In one session, which is that of this program, all threads
//! are equal: beside one machine with as many vCPUs, which are always busy, it has half at most.

use super::processors::Families;
use anyhow::{Context, bail, ensure};
use std::fs;

/// Fails if the host's scheduler puts a process of these machines into another group than this
/// program: their shares would not be those of their threads.
pub fn check(machines: &[u32]) -> anyhow::Result<()> {
    let own = groups("self")?;
    let families = Families::now()?;
    for &machine in machines {
        let family = families.of(machine);
        ensure!(family.len() > 1, "a machine has no processes of its own");
        for pid in family {
            let other = || groups(&pid.to_string()).ok().filter(|other| *other != own);
            // One that is just ending has lost its groups, and has ended at the second look.
            if let Some(other) = other().and_then(|_| other()) {
                bail!(
                    "a process of a machine is in the scheduler's groups {other:?}, and this \
                     program in {own:?}: their shares of the processors are not equal"
                );
            }
        }
    }
    Ok(())
}

/// The groups of a process that count for its share: its control groups, and that of its session if
/// the host has those.
fn groups(pid: &str) -> anyhow::Result<Vec<String>> {
    let path = format!("/proc/{pid}/cgroup");
    let text = fs::read_to_string(&path).context(path)?;
    let mut groups: Vec<String> = text.lines().filter_map(share).map(str::to_string).collect();
    if let Ok(session) = fs::read_to_string(format!("/proc/{pid}/autogroup")) {
        groups.extend(session.split_whitespace().next().map(str::to_string));
    }
    Ok(groups)
}

/// The control group in a line of /proc/PID/cgroup, if processors are shared by it: that of the
/// unified hierarchy, or of an older one with the controller `cpu`.
fn share(line: &str) -> Option<&str> {
    let mut words = line.splitn(3, ':').skip(1);
    let controllers = words.next()?;
    let path = words.next()?;
    let shares = |name: &str| name.is_empty() || name == "cpu";
    controllers.split(',').any(shares).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A shell with a child, which may be a session of its own, and what makes both end.
    fn family(session: bool) -> std::process::Child {
        // A job in the background has no input by itself.
        let script = r#"job='echo; read -r x; exit 0'
            $0 sh -c "$job" <&0 & read -r x; wait"#;
        let mut command = Command::new("bash");
        command.args(["-c", script, if session { "setsid" } else { "" }]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
        child
    }

    fn end(mut child: std::process::Child) {
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn sessions_are_told_apart_where_they_have_shares() {
        let checked = |session| {
            let child = family(session);
            let checked = check(&[child.id()]);
            end(child);
            checked
        };
        checked(false).unwrap();
        // Only a host that groups sessions has a group for each.
        let groups = fs::read_to_string("/proc/self/autogroup").is_ok();
        assert_eq!(checked(true).is_err(), groups);
    }

    #[test]
    fn groups_that_share_processors_are_told_from_others() {
        for (line, group) in [
            ("0::/user.slice/a:b", Some("/user.slice/a:b")),
            ("1:cpu:/x", Some("/x")),
            ("3:cpu,cpuacct:/y", Some("/y")),
            ("2:cpuacct:/z", None),
            ("4:memory:/z", None),
            ("9:name=systemd:/", None),
            ("x", None),
        ] {
            assert_eq!(share(line), group, "{line}");
        }
    }
}
