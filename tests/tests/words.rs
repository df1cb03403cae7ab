// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options from a file, completions, manual pages, the schema.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{program, vm};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_machine_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("machine.toml");
    let text = "cpus = 2\nenv = [\"A=b c\"]\nworkdir = \"/etc\"\n\
        command = [\"sh\", \"-c\", \"echo $A $PWD $(nproc); exit 7\"]\n";
    fs::write(&file, text).unwrap();
    let run = program::finish(vm::command(["--config"]).arg(&file));
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (7, "b c /etc 2\n"),
        "{run:?}"
    );
    let run = program::finish(
        vm::command(["--cpus", "1", "--config"])
            .arg(&file)
            .args(["--", "nproc"]),
    );
    assert_eq!((run.code, run.stdout.as_str()), (0, "1\n"), "{run:?}");

    // A machine keeps its options, whatever happens to the file.
    let user = |words: &[&str]| {
        let run = program::finish(
            program::command()
                .args(words)
                .env("XDG_STATE_HOME", folder.path()),
        );
        assert_eq!(run.code, 0, "{run:?}");
        run.stdout
    };
    user(&[
        "create",
        "--name",
        "one",
        "--config",
        file.to_str().unwrap(),
    ]);
    fs::remove_file(&file).unwrap();
    let known: Value = serde_json::from_str(&user(&["inspect", "one"])).unwrap();
    assert_eq!(
        (&known["spec"]["cpus"], &known["spec"]["workdir"]),
        (&2.into(), &"/etc".into())
    );
}

#[test]
fn a_bad_file_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("machine.toml");
    for (text, why) in [
        (
            "cpus = 2\nmemory = \"0\"\n",
            ", line 2: memory: invalid value '0': 16M to 4096G are possible",
        ),
        (
            "cpu = 2\n",
            ", line 1: cpu: `paravane run` has no such option",
        ),
        ("cpus = \n", ", line 1: "),
    ] {
        fs::write(&file, text).unwrap();
        let run = program::finish(vm::command(["--config"]).arg(&file));
        let begin = format!("paravane: --config {}{why}", file.display());
        assert!(
            run.code == 2 && run.stderr.starts_with(&begin) && run.stderr.lines().count() == 1,
            "{run:?}"
        );
    }
    let run = program::finish(vm::command(["--config", "/no/such"]).args(["--", "true"]));
    assert!(
        run.code == 2
            && run
                .stderr
                .starts_with("paravane: --config /no/such: No such file"),
        "{run:?}"
    );
}

#[test]
fn shells_can_read_their_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = program::run(["completions", shell]);
        assert_eq!(run.code, 0, "{run:?}");
        assert!(
            run.stdout.contains("paravane") && run.stdout.contains("memory"),
            "{shell}"
        );
        if shell == "bash" {
            let script = format!("{}\ncomplete -p paravane\n", run.stdout);
            let mut bash = Command::new("bash")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            std::io::Write::write_all(&mut bash.stdin.take().unwrap(), script.as_bytes()).unwrap();
            let said = program::finish_child(bash);
            assert!(said.code == 0 && !said.stdout.is_empty(), "{said:?}");
        }
    }
    assert_eq!(program::run(["completions", "cmd"]).code, 2);
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man");
    let run = program::run([Path::new("man"), &pages]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:?}");
    let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
    let help = program::run(["--help"]).stdout;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let mut count = 0;
    // Continued lines of a description are indented further.
    let names = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            line.strip_prefix("  ")
                .filter(|rest| !rest.starts_with(' '))
        });
    for name in names
        .filter_map(|rest| rest.split_whitespace().next())
        .filter(|name| *name != "help")
    {
        assert!(
            page(&format!("paravane-{name}.1")).contains(".TH"),
            "{name}"
        );
        count += 1;
    }
    assert!(count > 15, "{count}");
    assert!(page("paravane-run.1").contains("\\-\\-memory"));
    assert!(page("paravane.1").contains("paravane\\-run(1)"));
    assert!(!pages.join("paravane-monitor.1").exists());
    let run = program::run(["man", "/proc/no/such"]);
    assert!(run.code == 2 && run.stderr.lines().count() == 1, "{run:?}");
}

#[test]
fn the_schema_is_printed() {
    let run = program::run(["schema"]);
    let schema: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(schema["properties"]["command"]["type"], "array");
}
