// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Text from a guest or a file, made safe to print.

/// Removes terminal control sequences and control characters from a line of a guest's output.
///
/// Firmware prints escape sequences, and a hostile guest could print worse ones. A person's
/// terminal only ever gets text.
pub fn clean(raw: &[u8]) -> String {
    let mut text = Printed(String::with_capacity(raw.len()));
    let decoded = String::from_utf8_lossy(raw);
    vte::Parser::new().advance(&mut text, decoded.as_bytes());
    text.0
}

/// Whether a character shows where it is. The others are control characters, those without a width,
/// and those that change the direction of text: with them a guest could rearrange a line.
fn is_shown(c: char) -> bool {
    let hidden = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}');
    !hidden && !c.is_control()
}

/// What a terminal would print.
struct Printed(String);

impl vte::Perform for Printed {
    fn print(&mut self, c: char) {
        if is_shown(c) {
            self.0.push(c);
        }
    }

    fn execute(&mut self, byte: u8) {
        if byte == b'\t' {
            self.0.push(' ');
        }
    }
}

/// Joins all lines into one, for error messages.
pub fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.extend(word.chars().filter(|&c| is_shown(c)));
    }
    out
}

/// `1 test`, `2 tests`.
pub fn count(n: usize, what: &str) -> String {
    if n == 1 {
        format!("1 {what}")
    } else {
        format!("{n} {what}s")
    }
}

/// Bytes as lowercase hexadecimal digits, without a separator.
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        for nibble in [byte >> 4, byte & 0xf] {
            digits.extend(char::from_digit(nibble.into(), 16));
        }
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn firmware_escapes_disappear() {
        assert_eq!(
            clean(b"\x1bc\x1b[?7l\x1b[2J\x1b[0mTAP version 14\r"),
            "TAP version 14"
        );
        assert_eq!(clean(b"a\tb\x07\xff"), "a b\u{fffd}");
        assert_eq!(clean("a\u{202e}b\u{200b}c".as_bytes()), "abc");
        assert_eq!(one_line("a\u{2066}b \u{feff}c"), "ab c");
        assert_eq!(clean(b"\x1b["), "");
        assert_eq!(clean(b"\x1b"), "");
        assert_eq!(clean(b"\x1b]0;title\x07text"), "text");
    }

    #[test]
    fn each_byte_is_two_digits() {
        assert_eq!(hex(&[0, 0x0f, 0xa5, 0xff]), "000fa5ff");
        assert_eq!(hex(&[]), "");
    }

    #[test]
    fn errors_become_one_line() {
        assert_eq!(one_line("a\n  b\r\nc"), "a b c");
    }

    proptest! {
        #[test]
        fn nothing_but_text_comes_out(raw: Vec<u8>) {
            prop_assert!(!clean(&raw).chars().any(char::is_control));
        }
    }
}
