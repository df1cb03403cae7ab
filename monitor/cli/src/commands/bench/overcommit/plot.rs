// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table as a bar chart, in SVG.

use super::rows::Row;
use std::fmt::Write;

/// Lengths in pixels.
const LABEL: f64 = 180.0;
const CHART: f64 = 560.0;
const BAR: f64 = 12.0;
const LINE: f64 = 34.0;
const TOP: f64 = 40.0;
const MARGIN: f64 = 120.0;

/// Two bars for each row: times without paravirtual locks and with them.
pub fn draw(rows: &[Row]) -> String {
    let most = rows
        .iter()
        .map(|row| row.base_s.max(row.pv_s))
        .fold(f64::MIN_POSITIVE, f64::max);
    let (width, height) = (
        LABEL + CHART + MARGIN,
        TOP + rows.iter().map(|_| LINE).sum::<f64>() + 8.0,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LABEL}\" y=\"20\">seconds: plain locks (grey), paravirtual locks (blue), and \
         the gain</text>\n"
    );
    let mut y = TOP;
    for row in rows {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{} {}</text>",
            LABEL - 8.0,
            y + BAR + 4.0,
            row.case,
            row.workload
        );
        for (time, colour, top) in [
            (row.base_s, "#b0b0b0", y),
            (row.pv_s, "#4878a8", y + BAR + 1.0),
        ] {
            let length = CHART * time / most;
            let _ = writeln!(
                out,
                "<rect x=\"{LABEL}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"{BAR}\" \
                 fill=\"{colour}\"/>"
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\">{:.1} % ({:.0} to {:.0})</text>",
            LABEL + CHART * row.base_s.max(row.pv_s) / most + 6.0,
            y + BAR + 4.0,
            row.gain_percent,
            row.ci95[0],
            row.ci95[1]
        );
        y += LINE;
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::super::rows::{Pair, Turn};
    use super::*;

    #[test]
    fn bars_have_the_lengths_of_their_times() {
        let mut pair = Pair::default();
        let turn = |seconds| Turn {
            seconds,
            machine: 1.0,
            load: 1.0,
        };
        pair.add(turn(4.0), turn(1.0));
        let picture = draw(&[Row::new(3, "hackbench-40", &pair)]);
        assert!(picture.contains("width=\"560.0\""), "{picture}");
        assert!(picture.contains("width=\"140.0\""), "{picture}");
        assert!(picture.contains(">3x hackbench-40<"), "{picture}");
        assert!(picture.contains("75.0 % (75 to 75)"), "{picture}");
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    }
}
