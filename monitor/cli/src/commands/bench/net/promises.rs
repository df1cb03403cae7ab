// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The promised figures of a card of the virtual bus (SPECIFICATION.md), and whether the turns meet
//! them.

use super::super::bars::Verdict;
use super::super::stats::{interval, median};
use super::measure::Turn;
use super::paths::{BASE, GUESTS, SAME_NETWORK};
use super::report::Row;
use serde::Serialize;

/// The MTU for which round trips have bars: that of Ethernet, as in virtual-bus (Haskins, 2009).
const MTU: u32 = 1500;
/// A round trip compared with the host's: the 65 us and 39 us of virtual-bus (Haskins, 2009).
const TRIP_OF_HOST: f64 = 1.67;
/// A round trip beside that over virtio.
const TRIP_OF_VIRTIO: f64 = 0.8;
/// A stream beside that over virtio: no slower.
const STREAM_OF_VIRTIO: f64 = 1.0;
/// A stream beside the host's over a link of at most this rate, in Mbit/s: 1 Gbit/s, as in the
/// seed.
const STREAM_OF_LINK: f64 = 0.99;
const LINK: u32 = 1000;

/// A bar of a path, and whether it is met.
#[derive(Debug, Serialize)]
pub struct Promise {
    path: &'static str,
    with: &'static str,
    mtu: u32,
    figure: &'static str,
    ratio: f64,
    ratio_ci95: [f64; 2],
    bar: f64,
    verdict: Verdict,
}

/// A figure of a turn, and what it is.
type Figure = (&'static str, fn(&Turn) -> f64);

/// Whether more is better.
#[derive(Clone, Copy)]
enum Sense {
    AtMost,
    AtLeast,
}

impl Promise {
    fn new(row: &Row, with: &Row, figure: Figure, (sense, bar): (Sense, f64)) -> Self {
        let ratios = row.ratios(with, figure.1);
        let (ratio, ratio_ci95, rounds) = (median(&ratios), interval(&ratios), ratios.len());
        let verdict = match sense {
            Sense::AtMost => Verdict::of_ratio(ratio, ratio_ci95, bar, rounds),
            Sense::AtLeast => Verdict::of_speed(ratio, ratio_ci95, bar, rounds),
        };
        Promise {
            path: row.path,
            with: with.path,
            mtu: row.mtu,
            figure: figure.0,
            ratio,
            ratio_ci95,
            bar,
            verdict,
        }
    }

    /// All that these rows can say something of. `rate`: that of the link over which they were
    /// measured, if it has one, in Mbit/s. All paths share it, so they say nothing of each other.
    pub fn all(rows: &[Row], rate: Option<u32>) -> Vec<Self> {
        let mut all = Vec::new();
        for (venet, virtio) in SAME_NETWORK {
            for row in rows.iter().filter(|row| row.path == venet) {
                let of = |path| rows.iter().find(|r| r.path == path && r.mtu == row.mtu);
                let mut add = |with, figure, bar| {
                    all.extend(of(with).map(|with| Promise::new(row, with, figure, bar)));
                };
                let trip: Figure = ("round trip", |turn| turn.trip);
                // Between two guests, there is no link and no host.
                let guests = venet == GUESTS;
                if row.mtu == MTU && rate.is_none() {
                    if !guests {
                        add(BASE, trip, (Sense::AtMost, TRIP_OF_HOST));
                    }
                    add(virtio, trip, (Sense::AtMost, TRIP_OF_VIRTIO));
                }
                let streams: [Figure; 2] = [
                    ("to server", |turn| turn.send),
                    ("from server", |turn| turn.receive),
                ];
                for stream in streams {
                    match rate {
                        None => add(virtio, stream, (Sense::AtLeast, STREAM_OF_VIRTIO)),
                        Some(..=LINK) if !guests => {
                            add(BASE, stream, (Sense::AtLeast, STREAM_OF_LINK))
                        }
                        Some(_) => {}
                    }
                }
            }
        }
        all
    }

    /// A line of the table.
    pub fn markdown(&self) -> String {
        let [low, high] = self.ratio_ci95;
        format!(
            "| {} | {} | {} | {} | {:.3} ({low:.3} to {high:.3}) | {} | {} |",
            self.path, self.with, self.mtu, self.figure, self.ratio, self.bar, self.verdict
        )
    }

    /// What is missed.
    pub fn missed(&self) -> Option<String> {
        let [low, high] = self.ratio_ci95;
        (self.verdict == Verdict::Missed).then(|| {
            format!(
                "{} {} beside {}, MTU {}: {:.3} ({low:.3} to {high:.3}), bar {}",
                self.path, self.figure, self.with, self.mtu, self.ratio, self.bar
            )
        })
    }
}

/// The head of the table.
pub const HEAD: &str = "| path | beside | MTU | figure | ratio (95 %) | bar | met |\n\
                        | --- | --- | ---: | --- | ---: | ---: | --- |\n";

#[cfg(test)]
mod tests {
    use super::super::super::bars::LEAST_ROUNDS;
    use super::*;

    /// A path with the same turn in enough rounds.
    fn row(path: &'static str, mtu: u32, trip: f64, [send, receive]: [f64; 2]) -> Row {
        let mut row = Row::new(path, mtu);
        for _ in 0..LEAST_ROUNDS {
            row.add(Turn {
                trip,
                trip_p99: trip,
                trip_mean: trip,
                send,
                receive,
                cpu: 1.0,
            });
        }
        row
    }

    fn missed(rows: &[Row], rate: Option<u32>) -> Vec<(&'static str, &'static str, u32)> {
        let all = Promise::all(rows, rate);
        let missed = all.iter().filter(|p| p.missed().is_some());
        missed.map(|p| (p.with, p.figure, p.mtu)).collect()
    }

    #[test]
    fn each_promise_can_be_missed() {
        let host = |trip| row("host", 1500, trip, [100.0, 100.0]);
        let virtio = |trip| row("virtio-net", 1500, trip, [50.0, 50.0]);
        let venet = |trip, streams| row("venet", 1500, trip, streams);
        let of = |host, virtio, venet| missed(&[host, virtio, venet], None);
        let (trip, to, from) = ("round trip", "to server", "from server");
        let same = [50.0, 50.0];
        assert_eq!(of(host(10.0), virtio(20.0), venet(16.0, same)), []);
        let slow = of(host(10.0), virtio(30.0), venet(16.8, same));
        assert_eq!(slow, [("host", trip, 1500)]);
        let slow = of(host(20.0), virtio(20.0), venet(16.8, same));
        assert_eq!(slow, [("virtio-net", trip, 1500)]);
        let slow = of(host(10.0), virtio(20.0), venet(16.0, [49.0, 50.0]));
        assert_eq!(slow, [("virtio-net", to, 1500)]);
        let slow = of(host(10.0), virtio(20.0), venet(16.0, [50.0, 49.0]));
        assert_eq!(slow, [("virtio-net", from, 1500)]);
        let rows = [host(10.0), virtio(20.0), venet(99.0, [99.0, 98.9])];
        assert_eq!(missed(&rows, Some(1000)), [("host", from, 1500)]);
        // The host may not fill a faster one.
        assert_eq!(missed(&rows, Some(10_000)), []);
    }

    #[test]
    fn guests_have_bars_beside_virtio_only() {
        let rows = |trip, streams| {
            [
                row("host", 1500, 10.0, [100.0, 100.0]),
                row("virtio-net-guests", 1500, 40.0, [50.0, 50.0]),
                row("venet-guests", 1500, trip, streams),
            ]
        };
        assert_eq!(missed(&rows(32.0, [50.0, 50.0]), None), []);
        let with = "virtio-net-guests";
        let slow = missed(&rows(33.0, [49.0, 49.0]), None);
        let figures = ["round trip", "to server", "from server"];
        assert_eq!(slow, figures.map(|figure| (with, figure, 1500)));
        assert_eq!(missed(&rows(99.0, [1.0, 1.0]), Some(1000)), []);
    }

    #[test]
    fn large_frames_have_no_bar_for_round_trips() {
        let rows = [
            row("host", 9000, 10.0, [100.0, 100.0]),
            row("virtio-net-tap", 9000, 20.0, [50.0, 50.0]),
            row("venet-tap", 9000, 99.0, [60.0, 40.0]),
            row("venet", 9000, 99.0, [60.0, 40.0]),
        ];
        let all = Promise::all(&rows, None);
        assert_eq!(all.len(), 2, "venet has nothing to be compared with");
        assert_eq!(
            missed(&rows, None),
            [("virtio-net-tap", "from server", 9000)]
        );
        assert!(
            all[0].markdown().ends_with("| 1 | met |"),
            "{}",
            all[0].markdown()
        );
    }
}
