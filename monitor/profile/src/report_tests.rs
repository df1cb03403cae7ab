// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use crate::perf::Scope;
use crate::tally::Books;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn subject(vcpus: usize) -> Subject {
    Subject {
        name: "one".to_string(),
        monitor: 1,
        vcpus,
        books: Books::default(),
        notes: Vec::new(),
    }
}

fn tally(program: u64, image: u64, layer: u64, host: u64) -> Tally {
    Tally {
        places: [program, image, 0, layer, host, 0],
        ..Tally::default()
    }
}

fn times(cpu_ms: u64, ready_ms: u64) -> Times {
    Times {
        cpu_ns: cpu_ms * 1_000_000,
        ready_ns: ready_ms * 1_000_000,
        user: 3,
        system: 1,
    }
}

fn report(perf: Option<&Perf>, tallies: &[Tally], times: &[Times]) -> Report {
    make(&Watched {
        subject: &subject(times.len()),
        perf,
        tallies,
        times,
        helpers: &BTreeMap::from([("disk".to_string(), 250_000_000)]),
        wall: SECOND,
        counted: SECOND,
        top: 20,
    })
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 0.001
}

#[test]
fn samples_split_the_cpu_time() {
    let perf = Perf::for_tests(Scope::Cpus, true, 1_000_000);
    let report = report(
        Some(&perf),
        &[tally(30, 60, 5, 5), Tally::default()],
        &[times(500, 100), times(0, 0)],
    );
    let shares = report.vcpus[0];
    assert!(close(shares.programs.unwrap(), 15.0), "{shares:?}");
    assert!(close(shares.guest_kernel.unwrap(), 30.0), "{shares:?}");
    assert!(close(shares.layer.unwrap(), 2.5), "{shares:?}");
    assert!(close(shares.host_kernel, 2.5), "{shares:?}");
    assert!(
        close(shares.ready, 10.0) && close(shares.waiting, 40.0),
        "{shares:?}"
    );
    assert!(close(report.vcpus[1].waiting, 100.0));
    assert!(close(report.all.waiting, 70.0) && close(report.all.programs.unwrap(), 7.5));
    assert_eq!((report.samples, report.source), (100, "perf"));
    assert!(close(report.monitor[0].percent, 25.0));
}

#[test]
fn ticks_say_how_much_the_host_kernel_had_if_no_sample_does() {
    let perf = Perf::for_tests(Scope::Threads, false, 1_000_000);
    let seen = report(Some(&perf), &[tally(30, 10, 0, 0)], &[times(400, 0)]).all;
    assert!(close(seen.host_kernel, 10.0), "{seen:?}");
    assert!(close(seen.programs.unwrap(), 22.5) && close(seen.guest_kernel.unwrap(), 7.5));
    // Too short for a tick: a sample is a millisecond.
    let short = Times {
        user: 0,
        system: 0,
        ..times(5, 0)
    };
    let seen = report(Some(&perf), &[tally(3, 0, 0, 0)], &[short]).all;
    assert!(
        close(seen.programs.unwrap(), 0.3) && close(seen.host_kernel, 0.2),
        "{seen:?}"
    );
    // Never more than the CPU time.
    let seen = report(Some(&perf), &[tally(8, 0, 0, 0)], &[short]).all;
    assert!(
        close(seen.programs.unwrap(), 0.5) && close(seen.host_kernel, 0.0),
        "{seen:?}"
    );
}

#[test]
fn without_samples_ticks_split_the_cpu_time() {
    let report = report(None, &[], &[times(400, 0)]);
    assert!(close(report.all.guest_and_layer, 30.0) && close(report.all.host_kernel, 10.0));
    assert_eq!((report.all.programs, report.source), (None, "counters"));
    assert!(report.guest_kernel.is_empty());
}

#[test]
fn functions_are_sorted_and_limited() {
    let perf = Perf::for_tests(Scope::Cpus, true, 1_000_000);
    let mut one = tally(0, 0, 0, 100);
    one.host_kernel = (0..30u64).map(|n| (format!("call {n:02}"), n)).collect();
    let report = report(Some(&perf), &[one], &[times(1000, 0)]);
    assert_eq!(report.host_kernel.len(), 20);
    assert_eq!(report.host_kernel[0].name, "call 29");
    assert!(close(report.host_kernel[0].percent, 29.0));
    assert_eq!(report.host_kernel[19].name, "call 10");
}

proptest! {
    /// For any figures of the host, the shares of a vCPU add up to its whole time.
    #[test]
    fn shares_are_complete(
        samples: [u32; 4], cpu in 0u64..3_000, ready in 0u64..3_000, host: bool, by_perf: bool
    ) {
        let perf = Perf::for_tests(Scope::Threads, host, 1_000_000);
        let [a, b, c, d] = samples.map(u64::from);
        let d = if host { d } else { 0 };
        let seen = report(by_perf.then_some(&perf), &[tally(a, b, c, d)], &[times(cpu, ready)]);
        let shares = seen.all;
        let sum = shares.guest_and_layer + shares.host_kernel + shares.ready + shares.waiting;
        prop_assert!(close(sum, 100.0), "{:?}", shares);
        for part in [shares.guest_and_layer, shares.host_kernel, shares.ready, shares.waiting] {
            prop_assert!((-0.001..=100.001).contains(&part), "{:?}", shares);
        }
        if let (Some(programs), Some(kernel), Some(layer)) =
            (shares.programs, shares.guest_kernel, shares.layer)
        {
            prop_assert!(close(programs + kernel + layer, shares.guest_and_layer), "{:?}", shares);
        }
    }
}
