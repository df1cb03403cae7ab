// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane logs` of a machine that prints much.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program;
use paravane_tests::user::User;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Prints 600,000 lines of 100 bytes with a number in each, 60 MB in all, once /go exists.
const LINES: &str = "until [ -e /go ]; do sleep 0.1; done
    awk 'BEGIN { for (i = 1; i <= 600000; i++) printf \"%08d%091d\\n\", i, 0 }'
    echo the end; sleep 1000";

/// The log is replaced three times meanwhile.
#[test]
fn what_is_followed_has_no_gaps() {
    let user = User::new();
    user.detach(&["--name", "m"], LINES);
    let mut command = user.command(&["logs", "--follow", "m"]);
    let follow = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut follow = program::Ends(follow);
    user.ok(&["exec", "m", "--", "touch", "/go"]);
    let lines = BufReader::new(follow.0.stdout.take().unwrap()).lines();
    let mut count = 0;
    for line in lines.map(Result::unwrap) {
        if line == "the end" {
            break;
        }
        count += 1;
        let number: u32 = line[..8].parse().unwrap();
        assert_eq!(number, count, "a gap");
    }
    assert_eq!(count, 600_000);
    let folder = user.folder().join("paravane/machines/m");
    assert!(folder.join("output.1").exists());
    // The end of the log, and of the file before.
    assert_eq!(user.ok(&["logs", "--tail", "1", "m"]), "the end\n");
    let last = user.ok(&["logs", "--tail", "160000", "m"]);
    assert_eq!(last.lines().count(), 160_000);
    let number = 600_000 - 160_000 + 2;
    assert!(last.starts_with(&format!("{number:08}")), "{:.20}", last);
    assert_eq!(user.ok(&["logs", "--tail", "0", "m"]), "");
}
