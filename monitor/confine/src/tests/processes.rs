// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which processes a thread can end or signal.

use super::{Fate, fate, filters};
use crate::keep;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// The kernel takes it for a descriptor of a process, and every thread that reads statistics can
/// open it.
#[test]
fn an_open_folder_of_a_process_grants_no_kill() {
    let mut victim = Command::new("sleep")
        .arg("600")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let folder = File::open(format!("/proc/{}", victim.id())).unwrap();
    let number = u64::try_from(folder.as_raw_fd()).unwrap();
    let kill = [number, 9, 0, 0, 0, 0];
    for (name, filter) in filters() {
        let fate = fate(&filter, libc::SYS_pidfd_send_signal, kill);
        assert_eq!(fate, Fate::Died, "{name}");
    }
    assert!(victim.try_wait().unwrap().is_none());
    // Without a policy it works.
    rustix::process::pidfd_send_signal(&folder, rustix::process::Signal::KILL).unwrap();
    assert_eq!(victim.wait().unwrap().signal(), Some(9));
}

/// The reserved descriptors keep their meaning, and end the process for which they were kept.
#[test]
fn what_is_kept_ends_its_process() {
    let mut victim = Command::new("sleep")
        .arg("600")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_child(&victim);
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let kept = keep(&process).unwrap();
    drop(process);
    kept.kill();
    assert_eq!(victim.wait().unwrap().signal(), Some(9));
}

/// A signal that the monitor sends to itself reaches only itself.
#[test]
fn own_signals_are_for_this_process() {
    let own = u64::from(std::process::id());
    let signals =
        [libc::SIGABRT, libc::SIGRTMIN() + 4].map(|signal| u64::from(signal.unsigned_abs()));
    for (name, filter) in filters() {
        for signal in signals {
            // There is no such thread: only the filter's answer counts.
            let made = fate(&filter, libc::SYS_tgkill, [own, 1 << 30, signal, 0, 0, 0]);
            assert_eq!(made, Fate::Made, "{name}");
            for other in [1, own + 1, 1 << 30, u64::MAX] {
                let died = fate(&filter, libc::SYS_tgkill, [other, 1 << 30, signal, 0, 0, 0]);
                assert_eq!(died, Fate::Died, "{name}: {other} {signal}");
            }
        }
    }
}
