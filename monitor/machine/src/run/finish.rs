// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports the end of a machine or of a command: an exit code, and a message on stderr if needed.

use super::crash;
use super::kernel_log::KernelLog;
use super::launch::Started;
use super::life::{AGENT_FAILED, Finish, MAKE, PANICKED};
use crate::agent::Ended;
use anyhow::bail;
use paravane_hypervisor::process::End;
use paravane_user_io::outcome::Outcome;
use paravane_user_io::stderr::say;
use paravane_user_io::text;
use std::time::{Duration, Instant};

/// The time that a crash report may take: it stops the vCPUs, and reads the kernel's file.
const REPORT: Duration = Duration::from_secs(1);
/// Exit code for `--timeout`, as timeout(1) has it.
pub(super) const TIMED_OUT: u8 = 124;
const TIMEOUT_PASSED: &str =
    "paravane: the time of --timeout is over; the virtual machine was ended\n";
/// In the kernel's log before the reason why it has no initial root.
const NOT_UNPACKED: &str = "Initramfs unpacking failed: ";
/// The signal that a program gets when no process reads what it prints.
const SIGPIPE: u8 = 13;

/// What a reboot of the guest means.
#[derive(Clone, Copy, Debug)]
pub struct Reboots {
    /// The machine starts again. Otherwise a reboot is a failure.
    pub start_again: bool,
    /// The user has said what follows a panic. Otherwise it is a failure, also where the kernel's
    /// way to end is a reboot.
    pub on_panic: bool,
    /// The signal that requested the end. It is the result, not a failure.
    pub asked: Option<u8>,
}

impl Reboots {
    /// These rules, or no more starts if the end was requested, perhaps by a signal.
    pub fn unless(self, asked: bool, signal: Option<u8>) -> Self {
        Reboots {
            start_again: self.start_again && !asked,
            asked: signal,
            ..self
        }
    }
}

/// The result of a machine, as it is reported.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Outcome(Outcome),
    /// A request ended the machine before the guest had written everything to its disks.
    Unwritten(Outcome),
    /// The machine starts again.
    Rebooted,
    TimedOut,
    /// Something failed, with the reason.
    Failed(String),
    /// The machine crashed, with the reason. The report has its last state, too.
    Crashed(String),
    /// Something failed, and the reason explains it without the kernel's log.
    Explained(String),
    /// The agent gave up. The reason is on the console.
    AgentFailed,
}

/// Reports the result of a machine that has run. `by`: until when the report may take. Returns none
/// if the guest has rebooted and the machine starts again.
pub fn tell(
    finish: anyhow::Result<Finish>,
    started: &Started,
    log: &mut KernelLog,
    reboots: Reboots,
    by: Option<Instant>,
) -> anyhow::Result<Option<Outcome>> {
    let finish = match finish {
        Ok(finish) => finish,
        Err(error) => {
            started.vm.set_exit_code(Outcome::Failed.code());
            log.show();
            return Err(error);
        }
    };
    let told = judge(finish, log, reboots);
    if told == Told::Rebooted {
        return Ok(None);
    }
    let outcome = match told {
        Told::Outcome(outcome) | Told::Unwritten(outcome) => outcome,
        Told::TimedOut => Outcome::Guest(TIMED_OUT),
        _ => Outcome::Failed,
    };
    started.vm.set_exit_code(outcome.code());
    match told {
        Told::Outcome(_) | Told::Rebooted => {}
        Told::Unwritten(_) => {
            say("paravane: the guest had no time to write everything to its disks\n");
        }
        Told::TimedOut => say(TIMEOUT_PASSED),
        Told::Failed(why) => {
            log.show();
            say(&format!("paravane: {}\n", text::one_line(&why)));
        }
        Told::Crashed(why) => {
            log.show();
            let words = if has_time(by, Instant::now()) {
                crash_report(started)
            } else {
                String::new()
            };
            say(&format!("{words}paravane: {}\n", text::one_line(&why)));
        }
        Told::Explained(why) => say(&format!(
            "paravane: {} (--verbose shows the kernel's log)\n",
            text::one_line(&why)
        )),
        Told::AgentFailed => match log.agent() {
            Some(said) => say(&format!(
                "paravane: the guest's agent failed: {said} (--verbose shows the kernel's log)\n"
            )),
            None => {
                log.show();
                say("paravane: the guest's agent failed\n");
            }
        },
    }
    Ok(Some(outcome))
}

/// Whether there is time for a crash report. A machine that was asked to end must end.
fn has_time(by: Option<Instant>, now: Instant) -> bool {
    by.is_none_or(|by| by.saturating_duration_since(now) >= REPORT)
}

fn crash_report(started: &Started) -> String {
    let Some(debug) = started.vm.debug() else {
        return String::new();
    };
    // Without the kernel's file the report has no symbols.
    let kernel = started.kernel.read().unwrap_or_default();
    let mut words = String::new();
    for line in crash::report(debug, &kernel).lines() {
        words += &text::clean(line.as_bytes());
        words.push('\n');
    }
    words
}

/// Reports the result of a machine that was never complete.
pub fn tell_early(finish: anyhow::Result<Finish>) -> anyhow::Result<Outcome> {
    match finish? {
        Finish::Outcome(outcome) => Ok(outcome),
        Finish::TimedOut => {
            say(TIMEOUT_PASSED);
            Ok(Outcome::Guest(TIMED_OUT))
        }
        _ => bail!(
            "cannot start the machine: the host had not created it after {} s",
            MAKE.as_secs()
        ),
    }
}

fn judge(finish: Finish, log: &KernelLog, reboots: Reboots) -> Told {
    let finish = match finish {
        Finish::Machine(End::Reboot(_)) | Finish::Early(End::Reboot(_))
            if !reboots.on_panic && log.panicked() =>
        {
            Finish::Machine(End::Shutdown(PANICKED))
        }
        Finish::Machine(End::Reboot(_)) | Finish::Early(End::Reboot(_)) if reboots.start_again => {
            return Told::Rebooted;
        }
        reboot @ (Finish::Machine(End::Reboot(_)) | Finish::Early(End::Reboot(_))) => {
            let by = |signal| Finish::Outcome(Outcome::Interrupted(signal));
            reboots.asked.map_or(reboot, by)
        }
        other => other,
    };
    match finish {
        Finish::Outcome(outcome) => Told::Outcome(outcome),
        Finish::Unwritten(outcome) => Told::Unwritten(outcome),
        Finish::NotWritten(time) => Told::Explained(format!(
            "the guest has not written everything to its disks within {} s",
            time.as_secs()
        )),
        Finish::TimedOut => Told::TimedOut,
        Finish::Failed(why) => Told::Failed(why),
        Finish::Crashed(why) => Told::Crashed(why),
        Finish::Machine(end) => machine_ended(end),
        Finish::Early(end) => match log.after(NOT_UNPACKED) {
            Some(why) => {
                Told::Explained(format!("the kernel cannot unpack the initial root: {why}"))
            }
            None => ended_early(end),
        },
        Finish::NotMade => Told::Failed("the host has not created the machine".to_string()),
    }
}

/// A machine whose command never ran has failed, whatever its exit status is.
fn ended_early(end: End) -> Told {
    match end {
        End::Shutdown(0) => {
            Told::Failed("the guest ended before the command could run".to_string())
        }
        other => match machine_ended(other) {
            Told::Outcome(Outcome::Guest(code)) => Told::Failed(format!(
                "the guest ended with status {code} before the command could run"
            )),
            told => told,
        },
    }
}

fn machine_ended(end: End) -> Told {
    match end {
        End::Shutdown(PANICKED) => Told::Crashed("the guest's kernel panicked".to_string()),
        End::Shutdown(AGENT_FAILED) => Told::AgentFailed,
        End::Shutdown(code) => Told::Outcome(Outcome::Guest(code)),
        End::Reboot(_) => Told::Failed("the guest restarted, which is an end here".to_string()),
        End::Failed(why) => Told::Crashed(format!("{why}; the virtual machine was ended")),
    }
}

/// The outcome of a command. Prints what went wrong, if something did.
pub fn outcome(ended: Ended) -> Outcome {
    match ended {
        Ended::Exited(code) => Outcome::Guest(code),
        Ended::Killed(signal) => Outcome::Interrupted(signal),
        Ended::Failed(failure) => {
            let why = text::clean(failure.why.as_bytes());
            say(&format!("paravane: {}\n", text::one_line(&why)));
            Outcome::Guest(failure.code)
        }
        Ended::Left => Outcome::Passed,
        Ended::NoReader => Outcome::Interrupted(SIGPIPE),
        Ended::NoRoom(why) => {
            say(&format!(
                "paravane: cannot write what the command prints: {why}\n"
            ));
            Outcome::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reboot_is_a_start_a_failure_or_a_panic() {
        let both = Reboots {
            start_again: true,
            on_panic: true,
            asked: None,
        };
        let again = Reboots {
            on_panic: false,
            ..both
        };
        let quiet = KernelLog::new(false);
        let mut panicked = KernelLog::new(false);
        panicked.add(b"[1.0] Kernel panic - not syncing: sysrq triggered crash\n");
        for reboot in [
            Finish::Machine(End::Reboot(0)),
            Finish::Early(End::Reboot(0)),
        ] {
            let judge = |log, reboots| judge(reboot.clone(), log, reboots);
            assert_eq!(judge(&quiet, again), Told::Rebooted);
            assert_eq!(judge(&panicked, both), Told::Rebooted);
            let crash = Told::Crashed("the guest's kernel panicked".to_string());
            assert_eq!(judge(&panicked, again), crash);
            let asked = |signal| again.unless(true, signal);
            assert_eq!(judge(&panicked, asked(Some(15))), crash);
            // A user who has left the command has sent no signal.
            assert!(matches!(judge(&quiet, asked(None)), Told::Failed(_)));
            let ended = Told::Outcome(Outcome::Interrupted(15));
            assert_eq!(judge(&quiet, asked(Some(15))), ended);
        }
        let command = Finish::Outcome(Outcome::Guest(3));
        assert_eq!(
            judge(command, &quiet, both),
            Told::Outcome(Outcome::Guest(3))
        );
    }
}
