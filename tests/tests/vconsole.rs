// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Consoles of a virtual bus: terminals of a guest whose other end is a socket of the host.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::program::{self, Ends};
use paravane_tests::{source_root, vm};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A machine with these consoles.
fn start(sockets: &[&Path], script: &str) -> (Ends, Lines) {
    let mut command = vm::command(["--net", "none", "--timeout", "100"]);
    for socket in sockets {
        command.arg("--console").arg(socket);
    }
    command.args(["--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let output = Lines::of(child.stdout.take());
    (Ends(child), output)
}

fn line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Connects to the socket of a machine that has just been started. Between the socket's name and
/// its `listen` it refuses.
#[allow(clippy::panic)] // A panic fails the test.
fn connect_soon(path: &Path) -> UnixStream {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        match UnixStream::connect(path) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.set_write_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                _ => panic!("{error}"),
            },
        }
    }
    panic!("nobody listens at {}", path.display());
}

/// Two terminals carry many bytes of every value in both directions. A client leaves, and a driver
/// leaves and returns.
#[test]
fn bytes_of_every_value_go_both_ways_and_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let script = "set -e
        for n in 0 1; do stty raw -echo < /dev/vbc$n; done
        cat /sys/bus/vbus/devices/*/type; echo ready
        # More than all queues hold: its writer waits for the reader here, and the other way round.
        head -c 2000000 < /dev/vbc0 > /tmp/came
        sha256sum < /tmp/came | cut -d ' ' -f 1
        cat /tmp/came > /dev/vbc0
        read word < /dev/vbc1; echo $word
        # The client of the other terminal says when that of this one has gone.
        read word < /dev/vbc0
        driver=/sys/bus/vbus/drivers/vconsole
        device=$(basename $(readlink -f /sys/class/tty/vbc1/device))
        exec 3< /dev/vbc1
        echo $device > $driver/unbind
        test ! -e /dev/vbc1
        # A program that has it open reads the end of the file.
        read word <&3 && exit 4
        exec 3<&-
        echo $device > $driver/bind
        # The number of a closed terminal is free a moment later, so it may be another one.
        new=/dev/$(ls /sys/bus/vbus/devices/$device/tty)
        stty raw -echo < $new
        # The last close of a terminal throws away what has come.
        exec 3<> $new
        echo back >&3
        read word <&3; echo $word";
    let (mut machine, mut output) = start(&[&first, &second], script);
    for expected in ["virtual-console\n", "virtual-console\n", "ready\n"] {
        assert_eq!(output.next_within(PATIENCE), expected);
    }
    let bytes: Vec<u8> = (0..2_000_000u32)
        .map(|n| (n ^ (n >> 8)).to_le_bytes()[0])
        .collect();
    let sent = bytes.clone();
    let mut writer = connect(&first);
    let mut client = writer.try_clone().unwrap();
    let thread = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let file = folder.path().join("bytes");
    fs::write(&file, &bytes).unwrap();
    let sum = output.next_within(PATIENCE);
    thread.join().unwrap();
    let mut back = vec![0; bytes.len()];
    client.read_exact(&mut back).unwrap();
    assert!(back == bytes, "other bytes came back");
    let expected = std::process::Command::new("sha256sum").arg(&file).output();
    let expected = String::from_utf8(expected.unwrap().stdout).unwrap();
    assert_eq!(sum.trim(), expected.split(' ').next().unwrap());
    let mut other = connect(&second);
    other.write_all(b"one\n").unwrap();
    // It leaves before anybody reads what it wrote, perhaps. That is not lost.
    other.shutdown(Shutdown::Write).unwrap();
    assert_eq!(output.next_within(PATIENCE), "one\n");
    assert_eq!(other.read(&mut [0]).unwrap(), 0);
    client.write_all(b"go\n").unwrap();
    let other = connect(&second);
    let mut reader = BufReader::new(other.try_clone().unwrap());
    assert_eq!(line(&mut reader), "back\n");
    (&other).write_all(b"two\n").unwrap();
    assert_eq!(output.next_within(PATIENCE), "two\n");
    assert_eq!(
        program::wait_within(&mut machine.0, PATIENCE).code(),
        Some(0)
    );
    assert!(!first.exists() && !second.exists(), "sockets are left");
}

/// A shell on a console, as docs/vbus.md says.
#[test]
fn a_shell_works_on_a_console() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("console");
    let script = "getty -n -l /bin/sh 0 vbc0 & wait $!";
    let (mut machine, _output) = start(&[&socket], script);
    let mut client = connect_soon(&socket);
    let mut all = Vec::new();
    let mut byte = [0];
    // The prompt.
    while !all.ends_with(b"# ") {
        client.read_exact(&mut byte).unwrap();
        all.extend(byte);
    }
    client.write_all(b"tty; echo $((6 * 7)) >$(tty)\n").unwrap();
    // The end of the machine leaves what its terminals have not written yet.
    while !all.ends_with(b"42\r\n") {
        client.read_exact(&mut byte).unwrap();
        all.extend(byte);
    }
    client.write_all(b"exit 3\n").unwrap();
    client.read_to_end(&mut all).unwrap();
    let all = String::from_utf8(all).unwrap();
    let lines: Vec<&str> = all.lines().collect();
    assert!(lines.contains(&"/dev/vbc0"), "{all}");
    assert!(lines.contains(&"42"), "{all}");
    assert_eq!(
        program::wait_within(&mut machine.0, PATIENCE).code(),
        Some(3)
    );
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let (file, used) = (folder.path().join("file"), folder.path().join("used"));
    fs::write(&file, "precious").unwrap();
    let _listener = UnixListener::bind(&used).unwrap();
    let missing = folder.path().join("missing/socket");
    for (path, part) in [
        (&file, "there is something that is no socket"),
        (&used, "somebody listens there already"),
        (&missing, "No such file or directory"),
    ] {
        let mut command = vm::command(["--console"]);
        let run = program::finish(command.arg(path).args(["--", "true"]));
        assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
        assert!(run.stderr.contains(part), "{run:?}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    // As many as the driver has terminals.
    let driver = source_root().join("guest/linux/overlay/drivers/vbus/vconsole_tty.c");
    let driver = fs::read_to_string(driver).unwrap();
    assert!(driver.contains("#define MINORS 16\n"));
    let sockets = (0..17).map(|n| folder.path().join(n.to_string()));
    let words = sockets.flat_map(|path| ["--console".into(), path.into_os_string()]);
    let run = program::finish(
        vm::command([] as [&str; 0])
            .args(words)
            .args(["--", "true"]),
    );
    assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
    assert!(
        run.stderr.contains("--console: at most 16 are possible"),
        "{run:?}"
    );
}
