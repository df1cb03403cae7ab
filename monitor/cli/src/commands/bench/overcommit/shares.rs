// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Equal shares of the processors: all machines are in one session.
//!
//! Linux may share processors among sessions first, and among the threads of each then (autogroup).
//! Of two sessions with as many busy threads, the one whose threads sleep now and then gets more,
//! up to twice as much. A machine's processes are a session of their own, so a machine whose vCPUs
//! wait would have more than its share beside machines that only burn. In one session all threads
//! are equal: beside one machine with as many vCPUs, which are always busy, it has half at most.

use super::super::refuse;
use super::processors::Families;
use anyhow::{Context, bail, ensure};
use std::fs;

/// Keeps this program, and all that it starts from now on, in its session. A machine asks for one
/// of its own, and goes on without.
pub fn one_session() -> anyhow::Result<()> {
    refuse::system_call(libc::SYS_setsid)
        .context("cannot keep all machines in one session (seccomp)")
}

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
            // One that is just ending has lost its groups, and is gone at the second look.
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
#[expect(unsafe_code, reason = "works between fork and exec")]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    /// A shell with a child that has tried to make a session, and what makes both end.
    fn family(filtered: bool) -> std::process::Child {
        // setsid(1) gives up where the call fails. A job in the background has no input by itself.
        let script = r#"job='echo; read -r x; exit 0'
            (setsid sh -c "$job" || sh -c "$job") <&0 2>/dev/null & read -r x; wait"#;
        let mut command = Command::new("bash");
        command.args(["-c", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if filtered {
            // SAFETY: only system calls, with a filter on the stack.
            unsafe {
                command.pre_exec(|| refuse::system_call(libc::SYS_setsid));
            }
        }
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
    fn a_session_is_refused_to_what_it_starts() {
        let session = |filtered| {
            let child = family(filtered);
            let pid = child.id();
            let families = Families::now().unwrap();
            let sessions: Vec<String> = families
                .of(pid)
                .iter()
                .map(|pid| {
                    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                    let (_, rest) = stat.rsplit_once(") ").unwrap();
                    rest.split(' ').nth(3).unwrap().to_string()
                })
                .collect();
            let checked = check(&[pid]);
            end(child);
            assert!(sessions.len() > 1, "{sessions:?}");
            let same = sessions.iter().all(|other| *other == sessions[0]);
            (same, checked)
        };
        let (same, checked) = session(true);
        assert!(same);
        checked.unwrap();
        let (same, checked) = session(false);
        assert!(!same);
        // Only a host that groups sessions has a group for each.
        let groups = fs::read_to_string("/proc/self/autogroup").is_ok();
        assert_eq!(checked.is_err(), groups, "{checked:?}");
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
