// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The workloads of fio, and its results.

use anyhow::{Context, bail};
use paravane_user_io::text;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Characters of an output that was not understood that an error shows.
const SHOWN: usize = 60;

/// What fio does at a time, for a while.
#[derive(Debug)]
pub struct Workload {
    pub name: &'static str,
    /// The name of its rate as a figure.
    pub figure: &'static str,
    /// For people.
    pub about: &'static str,
    pub unit: Unit,
    kind: Kind,
    /// Options of fio.
    options: &'static str,
}

/// What the rate of a workload counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Requests, each second.
    Requests,
    /// 10^6 bytes, each second.
    Megabytes,
}

/// Which of fio's figures are those of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    /// Each write is followed by fdatasync.
    Durable,
}

/// All workloads. None needs what another one leaves.
pub const WORKLOADS: [Workload; 7] = [
    Workload {
        name: "read4k_qd1",
        figure: "read4k_qd1_s",
        about: "random reads of 4 KiB, 1 at a time",
        unit: Unit::Requests,
        kind: Kind::Read,
        options: "--rw=randread --bs=4k --iodepth=1",
    },
    Workload {
        name: "read4k_qd16",
        figure: "read4k_qd16_s",
        about: "random reads of 4 KiB, 16 at a time",
        unit: Unit::Requests,
        kind: Kind::Read,
        options: "--rw=randread --bs=4k --iodepth=16",
    },
    Workload {
        name: "write4k_qd1",
        figure: "write4k_qd1_s",
        about: "random writes of 4 KiB, 1 at a time",
        unit: Unit::Requests,
        kind: Kind::Write,
        options: "--rw=randwrite --bs=4k --iodepth=1",
    },
    Workload {
        name: "write4k_qd16",
        figure: "write4k_qd16_s",
        about: "random writes of 4 KiB, 16 at a time",
        unit: Unit::Requests,
        kind: Kind::Write,
        options: "--rw=randwrite --bs=4k --iodepth=16",
    },
    Workload {
        name: "durable4k",
        figure: "durable4k_s",
        about: "random writes of 4 KiB, fdatasync after each",
        unit: Unit::Requests,
        kind: Kind::Durable,
        options: "--rw=randwrite --bs=4k --iodepth=1 --fdatasync=1",
    },
    Workload {
        name: "read",
        figure: "read_mb_s",
        about: "reading in order, 256 KiB, 4 at a time",
        unit: Unit::Megabytes,
        kind: Kind::Read,
        options: "--rw=read --bs=256k --iodepth=4",
    },
    Workload {
        name: "write",
        figure: "write_mb_s",
        about: "writing in order, 256 KiB, 4 at a time",
        unit: Unit::Megabytes,
        kind: Kind::Write,
        options: "--rw=write --bs=256k --iodepth=4",
    },
];

/// Options of all workloads. fio must not drop the host's page cache of the file, and measures time
/// by the same clock everywhere. Latencies are from submission to completion: without O_DIRECT, the
/// work is done in the submission.
const OPTIONS: &str = "--name=bench --thread --ioengine=libaio --size=100% --invalidate=0 \
    --allow_file_create=0 --norandommap --clocksource=clock_gettime \
    --lat_percentiles=1 --clat_percentiles=0 --slat_percentiles=0 --percentile_list=50:99 \
    --output-format=json";

impl Workload {
    /// A script for bash that runs it for `ms` milliseconds on a file or disk, past the page cache
    /// or not, and prints one line of JSON.
    pub fn script(&self, file: &str, direct: bool, ms: u32) -> String {
        self.run(file, direct, &format!("--time_based --runtime={ms}ms"))
    }

    /// A script that runs it for one request only.
    pub fn start(&self, file: &str, direct: bool) -> String {
        self.run(file, direct, "--number_ios=1")
    }

    fn run(&self, file: &str, direct: bool, length: &str) -> String {
        let (options, direct) = (self.options, u8::from(direct));
        format!(
            "out=$(fio {OPTIONS} {options} --filename={file} --direct={direct} {length})\n\
             printf '%s\\n' \"${{out//$'\\n'/}}\"\n"
        )
    }

    /// Reads what that script printed.
    ///
    /// # Errors
    /// It is not a result of fio, or one without figures.
    pub fn figures(&self, line: &str) -> anyhow::Result<Figures> {
        let output: Output = serde_json::from_str(line).with_context(|| {
            let start: String = text::one_line(line).chars().take(SHOWN).collect();
            format!("fio printed no result in JSON, but {start:?}")
        })?;
        let [job] = &output.jobs[..] else {
            bail!("fio printed {} results, not one", output.jobs.len());
        };
        if job.error != 0 {
            bail!("fio's result has the error {}", job.error);
        }
        let (data, slowest) = match self.kind {
            Kind::Read => (&job.read, &job.read.latency),
            Kind::Write => (&job.write, &job.write.latency),
            Kind::Durable => (&job.write, &job.sync.latency),
        };
        let mut mean = data.latency.mean;
        if self.kind == Kind::Durable {
            mean += job.sync.latency.mean;
        }
        let figures = Figures {
            requests: data.iops,
            bytes: data.bytes,
            mb: data.bytes_each_second / 1e6,
            mean: mean / 1e3,
            median: slowest.percentile("50.000000")? / 1e3,
            p99: slowest.percentile("99.000000")? / 1e3,
        };
        let all = [
            figures.requests,
            figures.bytes,
            figures.mb,
            figures.mean,
            figures.median,
            figures.p99,
        ];
        if all
            .iter()
            .any(|figure| !figure.is_finite() || *figure <= 0.0)
        {
            bail!("fio has done nothing in the time: {all:?}");
        }
        Ok(figures)
    }
}

/// What fio has found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Requests each second.
    pub requests: f64,
    /// Bytes that were read or written.
    pub bytes: f64,
    /// 10^6 bytes each second.
    pub mb: f64,
    /// The mean time of a request, in us; of a durable write, with its fdatasync.
    pub mean: f64,
    /// The median and the 99th percentile of the same; of durable writes, of the fdatasync alone.
    pub median: f64,
    pub p99: f64,
}

/// The parts of fio's output that are used.
#[derive(Debug, Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
struct Job {
    error: i64,
    read: Data,
    write: Data,
    sync: Sync,
}

#[derive(Debug, Deserialize)]
struct Data {
    #[serde(rename = "io_bytes")]
    bytes: f64,
    #[serde(rename = "bw_bytes")]
    bytes_each_second: f64,
    iops: f64,
    #[serde(rename = "lat_ns")]
    latency: Latency,
}

#[derive(Debug, Deserialize)]
struct Sync {
    #[serde(rename = "lat_ns")]
    latency: Latency,
}

/// Nanoseconds.
#[derive(Debug, Deserialize)]
struct Latency {
    mean: f64,
    /// There are none of what was not done.
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
}

impl Latency {
    fn percentile(&self, name: &str) -> anyhow::Result<f64> {
        let found = self.percentile.get(name).copied();
        found.with_context(|| format!("fio's result has no {name} % percentile of the latency"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What fio 3.33 printed for the workload `durable4k`, without what is not read.
    const DURABLE: &str = r#"{ "fio version" : "fio-3.33", "jobs" : [ { "jobname" : "bench",
        "error" : 0,
        "read" : { "io_bytes" : 0, "bw_bytes" : 0, "iops" : 0.000000,
            "lat_ns" : { "min" : 0, "max" : 0, "mean" : 0.000000, "N" : 0 } },
        "write" : { "io_bytes" : 348160, "bw_bytes" : 1715073, "iops" : 418.719212,
            "lat_ns" : { "min" : 3346, "max" : 56609, "mean" : 9885.141176, "N" : 85,
                "percentile" : { "50.000000" : 10048, "99.000000" : 56576 } } },
        "sync" : { "total_ios" : 0,
            "lat_ns" : { "min" : 80087, "max" : 29019404, "mean" : 2376743.8, "N" : 85,
                "percentile" : { "50.000000" : 1761280, "99.000000" : 28966912 } } }
        } ] }"#;

    fn workload(name: &str) -> &'static Workload {
        WORKLOADS.iter().find(|one| one.name == name).unwrap()
    }

    fn error(name: &str, line: &str) -> String {
        format!("{:#}", workload(name).figures(line).unwrap_err())
    }

    #[test]
    fn a_durable_write_has_its_fdatasync() {
        let found = workload("durable4k").figures(DURABLE).unwrap();
        let expected = Figures {
            requests: 418.719_212,
            bytes: 348_160.0,
            mb: 1.715_073,
            mean: (9_885.141_176 + 2_376_743.8) / 1e3,
            median: 1761.28,
            p99: 28_966.912,
        };
        assert_eq!(found, expected);
        let plain = workload("write4k_qd1").figures(DURABLE).unwrap();
        assert_eq!(
            plain,
            Figures {
                mean: 9_885.141_176 / 1e3,
                median: 10.048,
                p99: 56.576,
                ..expected
            }
        );
    }

    #[test]
    fn reads_are_of_the_part_for_reads() {
        let swapped = DURABLE.replace("\"read\"", "\"other\"");
        let swapped = swapped.replace("\"write\"", "\"read\"");
        let swapped = swapped.replace("\"other\"", "\"write\"");
        let found = workload("read4k_qd1").figures(&swapped).unwrap();
        assert_eq!((found.median, found.p99), (10.048, 56.576));
    }

    #[test]
    fn what_is_no_result_is_told_in_a_line() {
        for (line, told) in [
            ("", "fio printed no result in JSON, but \"\": EOF"),
            (
                "fio: no\u{1b}[2J such\ndisk",
                "fio printed no result in JSON, but \"fio: no[2J such disk\": expected",
            ),
            (&DURABLE[..300], ": EOF while parsing"),
            ("{\"jobs\": []}", "fio printed 0 results, not one"),
            (
                &DURABLE.replace("\"error\" : 0", "\"error\" : 22"),
                "has the error 22",
            ),
            (
                &DURABLE.replace("\"iops\" : 418.719212", "\"iops\" : \"x\""),
                "invalid type: string \"x\"",
            ),
            (
                &DURABLE.replace("\"sync\"", "\"other\""),
                "missing field `sync`",
            ),
            (
                &DURABLE.replace("99.000000", "98.000000"),
                "no 99.000000 % percentile",
            ),
            (
                &DURABLE.replace("418.719212", "0.000000"),
                "has done nothing in the time",
            ),
        ] {
            let said = error("durable4k", line);
            assert!(said.contains(told), "{line}: {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(said.len() < 300, "{said}");
        }
        // It has read nothing.
        let said = error("read", DURABLE);
        assert!(said.contains("percentile"), "{said}");
    }

    #[test]
    fn a_script_is_bash() {
        for workload in &WORKLOADS {
            let script = workload.script("/dev/vdb", true, 100);
            let end = " --filename=/dev/vdb --direct=1 --time_based --runtime=100ms)";
            assert!(script.contains(end), "{script}");
            let fake = format!("fio() {{ printf '{{\\n  \"jobs\"\\n}}\\n'; }}\n{script}");
            let output = std::process::Command::new("bash")
                .args(["-euo", "pipefail", "-c", &fake])
                .output()
                .unwrap();
            assert_eq!(output.stdout, b"{  \"jobs\"}\n", "{output:?}");
            let failed = format!("fio() {{ return 7; }}\n{script}");
            let status = std::process::Command::new("bash")
                .args(["-euo", "pipefail", "-c", &failed])
                .status();
            assert_eq!(status.unwrap().code(), Some(7));
        }
    }
}
