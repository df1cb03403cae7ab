// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits in the host kernel's trace: histograms of KVM's events, which lose nothing, in an
//! instance of their own.
//!
//! The guest's program makes a hypercall that KVM does not have where counting begins, and asks for
//! a leaf of CPUID that no processor has where it ends. Triggers of these two events start and stop
//! the histograms, so nothing that comes before or after is in them. (One event cannot have a
//! trigger for each.)

use super::kinds::Counts;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where a host may have its trace.
const FOLDERS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// The events, and the fields by which each is counted, besides the thread.
const EVENTS: [(&str, &str); 5] = [
    ("kvm_exit", "exit_reason,isa"),
    ("kvm_apic", "reg,rw"),
    ("kvm_msr", "ecx,write"),
    ("kvm_pio", "port,rw"),
    ("kvm_hypercall", "nr"),
];
/// The events of the marks, and the fields with their number.
const BEGIN: (&str, &str) = ("kvm_hypercall", "nr");
const END: (&str, &str) = ("kvm_cpuid", "function");
/// The first number of marks. It is no number of a hypercall and no leaf of CPUID.
const MARKS: u32 = 0x5061_0000;
/// How many there were in this process.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Where the host has its trace.
///
/// # Errors
/// It has none that may be used.
pub fn folder() -> anyhow::Result<&'static Path> {
    let folders = FOLDERS.iter().map(Path::new);
    let mut found = folders.filter(|folder| folder.join("instances").exists());
    found.next().context(
        "exits are counted by the host's tracefs, as root: mount -t tracefs none \
         /sys/kernel/tracing",
    )
}

/// Counts until this is dropped.
#[derive(Debug)]
pub struct Trace {
    instance: PathBuf,
    number: u32,
}

/// The keys of one entry of a histogram, and how often.
type Entry = (BTreeMap<String, u64>, u64);

impl Trace {
    /// Begins to count the exits of all machines.
    ///
    /// # Errors
    /// The host's trace cannot be used.
    pub fn new() -> anyhow::Result<Self> {
        let folder = folder()?;
        let (process, nth) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let number = MARKS | (process.wrapping_add(nth) & 0xffff);
        let instance = folder.join(format!("instances/paravane-{process}-{nth}"));
        fs::create_dir(&instance).with_context(|| instance.display().to_string())?;
        let trace = Trace { instance, number };
        for (event, keys) in EVENTS {
            trace.trigger(event, &histogram(keys))?;
        }
        for (event, _) in EVENTS {
            let condition = |field: &str| format!("kvm:{event} if {field} == {number}");
            trace.trigger(BEGIN.0, &format!("enable_hist:{}", condition(BEGIN.1)))?;
            trace.trigger(END.0, &format!("disable_hist:{}", condition(END.1)))?;
        }
        Ok(trace)
    }

    /// The number of its marks.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What has been counted since the last call, by threads with these ids. If the program made a
    /// mark at the end, its exit is the last, and left out.
    ///
    /// # Errors
    /// The kernel has lost counts, or there is no mark where one should be.
    pub fn take(&self, threads: impl Fn(u64) -> bool, marked: bool) -> anyhow::Result<Counts> {
        let mut entries = BTreeMap::new();
        for (event, keys) in EVENTS {
            let path = self.event(event).join("hist");
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let of_event = parse(&text).with_context(|| format!("the host's trace of {event}"))?;
            entries.insert(event, of_event);
            self.trigger(event, &format!("{}:clear", histogram(keys)))?;
        }
        for of_event in entries.values_mut() {
            of_event.retain(|(keys, _)| keys.get("common_pid").is_some_and(|&id| threads(id)));
        }
        Counts::new(&entries, marked.then_some(u64::from(self.number)))
    }

    fn event(&self, name: &str) -> PathBuf {
        self.instance.join("events/kvm").join(name)
    }

    /// Adds a trigger to those of an event.
    fn trigger(&self, event: &str, text: &str) -> anyhow::Result<()> {
        let path = self.event(event).join("trigger");
        let file = OpenOptions::new().append(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => anyhow::anyhow!(
                    "{}: the host's KVM is not there, or its kernel has no trace of it",
                    path.display()
                ),
                _ => anyhow::anyhow!("{}: `{text}`: {error}", path.display()),
            })
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // Those that refer to a histogram go before it.
        for (event, _) in EVENTS {
            let _ = self.trigger(BEGIN.0, &format!("!enable_hist:kvm:{event}"));
            let _ = self.trigger(END.0, &format!("!disable_hist:kvm:{event}"));
        }
        for (event, keys) in EVENTS {
            let _ = self.trigger(event, &format!("!{}", histogram(keys)));
        }
        let _ = fs::remove_dir(&self.instance);
    }
}

fn histogram(keys: &str) -> String {
    format!("hist:keys={keys},common_pid")
}

/// Parses lines as `{ reg: 176, rw: 1 } hitcount: 123`. The kernel says at the end how many it had
/// no room for.
fn parse(text: &str) -> anyhow::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(dropped) = line.strip_prefix("Dropped:") {
            if dropped.trim() != "0" {
                bail!("the kernel has lost {} entries", dropped.trim());
            }
        }
        let Some(line) = line.strip_prefix('{') else {
            continue;
        };
        let entry = line.split_once("} hitcount:").and_then(|(keys, count)| {
            let keys = keys.split(',').map(|key| {
                let (name, value) = key.split_once(':')?;
                Some((name.trim().to_string(), value.trim().parse().ok()?))
            });
            Some((keys.collect::<Option<_>>()?, count.trim().parse().ok()?))
        });
        entries.push(entry.with_context(|| format!("the line `{line}`"))?);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# event histogram\n#\n\n\
        { reg:        176, rw:          1, common_pid:         77 } hitcount:        123\n\
        \n\
        Totals:\n    Hits: 123\n    Entries: 1\n    Dropped: 0\n";

    #[test]
    fn histograms_are_read_strictly() {
        let entries = parse(TEXT).unwrap();
        let [(keys, count)] = &entries[..] else {
            panic!("{entries:?}")
        };
        assert_eq!((keys["reg"], keys["rw"], keys["common_pid"]), (176, 1, 77));
        assert_eq!(*count, 123);
        let lost = TEXT.replace("Dropped: 0", "Dropped: 3");
        assert!(parse(&lost).unwrap_err().to_string().contains("lost 3"));
        assert!(parse(&TEXT.replace("176", "x")).is_err());
        assert!(parse(&TEXT.replace("hitcount", "sum")).is_err());
    }
}
