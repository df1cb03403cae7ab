// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients of a machine's consoles that come, leave, and are killed. The text of the guest arrives
//! whole: the next client gets what the one before did not get.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(20);
/// Bytes of an echo that are under way.
const WINDOW: u64 = 4096;

/// Makes the terminals ready, then writes lines with numbers to the first one for ever, and returns
/// what comes to the second one.
pub const GUEST: &str = "exec 4<>/dev/vbc0 5<>/dev/vbc1; stty raw -echo <&4; stty raw -echo <&5
    text() {
        i=0
        while :; do
            i=$((i + 1)); echo \"line $i of a text that goes on, $i\" >&4
            test $((i % 50)) != 0 || usleep 20000
        done
    }
    text & cat <&5 >&5 &
    ";

fn line(number: u64) -> String {
    format!("line {number} of a text that goes on, {number}")
}

/// Connects. Between the socket's name and its `listen` it refuses.
fn connect(path: &Path) -> UnixStream {
    let begun = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => {
                stream.set_read_timeout(Some(TICK)).unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) => {
                assert!(begun.elapsed() < PATIENCE, "{}: {error}", path.display());
                thread::sleep(TICK);
            }
        }
    }
}

/// What has come of the text.
#[derive(Default)]
struct Text {
    last: u64,
    /// The part of a line.
    part: Vec<u8>,
    /// A client was killed, and what it had not read is lost. Then the first line may be a part,
    /// and the one after it says where the text goes on.
    gap: Gap,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Gap {
    #[default]
    None,
    InLine,
    BetweenLines,
}

impl Text {
    /// Takes what has come next.
    fn take(&mut self, bytes: &[u8]) {
        self.part.extend_from_slice(bytes);
        while let Some(end) = self.part.iter().position(|&byte| byte == b'\n') {
            let found: Vec<u8> = self.part.drain(..=end).collect();
            let found = String::from_utf8(found).unwrap();
            let found = found.trim_end_matches('\n');
            let mut next = self.last + 1;
            match self.gap {
                Gap::None => {}
                Gap::InLine => {
                    self.gap = Gap::BetweenLines;
                    continue;
                }
                Gap::BetweenLines => {
                    let last = found.rsplit(' ').next().unwrap();
                    let number: u64 = last.parse().unwrap();
                    assert!(number > self.last, "{found} after line {}", self.last);
                    (self.gap, next) = (Gap::None, number);
                }
            }
            assert_eq!(found, line(next));
            self.last = next;
        }
    }

    fn killed(&mut self) {
        self.part.clear();
        self.gap = Gap::InLine;
    }
}

#[test]
#[should_panic(expected = "line 3 of a text")]
fn a_lost_line_is_found() {
    let mut text = Text::default();
    text.take(format!("{}\n{}", line(1), &line(2)[..5]).as_bytes());
    text.take(format!("{}\n", &line(2)[5..]).as_bytes());
    assert_eq!(text.last, 2);
    text.take(format!("{}\n", line(4)).as_bytes());
}

#[test]
fn a_text_goes_on_after_a_gap() {
    let mut text = Text::default();
    text.take(format!("{}\nline", line(1)).as_bytes());
    text.killed();
    text.take(format!("7\n{}\n{}\n", line(18), line(19)).as_bytes());
    assert_eq!(text.last, 19);
}

/// The data that clients have read, and the number of clients.
#[derive(Default)]
pub struct Seen {
    pub lines: AtomicU64,
    pub echoed: AtomicU64,
    pub clients: AtomicU64,
}

/// Reads for a while, or until the console has closed the connection, and then returns false.
fn read_for(stream: &mut UnixStream, time: Option<Duration>, mut take: impl FnMut(&[u8])) -> bool {
    let (begun, mut bytes) = (Instant::now(), [0; 4096]);
    let mut since = begun;
    while time.is_none_or(|time| begun.elapsed() < time) {
        // Also a console that never stops to talk must come to an end.
        assert!(
            time.is_some() || begun.elapsed() < PATIENCE,
            "the connection stays open"
        );
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => {
                take(&bytes[..count]);
                since = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(since.elapsed() < PATIENCE, "the console is silent");
            }
            Err(error) => unreachable!("{error}"),
        }
    }
    true
}

/// Clients of the text: most leave, and get what they were given; each third is killed.
pub fn read_text(path: &Path, seen: &Seen, end: &AtomicBool) {
    let mut text = Text::default();
    for client in 1.. {
        if end.load(Ordering::SeqCst) {
            return;
        }
        let mut stream = connect(path);
        seen.clients.fetch_add(1, Ordering::SeqCst);
        let time = Duration::from_millis(100 + client % 5 * 50);
        let open = read_for(&mut stream, Some(time), |bytes| text.take(bytes));
        assert!(open, "the console has closed a connection");
        if client % 3 == 0 {
            // More arrives in this time, which no client reads.
            thread::sleep(Duration::from_millis(30));
            drop(stream);
            text.killed();
        } else {
            stream.shutdown(Shutdown::Write).unwrap();
            while read_for(&mut stream, None, |bytes| text.take(bytes)) {}
        }
        seen.lines.store(text.last, Ordering::SeqCst);
    }
}

/// The byte of an echo at this place.
fn byte(place: u64) -> u8 {
    (place ^ (place >> 8) ^ (place >> 16)).to_le_bytes()[0]
}

/// Clients of the echo, all of which leave: what one has sent and not got back, the next one gets.
pub fn read_echo(path: &Path, seen: &Seen, end: &AtomicBool) {
    let (mut sent, mut received) = (0u64, 0u64);
    let mut grown = Instant::now();
    while !end.load(Ordering::SeqCst) || received < sent {
        let mut stream = connect(path);
        let mut take = |bytes: &[u8], sent: u64| {
            for found in bytes {
                assert!(received < sent, "more comes back than was sent");
                assert_eq!(*found, byte(received), "byte {received} of {sent}");
                received += 1;
            }
            received
        };
        let begun = Instant::now();
        let before = take(&[], sent);
        let mut back = before;
        while begun.elapsed() < Duration::from_millis(300) {
            if !end.load(Ordering::SeqCst) && sent < back + WINDOW {
                let bytes: Vec<u8> = (sent..back + WINDOW).map(byte).collect();
                stream.write_all(&bytes).unwrap();
                sent = back + WINDOW;
            }
            let open = read_for(&mut stream, Some(TICK), |bytes| back = take(bytes, sent));
            assert!(open, "the console has closed a connection");
        }
        stream.shutdown(Shutdown::Write).unwrap();
        while read_for(&mut stream, None, |bytes| back = take(bytes, sent)) {}
        assert!(
            begun.elapsed() < PATIENCE,
            "{back} of {sent} bytes are back"
        );
        // Otherwise it is lost: another client would wait for it in vain, too.
        if back > before {
            grown = Instant::now();
        }
        assert!(
            grown.elapsed() < PATIENCE,
            "{back} of {sent} bytes are back"
        );
        seen.echoed.store(back, Ordering::SeqCst);
        seen.clients.fetch_add(1, Ordering::SeqCst);
    }
}
