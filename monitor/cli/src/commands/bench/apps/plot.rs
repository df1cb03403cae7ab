// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bar chart of the speeds, as SVG.

use super::report::Measured;
use std::fmt::Write;

/// Lengths in pixels.
const LABEL: f64 = 300.0;
const CHART: f64 = 600.0;
const LINE: f64 = 20.0;
const TOP: f64 = 40.0;
const MARGIN: f64 = 90.0;

/// A bar for each row, with its interval, and a line where the host is.
pub fn draw(rows: &[Measured]) -> String {
    let most = rows.iter().map(|row| row.high).fold(1.0_f64, f64::max);
    // Far ends must not hide the rest.
    let end = (most * 1.05).min(3.0);
    let x = |speed: f64| LABEL + CHART * speed.clamp(0.0, end) / end;
    let count = rows.iter().map(|_| LINE).sum::<f64>();
    let (width, height) = (LABEL + CHART + MARGIN, TOP + count + LINE);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LABEL}\" y=\"20\">speed of the guest, host = 1, with 95 % intervals</text>\n"
    );
    let mut y = TOP;
    for row in rows {
        let colour = if row.system == "paravane" {
            "#4878a8"
        } else {
            "#b0b0b0"
        };
        let system = if row.system == "paravane" {
            ""
        } else {
            row.system
        };
        let label = format!("{} {}, {} vCPU {system}", row.name, row.place, row.vcpus);
        let (text, middle) = (y + LINE * 0.7, y + LINE * 0.5);
        let (bar, low, high) = (x(row.ratio), x(row.low), x(row.high));
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{text:.1}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{LABEL}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>\n\
             <path d=\"M{low:.1} {middle:.1}H{high:.1}\" stroke=\"black\"/>\n\
             <text x=\"{:.1}\" y=\"{text:.1}\">{:.2}</text>\n",
            LABEL - 8.0,
            escape(label.trim_end()),
            y + LINE * 0.15,
            bar - LABEL,
            LINE * 0.7,
            bar.max(high) + 6.0,
            row.ratio
        );
        y += LINE;
    }
    let host = x(1.0);
    let _ = write!(
        out,
        "<path d=\"M{host:.1} {TOP}V{y:.1}\" stroke=\"black\" stroke-dasharray=\"4\"/>\n\
         <text x=\"{host:.1}\" y=\"{:.1}\" text-anchor=\"middle\">host</text>\n</svg>\n",
        y + LINE * 0.7
    );
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::super::turns::Pairs;
    use super::super::peers::System;
    use super::super::plan::Group;
    use super::super::{description, report::Measured};
    use super::*;
    use crate::arguments::Place;

    #[test]
    fn each_row_has_a_bar_of_its_length() {
        let apps = description::all().unwrap();
        let group = Group::of(&apps, "python", Place::Volume, 1);
        let mut pairs = Pairs::default();
        // Half the speed: with an axis to 1.05, a bar of 600 / 2.1.
        pairs.add(2.0, 1.0);
        let row = Measured::new(&group, group.rows[0], "", System::Paravane, &pairs);
        let picture = draw(&[row.clone(), row]);
        assert_eq!(picture.matches("width=\"285.7\"").count(), 2, "{picture}");
        assert_eq!(
            picture.matches("python volume, 1 vCPU<").count(),
            2,
            "{picture}"
        );
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert_eq!(escape("a<b>&"), "a&lt;b&gt;&amp;");
    }
}
