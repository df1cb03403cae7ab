// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux' patch sites (`.altinstructions`): which instructions of a kernel file run, given what is
//! known of the processor's features.
//!
//! A site has original instructions, and replacements in another section. Each replacement applies
//! if a feature is present, or if it is absent. The kernel applies the records once, in order, so
//! the last record that applies decides what the site contains.

use anyhow::{Context, bail};
use paravane_vmlinux::elf::Image;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Size of struct alt_instr, in bytes (arch/x86/include/asm/alternative.h of Linux 6.12).
const RECORD: usize = 14;
/// ALT_FLAG_NOT: the record applies if the feature is absent.
const NOT: u16 = 1;

/// Known features: present or absent. A feature without an entry may be either.
pub type Features = HashMap<u16, bool>;

/// One record.
#[derive(Clone, Debug)]
struct Record {
    replacement: Range<u64>,
    feature: u16,
    negated: bool,
}

impl Record {
    /// Whether the record applies; `None` if that is not known.
    fn applies(&self, features: &Features) -> Option<bool> {
        features
            .get(&self.feature)
            .map(|&there| there != self.negated)
    }
}

/// Ranges of code that never run.
#[derive(Debug, Default)]
pub struct Dead {
    /// Starts of the ranges, by their ends.
    ranges: BTreeMap<u64, u64>,
    /// Number of patch sites.
    pub sites: usize,
}

impl Dead {
    /// Finds the code that the records of a kernel replace or never use.
    pub fn of(image: &Image<'_>, features: &Features) -> anyhow::Result<Self> {
        let Some(table) = image.section(".altinstructions") else {
            bail!("there is no section .altinstructions");
        };
        if table.bytes.len() % RECORD != 0 {
            bail!("the records of .altinstructions have another size than in Linux 6.12");
        }
        let mut sites: BTreeMap<u64, (u64, Vec<Record>)> = BTreeMap::new();
        for (bytes, at) in table
            .bytes
            .chunks(RECORD)
            .zip((table.address..).step_by(RECORD))
        {
            let (site, record) = record(bytes, at).context("a record of .altinstructions")?;
            let entry = sites.entry(site.start).or_insert((site.end, Vec::new()));
            entry.0 = entry.0.max(site.end);
            entry.1.push(record);
        }
        let mut dead = Dead {
            sites: sites.len(),
            ..Dead::default()
        };
        let mut live = Vec::new();
        let mut unused = Vec::new();
        for (start, (end, records)) in sites {
            // Records before the last one that certainly applies have no effect.
            let sure = records
                .iter()
                .rposition(|r| r.applies(features) == Some(true));
            if sure.is_some() {
                dead.add(start..end);
            }
            for (index, record) in records.into_iter().enumerate() {
                let off = record.applies(features) == Some(false)
                    || sure.is_some_and(|sure| index < sure);
                if off { &mut unused } else { &mut live }.push(record.replacement);
            }
        }
        // Several sites may share a replacement.
        for range in unused {
            if !live
                .iter()
                .any(|l| l.start < range.end && range.start < l.end)
            {
                dead.add(range);
            }
        }
        Ok(dead)
    }

    fn add(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.ranges.insert(range.end, range.start);
        }
    }

    /// Whether the code at an address never runs.
    pub fn contains(&self, address: u64) -> bool {
        self.ranges
            .range(address + 1..)
            .next()
            .is_some_and(|(_, start)| *start <= address)
    }
}

fn record(bytes: &[u8], at: u64) -> anyhow::Result<(Range<u64>, Record)> {
    let &[
        a0,
        a1,
        a2,
        a3,
        b0,
        b1,
        b2,
        b3,
        f0,
        f1,
        g0,
        g1,
        length,
        new_length,
    ] = bytes
    else {
        bail!("too short");
    };
    let from =
        |place: u64, offset: [u8; 4]| place.wrapping_add_signed(i32::from_le_bytes(offset).into());
    let site = from(at, [a0, a1, a2, a3]);
    let replacement = from(at + 4, [b0, b1, b2, b3]);
    let end = |start: u64, length: u8| start.checked_add(length.into()).context("reaches too far");
    Ok((
        site..end(site, length)?,
        Record {
            replacement: replacement..end(replacement, new_length)?,
            feature: u16::from_le_bytes([f0, f1]),
            negated: u16::from_le_bytes([g0, g1]) & NOT != 0,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use paravane_vmlinux::elf::Section;

    const TABLE: u64 = 0x1000;

    /// Records of (site, replacement, feature, flags), five bytes each.
    fn dead(records: &[(u64, u64, u16, u16)], features: &[(u16, bool)]) -> Dead {
        let mut bytes = Vec::new();
        for (at, (site, replacement, feature, flags)) in (TABLE..).step_by(RECORD).zip(records) {
            for (target, place) in [(site, at), (replacement, at + 4)] {
                let offset = i32::try_from(target.wrapping_sub(place).cast_signed()).unwrap();
                bytes.extend(offset.to_le_bytes());
            }
            bytes.extend(feature.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend([5, 5]);
        }
        let image = Image {
            sections: vec![Section {
                name: ".altinstructions".to_string(),
                address: TABLE,
                bytes: &bytes,
                code: false,
            }],
            symbols: Vec::new(),
            build_id: None,
            relocations: BTreeMap::new(),
        };
        Dead::of(&image, &features.iter().copied().collect()).unwrap()
    }

    #[test]
    fn a_feature_that_is_there_replaces() {
        let dead = dead(&[(0x100, 0x200, 7, 0)], &[(7, true)]);
        assert!(
            dead.contains(0x100)
                && dead.contains(0x104)
                && !dead.contains(0x105)
                && !dead.contains(0xff)
        );
        assert!(!dead.contains(0x200));
    }

    #[test]
    fn one_that_is_not_there_does_not() {
        let dead = dead(&[(0x100, 0x200, 7, 0)], &[(7, false)]);
        assert!(!dead.contains(0x100) && dead.contains(0x200));
    }

    #[test]
    fn one_that_must_not_be_there() {
        let dead = dead(&[(0x100, 0x200, 7, NOT)], &[(7, true)]);
        assert!(!dead.contains(0x100) && dead.contains(0x200));
    }

    #[test]
    fn an_unknown_alternative_is_never_certain() {
        let dead = dead(&[(0x100, 0x200, 7, 0)], &[]);
        assert!(!dead.contains(0x100) && !dead.contains(0x200));
    }

    #[test]
    fn the_last_that_applies_stands_there() {
        let dead = dead(
            &[
                (0x100, 0x200, 1, 0),
                (0x100, 0x300, 2, 0),
                (0x100, 0x400, 3, 0),
            ],
            &[(1, true), (2, true)],
        );
        assert!(dead.contains(0x100) && dead.contains(0x200));
        assert!(!dead.contains(0x300) && !dead.contains(0x400));
    }

    #[test]
    fn a_shared_replacement_runs_if_one_site_uses_it() {
        let dead = dead(&[(0x100, 0x200, 1, 0), (0x180, 0x200, 2, 0)], &[(1, false)]);
        assert!(!dead.contains(0x200));
    }
}
