// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is wrong with a command line, in one line: what, where, and what would be right.

use super::Cli;
use clap::CommandFactory;
use clap::error::{ContextKind, ErrorKind};
use paravane_user_io::text;
use std::ffi::OsString;
use std::process::ExitCode;

/// What clap prints instead of a start: help, the version, or an error.
#[derive(Debug)]
pub struct Early {
    pub error: clap::Error,
    /// The command that the words name, such as `paravane vbus link`.
    pub command: String,
}

/// Commands that take a command of the guest after `--`, and what comes before that.
const WITH_COMMAND: [(&str, &str); 3] = [
    ("paravane run", ""),
    ("paravane create", ""),
    ("paravane exec", "NAME "),
];

impl Early {
    /// Prints help as it is, and an error as one line.
    pub fn report(self) -> ExitCode {
        match self.error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                // Fails only if the reader has closed the pipe.
                let _ = self.error.print();
                ExitCode::SUCCESS
            }
            _ => {
                eprintln!("paravane: {}", line(&self.error, &self.command));
                ExitCode::from(crate::EXIT_BAD_INPUT)
            }
        }
    }
}

/// Reduces clap's explanation of several lines to one.
fn line(error: &clap::Error, command: &str) -> String {
    let rendered = error.render().to_string();
    let lines = rendered.lines().map(str::trim);
    let mut wanted = match error.kind() {
        // Clap lists the hidden ones, too.
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "a command is expected".to_string()
        }
        _ => {
            let words = lines.filter(|line| !is_extra(line));
            words.map(plain).collect::<Vec<_>>().join(" ")
        }
    };
    for tip in rendered
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tip: "))
    {
        if is_useful(tip) {
            wanted = format!("{wanted}; {tip}");
        }
    }
    if let Some(word) = stray_word(error)
        && let Some((_, name)) = WITH_COMMAND.iter().find(|(known, _)| *known == command)
    {
        wanted = format!("{wanted}; a command comes after `--`: {command} {name}-- {word}");
    }
    text::one_line(&format!("{wanted} (see {command} --help)"))
}

/// The command that the words of a command line name, without options.
pub fn command(words: &[OsString]) -> String {
    let mut here = Cli::command();
    let mut names = vec!["paravane".to_string()];
    for word in words.iter().skip(1) {
        let Some(next) = word.to_str().and_then(|word| here.find_subcommand(word)) else {
            break;
        };
        let next = next.clone();
        names.push(next.get_name().to_string());
        here = next;
    }
    names.join(" ")
}

/// Whether a line is no part of the error itself.
fn is_extra(line: &str) -> bool {
    let starts = ["Usage:", "For more information", "tip:"];
    line.is_empty() || starts.iter().any(|start| line.starts_with(start))
}

/// A suggestion that is one: not how to pass an option as a value, and no hidden command.
fn is_useful(tip: &str) -> bool {
    let hidden = Cli::command();
    let mut hidden = hidden
        .get_subcommands()
        .filter(|command| command.is_hide_set());
    !tip.starts_with("to pass ")
        && !hidden.any(|command| tip.contains(&format!("'{}'", command.get_name())))
}

/// A word that no option of the command takes.
fn stray_word(error: &clap::Error) -> Option<String> {
    let word = error.get(ContextKind::InvalidArg)?.to_string();
    (error.kind() == ErrorKind::UnknownArgument && !word.starts_with('-')).then_some(word)
}

/// A line of clap in the words of this program.
fn plain(line: &str) -> String {
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let Some((what, why)) = line.rsplit_once(": ") else {
        return line.to_string();
    };
    let why = match why {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "a number is expected".to_string()
        }
        "number too large to fit in target type" => "that number is too large".to_string(),
        why => match why
            .split_once(" is not in ")
            .and_then(|(_, range)| range.split_once("..="))
        {
            Some((low, high)) => format!("{low} to {high} are possible"),
            None => return line.to_string(),
        },
    };
    format!("{what}: {why}")
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn complaint(words: &[&str]) -> String {
        let words = std::iter::once("paravane").chain(words.iter().copied());
        let early = parse(words.map(OsString::from)).unwrap_err();
        line(&early.error, &early.command)
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn errors_are_one_line_that_says_what_would_be_right() {
        let qemu = ["conformance", "--hypervisor", "qemu"];
        let none = ["--layer", "none"];
        for (words, parts) in [
            (
                &[&qemu[..], &["--layer", "fast"]].concat()[..],
                &["'fast'", "native-stats"][..],
            ),
            (
                &[&["conformance", "--hypervisor", "vmx"], &none[..]].concat(),
                &["'vmx'", "--hypervisor", "qemu"],
            ),
            (
                &qemu,
                &["required", "--layer", "(see paravane conformance --help)"],
            ),
            (
                &[&qemu[..], &none, &["--cpus", "0"]].concat(),
                &["'--cpus <N>': 1 to 64 are possible"],
            ),
            (&["conformance", "--frobnicate"], &["--frobnicate"]),
            (&["launch"], &["'launch'", "(see paravane --help)"]),
            (&[], &["a command is expected (see paravane --help)"]),
            (
                &["run", "--cpus", "abc"],
                &["'--cpus <N>': a number is expected (see paravane run"],
            ),
            (
                &["run", "--cpus", "99999999999999999999"],
                &["too large", "(see paravane run --help)"],
            ),
            (
                &["run", "uname", "-a"],
                &["'uname'", "`--`: paravane run -- uname (see"],
            ),
            (
                &["exec", "web", "cat"],
                &["'cat'", "`--`: paravane exec NAME -- cat (see"],
            ),
            (
                &["run", "--detatch"],
                &["'--detatch' found; a similar argument exists: '--detach' (see"],
            ),
            (
                &["vbus", "link", "lan"],
                &["(see paravane vbus link --help)"],
            ),
        ] {
            let line = complaint(words);
            assert!(!line.contains('\n'), "{line}");
            for part in parts {
                assert!(line.contains(part), "{part} is not in: {line}");
            }
        }
        let hidden = complaint(&["boo"]);
        assert!(!hidden.contains("'boot'"), "{hidden}");
    }
}
