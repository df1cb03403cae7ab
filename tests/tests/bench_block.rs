// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane bench block` measures every path and reports it in the agreed form. The root is a
//! folder with programs of the host and a script in place of fio, which checks its arguments and
//! prints known figures. With fio of Debian's packages the long test measures.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::program::{self, Ends, Run};
use paravane_tests::small_root::{self, replace};
use paravane_tests::{linux, tree, vm};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATHS: [&str; 7] = [
    "host",
    "virtio-blk",
    "vblk",
    "host-direct",
    "vbusd-pread",
    "vbusd-uring",
    "vbusd-auto",
];
const WORKLOADS: [&str; 7] = [
    "read4k_qd1",
    "read4k_qd16",
    "write4k_qd1",
    "write4k_qd16",
    "durable4k",
    "read",
    "write",
];

/// What the sides run besides fio.
const PROGRAMS: [&str; 7] = ["cat", "dd", "ip", "mktemp", "mount", "rm", "sleep"];

/// Reads or writes one block of its file, past the page cache if it is asked to. A file of the
/// command consists of the letter Z. It has 1000 requests a second for each at a time; writes are
/// half as many.
const FIO: &str = r#"
for word; do
    [[ $word != --*=* ]] || { name=${word%%=*}; declare "${name#--}=${word#*=}"; }
done
case $filename in
/dev/*) [ "$direct" = 1 ] ;;
esac || { echo "$filename: in the page cache" >&2; exit 1; }
[ "$ioengine $invalidate" = "libaio 0" ] || { echo "$*" >&2; exit 1; }
[ -n "${runtime:-}${number_ios:-}" ] || { echo "$*: for how long?" >&2; exit 1; }
flags=
[ "$direct" = 0 ] || flags=direct
block=$(dd if="$filename" bs=4k count=1 ${flags:+iflag=$flags} 2>/dev/null)
[ ${#block} = 4096 ] && [ -z "${block//Z/}" ] || { echo "$filename: not the file" >&2; exit 1; }
latency() { echo "\"lat_ns\": { \"mean\": $1, \"percentile\": {
    \"50.000000\": $(($1 - 500)), \"99.000000\": $(($1 * 2)) } }"; }
data() { echo "\"io_bytes\": $(($1 * ${bs%k} * 1024)), \"iops\": $1.0,
    \"bw_bytes\": $(($1 * ${bs%k} * 1000)), $(latency $2)"; }
none='"io_bytes": 0, "iops": 0.0, "bw_bytes": 0, "lat_ns": { "mean": 0.0 }'
read=$none write=$none sync='"lat_ns": { "mean": 0.0 }'
case $rw in
read | randread) read=$(data $((1000 * iodepth)) 1000) ;;
write | randwrite)
    printf %s "$block" | dd of="$filename" bs=4k count=1 conv=notrunc \
        ${flags:+oflag=$flags} 2>/dev/null
    write=$(data $((500 * iodepth)) 2000)
    [ "${fdatasync:-0}" = 0 ] || sync=$(latency 7000)
    ;;
esac
echo "{
  \"fio version\" : \"fio-3.33\",
  \"jobs\" : [ { \"error\" : 0,
    \"read\" : { $read }, \"write\" : { $write }, \"sync\" : { $sync } } ]
}"
"#;

/// A root with this script as fio.
fn root(fio: &str) -> tempfile::TempDir {
    let root = small_root::make(&PROGRAMS);
    replace(root.path(), "fio", fio);
    root
}

/// `bench block`, quick and in JSON, with these options.
fn command(options: &[&str]) -> Command {
    let mut command = program::command();
    command.args(["bench", "block", "--quick", "--json", "--kernel"]);
    // The user's cache may have no kernel of this program.
    command.arg(vm::kernel().unwrap_or_else(linux::kernel));
    command.args(options);
    command
}

fn with_root(root: &Path, options: &[&str]) -> Run {
    let words = [options, &["--root", root.to_str().unwrap()]].concat();
    program::finish(&mut command(&words))
}

/// Checks what does not depend on the figures. `compared` is how many paths are compared.
fn check(result: &Value, paths: &[&str], compared: usize) {
    let rows = result["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["path"].as_str()).collect();
    let expected: Vec<_> = paths.iter().map(|path| Some(*path)).collect();
    assert_eq!(names, expected);
    for row in rows {
        assert_eq!(row["rounds"], 2);
        assert_eq!(row["direct"], row["path"] != "host", "{row}");
        let positive = |of: &Value, field: &str| {
            let value = of[field].as_f64().unwrap_or_default();
            assert!(value.is_finite() && value > 0.0, "{field}: {row}");
        };
        for field in [
            "read4k_qd1_s",
            "read4k_us",
            "read4k_p99_us",
            "read4k_qd16_s",
            "read_mb_s",
            "write_mb_s",
        ] {
            positive(row, field);
        }
        let workloads = row["workloads"].as_array().unwrap();
        let names: Vec<_> = workloads.iter().map(|one| one["name"].as_str()).collect();
        assert_eq!(names, WORKLOADS.map(Some));
        for workload in workloads {
            for field in ["requests_s", "mb_s", "mean_us", "median_us", "p99_us"] {
                positive(workload, field);
            }
        }
        for cpu in workloads.iter().chain([row]) {
            let cpu = cpu["cpu_s_per_gb"].as_f64();
            assert!(cpu.is_some_and(|cpu| cpu >= 0.0), "{row}");
        }
    }
    let ratios = result["ratios"].as_array().unwrap();
    assert_eq!(ratios.len(), (WORKLOADS.len() + 1) * compared);
    for ratio in ratios.iter().filter(|r| r["figure"] != "cpu_s_per_gb") {
        let [low, middle, high] = [&ratio["ci95"][0], &ratio["median"], &ratio["ci95"][1]]
            .map(|value| value.as_f64().unwrap());
        assert!(0.0 < low && low <= middle && middle <= high, "{ratio}");
    }
}

#[test]
fn every_path_is_measured() {
    let (root, folder) = (root(FIO), tempfile::tempdir().unwrap());
    let plot = folder.path().join("plot.svg");
    let plot = plot.to_str().unwrap();
    for (options, paths, compared) in [
        (&["--plot", plot][..], &PATHS[..3], 3),
        // Each with the host and with virtio's, and those by vbusd with its first engine.
        (&["--direct", "--engines"], &PATHS, 3 + 4 * 2 + 2),
    ] {
        let run = with_root(root.path(), options);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let result: Value = serde_json::from_str(&run.stdout).unwrap();
        check(&result, paths, compared);
        for row in result["rows"].as_array().unwrap() {
            // Those of fio, each from its part of the output.
            let field = |name: &str| row[name].as_f64().unwrap();
            let found = [
                "read4k_qd1_s",
                "read4k_us",
                "read4k_p99_us",
                "read4k_qd16_s",
            ]
            .map(field);
            assert_eq!(found, [1000.0, 0.5, 2.0, 16000.0], "{row}");
            assert_eq!(["read_mb_s", "write_mb_s"].map(field), [1024.0, 512.0]);
            let workload = |index: usize, field: &str| row["workloads"][index][field].as_f64();
            assert_eq!(workload(3, "requests_s"), Some(8000.0), "{row}");
            let durable = ["requests_s", "mean_us", "median_us", "p99_us"];
            let durable = durable.map(|field| workload(4, field).unwrap());
            assert_eq!(durable, [500.0, 9.0, 6.5, 14.0], "{row}");
        }
    }
    let picture = std::fs::read_to_string(plot).unwrap();
    assert_eq!(
        picture.matches("vblk, ").count(),
        WORKLOADS.len(),
        "{picture}"
    );
}

#[test]
fn what_fio_says_is_told_in_a_line() {
    let in_middle = FIO.replace("echo \"{\n", "[ $rw != read ] || exit 0\necho \"{\n");
    for (fio, told) in [
        (
            "echo no luck >&2; exit 3",
            "path host: the host's side: a script failed with 3: no luck",
        ),
        (
            "echo Sorry.",
            "path host: read4k_qd1: fio printed no result in JSON, but \"Sorry.\": expected value",
        ),
        (
            in_middle.as_str(),
            "path host: read: fio printed no result in JSON, but \"\": EOF while",
        ),
    ] {
        let root = root(fio);
        let run = with_root(root.path(), &[]);
        let lines: Vec<&str> = run.stderr.lines().collect();
        // The first says that the round begins.
        assert_eq!((run.code, lines.len()), (2, 2), "{run:?}");
        assert!(lines[1].contains(told), "{run:?}");
        assert_eq!(run.stdout, "");
    }
}

/// In the second round the host's turn is the last one, and its fio hangs.
#[test]
fn a_signal_leaves_the_rounds_that_were_complete() {
    let hang = "[[ $filename != /srv/* || ! -e /srv/again ]] || \
                { echo >/srv/hangs; exec sleep 1000; }";
    let mark = "[[ $rw != write || $filename != /srv/* ]] || echo >/srv/again";
    let root = root(&FIO.replace("none=", &format!("{hang}\n{mark}\nnone=")));
    let place = tempfile::tempdir().unwrap();
    let mut command = command(&["--root", root.path().to_str().unwrap()]);
    command.arg("--folder").arg(place.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut bench = Ends(command.spawn().unwrap());
    let mut output = Lines::of(bench.0.stdout.take());
    let mut said = Lines::of(bench.0.stderr.take());
    let deadline = Instant::now() + program::LONGEST;
    let hangs = || {
        let mut folders = place.path().read_dir().unwrap().flatten();
        folders.any(|folder| folder.path().join("hangs").exists())
    };
    while !hangs() {
        assert!(bench.0.try_wait().unwrap().is_none(), "it has ended");
        assert!(Instant::now() < deadline, "its fio does not hang");
        std::thread::sleep(Duration::from_millis(20));
    }
    tree::signal(bench.0.id(), Signal::INT);
    let told = "paravane: interrupted; measured until then, of complete turns:";
    let mut lines = said.each_within(program::PATIENCE);
    assert!(lines.any(|line| line == told), "it has told nothing");
    let result: Value = serde_json::from_str(&output.rest_within(program::PATIENCE)).unwrap();
    let code = program::wait_within(&mut bench.0, program::PATIENCE).code();
    assert_eq!(code, Some(128 + 2));
    let rows = result["rows"].as_array().unwrap();
    let rounds: Vec<_> = rows.iter().map(|row| row["rounds"].as_u64()).collect();
    assert_eq!(rounds, [Some(1); 3], "{result}");
    let left: Vec<_> = place.path().read_dir().unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
#[ignore = "a root to be made: make test-release"]
fn fio_of_debian_measures_every_path() {
    let run = program::finish(&mut command(&["--direct", "--engines"]));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let result: Value = serde_json::from_str(&run.stdout).unwrap();
    check(&result, &PATHS, 3 + 4 * 2 + 2);
}

/// With an empty cache, every benchmark refuses at once: it builds Linux only after that.
#[test]
fn a_place_that_is_none_is_refused_in_a_line() {
    for words in [
        "block --quick --folder /nonexistent",
        "block --quick --plot /nonexistent/p",
        "block --quick --root /nonexistent",
        "net --plot /nonexistent/p",
        "net --older /nonexistent",
        "net --older /dev/null --older-kernel /nonexistent",
        "overcommit --root /nonexistent",
        "overcommit --plot /nonexistent/p",
        "apps bash --root /nonexistent",
        "micro --write /nonexistent",
    ] {
        let mut command = program::command();
        refused(command.arg("bench").args(words.split(' ')), "/nonexistent");
    }
}

/// Runs a command that must refuse something in one line.
fn refused(command: &mut Command, told: &str) {
    let cache = tempfile::tempdir().unwrap();
    let run = program::finish(command.env("XDG_CACHE_HOME", cache.path()));
    assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
    assert!(run.stderr.contains(told), "{run:?}");
}

#[test]
fn a_root_without_fio_is_refused_before_linux_is_built() {
    let root = small_root::make(&PROGRAMS);
    let mut command = program::command();
    command.args(["bench", "block", "--root"]).arg(root.path());
    refused(&mut command, "it has no fio (Debian: package fio)");
}

/// ramfs has no O_DIRECT.
#[test]
fn a_file_system_without_direct_io_is_refused_before_linux_is_built() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
    command.args(["mount -t ramfs none \"$1\" && shift && exec \"$@\"", "sh"]);
    command.arg(place).arg(program::command().get_program());
    command.args(["bench", "block", "--direct", "--folder", place]);
    let told = format!("--direct: {place}: its file system has no O_DIRECT: choose another one");
    refused(&mut command, &told);
}
