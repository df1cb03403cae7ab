// SPDX-License-Identifier: Apache-2.0 OR MIT
//! docs/tutorial.md: each command on the page runs, and prints what the page says.
//!
//! Blocks with the info string `console` are sessions. A line that begins with `$ ` is a command,
//! `> ` continues it, and the lines up to the next command are its output, in which `...` stands
//! for any text. A comment `<!-- test: KIND -->` before a block says how to run it:
//!
//! * `terminal`: the command gets a terminal; lines with the guest's prompt are typed.
//! * `registry NAME`: a registry on loopback serves the image NAME.
//! * `mirror`: needs a Debian mirror and minutes, so only the long tests run the block.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::registry::{Registry, layer};
use paravane_tests::screen::Screen;
use paravane_tests::{linux, program, small_root, source_root};
use serde_json::json;
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// The prompt of a guest's shell.
const PROMPT: &str = "root@paravane:~# ";
/// The line after a command's output, with its number.
const MARK: &str = "=== done ";

/// How a block is run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Shell,
    Terminal,
    Registry(String),
    Mirror,
}

/// A command of the page, and what it prints.
#[derive(Debug)]
struct Step {
    /// Line of the page.
    line: usize,
    command: String,
    output: Vec<String>,
}

#[derive(Debug)]
struct Block {
    kind: Kind,
    steps: Vec<Step>,
}

fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut kind, mut inside) = (Vec::<Block>::new(), Kind::Shell, false);
    for (number, line) in page.lines().enumerate() {
        if let Some(words) = line.strip_prefix("<!-- test: ") {
            let words = words.strip_suffix(" -->").unwrap();
            kind = match words.split_once(' ') {
                None if words == "terminal" => Kind::Terminal,
                None if words == "mirror" => Kind::Mirror,
                Some(("registry", name)) => Kind::Registry(name.to_string()),
                _ => unreachable!("line {}: a block is not run by `{words}`", number + 1),
            };
        } else if line == "```console" {
            let kind = std::mem::replace(&mut kind, Kind::Shell);
            let steps = Vec::new();
            blocks.push(Block { kind, steps });
            inside = true;
        } else if line == "```" {
            inside = false;
        } else if inside {
            let steps = &mut blocks.last_mut().unwrap().steps;
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step {
                    line: number + 1,
                    command: command.to_string(),
                    output: Vec::new(),
                });
                continue;
            }
            let step = steps.last_mut().unwrap();
            match line.strip_prefix("> ") {
                Some(more) => step.command += &format!("\n{more}"),
                None => step.output.push(line.to_string()),
            }
        }
    }
    blocks
}

/// Whether a line of output agrees with the page; `...` is any text.
fn fits(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("...");
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Whether an output agrees with the page; a line `...` is any number of lines.
fn all_fit(patterns: &[String], lines: &[String]) -> bool {
    match (patterns.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((first, patterns)), _) if first == "..." => {
            (0..=lines.len()).any(|skip| all_fit(patterns, &lines[skip..]))
        }
        (Some((first, patterns)), Some((line, lines))) => {
            fits(first, line) && all_fit(patterns, lines)
        }
        _ => false,
    }
}

/// A shell that runs the page's commands one after the other.
struct Reader {
    shell: Child,
    input: ChildStdin,
    output: Lines,
    count: u32,
    folder: tempfile::TempDir,
}

impl Reader {
    fn new() -> Self {
        drop(linux::kernel());
        let folder = tempfile::tempdir().unwrap();
        // A cache of the reader's own, in which the kernel and the tools are found.
        let cache = folder.path().join("cache/paravane");
        let own = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let own =
            own.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"));
        fs::create_dir_all(&cache).unwrap();
        for name in ["kernel", "tools"] {
            symlink(own.join("paravane").join(name), cache.join(name)).unwrap();
        }
        let mut command = Command::new("bash");
        command.args(["--norc", "--noprofile"]);
        environment(&mut command, folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let mut input = shell.stdin.take().unwrap();
        writeln!(input, "exec 2>&1").unwrap();
        let output = Lines::of(shell.stdout.take());
        Reader {
            shell,
            input,
            output,
            count: 0,
            folder,
        }
    }

    /// Runs a command; the lines that it printed.
    fn run(&mut self, command: &str) -> Vec<String> {
        self.count += 1;
        let mark = format!("{MARK}{}", self.count);
        // Commands read nothing of what comes after them.
        writeln!(self.input, "{{ {command}\n}} </dev/null\necho '{mark}'").unwrap();
        let mut lines = Vec::new();
        for line in self.output.each_within(program::LONGEST) {
            if line == mark {
                return lines;
            }
            lines.push(line);
        }
        unreachable!("the shell has ended at `{command}`: {lines:#?}")
    }

    fn terminal(&self, steps: &[Step]) {
        for step in steps {
            let mut command = Command::new("sh");
            command.args(["-c", &step.command]);
            environment(&mut command, self.folder.path());
            let mut screen = Screen::start(command);
            for line in &step.output {
                match line.strip_prefix(PROMPT) {
                    Some(typed) => {
                        screen.until(PROMPT);
                        screen.enter(&format!("{typed}\r"));
                        // The terminal's echo of it is not the answer.
                        screen.until(typed);
                    }
                    None => screen.until(line),
                }
            }
            assert_eq!(screen.end(), 0, "line {}", step.line);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Machines of a page that failed halfway.
        let mut command = Command::new("sh");
        command.args(["-c", "paravane rm --force web debian 2>/dev/null"]);
        environment(&mut command, self.folder.path());
        let _ = command.stdout(Stdio::null()).status();
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn environment(command: &mut Command, folder: &Path) {
    let bin = program::path().parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    command
        .current_dir(folder)
        .env("PATH", path)
        .env("XDG_STATE_HOME", folder.join("state"))
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env("DOCKER_CONFIG", folder);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env_remove(name);
    }
}

/// A registry on loopback with an image of that name, whose output the page expects.
fn registry(name: &str, step: &Step) -> String {
    let registry = Registry::new();
    let script = format!(
        "mkdir -p bin etc; cp {} bin/; ln -s busybox bin/head\n\
         printf '%s\\n' '{}' >etc/os-release",
        small_root::busybox().display(),
        step.output[0]
    );
    let config = json!({"Env": ["PATH=/bin"], "Cmd": ["/bin/head"]});
    let (image, tag) = name.split_once(':').unwrap();
    registry.add(image, tag, &[layer(&script)], &config);
    registry.name(name)
}

/// A port of the page, and one that is free now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Runs the blocks for which `wanted` says so.
fn read(wanted: impl Fn(&Kind) -> bool) {
    let page = fs::read_to_string(source_root().join("docs/tutorial.md")).unwrap();
    let blocks = blocks(&page);
    let mut names = HashMap::from([("8080", free_port()), ("8081", free_port())]);
    // Taken by another program between two looks: two different ones at least.
    while names["8080"] == names["8081"] {
        names.insert("8081", free_port());
    }
    let mut reader = Reader::new();
    let mut count = 0;
    for block in blocks.iter().filter(|block| wanted(&block.kind)) {
        if block.kind == Kind::Terminal {
            reader.terminal(&block.steps);
            count += block.steps.len();
            continue;
        }
        for step in &block.steps {
            let mut command = step.command.clone();
            for (name, port) in &names {
                command = command.replace(name, &port.to_string());
            }
            if let Kind::Registry(name) = &block.kind {
                assert!(command.contains(name.as_str()), "line {}", step.line);
                command = command.replace(name.as_str(), &registry(name, step));
            }
            let lines = reader.run(&command);
            assert!(
                all_fit(&step.output, &lines),
                "docs/tutorial.md, line {}: `{command}` printed\n{}\nand not\n{}",
                step.line,
                lines.join("\n"),
                step.output.join("\n")
            );
            count += 1;
        }
    }
    assert!(count > 0, "the page has no such commands");
}

#[test]
fn every_command_does_what_the_page_says() {
    read(|kind| *kind != Kind::Mirror);
}

#[test]
#[ignore = "long: makes a Debian from the mirror"]
fn a_whole_system() {
    read(|kind| *kind == Kind::Mirror);
}

#[test]
fn lines_are_compared_as_the_page_says() {
    for (pattern, line, same) in [
        ("web", "web", true),
        ("web", "webs", false),
        ("Linux 6.12...-vmi", "Linux 6.12.9-vmi", true),
        ("Linux 6.12...-vmi", "Linux 6.12.9", false),
        ("up ... s, ... processes", "up 3 s, 9 processes", true),
        ("up ... s, ... processes", "up 3 s", false),
        ("...", "", true),
    ] {
        assert_eq!(fits(pattern, line), same, "{pattern}: {line}");
    }
    let text = |lines: &[&str]| lines.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (patterns, lines, same) in [
        (&["a", "..."][..], &["a"][..], true),
        (&["a", "..."], &["a", "b", "c"], true),
        (&["a"], &["a", "b"], false),
        (&["a", "b"], &["a"], false),
        (&[], &["a"], false),
    ] {
        assert_eq!(all_fit(&text(patterns), &text(lines)), same, "{patterns:?}");
    }
}
