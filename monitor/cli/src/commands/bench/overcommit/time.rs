// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Time in a machine whose CPUs are all busy: how far its clock is off, and how much of the time
//! that passes it accounts for.

use super::Bench;
use super::machines::Machine;
use super::report::Clock;
use anyhow::Context;

/// How long the CPUs are busy, in seconds; with `--quick`.
const BUSY: [u32; 2] = [60, 5];

/// Keeps all CPUs busy. A CPU has had a tick when a program on it goes on, so it is asked then. The
/// last line is the sum of all times in /proc/stat, in ticks, and the microseconds that passed.
const SCRIPT: &str = "sum() { taskset -c $1 awk -v cpu=cpu$1 \
    '$1 == cpu { for (i = 2; i <= 9; i++) s += $i } END { print s }' /proc/stat; }\n\
    for c in $(seq 0 $((jobs - 1))); do taskset -c $c bash -c 'while :; do :; done' & done\n\
    trap 'kill $(jobs -p)' EXIT\n\
    ticks=0 passed=0\n\
    for c in $(seq 0 $((jobs - 1))); do\n\
    now=$EPOCHREALTIME; began[c]=${now/./}; first[c]=$(sum $c)\n\
    done\n\
    sleep $seconds\n\
    for c in $(seq 0 $((jobs - 1))); do\n\
    now=$EPOCHREALTIME; last=$(sum $c)\n\
    ticks=$((ticks + last - first[c])); passed=$((passed + ${now/./} - began[c]))\n\
    done\n\
    echo $ticks $passed";
/// Ticks of /proc/stat in a second.
const TICKS: f64 = 100.0;

/// Measures a machine at a load.
pub fn measure(bench: &Bench<'_>, case: u32) -> anyhow::Result<Clock> {
    let mut machine = Machine::start(bench, "")?;
    let hogs = bench.hogs(case, std::slice::from_ref(&machine))?;
    let seconds = BUSY[usize::from(bench.args.quick)];
    let answer = machine.run(&format!("seconds={seconds} jobs={}\n{SCRIPT}", bench.vcpus))?;
    drop(hogs);
    Ok(Clock {
        case: format!("{case}x"),
        offset_ns: machine.clock_offset()?,
        accounted_percent: Some(
            percent(&answer.line).with_context(|| format!("times: `{}`", answer.line))?,
        ),
    })
}

/// Ticks in percent of microseconds.
fn percent(line: &str) -> Option<f64> {
    let (ticks, passed) = line.split_once(' ')?;
    let (ticks, passed): (f64, f64) = (ticks.parse().ok()?, passed.parse().ok()?);
    (passed > 0.0).then(|| ticks / TICKS / (passed / 1e6) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_compared() {
        assert_eq!(percent("150 2000000").map(f64::round), Some(75.0));
        assert_eq!(percent("150 0"), None);
        assert_eq!(percent("150"), None);
    }

    #[test]
    fn the_script_is_bash() {
        let status = std::process::Command::new("bash")
            .args(["-n", "-c", SCRIPT])
            .status();
        assert!(status.unwrap().success());
    }
}
