// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A database whose machine is killed in the middle of transactions, again and again, on a disk
//! that loses everything that was not flushed; and files that are written and verified for minutes.
//! Needs a package mirror for the image: `make test-release` runs it.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::life::Life;
use paravane_tests::{debian, program, vm};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LIVES: usize = 50;
const SESSIONS: usize = 4;
/// The mode of a disk that ignores flushes. Only the program with hooks has it.
const UNSAFE: &str = "cut-unsafe";
/// Seconds for which files are verified.
const FIO_SECONDS: &str = "PARAVANE_TEST_FIO_SECONDS";

/// Starts the database, creates it the first time, and reports what it finds. Then `$1` sessions
/// move money between accounts and report which transactions are committed.
const BANK: &str = r#"
    set -e
    cd /
    PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
    mkdir -p /d
    mount -t ext4 /dev/vdb /d
    as() { runuser -u postgres -- "$@"; }
    if [ ! -e /d/ready ]; then
        mkdir -p /d/pg; chown postgres /d/pg; chmod 700 /d/pg
        as initdb --data-checksums -D /d/pg >/dev/null
    fi
    options='-c checkpoint_timeout=30s -c unix_socket_directories=/tmp'
    as pg_ctl -D /d/pg -s -w -l /tmp/log -o "$options" start || { cat /tmp/log; exit 1; }
    sql() { as psql -h /tmp -Atq -v ON_ERROR_STOP=1 postgres "$@"; }
    # A pid file of the life before would make pg_ctl believe that the database runs, since
    # process ids repeat.
    for try in $(seq 300); do
        ! sql -c 'SELECT 1' >/dev/null 2>&1 || break
        sleep 0.1
    done
    if [ ! -e /d/ready ]; then
        sql <<-END
            CREATE EXTENSION amcheck;
            CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL, text text);
            INSERT INTO accounts SELECT n, 0, repeat('x', 200) FROM generate_series(0, 999) n;
            CREATE TABLE done (session int, n int, PRIMARY KEY (session, n));
            CHECKPOINT;
END
        touch /d/ready
        sync -f /d/ready
    fi
    sql <<-END
        SELECT 'sum ' || sum(balance) || ' of ' || count(*) FROM accounts;
        SELECT 'has ' || session || ' ' || max(n) || ' ' || count(*) FROM done GROUP BY session;
        SELECT 'damaged: ' || m FROM verify_heapam('accounts') AS v(b, o, a, m);
        SELECT 'damaged: ' || m FROM verify_heapam('done') AS v(b, o, a, m);
        SELECT bt_index_parent_check(c.oid, true, true)
            FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
            JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'btree' AND c.relpersistence = 'p';
END
    echo begin
    for session in $(seq "$1"); do
        n=$(sql -c "SELECT coalesce(max(n), 0) FROM done WHERE session = $session")
        while :; do
            n=$((n + 1))
            from=$(((n * 7919 + session) % 1000)) to=$(((n * 104729 + session * 31) % 1000))
            echo "BEGIN;
                UPDATE accounts SET balance = balance - $n WHERE id = least($from, $to);
                UPDATE accounts SET balance = balance + $n WHERE id = greatest($from, $to);
                INSERT INTO done VALUES ($session, $n);
                COMMIT;
                SELECT 'done $session $n';"
        done | sql &
    done
    wait"#;

struct Disk(tempfile::TempDir);

impl Disk {
    fn new(bytes: u64) -> Self {
        // Not in a /tmp in memory: the disk is large.
        let disk =
            Disk(tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap());
        File::create(disk.path()).unwrap().set_len(bytes).unwrap();
        let made = Command::new("/sbin/mke2fs")
            .args(["-q", "-t", "ext4"])
            .arg(disk.path())
            .status();
        assert!(made.unwrap().success());
        disk
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("disk")
    }
}

/// For each session, the number up to which its transactions are committed.
type Committed = [u64; SESSIONS + 1];

/// One life of the machine.
#[derive(Debug)]
struct Seen {
    /// Found at its start.
    found: Committed,
    /// Reported as committed, in this life or before.
    told: Committed,
}

/// Starts a machine with the database, lets it work, and kills its monitor. What it finds must be
/// consistent.
fn live(image: &Path, disk: &Path, mode: &str) -> Seen {
    let (root, disk) = (
        format!("{}:snapshot", image.display()),
        format!("{}:{mode}", disk.display()),
    );
    let sessions = SESSIONS.to_string();
    let options = [
        "--memory",
        "512M",
        "--cpus",
        "2",
        "--net",
        "none",
        "--timeout",
        "600",
        "--rootfs",
        &root,
        "--disk",
        &disk,
    ];
    let mut command = if mode == UNSAFE {
        vm::command_with_hooks(options)
    } else {
        vm::command(options)
    };
    let mut output = Life::begin(command.args(["--", "bash", "-c", BANK, "bank", &sessions]));
    let mut life = Seen {
        found: [0; SESSIONS + 1],
        told: [0; SESSIONS + 1],
    };
    let mut sum = None;
    for line in output.before("begin") {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|w| w.parse::<u64>().ok()).unwrap();
        match words.first() {
            Some(&"sum") => sum = Some(line),
            Some(&"has") => {
                // None is missing in between.
                assert_eq!(number(2), number(3), "{line}");
                *life
                    .found
                    .get_mut(usize::try_from(number(1)).unwrap())
                    .unwrap() = number(2);
            }
            // The answers of the index check.
            Some(&"") => {}
            _ => assert!(line.is_empty(), "{line}"),
        }
    }
    assert_eq!(sum.as_deref(), Some("sum 0 of 1000"));
    life.told = life.found;
    // Whether each session has done something.
    let mut note = |line: String| {
        let mut words = line
            .strip_prefix("done ")
            .unwrap_or_default()
            .split(' ')
            .map(str::parse::<u64>);
        if let (Some(Ok(session)), Some(Ok(n))) = (words.next(), words.next()) {
            let told = life
                .told
                .get_mut(usize::try_from(session).unwrap())
                .unwrap();
            // The last line may be incomplete.
            *told = n.max(*told);
        }
        life.told
            .iter()
            .zip(life.found)
            .skip(1)
            .all(|(told, found)| *told > found)
    };
    // All sessions are working.
    let begun = Instant::now();
    while !note(output.next().unwrap()) {
        assert!(begun.elapsed() < program::LONGEST, "a session does nothing");
    }
    output.end(Duration::from_millis(1000), |line| {
        note(line);
    });
    life
}

/// The transactions of one life that the next one does not find.
fn lost(before: &Seen, after: &Seen) -> u64 {
    before
        .told
        .iter()
        .zip(&after.found)
        .map(|(told, found)| told.saturating_sub(*found))
        .sum()
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn a_database_keeps_what_it_has_committed() {
    let image = debian::with_services();
    let disk = Disk::new(2 << 30);
    let mut before = live(&image, &disk.path(), "cut");
    for turn in 1..=LIVES {
        let after = live(&image, &disk.path(), "cut");
        println!(
            "{turn}: {:?} committed, {:?} found",
            before.told, after.found
        );
        assert_eq!(lost(&before, &after), 0, "{turn}: {before:?} {after:?}");
        before = after;
    }
    // With a disk that ignores flushes the same test must fail, or it would prove nothing.
    let before = live(&image, &disk.path(), UNSAFE);
    let after = live(&image, &disk.path(), UNSAFE);
    println!(
        "without flushes: {:?} committed, {:?} found",
        before.told, after.found
    );
    assert!(
        lost(&before, &after) > 0,
        "nothing is lost: {before:?} {after:?}"
    );
}

#[test]
#[ignore = "ten minutes, with an image to be made: make test-release"]
fn what_is_written_is_read() {
    let image = debian::with_services();
    let disk = Disk::new(2 << 30);
    let seconds = std::env::var(FIO_SECONDS).unwrap_or_else(|_| "600".to_string());
    // Past the cache with many requests at a time, and through the cache with fsyncs. Each block
    // contains its position and a checksum.
    let script = format!(
        "set -e; mkdir /d; mount -t ext4 /dev/vdb /d; cd /d
        common='--verify=crc32c --verify_fatal=1 --verify_backlog=4096 --time_based'
        common=\"$common --runtime={seconds} --output-format=terse --terse-version=3\"
        fio $common --name=direct --filename=direct --size=400M --rw=randrw \
            --bsrange=4k-256k --direct=1 --ioengine=libaio --iodepth=32 > /tmp/direct & direct=$!
        fio $common --name=buffered --filename=buffered --size=400M --rw=randwrite \
            --bsrange=512-64k --fsync=64 --ioengine=psync > /tmp/buffered & buffered=$!
        wait $direct; wait $buffered
        # Name; error; KiB read, KiB written.
        for job in direct buffered; do cut -d ';' -f 3,5,6,47 /tmp/$job; done
        echo 3 > /proc/sys/vm/drop_caches; sum=$(cat direct buffered | sha256sum)
        cd /; umount /d; mount -t ext4 /dev/vdb /d
        [ \"$sum\" = \"$(cat /d/direct /d/buffered | sha256sum)\" ]"
    );
    let root = format!("{}:snapshot", image.display());
    let options = [
        "--memory", "512M", "--cpus", "2", "--net", "none", "--rootfs", &root, "--disk",
    ];
    let mut command = vm::command(options);
    command.arg(disk.path()).args(["--", "bash", "-c", &script]);
    let longest = program::LONGEST + Duration::from_secs(2 * seconds.parse::<u64>().unwrap());
    let run = program::finish_within(&mut command, longest).unwrap();
    println!("{run:?}");
    assert_eq!(run.code, 0, "{run:?}");
    for job in ["direct", "buffered"] {
        let line = run
            .stdout
            .lines()
            .find(|line| line.starts_with(job))
            .unwrap();
        let numbers: Vec<u64> = line
            .split(';')
            .skip(1)
            .map(|n| n.parse().unwrap())
            .collect();
        let [error, read, written] = numbers[..] else {
            unreachable!("{line}")
        };
        assert_eq!(error, 0, "{line}");
        assert!(read > 0 && written > 100 << 10, "{line}");
    }
    let check = Command::new("/sbin/e2fsck")
        .args(["-f", "-n"])
        .arg(disk.path())
        .output()
        .unwrap();
    assert!(check.status.success(), "{check:?}");
}
