// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bar chart of ratios to the host, as SVG.

use anyhow::Context;
use std::fmt::Write;
use std::fs::OpenOptions;
use std::path::Path;

/// Lengths in pixels.
const LABEL: f64 = 300.0;
const CHART: f64 = 600.0;
const LINE: f64 = 20.0;
const TOP: f64 = 40.0;
const MARGIN: f64 = 90.0;
/// Colours of Paravane's bars, and of others'.
const OWN: &str = "#4878a8";
const OTHER: &str = "#b0b0b0";

/// A ratio with its interval.
#[derive(Clone, Debug)]
pub struct Bar {
    pub label: String,
    /// Whether it is drawn in the colour of what the chart is about.
    pub own: bool,
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// Fails if `--plot FILE` cannot be written. Call it before hours of work: it changes nothing of
/// what is there.
pub fn check_file(file: &Path) -> anyhow::Result<()> {
    let opened = OpenOptions::new().create(true).append(true).open(file);
    opened.with_context(|| format!("--plot {}", file.display()))?;
    Ok(())
}

/// A bar for each ratio, with its interval, and a line where the host is.
pub fn draw(title: &str, bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.high).fold(1.0_f64, f64::max);
    // Far ends must not hide the rest.
    let end = (most * 1.05).min(3.0);
    let x = |ratio: f64| LABEL + CHART * ratio.clamp(0.0, end) / end;
    let count = bars.iter().map(|_| LINE).sum::<f64>();
    let (width, height) = (LABEL + CHART + MARGIN, TOP + count + LINE);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LABEL}\" y=\"20\">{}</text>\n",
        escape(title)
    );
    let mut y = TOP;
    for bar in bars {
        let colour = if bar.own { OWN } else { OTHER };
        let (text, middle) = (y + LINE * 0.7, y + LINE * 0.5);
        let (value, low, high) = (x(bar.value), x(bar.low), x(bar.high));
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{text:.1}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{LABEL}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>\n\
             <path d=\"M{low:.1} {middle:.1}H{high:.1}\" stroke=\"black\"/>\n\
             <text x=\"{:.1}\" y=\"{text:.1}\">{:.2}</text>\n",
            LABEL - 8.0,
            escape(&bar.label),
            y + LINE * 0.15,
            value - LABEL,
            LINE * 0.7,
            value.max(high) + 6.0,
            bar.value
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
    use super::*;

    #[test]
    fn each_ratio_has_a_bar_of_its_length() {
        // Half the speed: with an axis to 1.05, a bar of 600 / 2.1.
        let bar = Bar {
            label: "a<b>&".into(),
            own: true,
            value: 0.5,
            low: 0.5,
            high: 0.5,
        };
        let picture = draw("title", &[bar.clone(), bar]);
        assert_eq!(picture.matches("width=\"285.7\"").count(), 2, "{picture}");
        assert_eq!(picture.matches(">a&lt;b&gt;&amp;<").count(), 2, "{picture}");
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    }
}
