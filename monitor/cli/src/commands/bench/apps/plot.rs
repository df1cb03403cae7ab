// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bars of the speeds.

use super::super::plot::Bar;
use super::measured::Measured;

/// The chart's title.
pub const TITLE: &str = "speed of the guest, host = 1, with 95 % intervals";

/// A bar for each row.
pub fn bars(rows: &[Measured]) -> Vec<Bar> {
    let bar = |row: &Measured| {
        let own = row.system == "paravane";
        let system = if own { "" } else { row.system };
        let label = format!("{} {}, {} vCPU {system}", row.name, row.place, row.vcpus);
        Bar {
            label: label.trim_end().to_string(),
            own,
            value: row.ratio,
            low: row.low,
            high: row.high,
        }
    };
    rows.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::turns::Pairs;
    use super::super::description;
    use super::super::peers::System;
    use super::super::plan::Group;
    use super::*;
    use crate::arguments::Place;

    #[test]
    fn a_bar_says_what_was_measured_where() {
        let apps = description::all().unwrap();
        let group = Group::of(&apps, "python", Place::Volume, 1);
        let mut pairs = Pairs::default();
        pairs.add(2.0, 1.0);
        let row = group.rows[0];
        let figure = &row.figures()[0];
        let row = Measured::new(&group, row, figure, "", System::Paravane, &pairs);
        let bar = &bars(&[row])[0];
        assert!(
            bar.own && bar.label.ends_with("python volume, 1 vCPU"),
            "{bar:?}"
        );
        assert!((bar.value - 0.5).abs() < 1e-9);
    }
}
