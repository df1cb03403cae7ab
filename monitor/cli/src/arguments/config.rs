// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `--config FILE`: reads options of `run` and `create` from a file.
//!
//! The file does not define options of its own: each key is an option's name, and becomes words of
//! a command line, which clap parses like any other. So every option is a key, and the schema is
//! generated from the same definitions.

use super::Cli;
use clap::error::{Error, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};
use paravane_user_io::text;
use serde_json::{Map, Value, json};
use std::any::TypeId;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Commands that accept a file.
const COMMANDS: [&str; 2] = ["run", "create"];
/// The option that names the file. It is not a key.
const CONFIG: &str = "config";
/// The key for the words after `--`.
const COMMAND: &str = "command";

/// Parses a command line and the file that it names.
pub fn parse(mut words: Vec<OsString>) -> Result<Cli, Error> {
    let matches = Cli::command().try_get_matches_from(&words)?;
    if let Some((name, options)) = matches
        .subcommand()
        .filter(|(name, _)| COMMANDS.contains(name))
    {
        if let Some(path) = options.get_one::<PathBuf>(CONFIG) {
            let more = File::read(path).and_then(|file| file.words(name, options));
            let more = more.map_err(|why| {
                Error::raw(
                    ErrorKind::ValueValidation,
                    format!("--config {}{why}", path.display()),
                )
            })?;
            // The command is the first word that is its name: no value of a global option before it
            // can be that name.
            let at = words
                .iter()
                .position(|word| *word == *name)
                .map_or(words.len(), |at| at + 1);
            words.splice(at..at, more.options);
            words.extend(more.command);
            let matches = Cli::command().try_get_matches_from(&words)?;
            return Cli::from_arg_matches(&matches);
        }
    }
    Cli::from_arg_matches(&matches)
}

/// The words that a file adds to a command line.
#[derive(Debug, Default)]
struct Words {
    options: Vec<OsString>,
    command: Vec<OsString>,
}

/// The text of a file.
struct File(String);

/// The line number of an offset in these bytes.
fn line(bytes: &[u8], at: usize) -> usize {
    bytes.iter().take(at).filter(|&&byte| byte == b'\n').count() + 1
}

impl File {
    /// Reads a file. An error message continues after the file's name.
    fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!(": {error}"))?;
        String::from_utf8(bytes).map(File).map_err(|error| {
            let line = line(error.as_bytes(), error.utf8_error().valid_up_to());
            format!(", line {line}: not in UTF-8")
        })
    }

    /// The line number of an offset in the file.
    fn line(&self, at: usize) -> usize {
        line(self.0.as_bytes(), at)
    }

    /// The file's options for a command, except those that the command line sets itself.
    fn words(&self, command: &str, said: &ArgMatches) -> Result<Words, String> {
        let table = DeTable::parse(&self.0).map_err(|error| {
            let line = self.line(error.span().map_or(0, |span| span.start));
            format!(", line {line}: {}", text::one_line(error.message()))
        })?;
        let mut words = Words::default();
        // In the order of the file, so that the first error is reported.
        let mut entries: Vec<_> = table.get_ref().iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let name = key.get_ref().as_ref();
            let complain =
                |why: String| format!(", line {}: {name}: {why}", self.line(value.span().start));
            let Some(option) = options(command)
                .into_iter()
                .find(|option| key_of(option) == name)
            else {
                return Err(format!(
                    ", line {}: {name}: `paravane {command}` has no such option",
                    self.line(key.span().start)
                ));
            };
            let given = spell(&option, value.get_ref()).map_err(complain)?;
            // Each key is checked alone, so that an error belongs to it.
            check(command, name, &given).map_err(complain)?;
            if said.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine) {
                continue;
            }
            if name == COMMAND {
                words.command = given;
            } else {
                words.options.extend(given);
            }
        }
        Ok(words)
    }
}

/// The options of a command that may be keys.
fn options(command: &str) -> Vec<Arg> {
    let mut cli = Cli::command();
    cli.build();
    let command = cli.find_subcommand(command).map(Command::get_arguments);
    let inherited = Cli::command();
    let global = |arg: &Arg| {
        inherited
            .get_arguments()
            .any(|known| known.get_id() == arg.get_id())
    };
    let mut all: Vec<Arg> = command
        .into_iter()
        .flatten()
        .filter(|arg| !arg.is_hide_set() && arg.get_id() != CONFIG && !global(arg))
        .filter(|arg| {
            matches!(
                arg.get_action(),
                ArgAction::Set | ArgAction::SetTrue | ArgAction::Append
            )
        })
        .cloned()
        .collect();
    all.sort_by_key(key_of);
    all
}

fn key_of(option: &Arg) -> String {
    option
        .get_long()
        .unwrap_or(option.get_id().as_str())
        .to_string()
}

/// Reports whether an option takes several values.
fn many(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Append)
}

/// Converts a value to words of a command line.
fn spell(option: &Arg, value: &DeValue<'_>) -> Result<Vec<OsString>, String> {
    let word = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().replace('_', "")),
        _ => Err("a text or a whole number is expected".to_string()),
    };
    let spelled = |word: String| OsString::from(format!("--{}={word}", key_of(option)));
    if matches!(option.get_action(), ArgAction::SetTrue) {
        return match value {
            DeValue::Boolean(true) => Ok(vec![OsString::from(format!("--{}", key_of(option)))]),
            DeValue::Boolean(false) => Ok(Vec::new()),
            _ => Err("true or false is expected".to_string()),
        };
    }
    if !many(option) {
        return Ok(vec![spelled(word(value)?)]);
    }
    let DeValue::Array(items) = value else {
        return Err("a list is expected, such as [\"...\"]".to_string());
    };
    let items: Result<Vec<String>, String> = items.iter().map(Spanned::get_ref).map(word).collect();
    Ok(if key_of(option) == COMMAND {
        let words = items?.into_iter().map(OsString::from);
        std::iter::once(OsString::from("--")).chain(words).collect()
    } else {
        items?.into_iter().map(spelled).collect()
    })
}

/// Checks the words of a key.
fn check(command: &str, key: &str, words: &[OsString]) -> Result<(), String> {
    let start = ["paravane", command].map(OsString::from);
    let Err(error) = Cli::command().try_get_matches_from(start.iter().chain(words)) else {
        return Ok(());
    };
    // Missing options are reported when the whole command line is parsed.
    if error.kind() == ErrorKind::MissingRequiredArgument {
        return Ok(());
    }
    let rendered = error.render().to_string();
    let first = rendered
        .lines()
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ");
    // `invalid value 'x' for '--key <WORD>': why`: the message names the key already.
    let short = match first.split_once(&format!(" for '--{key}")) {
        Some((what, rest)) => match rest.split_once("': ") {
            Some((_, why)) => format!("{what}: {why}"),
            None => what.to_string(),
        },
        None => first.to_string(),
    };
    Err(text::one_line(&short))
}

/// The JSON schema of a file for `run`. `create` accepts the same, except for options about the
/// terminal.
pub fn schema() -> Value {
    let mut keys = Map::new();
    for option in options("run") {
        keys.insert(key_of(&option), describe(&option));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Options of `paravane run` and `paravane create`, for --config",
        "type": "object",
        "additionalProperties": false,
        "properties": keys,
    })
}

fn describe(option: &Arg) -> Value {
    let mut one = Map::new();
    let kind = option.get_value_parser().type_id();
    let number = [
        TypeId::of::<u8>(),
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
    ];
    let values: Vec<String> = option
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| value.get_name().to_string())
        .collect();
    if matches!(option.get_action(), ArgAction::SetTrue) {
        one.insert("type".into(), json!("boolean"));
    } else if !values.is_empty() {
        one.insert("enum".into(), json!(values));
    } else if number.iter().any(|number| kind == *number) {
        // Sizes may have a unit.
        one.insert("type".into(), json!(["integer", "string"]));
    } else {
        one.insert("type".into(), json!("string"));
    }
    let mut all = if many(option) {
        Map::from_iter([
            ("type".to_string(), json!("array")),
            ("items".to_string(), one.into()),
        ])
    } else {
        one
    };
    if let Some(help) = option.get_long_help().or(option.get_help()) {
        all.insert(
            "description".into(),
            json!(help.to_string().replace(" (may be repeated)", "")),
        );
    }
    if let Some(default) = option
        .get_default_values()
        .first()
        .filter(|_| !many(option) && !matches!(option.get_action(), ArgAction::SetTrue))
    {
        all.insert("default".into(), json!(default.to_string_lossy()));
    }
    all.into()
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
