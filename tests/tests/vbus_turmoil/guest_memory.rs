// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much memory a guest's kernel has, and in which slab caches.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

/// Memory, in KiB, that a guest's kernel may have more in the end than at one moment under load, at
/// which it may have had some that RCU freed later.
const MORE: u64 = 1024;
/// The most looks at the memory that a guest's kernel has in the end, a second apart.
const LOOKS: u32 = 8;
/// The most looks while it has sockets in TIME_WAIT, each of which Linux keeps for 60 s.
const LOOKS_TIME_WAIT: u32 = 70;
/// The part of what a guest says that is the number of its sockets in TIME_WAIT.
const TIME_WAIT: &str = "tcp-time-wait";
/// The number of parts that are printed, of those that have grown.
const TOLD: usize = 8;

/// `memory` prints a line: how much memory the kernel has, in KiB; the objects of each slab cache;
/// and the numbers of processes and sockets, to which some of it belongs. That is without names of
/// files that it keeps as long as there is room: each pass leaves those that were used since the
/// last one. Objects that CPUs keep for what comes next do not count either.
pub const TELL_MEMORY: &str = r#"
    memory() {
        usleep 300000
        for pass in 1 2 3 4; do
            echo 2 > /proc/sys/vm/drop_caches
        done
        for cache in /sys/kernel/slab/*; do
            test -L $cache || echo 1 > $cache/shrink
        done
        awk '/^Slab|^KernelStack|^PageTables|^Percpu/ { sum += $2; line = line " " $1 $2 }
            END { printf "%d%s", sum, line }' /proc/meminfo
        set -- /proc/[0-9]*; printf ' processes:%d' $#
        awk '/^TCP:/ { printf " tcp:%d tcp-orphans:%d tcp-time-wait:%d", $3, $5, $7 }' \
            /proc/net/sockstat
        awk 'NR > 2 { printf " %s:%d", $1, $2 * $4 / 1024 }' /proc/slabinfo
        echo
    }
    "#;

/// What a guest said.
#[derive(Clone, Debug, Default)]
pub struct GuestMemory {
    sum: u64,
    parts: BTreeMap<String, u64>,
}

impl GuestMemory {
    /// Looks once a second until the kernel has little more than `before`, and returns the least.
    /// It looks at most [`LOOKS`] times, because RCU frees some memory only after a grace period,
    /// or [`LOOKS_TIME_WAIT`] times while there are sockets in TIME_WAIT.
    pub fn settled(before: &GuestMemory, look: impl FnMut() -> GuestMemory) -> GuestMemory {
        GuestMemory::settled_by(before, look, || thread::sleep(Duration::from_secs(1)))
    }

    fn settled_by(
        before: &GuestMemory,
        mut look: impl FnMut() -> GuestMemory,
        pause: impl Fn(),
    ) -> GuestMemory {
        let mut next = look();
        let mut least = next.clone();
        for looks in 1..LOOKS_TIME_WAIT {
            let waits = next
                .parts
                .get(TIME_WAIT)
                .is_some_and(|sockets| *sockets > 0);
            if least.sum <= before.sum + MORE / 4 || (looks >= LOOKS && !waits) {
                break;
            }
            pause();
            next = look();
            if next.sum < least.sum {
                least = next.clone();
            }
        }
        least
    }

    pub fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let sum = words.next().unwrap().parse().unwrap();
        let parts = words.map(|word| {
            let (name, size) = word.rsplit_once(':').unwrap();
            (name.to_string(), size.parse().unwrap())
        });
        GuestMemory {
            sum,
            parts: parts.collect(),
        }
    }

    /// Tells what has grown, and fails if it is too much.
    pub fn may_follow(&self, before: &GuestMemory) {
        println!(
            "the guest's kernel: {} KiB, then {} KiB",
            before.sum, self.sum
        );
        let grown = self.parts.iter().map(|(name, size)| {
            let before = before.parts.get(name).copied().unwrap_or(0);
            (size.saturating_sub(before), name.as_str())
        });
        let mut grown: Vec<(u64, &str)> = grown.collect();
        grown.retain(|(more, _)| *more > 0);
        grown.sort_unstable_by(|a, b| b.cmp(a));
        let told = grown.iter().take(TOLD);
        let told: Vec<String> = told.map(|(more, name)| format!("{name} {more}")).collect();
        println!("more: {}", told.join(", "));
        assert!(self.sum <= before.sum + MORE);
    }
}

/// 9000 KiB, of which a cache has 100.
#[cfg(test)]
fn before() -> GuestMemory {
    GuestMemory::parse("9000 Slab:8000 kmalloc-64:100")
}

#[test]
fn a_guest_may_have_a_little_more() {
    GuestMemory::parse("10024 Slab:9024 kmalloc-64:1000 other:3").may_follow(&before());
}

#[test]
#[should_panic(expected = "self.sum")]
fn a_leak_of_a_guest_is_found() {
    GuestMemory::parse("10025 Slab:9025 kmalloc-64:1125").may_follow(&before());
}

#[test]
fn the_least_of_the_looks_counts() {
    let mut looks = (0..LOOKS).map(|look| 9900 + u64::from(look.abs_diff(2)));
    let look = || GuestMemory::parse(&format!("{} tcp:0", looks.next().unwrap()));
    let settled = GuestMemory::settled_by(&before(), look, || ());
    assert_eq!((settled.sum, looks.next()), (9900, None));
}

#[test]
fn sockets_in_time_wait_are_waited_for() {
    let mut looks = 0;
    let look = || {
        looks += 1;
        GuestMemory::parse(if looks < 62 {
            "10300 tcp-time-wait:3"
        } else {
            "9100 tcp-time-wait:0"
        })
    };
    let settled = GuestMemory::settled_by(&before(), look, || ());
    assert_eq!((settled.sum, looks), (9100, 62));
}

#[test]
fn sockets_that_stay_in_time_wait_are_not_waited_for_without_end() {
    let mut looks = 0;
    let look = || {
        looks += 1;
        GuestMemory::parse("10300 tcp-time-wait:3")
    };
    let settled = GuestMemory::settled_by(&before(), look, || ());
    assert_eq!((settled.sum, looks), (10300, LOOKS_TIME_WAIT));
}
