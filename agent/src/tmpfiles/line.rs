// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One line of a tmpfiles.d file.
//!
//!     Type Path Mode User Group Age Argument
//!
//! Fields other than the argument may be quoted; all of them may contain C escapes. The age only
//! matters to a cleanup, which the agent does not do.

use super::specifier::{Missing, Specifiers};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Where `C` and `L` lines without an argument find their source.
const FACTORY: &str = "/usr/share/factory";
/// The kernel's PATH_MAX.
const MAX_PATH: usize = 4096;
/// Bounds the directories that one line can create.
const MAX_COMPONENTS: usize = 64;

/// What a line does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `f`, `F`: creates a regular file.
    File,
    /// `w`: writes to existing files.
    Write,
    /// `d`, `D`, `v`, `q`, `Q`: creates a directory.
    Directory,
    /// `e`: adjusts existing directories.
    Adjust,
    /// `p`: creates a FIFO.
    Pipe,
    /// `L`: creates a symbolic link.
    Link,
    /// `c`: creates a character device of this major and minor number.
    Character(u32, u32),
    /// `b`: creates a block device of this major and minor number.
    Block(u32, u32),
    /// `C`: copies a file or a directory tree.
    Copy,
    /// `z`, `m`: sets mode and owner of existing files.
    Mode,
    /// `Z`: the same, recursively.
    ModeTree,
}

impl Kind {
    /// Whether the path is a glob pattern.
    pub fn takes_pattern(self) -> bool {
        matches!(
            self,
            Kind::Write | Kind::Adjust | Kind::Mode | Kind::ModeTree
        )
    }
}

/// A mode field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Permission bits, at most 0o7777.
    pub bits: u32,
    /// `~`: an existing file does not get kinds of access that it granted to no one before.
    pub masked: bool,
    /// `:`: applies to new files only.
    pub only_new: bool,
}

/// A user or group field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Name or number.
    pub name: String,
    /// `:`: applies to new files only.
    pub only_new: bool,
}

/// A line that creates or adjusts something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub kind: Kind,
    /// `+`: truncates, appends, replaces or merges, depending on the kind.
    pub plus: bool,
    /// `=`: removes an existing file of another type.
    pub replace: bool,
    /// `-`: a failure is not reported.
    pub may_fail: bool,
    /// `?`: a link is only created if its target exists.
    pub if_target_exists: bool,
    /// Absolute, without `.` and `..`.
    pub path: PathBuf,
    pub mode: Option<Mode>,
    pub user: Option<Owner>,
    pub group: Option<Owner>,
    /// Content, link target or source. Never empty.
    pub argument: Option<Vec<u8>>,
}

/// Parses a line without its line end. None if there is nothing to do: for an empty line, a
/// comment, or a line about removal, cleanup or attributes.
///
/// # Errors
/// The reason why the line is invalid.
pub fn parse(text: &[u8], specifiers: &Specifiers) -> Result<Option<Line>, String> {
    let mut rest = text.trim_ascii();
    if rest.is_empty() || rest.starts_with(b"#") {
        return Ok(None);
    }
    let mut fields: [Option<Vec<u8>>; 6] = Default::default();
    for field in &mut fields {
        *field = word(&mut rest)?;
    }
    let [Some(action), Some(path), mode, user, group, _age] = fields else {
        return Err("a line needs a type and a path".to_string());
    };
    let Some(action) = Action::parse(&action)? else {
        return Ok(None);
    };
    let path = match specifiers.expand(&path) {
        Ok(path) => normal(&path)?,
        Err(Missing) => return Ok(None),
    };
    let argument = match rest {
        b"" | b"-" => None,
        text => match specifiers.expand(&unescape(text)?) {
            Ok(text) => Some(text),
            Err(Missing) => return Ok(None),
        },
    };
    let owner = |field: Option<Vec<u8>>| match specifiers.expand(&field.unwrap_or_default()) {
        Ok(name) => owner(&name),
        Err(Missing) => Ok(None),
    };
    let mut line = Line {
        kind: Kind::Mode,
        plus: action.plus,
        replace: action.replace,
        may_fail: action.may_fail,
        if_target_exists: action.if_target_exists,
        path,
        mode: mode.map_or(Ok(None), |field| parse_mode(&field))?,
        user: owner(user)?,
        group: owner(group)?,
        argument,
    };
    line.kind = kind(action.letter, &mut line)?;
    Ok(Some(line))
}

/// The first field.
struct Action {
    letter: u8,
    plus: bool,
    replace: bool,
    may_fail: bool,
    if_target_exists: bool,
}

impl Action {
    /// None for types that the agent ignores.
    fn parse(field: &[u8]) -> Result<Option<Self>, String> {
        let unknown = || format!("unknown type {}", String::from_utf8_lossy(field));
        let (&letter, modifiers) = field.split_first().ok_or_else(unknown)?;
        let mut action = Action {
            letter,
            plus: letter == b'F',
            replace: false,
            may_fail: false,
            if_target_exists: false,
        };
        let mut encoded = false;
        for modifier in modifiers {
            match modifier {
                // Only at boot, which this is; or only when packages are removed.
                b'!' | b'$' => {}
                b'+' => action.plus = true,
                b'=' => action.replace = true,
                b'-' => action.may_fail = true,
                b'?' => action.if_target_exists = true,
                b'~' => encoded = true,
                // The content is a credential. A machine without systemd has none.
                b'^' => return Ok(None),
                _ => return Err(unknown()),
            }
        }
        match letter {
            b'f' | b'F' | b'w' | b'd' | b'D' | b'v' | b'q' | b'Q' | b'e' | b'p' | b'L' | b'c'
            | b'b' | b'C' | b'z' | b'm' | b'Z' => {}
            // Removal, cleanup, extended and other attributes, access control lists.
            b'x' | b'X' | b'r' | b'R' | b't' | b'T' | b'h' | b'H' | b'a' | b'A' => return Ok(None),
            _ => return Err(unknown()),
        }
        if encoded {
            return Err("an argument in base64 (~) is not supported".to_string());
        }
        Ok(Some(action))
    }
}

/// The kind for a type letter. Checks the argument, or sets its default.
fn kind(letter: u8, line: &mut Line) -> Result<Kind, String> {
    let factory = || {
        let mut path = FACTORY.as_bytes().to_vec();
        path.extend(line.path.as_os_str().as_bytes());
        path
    };
    Ok(match letter {
        b'f' | b'F' => Kind::File,
        b'w' if line.argument.is_none() => return Err("type w needs an argument".to_string()),
        b'w' => Kind::Write,
        b'd' | b'D' | b'v' | b'q' | b'Q' => Kind::Directory,
        b'e' => Kind::Adjust,
        b'p' => Kind::Pipe,
        b'L' => {
            line.argument.get_or_insert_with(factory);
            Kind::Link
        }
        b'C' => {
            let source = line.argument.take().unwrap_or_else(factory);
            line.argument = Some(normal(&source)?.into_os_string().into_vec());
            Kind::Copy
        }
        b'c' | b'b' => {
            let (major, minor) = line
                .argument
                .as_deref()
                .and_then(device)
                .ok_or("types c and b need an argument MAJOR:MINOR")?;
            if letter == b'c' {
                Kind::Character(major, minor)
            } else {
                Kind::Block(major, minor)
            }
        }
        b'Z' => Kind::ModeTree,
        _ => Kind::Mode,
    })
}

fn device(text: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = std::str::from_utf8(text).ok()?.trim().split_once(':')?;
    // Linux's dev_t has 12 and 20 bits.
    let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then_some((major, minor))
}

/// An absolute path without `.` and repeated slashes.
fn normal(path: &[u8]) -> Result<PathBuf, String> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let wrong = |why: &str| Err(format!("{}: {why}", path.display()));
    if !path.is_absolute() {
        return wrong("not an absolute path");
    }
    if path.as_os_str().len() >= MAX_PATH || path.components().count() > MAX_COMPONENTS {
        return wrong("the path is too long");
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return wrong("a path cannot contain ..");
    }
    let path: PathBuf = path.components().collect();
    // systemd does this, too: the two are the same directory.
    Ok(match path.strip_prefix("/var/run") {
        Ok(below) if !below.as_os_str().is_empty() => Path::new("/run").join(below),
        _ => path,
    })
}

fn parse_mode(field: &[u8]) -> Result<Option<Mode>, String> {
    let mut text = std::str::from_utf8(field).unwrap_or("?");
    if text.is_empty() || text == "-" {
        return Ok(None);
    }
    let (mut masked, mut only_new) = (false, false);
    loop {
        if let Some(rest) = text.strip_prefix('~') {
            masked = true;
            text = rest;
        } else if let Some(rest) = text.strip_prefix(':') {
            only_new = true;
            text = rest;
        } else {
            break;
        }
    }
    // from_str_radix would take a sign.
    let digits = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    match u32::from_str_radix(text, 8) {
        Ok(bits) if digits && bits <= 0o7777 => Ok(Some(Mode {
            bits,
            masked,
            only_new,
        })),
        _ => Err(format!("invalid mode {}", String::from_utf8_lossy(field))),
    }
}

fn owner(field: &[u8]) -> Result<Option<Owner>, String> {
    if field.is_empty() || field == b"-" {
        return Ok(None);
    }
    let (only_new, name) = match field.strip_prefix(b":") {
        Some(name) => (true, name),
        None => (false, field),
    };
    match std::str::from_utf8(name) {
        Ok(name) if !name.is_empty() => Ok(Some(Owner {
            name: name.to_string(),
            only_new,
        })),
        _ => Err("invalid user or group".to_string()),
    }
}

/// Takes the next field off `rest`, with quotes and escapes resolved.
fn word(rest: &mut &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut text = rest.trim_ascii_start();
    if text.is_empty() {
        *rest = text;
        return Ok(None);
    }
    let (mut word, mut quote) = (Vec::new(), None);
    while let Some((&byte, after)) = text.split_first() {
        match (byte, quote) {
            (b'\\', _) => {
                text = escape(after, &mut word)?;
                continue;
            }
            (b'"' | b'\'', None) => quote = Some(byte),
            (_, Some(open)) if byte == open => quote = None,
            (_, None) if byte.is_ascii_whitespace() => break,
            _ => word.push(byte),
        }
        text = after;
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_string());
    }
    *rest = text.trim_ascii_start();
    Ok(Some(word))
}

/// The argument, which has no quotes.
fn unescape(mut text: &[u8]) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    while let Some((&byte, after)) = text.split_first() {
        if byte == b'\\' {
            text = escape(after, &mut all)?;
        } else {
            all.push(byte);
            text = after;
        }
    }
    Ok(all)
}

/// Resolves an escape. `text` follows the backslash; returns the text after the escape.
fn escape<'a>(text: &'a [u8], into: &mut Vec<u8>) -> Result<&'a [u8], String> {
    let wrong = || "invalid escape".to_string();
    let (&letter, after) = text.split_first().ok_or_else(wrong)?;
    let plain = match letter {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b's' => b' ',
        b'\\' | b'"' | b'\'' => letter,
        b'x' => return number(after, 2, 16, into),
        b'0'..=b'7' => return number(text, 3, 8, into),
        b'u' => return number(after, 4, 16, into),
        b'U' => return number(after, 8, 16, into),
        _ => return Err(wrong()),
    };
    into.push(plain);
    Ok(after)
}

/// A byte (two or three digits) or a character.
fn number<'a>(
    text: &'a [u8],
    digits: usize,
    base: u32,
    into: &mut Vec<u8>,
) -> Result<&'a [u8], String> {
    let value = text
        .get(..digits)
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .and_then(|digits| u32::from_str_radix(digits, base).ok())
        // A path cannot contain it.
        .filter(|&value| value != 0);
    let wrong = || "invalid escape".to_string();
    let value = value.ok_or_else(wrong)?;
    if digits < 4 {
        into.push(u8::try_from(value).map_err(|_| wrong())?);
    } else {
        let character = char::from_u32(value).ok_or_else(wrong)?;
        into.extend(character.encode_utf8(&mut [0; 4]).bytes());
    }
    Ok(text.get(digits..).unwrap_or_default())
}

impl Line {
    /// The argument as a path.
    pub fn argument_path(&self) -> PathBuf {
        OsString::from_vec(self.argument.clone().unwrap_or_default()).into()
    }
}
