// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;
use crate::arguments::{Command as Chosen, Run};
use std::io::Write;

fn read(file: &str, words: &[&str]) -> Result<Cli, String> {
    let mut named = tempfile::NamedTempFile::new().unwrap();
    named.write_all(file.as_bytes()).unwrap();
    let path = named.path().to_str().unwrap().to_string();
    let mut all: Vec<OsString> = ["paravane", "--log", "info"].map(OsString::from).to_vec();
    all.push(words.first().unwrap().into());
    all.extend(["--config".into(), OsString::from(&path)]);
    all.extend(words.iter().skip(1).map(OsString::from));
    parse(all).map_err(|error| {
        error
            .to_string()
            .replace(&path, "FILE")
            .trim_start_matches("error: ")
            .trim()
            .to_string()
    })
}

fn run(file: &str, words: &[&str]) -> Run {
    let words: Vec<&str> = std::iter::once("run")
        .chain(words.iter().copied())
        .collect();
    match read(file, &words).unwrap().command {
        Chosen::Run(run) => run,
        other => panic!("{other:?}"),
    }
}

const FILE: &str = r#"
# A web server.
cpus = 2
memory = "512M"
publish = ["8080:80", "127.0.0.1:5353:53/udp"]
env = ["A=b c", "-x=1"]
verbose = true
tty = false
timeout = 1_000
command = ["nginx", "-g", "daemon off;"]
"#;

#[test]
fn what_runs_a_machine_is_chosen_by_the_host() {
    use paravane_machine::spec::Hypervisor;
    assert_eq!(run("", &[]).machine.hypervisor, Hypervisor::Auto);
    let process = run("hypervisor = \"process\"", &[]).machine.hypervisor;
    assert_eq!(process, Hypervisor::Process);
}

#[test]
fn keys_are_options() {
    let run = run(FILE, &[]);
    assert_eq!(
        (run.machine.cpus, run.machine.memory, run.machine.timeout),
        (2, 512, Some(1000))
    );
    assert!(run.verbose && !run.machine.tty);
    assert_eq!(run.machine.publish.len(), 2);
    assert_eq!(run.machine.command.env, ["A=b c", "-x=1"]);
    assert_eq!(run.machine.command.command, ["nginx", "-g", "daemon off;"]);
}

#[test]
fn a_file_in_another_encoding_has_a_line() {
    let mut named = tempfile::NamedTempFile::new().unwrap();
    named.write_all(b"cpus = 2\nname = \"\xff\"\n").unwrap();
    let error = File::read(named.path()).err().unwrap();
    assert_eq!(error, ", line 2: not in UTF-8");
}

#[test]
fn the_command_line_comes_first() {
    let run = run(FILE, &["--memory", "1G", "-e", "C=d", "--", "true"]);
    assert_eq!((run.machine.cpus, run.machine.memory), (2, 1024));
    assert_eq!(run.machine.command.env, ["C=d"]);
    assert_eq!(run.machine.command.command, ["true"]);
}

#[test]
fn errors_name_line_and_key() {
    for (file, expected) in [
        (
            "cpus = 2\nmemroy = 1\n",
            "line 2: memroy: `paravane run` has no such option",
        ),
        (
            "cpus = 0\n",
            "line 1: cpus: invalid value '0': 0 is not in 1..=64",
        ),
        (
            "\n\nmemory = \"1K\"",
            "line 3: memory: invalid value '1K': a number is expected, optionally followed by M, \
             G or T",
        ),
        (
            "env = \"A=b\"",
            "line 1: env: a list is expected, such as [\"...\"]",
        ),
        ("verbose = 1", "line 1: verbose: true or false is expected"),
        (
            "timeout = 1.5",
            "line 1: timeout: a text or a whole number is expected",
        ),
        (
            "publish = [\n\"80:80\",\n\"x\"]",
            "line 1: publish: invalid value 'x': expected HOST:GUEST or ADDRESS:HOST:GUEST, \
             such as 8080:80",
        ),
        (
            "config = \"other\"",
            "line 1: config: `paravane run` has no such option",
        ),
        (
            "log = \"info\"",
            "line 1: log: `paravane run` has no such option",
        ),
        (
            "[cpus]\nx = 1",
            "line 1: cpus: a text or a whole number is expected",
        ),
    ] {
        assert_eq!(
            read(file, &["run"]).unwrap_err(),
            format!("--config FILE, {expected}"),
            "{file}"
        );
    }
    for (file, line) in [
        ("cpus = 1\ncpus = 2", "line 2: "),
        ("a = 1\n= 2", "line 2: "),
        ("x = \"", "line 1: "),
    ] {
        let error = read(file, &["run"]).unwrap_err();
        assert!(
            error.starts_with(&format!("--config FILE, {line}")) && !error.contains('\n'),
            "{error}"
        );
    }
    let error = read("verbose = true", &["create"]).unwrap_err();
    assert_eq!(
        error,
        "--config FILE, line 1: verbose: `paravane create` has no such option"
    );
    let words = ["paravane", "run", "--config", "/no/such"]
        .map(OsString::from)
        .to_vec();
    assert!(
        parse(words)
            .unwrap_err()
            .to_string()
            .contains("--config /no/such: No such file")
    );
}

/// Options that exclude each other do so in a file, too.
#[test]
fn conflicts_are_conflicts() {
    let error = read("rootfs = \"/r\"\ninitrd = \"/i\"", &["run"]).unwrap_err();
    assert!(error.contains("cannot be used with"), "{error}");
}

#[test]
fn the_kept_schema_is_this_one() {
    let kept = include_str!("../../../../docs/config.schema.json");
    let kept: Value = serde_json::from_str(kept).unwrap();
    assert_eq!(
        kept,
        schema(),
        "run `paravane schema > docs/config.schema.json`"
    );
}

#[test]
fn every_option_is_a_key() {
    let schema = schema();
    let keys = schema["properties"].as_object().unwrap();
    for key in [
        "cpus", "memory", "net", "volume", "disk", "env", "command", "detach", "metrics",
    ] {
        assert!(
            keys[key]["description"]
                .as_str()
                .is_some_and(|text| text.len() > 5),
            "{key}"
        );
    }
    assert!(!keys.contains_key("config") && !keys.contains_key("plant-violation"));
    assert_eq!(
        (&keys["verbose"]["type"], &keys["env"]["type"]),
        (&json!("boolean"), &json!("array"))
    );
    assert_eq!(
        (&keys["cpus"]["default"], &keys["isolation"]["enum"]),
        (&json!("1"), &json!(["vm"]))
    );
    // Every key can be used in a file as the schema describes it.
    for (key, described) in keys {
        let value = match (described["type"].as_str(), &described["enum"]) {
            (Some("boolean"), _) => "false".to_string(),
            (Some("array"), _) => "[]".to_string(),
            (_, Value::Array(values)) => values[0].to_string(),
            _ => described
                .get("default")
                .map_or("7".to_string(), Value::to_string),
        };
        let error = read(&format!("{key} = {value}"), &["run"])
            .err()
            .unwrap_or_default();
        assert!(
            !error.contains("expected") && !error.contains("no such option"),
            "{key}: {error}"
        );
    }
}
