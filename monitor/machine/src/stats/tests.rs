// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use std::io::Read;

fn stats() -> Stats {
    let vcpu = |n: u64| VcpuFigures {
        fills: 10 + n,
        halts: n,
        stolen_ns: 1_500_000_000,
        ..VcpuFigures::default()
    };
    Stats {
        uptime_ms: 2_345,
        hypervisor: "process".to_string(),
        hypervisor_reason: "--hypervisor process".to_string(),
        memory: 256 << 20,
        processes: 4,
        vcpus: vec![vcpu(0), vcpu(1)],
        devices: vec![Device {
            name: "disk".to_string(),
            attributes: [("poll-us".to_string(), 60)].into(),
            figures: Figures {
                requests: 7,
                bytes_to_guest: 3584,
                ..Figures::default()
            },
        }],
    }
}

/// The manual has each counter, with its name in JSON.
#[test]
fn the_manual_has_each_counter() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let manual = std::fs::read_to_string(format!("{root}/docs/debugging.md")).unwrap();
    let json = serde_json::to_value(VcpuFigures::default()).unwrap();
    let mut names: Vec<String> = json.as_object().unwrap().keys().cloned().collect();
    names.extend(ROWS.iter().map(|row| row.0.to_string()));
    let json = serde_json::to_value(Figures::default()).unwrap();
    names.extend(json.as_object().unwrap().keys().cloned());
    names.extend(DEVICE_ROWS.iter().map(|row| row.0.to_string()));
    for name in names {
        let cell = format!("| `{name}` |");
        assert!(manual.contains(&cell), "{name} is not in docs/debugging.md");
    }
}

#[test]
fn prometheus_can_read_it() {
    let text = prometheus::text(stats()).unwrap();
    for line in [
        "paravane_uptime_seconds 2.345",
        "# TYPE paravane_vcpu_exits counter",
        "paravane_vcpu_exits_total{vcpu=\"1\",kind=\"halt\"} 1",
        "paravane_vcpu_fills_total{vcpu=\"0\"} 10",
        "paravane_vcpu_stolen_seconds_total{vcpu=\"1\"} 1.5",
        "paravane_device_bytes_to_guest_total{device=\"disk\",number=\"0\"} 3584",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    // Each family has one description, followed by all of its samples. No sample is repeated.
    let mut seen = Vec::new();
    let (text, end) = text.split_at(text.len() - "# EOF\n".len());
    assert_eq!(end, "# EOF\n");
    for line in text.lines() {
        let name = line
            .trim_start_matches("# TYPE ")
            .trim_start_matches("# HELP ");
        let family = name.split([' ', '{']).next().unwrap();
        let family = family.trim_end_matches("_total").to_string();
        if seen.last() != Some(&family) {
            assert!(
                !seen.contains(&family) && line.starts_with("# HELP "),
                "{line}"
            );
            seen.push(family);
        }
    }
    let mut samples: Vec<_> = text
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect();
    let all = samples.len();
    samples.sort_unstable();
    samples.dedup();
    assert_eq!(samples.len(), all);
}

#[test]
fn people_see_totals_and_rates() {
    let before = Stats {
        uptime_ms: 345,
        vcpus: vec![VcpuFigures::default()],
        ..stats()
    };
    let text = table("web", &stats(), Some(&before));
    let line = |start: &str| {
        let line = text.lines().find(|line| line.starts_with(start));
        line.unwrap_or_default()
            .split_whitespace()
            .map(String::from)
            .collect::<Vec<_>>()
    };
    assert!(
        text.starts_with("web: up 2.3 s, 256 MiB, 2 vCPUs, 4 address-space processes\n"),
        "{text}"
    );
    assert_eq!(line("fills")[..3], ["fills", "21", "10"]);
    assert_eq!(line("stolen")[..3], ["stolen", "3000", "1500"]);
    assert_eq!(line("disk")[..4], ["disk", "7", "0", "3584"]);
    assert_eq!(line("  a second")[..4], ["a", "second", "0", "0"]);
}

#[test]
fn a_hostile_guest_s_figures_are_only_figures() {
    let mut odd = stats();
    odd.vcpus[0].fills = u64::MAX;
    odd.vcpus[1].stolen_ns = u64::MAX;
    // Smaller than before.
    assert!(table("x", &stats(), Some(&odd)).contains("fills"));
    assert!(
        prometheus::text(odd)
            .unwrap()
            .contains("_total{vcpu=\"1\"} 18446744073.7")
    );
}

#[test]
fn programs_get_it_as_a_file() {
    let mut file = std::fs::File::from(crate::control::json_file(&stats()).unwrap());
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(serde_json::from_str::<Stats>(&text).unwrap(), stats());
}

#[test]
fn increases_of_vcpus_and_devices() {
    let mut now = stats();
    now.vcpus[1].fills += 5;
    // A guest can set a counter back.
    now.vcpus[0].fills = 0;
    now.vcpus[0].halts = u64::MAX;
    now.vcpus[1].halts = u64::MAX;
    now.vcpus[1].stolen_ns += 7_000_000;
    now.devices[0].figures.requests += 3;
    let all = now.since(&stats());
    let find = |name: &str| all.iter().find(|one| one.name == name).unwrap();
    assert_eq!(
        (find("fills").total, &find("fills").vcpus[..]),
        (5, &[0, 5][..])
    );
    assert_eq!(find("halt").total, u64::MAX);
    assert_eq!(find("stolen").total, 7);
    assert_eq!(
        (
            find("disk requests").total,
            find("disk requests").vcpus.len()
        ),
        (3, 0)
    );
    // A machine that was started again has other vCPUs and devices.
    assert_eq!(stats().since(&Stats::default()).len(), all.len());
    assert!(
        Stats::default()
            .since(&stats())
            .iter()
            .all(|one| one.total == 0)
    );
}
