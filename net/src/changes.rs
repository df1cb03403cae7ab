// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether interfaces of the host are up, by messages of rtnetlink.
//!
//! The kernel sends a message for each change of any interface in this process's network namespace
//! (`RTMGRP_LINK`). The messages only say that it is time to look: they are taken and not read, and
//! the state comes from `SIOCGIFFLAGS`. So a lost message (`ENOBUFS`) has the same effect as one
//! that arrived. Neither call takes the lock of all networks (RTNL), for which a thread could wait.
//!
//! A host may change its interfaces all the time. After [`BURST`] wake-ups there is one in
//! [`PAUSE`], until nothing comes for that time.

use crate::Error;
use rustix::event::Timespec;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::netdevice::index_to_name_inlined;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wake-ups that may follow each other at once.
const BURST: u32 = 8;
/// The time after which there may be another one.
const PAUSE: Duration = Duration::from_millis(100);
/// Most messages that one wake-up takes: messages that arrive during it must not delay it.
const MOST: usize = 512;

/// What is known of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// It is up, as an administrator sees it (`IFF_UP`).
    Up,
    /// It is down.
    Down,
    /// It was removed, or moved to another network namespace.
    Elsewhere,
}

/// How many wake-ups may follow.
#[derive(Debug)]
struct Allowance {
    left: u32,
    /// Until when `left` was counted.
    counted: Instant,
    /// The timer is waited for, and not the socket.
    pauses: bool,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Allowance {
            left: BURST,
            counted: now,
            pauses: false,
        }
    }

    /// A wake-up came now, for `some` messages or for none. Returns whether the next one has to
    /// wait for [`PAUSE`].
    fn woken(&mut self, now: Instant, some: bool) -> bool {
        let pauses = now.saturating_duration_since(self.counted).as_millis() / PAUSE.as_millis();
        if pauses > 0 {
            let more = u32::try_from(pauses).unwrap_or(BURST);
            self.left = self.left.saturating_add(more).min(BURST);
            self.counted = now;
        }
        // Only a pause in which nothing came is the last one.
        self.pauses = some && (self.pauses || self.left == 0);
        if some && !self.pauses {
            self.left -= 1;
        }
        // A lone change after it counts at once.
        if !some {
            self.left = self.left.max(1);
        }
        self.pauses
    }
}

/// Receives changes, for one thread.
#[derive(Debug)]
pub struct Changes {
    socket: OwnedFd,
    timer: OwnedFd,
    allowance: Mutex<Allowance>,
    /// Wake-ups that took something.
    number: AtomicU64,
}

impl Changes {
    /// Receives all changes from now on.
    ///
    /// # Errors
    /// The host has no such sockets for this process.
    pub fn open() -> Result<Self, Error> {
        let fail = |error: Errno| Error::Host {
            what: "cannot hear of changes of the host's interfaces (NETLINK_ROUTE)",
            error: error.into(),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let family = AddressFamily::NETLINK;
        // NETLINK_ROUTE is the protocol 0.
        let socket = socket_with(family, SocketType::RAW, flags, None).map_err(fail)?;
        let groups = u32::try_from(libc::RTMGRP_LINK).unwrap_or(0);
        bind(&socket, &SocketAddrNetlink::new(0, groups)).map_err(fail)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(fail)?;
        Ok(Changes {
            socket,
            timer,
            allowance: Mutex::new(Allowance::new(Instant::now())),
            number: AtomicU64::new(0),
        })
    }

    /// The file to wait for: when it is readable, [`take`](Changes::take) must be called. It is
    /// another one after that.
    pub fn file(&self) -> BorrowedFd<'_> {
        let allowance = self.allowance.lock();
        if allowance.unwrap_or_else(PoisonError::into_inner).pauses {
            self.timer.as_fd()
        } else {
            self.socket.as_fd()
        }
    }

    /// Takes what has come.
    pub fn take(&self) {
        let mut some = false;
        for _ in 0..MOST {
            match recv(&self.socket, &mut [0; 1][..], RecvFlags::empty()) {
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                // Also where messages were lost, which is reported once.
                _ => some = true,
            }
        }
        if some {
            self.number.fetch_add(1, Ordering::Relaxed);
        }
        let allowance = self.allowance.lock();
        let mut allowance = allowance.unwrap_or_else(PoisonError::into_inner);
        // One that does not start would keep the file unreadable.
        if allowance.woken(Instant::now(), some) && self.start_timer().is_err() {
            allowance.pauses = false;
        }
    }

    fn start_timer(&self) -> io::Result<()> {
        // A start resets one that has expired, so the timer is not read.
        let value = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: 0,
                tv_nsec: i64::from(PAUSE.subsec_nanos()),
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value)?;
        Ok(())
    }

    /// The state of the interface with this index, if there may be another one since the last call
    /// with the same `seen`, which is `u64::MAX` at first.
    pub fn news(&self, index: u32, seen: &AtomicU64) -> Option<Interface> {
        let number = self.number.load(Ordering::Relaxed);
        if seen.load(Ordering::Relaxed) == number {
            return None;
        }
        // Before the read: a later change has another number.
        seen.store(number, Ordering::Relaxed);
        Some(self.state(index))
    }

    fn state(&self, index: u32) -> Interface {
        let Ok(name) = index_to_name_inlined(&self.socket, index) else {
            return Interface::Elsewhere;
        };
        // SAFETY: all zeroes are a valid `struct ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let name = AsRef::<str>::as_ref(&name).bytes();
        for (to, from) in request
            .ifr_name
            .iter_mut()
            .take(libc::IFNAMSIZ - 1)
            .zip(name)
        {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let socket = self.socket.as_raw_fd();
        // SAFETY: SIOCGIFFLAGS reads and writes the `struct ifreq` that it is given.
        let done = unsafe { libc::ioctl(socket, libc::SIOCGIFFLAGS, &raw mut request) };
        if done < 0 {
            // It has just got another name, which will be reported as a change, or was removed.
            return Interface::Elsewhere;
        }
        // SAFETY: SIOCGIFFLAGS has written this member, and each value of a short is valid.
        let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        if flags & libc::IFF_UP != 0 {
            Interface::Up
        } else {
            Interface::Down
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_known_and_other_numbers_are_not() {
        let changes = Changes::open().unwrap();
        let seen = AtomicU64::new(u64::MAX);
        let index = rustix::net::netdevice::name_to_index(&changes.socket, "lo").unwrap();
        let state = changes.news(index, &seen).unwrap();
        assert_ne!(state, Interface::Elsewhere);
        assert_eq!(changes.news(index, &seen), None, "nothing has changed");
        seen.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(
            changes.news(i32::MAX.unsigned_abs(), &seen),
            Some(Interface::Elsewhere)
        );
    }

    #[test]
    fn a_host_that_changes_all_the_time_wakes_ten_times_a_second() {
        let begun = Instant::now();
        let mut allowance = Allowance::new(begun);
        let (mut now, mut wakeups, mut at_once) = (begun, 0, 0);
        while now < begun + Duration::from_secs(10) {
            wakeups += 1;
            // Something has always come by then.
            if allowance.woken(now, true) {
                now += PAUSE;
            } else {
                at_once += 1;
                now += Duration::from_micros(10);
            }
        }
        assert!(wakeups <= 100 + 1 + BURST, "{wakeups}");
        assert_eq!(at_once, BURST);
    }

    #[test]
    fn after_a_pause_without_a_change_the_next_one_counts_at_once() {
        let begun = Instant::now();
        let mut allowance = Allowance::new(begun);
        while !allowance.woken(begun, true) {}
        let now = begun + PAUSE;
        assert!(
            !allowance.woken(now, false),
            "nothing came: nothing more to wait for"
        );
        assert!(!allowance.woken(now, true), "a lone change");
        // After a long time a burst has its room again.
        let now = now + PAUSE * BURST * 2;
        let many = (0..=BURST)
            .take_while(|_| !allowance.woken(now, true))
            .count();
        assert_eq!(many, BURST as usize);
    }
}
