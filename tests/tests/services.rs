// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Typical server software in a Debian: packages, ssh, a web server, containers, heavy network
//! traffic. Needs a package mirror for the images: `make test-release` runs it. Otherwise it uses
//! only this host's loopback.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program::{self, Ends};
use paravane_tests::{debian, linux, system::System, vm};
use rustix::process::geteuid;
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

const NOBODY: u32 = 65534;

/// Each test has the host's processors for itself.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A Debian with everything installed. A port of this host leads to one of its ports.
fn services(host: u16, guest: u16) -> System {
    let publish = format!("{host}:{guest}");
    let options = [
        "--memory",
        "1G",
        "--cpus",
        "2",
        "--net",
        "user",
        "--publish",
        &publish,
    ];
    let system = System::start(&debian::with_services(), &options);
    system.is_up();
    system
}

fn output(command: &mut Command) -> String {
    let run = program::finish(command);
    assert_eq!(run.code, 0, "{command:?}: {run:?}");
    run.stdout
}

/// A web server for a folder, on a port of this host's loopback.
fn serve(folder: &Path, port: u16) -> Ends {
    let mut command = Command::new("busybox");
    command
        .args(["httpd", "-f", "-p", &format!("127.0.0.1:{port}"), "-h"])
        .arg(folder);
    Ends(command.spawn().unwrap())
}

/// A repository with one package, which installs a program and makes an account for it in its
/// script.
fn repository(folder: &Path) {
    let package = folder.join("hello");
    let files = [
        (
            "DEBIAN/control",
            0o644,
            "Package: hello\nVersion: 1.0\nArchitecture: all\n\
            Maintainer: nobody <nobody@localhost>\nDepends: adduser\n\
             Description: says hello\n",
        ),
        (
            "DEBIAN/postinst",
            0o755,
            "#!/bin/sh\nset -e\nadduser --system --group --no-create-home hello >/dev/null\n\
            chown hello: /var/lib/hello\n",
        ),
        ("var/lib/hello/greeting", 0o644, "Hello, world!\n"),
        (
            "usr/bin/hello",
            0o755,
            "#!/bin/sh\ncat /var/lib/hello/greeting\nstat -c %U /var/lib/hello\n",
        ),
    ];
    for (name, mode, text) in files {
        let path = package.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let file = folder.join("hello.deb");
    output(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "--build"])
            .args([&package, &file]),
    );
    fs::remove_dir_all(package).unwrap();
    let sum = output(Command::new("sha256sum").arg(&file));
    let list = format!(
        "Package: hello\nVersion: 1.0\nArchitecture: all\nDepends: adduser\n\
        Filename: ./hello.deb\nSize: {}\nSHA256: {}\n\n",
        fs::metadata(&file).unwrap().len(),
        sum.split(' ').next().unwrap()
    );
    fs::write(folder.join("Packages"), list).unwrap();
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn a_package_is_installed_with_few_privileges() {
    let _alone = alone();
    let image = debian::image("bookworm", &[]);
    // Where other users may read it.
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (from, to) in [
        (program::path().to_path_buf(), "paravane"),
        (env!("CARGO_BIN_EXE_confine").into(), "confine"),
        (vm::kernel().unwrap_or_else(linux::kernel), "vmlinux"),
        (image, "image"),
    ] {
        output(
            Command::new("cp")
                .arg("--sparse=always")
                .args([from, path(to)]),
        );
    }
    fs::create_dir(path("packages")).unwrap();
    repository(&path("packages"));
    let port = free_port();
    let _server = serve(&path("packages"), port);
    let script = format!(
        "rm -f /etc/apt/sources.list.d/*; echo 'deb [trusted=yes] http://10.0.2.2:{port} ./' > /etc/apt/sources.list
        apt-get update && apt-get install -y hello && hello"
    );
    let root = format!("{}:snapshot", path("image").display());
    let mut ways = vec![Command::new(path("paravane"))];
    if geteuid().is_root() {
        ways[0].uid(NOBODY).gid(NOBODY);
        // In a container: by its root and by a user.
        for user in ["0", "1000"] {
            let mut command = Command::new(path("confine"));
            command.arg(user).arg(path("paravane"));
            ways.push(command);
        }
    }
    for command in &mut ways {
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir("/");
        command.arg("run").arg("--kernel").arg(path("vmlinux"));
        command.args([
            "--memory",
            "512M",
            "--rootfs",
            &root,
            "--net",
            "user,loopback",
        ]);
        command.args(["--", "sh", "-c", &script]);
        let installed = output(command);
        assert!(installed.ends_with("Hello, world!\nhello\n"), "{installed}");
    }
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn ssh_by_a_published_port() {
    let _alone = alone();
    let port = free_port();
    let system = services(port, 22);
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    output(
        Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&key),
    );
    let _ = system.shell("mkdir -p -m 700 /root/.ssh");
    system.copy_in(&key.with_extension("pub"), "/root/.ssh/authorized_keys");
    let ssh = |words: &[&str]| {
        let mut command = Command::new("ssh");
        command.args(["-p", &port.to_string(), "-i"]).arg(&key);
        for option in [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "BatchMode=yes",
            "LogLevel=ERROR",
        ] {
            command.args(["-o", option]);
        }
        command
            .args(["-l", "root", "127.0.0.1"])
            .args(words)
            .stdin(Stdio::null());
        command
    };
    assert_eq!(
        output(&mut ssh(&["echo $USER; hostname; exit 0"])),
        "root\nparavane\n"
    );
    assert_eq!(program::finish(&mut ssh(&["exit 7"])).code, 7);
    // A terminal of its own, and data both ways at once.
    let terminal = output(&mut ssh(&["-tt", "tty"]));
    assert!(terminal.starts_with("/dev/pts/"), "{terminal}");
    let data = folder.path().join("data");
    output(
        Command::new("sh")
            .args(["-c", "head -c 30000000 /dev/urandom > \"$1\"", "sh"])
            .arg(&data),
    );
    let came = folder.path().join("came");
    let mut back = ssh(&["cat"])
        .stdin(fs::File::open(&data).unwrap())
        .stdout(fs::File::create(&came).unwrap())
        .spawn()
        .unwrap();
    assert!(program::wait_within(&mut back, program::LONGEST).success());
    let received = fs::read(came).unwrap();
    assert!(
        received == fs::read(&data).unwrap(),
        "{} bytes came back",
        received.len()
    );
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn nginx_answers_wrk() {
    let _alone = alone();
    let port = free_port();
    let system = services(port, 80);
    let _ = system.shell("head -c 20000000 /dev/urandom > /var/www/html/data");
    let url = format!("http://127.0.0.1:{port}/");
    let told = output(Command::new("wrk").args(["-t", "2", "-c", "50", "-d", "10", &url]));
    println!("{told}");
    let requests: u64 = told
        .split(" requests in ")
        .next()
        .and_then(|t| t.split_whitespace().last())
        .unwrap()
        .parse()
        .unwrap();
    assert!(requests > 1000, "{told}");
    assert!(
        !told.contains("Socket errors") && !told.contains("Non-2xx"),
        "{told}"
    );
    let sum = |text: &str| text.split(' ').next().unwrap().to_string();
    let fetch = format!("curl -s {url}data | sha256sum");
    assert_eq!(
        sum(&output(Command::new("sh").args(["-c", &fetch]))),
        sum(&system.shell("sha256sum /var/www/html/data"))
    );
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn podman_runs_containers() {
    let _alone = alone();
    let port = free_port();
    let system = services(port, 8081);
    // An image that is made here needs no registry.
    let import =
        "mkdir -p /i/bin /i/tmp; cp /bin/busybox /i/bin/; chroot /i /bin/busybox --install /bin
        tar -C /i -c . | podman import - box >/dev/null 2>&1";
    let _ = system.shell(import);
    let told = system.shell(
        "podman run --rm --memory 64m --pids-limit 50 --hostname inner box sh -c \
        'hostname; id -u; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max
        ps | grep -c \"[0-9] \"'",
    );
    assert_eq!(
        told.lines().take(4).collect::<Vec<_>>(),
        ["inner", "0", "67108864", "50"],
        "{told}"
    );
    // A container that exceeds its memory is killed, and nothing else is.
    let greedy = system.run(&[
        "exec",
        "debian",
        "--",
        "podman",
        "run",
        "--rm",
        "--memory",
        "32m",
        "--memory-swap",
        "32m",
        "box",
        "sh",
        "-c",
        "head -c 200000000 /dev/zero | tail -c 150000000 | wc -c",
    ]);
    assert!(!greedy.stdout.contains("150000000"), "{greedy:?}");
    // In the background, with a network of its own inside the guest's, which is inside this host's.
    let _ = system.shell(
        "podman run -d --name web -p 8081:80 box sh -c \
        'mkdir /w; echo from a container > /w/index.html; exec httpd -f -p 80 -h /w' && sleep 1",
    );
    assert_eq!(
        output(Command::new("curl").args([
            "-s",
            "--retry",
            "5",
            "--retry-connrefused",
            &format!("http://127.0.0.1:{port}/")
        ])),
        "from a container\n"
    );
    assert_eq!(
        system.shell("podman exec web cat /w/index.html"),
        "from a container\n"
    );
    let _ = system.shell("podman rm -f -t 0 web");
    assert_eq!(system.shell("podman ps -aq"), "");
    // By a user who is not root in the guest either.
    let rootless = system.shell(
        "useradd --create-home joe && su - joe -c \
        'tar -C /i -c . | podman import - box >/dev/null 2>&1
        podman run --rm --network none box id -u'",
    );
    assert_eq!(rootless, "0\n");
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn iperf_both_ways() {
    let _alone = alone();
    let port = free_port();
    let system = services(port, 5201);
    // It closes its port between two tests, and a connection from here would end at once: so each
    // test has a server of its own.
    let serve = "while pidof iperf3 >/dev/null; do sleep 0.1; done
        iperf3 --server --one-off --daemon
        until ss -Hltn | grep -q ':5201 '; do sleep 0.1; done";
    for way in [&[][..], &["--reverse"], &["--bidir"]] {
        let _ = system.shell(serve);
        let mut command = Command::new("iperf3");
        command.args([
            "--client",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--parallel",
            "10",
            "--time",
            "10",
            "--json",
        ]);
        let told: Value = serde_json::from_str(&output(command.args(way))).unwrap();
        assert!(told["error"].is_null(), "{way:?}: {}", told["error"]);
        // With --bidir the other direction is listed separately.
        let sums = ["sum_received", "sum_received_bidir_reverse"]
            .map(|sum| &told["end"][sum]["bits_per_second"]);
        let rates: Vec<f64> = sums.into_iter().filter_map(Value::as_f64).collect();
        println!("{way:?}: {rates:?} bit/s");
        assert_eq!(rates.len(), if way == ["--bidir"] { 2 } else { 1 });
        assert!(rates.iter().all(|rate| *rate > 1e8), "{way:?}: {rates:?}");
    }
}
