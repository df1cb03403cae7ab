// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines with disks of vbusd's buses, and with whole buses, whose devices come and go while the
//! machine runs and vbusd is killed. Nothing here needs a privilege.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::lines::Lines;
use paravane_tests::program::{self, Ends};
use paravane_tests::vbusd::Vbusd;
use paravane_tests::vm;
use paravane_vbus_client::bus::Name;
use paravane_vbus_client::protocol::Request;
use paravane_vbus_client::{Control, Disk, SECTOR};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Waits until a command succeeds.
const UNTIL: &str = "until_() { n=0; while ! eval \"$1\"; do
            n=$((n + 1)); test $n -lt 1200 || { echo \"never: $1\"; exit 9; }; usleep 50000
        done; }
    ";

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// The file of a disk.
fn file(vbusd: &Vbusd, name: &str) -> PathBuf {
    vbusd.folder().join("disks").join(name)
}

/// Creates a disk of `mib` MiB, without content.
fn make_disk(vbusd: &Vbusd, name: &str, mib: u64) {
    let made = File::create(file(vbusd, name)).unwrap();
    made.set_len(mib << 20).unwrap();
    vbusd.done(&["create-device", name, "vblk", &format!("file={name}")]);
}

fn command(vbusd: &Vbusd, words: &[&str], script: &str) -> Command {
    let mut command = vm::command(words);
    let script = format!("{UNTIL}{script}");
    command.args([
        "--net",
        "none",
        "--timeout",
        "120",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    command.env("XDG_STATE_HOME", vbusd.state.path());
    command
}

/// A machine that prints lines and reads one before it continues.
struct Talk {
    _ends: Ends,
    input: ChildStdin,
    lines: Lines,
}

impl Talk {
    fn start(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let lines = Lines::of(child.stdout.take());
        Talk {
            _ends: Ends(child),
            input,
            lines,
        }
    }

    fn hear(&mut self, expected: &str) {
        let line = self.lines.each_within(program::PATIENCE).next();
        assert_eq!(line.unwrap(), expected);
    }

    fn go_on(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }
}

/// Data that a guest writes and flushes is in the file, and the guest reads what the file contains:
/// with requests larger than the bus takes, while vbusd is killed and started again.
#[test]
fn a_disk_of_a_bus_keeps_what_was_flushed_while_vbusd_dies() {
    let mut vbusd = Vbusd::start(&["lan"]);
    make_disk(&vbusd, "store", 32);
    vbusd.done(&["link", "lan", "store"]);
    let script = "set -e
        cat /sys/block/vbd0/serial /sys/block/vbd0/size /sys/block/vbd0/ro
        dd if=/dev/urandom of=/tmp/data bs=1M count=16 2>/dev/null
        echo begun
        for i in 1 2 3 4 5 6; do
            dd if=/tmp/data of=/dev/vbd0 bs=1M seek=8 conv=notrunc,fsync 2>/dev/null
            dd if=/dev/vbd0 of=/tmp/back bs=1M skip=8 count=16 iflag=direct 2>/dev/null
            cmp /tmp/data /tmp/back && echo same
        done
        sha256sum < /tmp/data; read x; exit 0";
    let mut talk = Talk::start(command(&vbusd, &["--disk", "bus:lan/store"], script));
    talk.hear("store65536");
    talk.hear("0");
    talk.hear("begun");
    for _ in 0..3 {
        talk.hear("same");
        vbusd.kill();
        thread::sleep(Duration::from_millis(100));
        vbusd.again();
    }
    for _ in 0..3 {
        talk.hear("same");
    }
    let sum = talk.lines.next_within(program::PATIENCE);
    let mut data = vec![0; 16 << 20];
    let image = File::open(file(&vbusd, "store")).unwrap();
    image.read_exact_at(&mut data, 8 << 20).unwrap();
    let mut tool = Command::new("sha256sum");
    let mut tool = tool
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    tool.stdin.take().unwrap().write_all(&data).unwrap();
    let found = program::finish_child(tool).stdout;
    assert_eq!(found.trim(), sum.trim());
    // A client of the host has the same disk meanwhile.
    let mut disk = Disk::connect(&vbusd.socket(), "lan", "store", Duration::ZERO).unwrap();
    let mut sector = vec![0; SECTOR];
    disk.read((8 << 20) / SECTOR as u64, &mut sector).unwrap();
    assert_eq!(sector, data[..SECTOR]);
    talk.go_on();
}

/// A read-only disk is not written, and a disk whose size changes becomes another disk.
#[test]
fn a_guest_sees_what_disk_it_is() {
    let vbusd = Vbusd::start(&["lan"]);
    make_disk(&vbusd, "store", 4);
    vbusd.done(&["set", "store", "read-only=1"]);
    vbusd.done(&["link", "lan", "store"]);
    let script = "cat /sys/block/vbd0/ro /sys/block/vbd0/size
        echo x | dd of=/dev/vbd0 bs=512 conv=sync 2>/dev/null || echo refused; read x
        until_ 'test \"$(cat /sys/block/vbd*/size 2>/dev/null)\" = 16384'; echo larger";
    let mut talk = Talk::start(command(&vbusd, &["--disk", "bus:lan/store"], script));
    for expected in ["1", "8192", "refused"] {
        talk.hear(expected);
    }
    let image = File::options().write(true).open(file(&vbusd, "store"));
    image.unwrap().set_len(8 << 20).unwrap();
    vbusd.done(&["reset", "store"]);
    talk.go_on();
    talk.hear("larger");
}

/// The machine has all devices of the bus, and follows changes by an administrator and by another
/// vbusd.
#[test]
fn devices_of_a_whole_bus_come_and_go() {
    let mut vbusd = Vbusd::start(&["lan"]);
    make_disk(&vbusd, "store", 4);
    vbusd.done(&["create-device", "mirror", "echo"]);
    vbusd.done(&["link", "lan", "mirror"]);
    let script = "set -e
        all() { cat /sys/bus/vbus/devices/*/type 2>/dev/null | sort | tr '\\n' ' '; }
        until_ 'test \"$(all)\" = \"virtual-ethernet \"'
        until_ 'test -e /sys/class/net/eth0'; echo card
        read x; until_ 'test -b /dev/vbd0'; until_ 'test -e /sys/class/net/eth1'
        test \"$(all)\" = 'virtual-block virtual-ethernet virtual-ethernet '
        ip addr add 10.8.0.1/24 dev eth0; ip link set eth0 up
        dd if=/dev/urandom of=/tmp/data bs=1M count=3 2>/dev/null
        dd if=/tmp/data of=/dev/vbd0 bs=64k conv=notrunc,fsync 2>/dev/null; echo all
        read x; until_ '! test -e /dev/vbd0'; until_ '! test -e /sys/class/net/eth1'
        test -e /sys/class/net/eth0; echo fewer
        read x; until_ 'test -b /dev/vbd0'; dd if=/dev/vbd0 of=/tmp/back bs=1M count=3 2>/dev/null
        cmp /tmp/data /tmp/back; echo back
        read x; until_ 'test \"$(all)\" = \"\"'; echo none";
    let mut talk = Talk::start(command(&vbusd, &["--bus", "lan"], script));
    talk.hear("card");
    vbusd.done(&["create-device", "second", "venet-switch"]);
    vbusd.done(&["link", "lan", "second"]);
    vbusd.done(&["link", "lan", "store"]);
    talk.go_on();
    talk.hear("all");
    vbusd.done(&["unlink", "lan", "second"]);
    vbusd.done(&["unlink", "lan", "store"]);
    talk.go_on();
    talk.hear("fewer");
    // Another vbusd knows the devices, and one more.
    vbusd.kill();
    vbusd.again();
    vbusd.done(&["link", "lan", "store"]);
    talk.go_on();
    talk.hear("back");
    for device in ["store", "lan-switch", "mirror"] {
        vbusd.done(&["unlink", "lan", device]);
    }
    talk.go_on();
    talk.hear("none");
}

/// A machine that has a whole bus ends when the guest has written to its disks what a command has
/// left in the page cache.
#[test]
fn what_a_command_has_written_is_on_the_disks_of_a_bus() {
    let vbusd = Vbusd::start(&["lan"]);
    make_disk(&vbusd, "store", 32);
    let made = Command::new("/sbin/mke2fs")
        .args(["-q", "-t", "ext4"])
        .arg(file(&vbusd, "store"))
        .status();
    assert!(made.unwrap().success());
    vbusd.done(&["link", "lan", "store"]);
    let run = |script: &str| {
        let script =
            format!("set -e; until_ 'test -b /dev/vbd0'; mount /dev/vbd0 /mnt; cd /mnt; {script}");
        let run = program::finish(&mut command(&vbusd, &["--bus", "lan"], &script));
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        run.stdout
    };
    let sum = run("dd if=/dev/urandom of=data bs=1M count=8 2>/dev/null; sha256sum data");
    assert_eq!(run("sha256sum data"), sum);
}

/// vbusd ends at about the time at which a guest adds a disk and reads its partitions.
/// The guest goes on to follow its bus.
#[test]
fn a_guest_follows_its_bus_if_vbusd_ends_while_a_disk_is_added() {
    let rounds = if std::env::var_os("PARAVANE_TEST_LONG").is_some() {
        200
    } else {
        16
    };
    let mut vbusd = Vbusd::start(&["lan"]);
    make_disk(&vbusd, "store", 4);
    let script = "set -e
        echo up
        while read x; do
            until_ 'test -b /dev/vbd*'
            dd if=$(echo /dev/vbd*) of=/dev/null bs=4k count=1 2>/dev/null && echo there
            read x; until_ '! test -b /dev/vbd*'; echo gone
        done";
    let mut talk = Talk::start(command(&vbusd, &["--bus", "lan"], script));
    talk.hear("up");
    for round in 0..rounds {
        vbusd.done(&["link", "lan", "store"]);
        thread::sleep(Duration::from_micros(round * 370 % 6000));
        vbusd.kill();
        vbusd.again();
        talk.go_on();
        talk.hear("there");
        vbusd.done(&["unlink", "lan", "store"]);
        talk.go_on();
        talk.hear("gone");
    }
}

/// A device that vbusd cannot make work when the machine starts, or when vbusd starts, comes when
/// it works.
#[test]
fn a_device_that_is_not_ready_comes_when_it_is() {
    let mut vbusd = Vbusd::start(&["lan"]);
    vbusd.done(&["create-device", "store", "vblk"]);
    vbusd.done(&["link", "lan", "store"]);
    let script = "until_ 'test -e /sys/class/net/eth0'; test -b /dev/vbd0 || echo none
        read x; until_ 'test -e /sys/block/vbd0/size'; cat /sys/block/vbd0/size
        read x; until_ '! test -e /dev/vbd0'; echo gone
        read x; until_ 'test -e /sys/block/vbd0/size'; cat /sys/block/vbd0/size; read x";
    let mut talk = Talk::start(command(&vbusd, &["--bus", "lan"], script));
    talk.hear("none");
    File::create(file(&vbusd, "store"))
        .unwrap()
        .set_len(4 << 20)
        .unwrap();
    vbusd.done(&["set", "store", "file=store"]);
    talk.go_on();
    talk.hear("8192");
    vbusd.done(&["unlink", "lan", "store"]);
    talk.go_on();
    talk.hear("gone");
    // The file is away when vbusd starts again, and comes back.
    let away = vbusd.folder().join("away");
    fs::rename(file(&vbusd, "store"), &away).unwrap();
    vbusd.kill();
    vbusd.again();
    vbusd.done(&["link", "lan", "store"]);
    // The machine has tried.
    thread::sleep(Duration::from_secs(1));
    fs::rename(&away, file(&vbusd, "store")).unwrap();
    talk.go_on();
    talk.hear("8192");
    talk.go_on();
}

/// A bus may have more devices than a machine takes: the others follow when there is room.
#[test]
fn a_machine_takes_as_many_devices_as_it_can() {
    const MOST: usize = 16;
    let vbusd = Vbusd::start(&["lan"]);
    let mut control = Control::connect(&vbusd.socket()).unwrap();
    let (lan, card) = (name("lan"), |number| name(&format!("card{number}")));
    for number in 0..MOST + 2 {
        let (device, class) = (card(number), "venet-switch".to_string());
        let attributes = Vec::new();
        let create = Request::CreateDevice {
            device,
            class,
            attributes,
        };
        control.ask(&create).unwrap();
        let (bus, device) = (lan.clone(), card(number));
        control.ask(&Request::Link { bus, device }).unwrap();
    }
    let script = format!(
        "count() {{ ls /sys/class/net | grep -c eth; }}
        until_ 'test $(count) = {MOST}'; echo full
        read x; until_ 'test $(count) = {}'; echo fewer; read x",
        MOST - 1
    );
    let mut talk = Talk::start(command(&vbusd, &["--bus", "lan"], &script));
    talk.hear("full");
    // 5 are left, and 10 come.
    for number in 0..MOST - 2 {
        let (bus, device) = (lan.clone(), card(number));
        control.ask(&Request::Unlink { bus, device }).unwrap();
    }
    for number in 0..MOST - 6 {
        let (bus, device) = (lan.clone(), card(number));
        control.ask(&Request::Link { bus, device }).unwrap();
    }
    talk.go_on();
    talk.hear("fewer");
    talk.go_on();
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    let vbusd = Vbusd::start(&["lan", "other"]);
    let refused = |words: &[&str], part: &str| {
        let run = program::finish(&mut command(&vbusd, words, "true"));
        assert_eq!(
            (run.code, run.stderr.lines().count()),
            (2, 1),
            "{words:?}: {run:?}"
        );
        assert!(run.stderr.contains(part), "{words:?}: {run:?}");
    };
    refused(&["--disk", "bus:lan/none"], "there is no device none");
    refused(
        &["--disk", "bus:lan/lan-switch"],
        "is no disk: its type is virtual-ethernet",
    );
    refused(&["--disk", "bus:lan"], "bus:NAME/DEVICE");
    refused(&["--bus", "none"], "may not join bus none");
    refused(&["--bus", "a b"], "is no name");
    make_disk(&vbusd, "store", 1);
    vbusd.done(&["link", "other", "store"]);
    refused(
        &["--bus", "lan", "--disk", "bus:other/store"],
        "is on another bus already",
    );
}
