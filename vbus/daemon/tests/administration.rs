// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vbusd as an administrator sees it: verbs, its state, what it refuses.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    Daemon, PATIENCE, Process, c_example, compiled_test, create_bus, create_device, link, name,
    spawn, unlink,
};
use paravane_vbus_client::bus::{Access, Kind};
use paravane_vbus_client::protocol::{Reply, Request, Shared, encode};
use paravane_vbus_client::{Client, Control, Error};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

fn refused(result: Result<Reply, Error>) -> Kind {
    match result {
        Err(Error::Refused(error)) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            error.kind()
        }
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn the_state_survives_a_kill() {
    let mut daemon = Daemon::with("venet-switch");
    let mut control = daemon.control();
    for number in 0..100 {
        create_device(&mut control, &format!("device-{number:03}"), "null");
    }
    link(&mut control, "lan", "device-007");
    let access = Access {
        uids: [1234].into(),
        gids: [5].into(),
    };
    let bus = name("lan");
    control.ask(&Request::SetAccess { bus, access }).unwrap();
    let request = Request::SetAttribute {
        device: name("dev"),
        attribute: "lossless".to_string(),
        value: "1".to_string(),
    };
    control.ask(&request).unwrap();
    let before = (control.buses().unwrap(), control.devices().unwrap());
    assert_eq!((before.0.len(), before.1.len()), (1, 101), "pages");
    daemon.restart();
    let mut control = daemon.control();
    assert_eq!(
        (control.buses().unwrap(), control.devices().unwrap()),
        before
    );
    assert_eq!(daemon.attribute("dev", "lossless"), 1);
    // Each change is on the disk when it is acknowledged, whenever the kill comes.
    for number in 0..10 {
        create_bus(&mut daemon.control(), &format!("bus-{number}"));
        daemon.restart();
        assert_eq!(daemon.control().buses().unwrap().len(), number + 2);
    }
}

#[test]
fn bad_starts_end_with_one_line() {
    let daemon = Daemon::start();
    let start = |folder: &std::path::Path| {
        let output = Command::new("timeout")
            .args(["20", env!("CARGO_BIN_EXE_vbusd")])
            .arg(folder)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), text.lines().count()),
            (Some(2), 1),
            "{text}"
        );
        text
    };
    assert!(start(daemon.folder.path()).contains("another vbusd uses"));
    let folder = tempfile::tempdir().unwrap();
    for damaged in [
        "{",
        "{\"version\":9,\"devices\":{},\"buses\":{}}",
        "[]",
        "\u{0}",
    ] {
        fs::write(folder.path().join("state.json"), damaged).unwrap();
        assert!(start(folder.path()).contains("is damaged"), "{damaged}");
    }
    fs::remove_file(folder.path().join("state.json")).unwrap();
    fs::write(folder.path().join("socket"), "").unwrap();
    assert!(start(folder.path()).contains("is no socket"));
    assert!(start(std::path::Path::new("/dev/null/x")).contains("cannot make the folder"));
    let mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(folder.path(), mode).unwrap();
    };
    for others in [0o770, 0o707] {
        mode(others);
        assert!(start(folder.path()).contains("others may write to it"));
    }
    mode(0o700);
    let long = folder.path().join("x".repeat(120));
    assert!(start(&long).contains("cannot make the socket"));
}

/// Every user may connect, whatever the mask for new files is, and a socket in use stays.
#[test]
fn the_socket_is_for_all_and_replaces_none_in_use() {
    let daemon = Daemon::start();
    let folder = tempfile::tempdir().unwrap();
    let start = |limit: &[&str], socket: &std::path::Path| {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 077; exec \"$@\"", "sh"]);
        command.args(limit).arg(env!("CARGO_BIN_EXE_vbusd"));
        command.arg(folder.path()).arg(socket);
        command
    };
    let output = start(&["timeout", "20"], &daemon.socket())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("another program uses the socket"), "{text}");
    daemon.control().buses().unwrap();
    let stream = folder.path().join("stream");
    let _listener = std::os::unix::net::UnixListener::bind(&stream).unwrap();
    let output = start(&["timeout", "20"], &stream).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("another program uses the socket"), "{text}");
    assert!(std::os::unix::net::UnixStream::connect(&stream).is_ok());
    let socket = folder.path().join("mine");
    let child = Process(start(&[], &socket).spawn().unwrap());
    common::soon("it does not listen", || Control::connect(&socket).is_ok());
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&socket).unwrap().permissions());
    drop(child);
    assert_eq!(mode & 0o777, 0o666);
}

#[test]
fn it_is_confined() {
    let daemon = Daemon::with("echo");
    assert_eq!(daemon.status("Seccomp"), "2");
    assert_eq!(daemon.status("NoNewPrivs"), "1");
    // Their names are in `their_threads_are_confined` (cards.rs).
    assert_eq!(daemon.status("Threads"), "7");
}

#[test]
fn nonsense_ends_the_connection_and_nothing_else() {
    let daemon = Daemon::with("echo");
    let mut client = daemon.client();
    for bytes in [
        &b"x"[..],
        b"GET / HTTP/1.1",
        b"VB\x02\x00\x00",
        &[0xff; 70_000],
    ] {
        let control = daemon.control();
        rustix::net::send(control.socket(), bytes, rustix::net::SendFlags::empty()).unwrap();
        let mut control = control;
        // An answer that names the error, or the end.
        let end = control.ask(&Request::Classes);
        assert!(
            matches!(
                end,
                Err(Error::Refused(_) | Error::Lost(_) | Error::Protocol(_))
            ),
            "{end:?}"
        );
    }
    let Reply::Names(classes) = daemon.control().ask(&Request::Classes).unwrap() else {
        unreachable!();
    };
    assert_eq!(
        classes,
        [
            "echo",
            "null",
            "venet-switch",
            "vblk",
            "venet-tap",
            "venet-user"
        ]
    );
    assert_eq!(client.send(b"still here"), Ok(true));
    assert_eq!(common::receive(&mut client), b"still here");
}

fn memory(len: u64, flags: MemfdFlags, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("test", flags | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, len).unwrap();
    if !seals.is_empty() {
        fcntl_add_seals(&file, seals).unwrap();
    }
    file
}

/// Memory that could shrink would kill vbusd at any access.
#[test]
fn only_sealed_memory_is_mapped() {
    let daemon = Daemon::with("echo");
    let mut control = daemon.control();
    control.ask(&Request::Join { bus: name("lan") }).unwrap();
    let request = Request::Open {
        interface: 1,
        version: 1,
    };
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let sealing = MemfdFlags::ALLOW_SEALING;
    let plain: OwnedFd = tempfile::tempfile().unwrap().into();
    let device: OwnedFd = fs::File::open("/dev/zero").unwrap().into();
    let before = daemon.files();
    for file in [
        memory(4096, MemfdFlags::empty(), SealFlags::empty()),
        memory(4096, sealing, SealFlags::GROW | SealFlags::SEAL),
        memory(4096, sealing, SealFlags::SHRINK | SealFlags::GROW),
        memory(4096, sealing, all | SealFlags::FUTURE_WRITE),
        memory(0, sealing, all),
        memory((64 << 20) + 4096, sealing, all),
        plain,
        device,
    ] {
        let answer = control
            .ask_with(&request, &[file.as_fd()])
            .map(|(reply, _)| reply);
        assert_eq!(refused(answer), Kind::Invalid);
    }
    let right = memory(8192, sealing, all);
    let twice = [right.as_fd(), right.as_fd()];
    let answer = control.ask_with(&request, &twice).map(|(reply, _)| reply);
    assert_eq!(refused(answer), Kind::Invalid);
    // A connection of the preparations may have been open before.
    common::soon("descriptors are left", || daemon.files() <= before);
    let (Reply::Opened(connection), files) = control.ask_with(&request, &[right.as_fd()]).unwrap()
    else {
        unreachable!();
    };
    assert_eq!(files.len(), 2);
    // Places that are not in it, or not aligned, or have no ring.
    for (offset, count) in [
        (0, 8),
        (8192, 8),
        (u64::MAX - 63, 8),
        (32, 8),
        (0, 4096),
        (0, 7),
    ] {
        let shared = Shared {
            queue: 1,
            offset,
            count,
        };
        let answer = control.ask(&Request::Share { connection, shared });
        assert_eq!(refused(answer), Kind::Broken, "{offset} {count}");
    }
    let shared = Shared {
        queue: 0,
        offset: 0,
        count: 8192,
    };
    let answer = control.ask(&Request::Share { connection, shared });
    assert_eq!(refused(answer), Kind::Limit);
}

#[test]
fn clients_that_never_read_end_alone() {
    let daemon = Daemon::with("echo");
    let control = daemon.control();
    // Otherwise a full socket ends the loop.
    rustix::io::ioctl_fionbio(control.socket(), false).unwrap();
    let packet = encode(&Request::Devices { after: None }).unwrap();
    // vbusd answers until the socket is full, and then drops it.
    let end = (0..100_000).find_map(|_| {
        rustix::net::send(control.socket(), &packet, rustix::net::SendFlags::NOSIGNAL).err()
    });
    assert!(end.is_some(), "it answers without end");
    assert_eq!(daemon.control().buses().unwrap().len(), 1);
}

/// Runs as root, since another user is needed.
#[test]
fn another_user_needs_permission() {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "NOT TESTED: that user, group and supplementary group decide who joins a bus. Only \
             root can become another user."
        );
        return;
    }
    let daemon = Daemon::with("echo");
    let (folder, program) = c_example();
    for path in [daemon.folder.path(), folder.path()] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).unwrap();
    }
    // With this group besides its own.
    let run = |group: Option<u32>| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534"]);
        match group {
            Some(group) => command.args(["--groups", &group.to_string()]),
            None => command.arg("--clear-groups"),
        };
        command.args(["timeout", "60"]).arg(&program);
        command.arg(daemon.socket()).args(["lan", "dev", "10"]);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        (output.status.success(), text)
    };
    let denied = |group| {
        let (joined, text) = run(group);
        let says = text.contains("may not join bus lan") && text.lines().count() == 1;
        assert!(!joined && says, "{text}");
    };
    let allow = |uids: &[u32], gids: &[u32]| {
        let access = Access {
            uids: uids.iter().copied().collect(),
            gids: gids.iter().copied().collect(),
        };
        let bus = name("lan");
        let request = Request::SetAccess { bus, access };
        daemon.control().ask(&request).unwrap();
    };
    denied(None);
    for (uids, gids, group) in [
        (&[65_534][..], &[][..], None),
        (&[], &[65_534], None),
        (&[], &[70_001], Some(70_001)),
    ] {
        allow(uids, gids);
        let (joined, text) = run(group);
        assert!(joined, "{uids:?} {gids:?}: {text}");
    }
    // The supplementary group alone has let it in.
    denied(None);
    denied(Some(70_002));
}

/// The C example returns all packets, also when vbusd is killed while it runs.
#[test]
fn a_client_in_c_works() {
    let mut daemon = Daemon::with("echo");
    let (_folder, program) = c_example();
    let child = Command::new(program)
        .arg(daemon.socket())
        .args(["lan", "dev", "100000"])
        .spawn();
    let mut child = Process(child.unwrap());
    common::soon("it does not connect", || {
        daemon.attribute("dev", "rx-packets") > 0
    });
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        daemon.kill();
        daemon.child = spawn(daemon.folder.path());
    }
    assert!(child.end(5 * PATIENCE).success());
}

/// Tests short paths, a poll loop of the client's own, calls, and events with their numbers and
/// names.
#[test]
fn a_client_in_c_has_a_loop_of_its_own() {
    let daemon = Daemon::with("echo");
    let mut control = daemon.control();
    create_device(&mut control, "switch", "venet-switch");
    link(&mut control, "lan", "switch");
    create_device(&mut control, "shared", "venet-switch");
    let request = Request::SetAttribute {
        device: name("shared"),
        attribute: "share".to_string(),
        value: "1".to_string(),
    };
    assert_eq!(control.ask(&request), Ok(Reply::Done));
    link(&mut control, "lan", "shared");
    let (_folder, program) = compiled_test("loop");
    // A client that hangs is ended, and then it prints no more lines.
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).arg(daemon.socket());
    let mut child = Process(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut line = move || lines.next().map(Result::unwrap);
    assert_eq!(line().as_deref(), Some("ready"));
    create_device(&mut control, "second", "null");
    // Most of what the two sent was lent.
    let [lent, copied] = ["lent", "copied"].map(|figure| daemon.attribute("shared", figure));
    assert!(lent + copied == 400 && lent > 200, "{lent} {copied}");
    for number in [4, 5] {
        link(&mut control, "lan", "second");
        assert_eq!(line(), Some(format!("1 {number} second null")));
        unlink(&mut control, "lan", "second");
        assert_eq!(line(), Some(format!("2 {number}  ")));
    }
    unlink(&mut control, "lan", "dev");
    let rest: Vec<String> = std::iter::from_fn(line).collect();
    assert_eq!(rest.last().map(String::as_str), Some("lost"), "{rest:?}");
    assert!(child.end(PATIENCE).success());
}

#[test]
fn a_client_without_vbusd_or_device_says_so() {
    let daemon = Daemon::with("echo");
    let error = |bus: &str, device: &str| {
        Client::connect(daemon.options(bus, device))
            .unwrap_err()
            .to_string()
    };
    assert!(error("lan", "other").contains("there is no device other on the bus"));
    assert!(error("wan", "dev").contains("bus wan"));
    assert!(error("b/s", "dev").contains("is no name"));
    let path = daemon.folder.path().join("no");
    let text = Control::connect(&path).unwrap_err().to_string();
    assert!(text.contains("cannot reach vbusd at"), "{text}");
}
