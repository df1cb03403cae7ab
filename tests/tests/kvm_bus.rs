// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices of a virtual bus in machines on KVM, in an emulated host that has it. `kvm_emulated.rs`
//! has the part that `make test` runs.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::kvm_host::{KvmHost, Parts};
use paravane_tests::program;

const KVM: &str = "--hypervisor kvm --kernel /vmlinux";

/// A host with a client for consoles, taps, and a web server on its loopback.
fn host() -> KvmHost {
    let client = program::tool("unix_client");
    let mut parts = Parts::new(2).with_linux();
    parts.programs.push(("/bin/unix_client".into(), client));
    parts.modules.push("tun");
    let mut host = parts.start();
    host.ok(
        "mkdir /tmp/w; dd if=/dev/urandom of=/tmp/w/file bs=1M count=8 2>/dev/null
         sha256sum </tmp/w/file >/tmp/w/sum; httpd -p 127.0.0.1:8000 -h /tmp/w",
        20,
    );
    host
}

/// Runs a script in a machine. It contains no apostrophes.
fn machine(host: &mut KvmHost, options: &str, script: &str, seconds: u64) -> (i32, String) {
    let limit = host.limit(seconds).as_secs();
    let reply = host.run(
        &format!("paravane run {KVM} --timeout {limit} {options} -- sh -c '{script}' 2>&1"),
        seconds + 30,
    );
    (reply.code, reply.output)
}

/// Starts a machine that runs on, with a name.
fn detach(host: &mut KvmHost, name: &str, options: &str, script: &str) {
    host.ok(
        &format!("paravane run {KVM} --detach --name {name} {options} -- sh -c '{script}'"),
        90,
    );
}

/// Repeats a script on the host until it succeeds.
fn until(host: &mut KvmHost, script: &str) -> String {
    host.ok(
        &format!("for i in $(seq 300); do {script} && exit 0; sleep 0.2; done; exit 1"),
        120,
    )
}

/// Starts vbusd, with what it kept.
fn vbusd(host: &mut KvmHost) {
    host.ok(
        "paravane vbus daemon >/tmp/daemon 2>&1 </dev/null & echo $! >/tmp/vbusd
         for i in $(seq 100); do paravane vbus ls >/dev/null 2>&1 && break; sleep 0.1; done",
        30,
    );
}

/// A bus with a switch.
fn bus(host: &mut KvmHost) {
    vbusd(host);
    host.ok(
        "paravane vbus create-bus lan && paravane vbus create-device switch venet-switch &&
         paravane vbus link lan switch",
        30,
    );
}

/// The bridge is in the ACPI tables with each layer.
#[test]
#[ignore = "long: make test-release"]
fn each_layer_has_the_devices() {
    let mut host = host();
    host.ok("truncate -s 1M /tmp/disk", 10);
    for layer in ["kvm", "native", "none"] {
        let (code, said) = machine(
            &mut host,
            &format!("--layer {layer} --net venet,loopback --disk /tmp/disk:vbus"),
            &format!(
                "wget -q -O - http://10.0.2.2:8000/sum | grep -q . && echo net
                 echo {layer} >/dev/vbd0; sync; cat /sys/bus/vbus/devices/*/type | sort"
            ),
            90,
        );
        let expected = "net\nvirtual-block\nvirtual-ethernet";
        assert_eq!((code, said.trim()), (0, expected), "{layer}");
        assert_eq!(host.ok("head -n 1 /tmp/disk", 10).trim(), layer);
    }
}

/// The counts of a card's bridge: commands, and those of them that were calls.
fn commands(host: &mut KvmHost, options: &str) -> (u64, u64) {
    let serve = "ip link set eth0 up; exec sleep 100000";
    detach(host, "counted", &format!("{options} --net venet"), serve);
    let up = "paravane exec counted -- grep -q 1 /sys/class/net/eth0/carrier";
    until(host, &format!("{up} 2>/dev/null"));
    let stat = host.ok("paravane stat --json counted", 20);
    host.ok("paravane rm --force counted", 30);
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    let devices = stat["devices"].as_array().unwrap();
    let sum = |field: &str| {
        let counts = devices.iter().map(|device| device[field].as_u64().unwrap());
        counts.sum::<u64>()
    };
    (sum("commands"), sum("commands_called"))
}

/// With the layer that has section `bus`, commands are calls. With other layers and with an old
/// kernel they are not.
#[test]
#[ignore = "long: make test-release"]
fn commands_are_calls_of_the_layer_that_has_them() {
    let mut host = host();
    for (options, calls) in [
        ("--layer kvm", true),
        ("--layer kvm --append vbus.calls=0", false),
        ("--layer native", false),
        ("--layer none", false),
    ] {
        let (all, called) = commands(&mut host, options);
        eprintln!("{options}: {all} commands, {called} by calls");
        assert!(all > 5, "{options}: {all}");
        assert_eq!(called, if calls { all } else { 0 }, "{options}");
    }
}

/// Downloads and published ports at 1 and 2 vCPUs; the device counts a notification for each exit
/// by a doorbell, and fewer notifications than packets.
#[test]
#[ignore = "long: make test-release"]
fn a_card_carries_what_is_sent() {
    let mut host = host();
    for cpus in [1, 2] {
        let (code, said) = machine(
            &mut host,
            &format!("--cpus {cpus} --net venet,loopback"),
            "wget -q -O - http://10.0.2.2:8000/sum >/tmp/theirs
             for i in 1 2; do
                 wget -q -O - http://10.0.2.2:8000/file | sha256sum >/tmp/mine
                 cmp /tmp/mine /tmp/theirs && echo same
             done",
            120,
        );
        assert_eq!((code, said.as_str()), (0, "same\nsame\n"), "{cpus}");
    }
    let serve = "mkdir /w; dd if=/dev/urandom of=/w/file bs=1M count=4 2>/dev/null
                 sha256sum </w/file >/w/sum; httpd -f -h /w";
    detach(&mut host, "web", "--net venet --publish 8080:80", serve);
    until(
        &mut host,
        "wget -q -O /tmp/theirs http://127.0.0.1:8080/sum",
    );
    host.ok(
        "for i in 1 2 3; do
             wget -q -O - http://127.0.0.1:8080/file | sha256sum | cmp - /tmp/theirs || exit 1
         done",
        120,
    );
    let stat = host.ok("paravane stat --json web", 20);
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    eprintln!("{stat}");
    host.ok("paravane rm --force web", 30);
}

/// Downloads on both vCPUs by pairs whose interrupts move, also away from a vCPU that goes offline.
#[test]
#[ignore = "long: make test-release"]
fn interrupts_of_pairs_move_under_load() {
    let mut host = host();
    for layer in ["kvm", "none"] {
        let (code, said) = machine(
            &mut host,
            &format!("--layer {layer} --cpus 2 --net venet,loopback --append venet.pairs=2"),
            "wget -q -O - http://10.0.2.2:8000/sum >/tmp/theirs
             for mask in 1 2; do
                 while :; do
                     taskset $mask wget -q -O - http://10.0.2.2:8000/file | sha256sum >/tmp/m$mask
                     cmp /tmp/m$mask /tmp/theirs >/dev/null && echo same || echo other
                 done >>/tmp/done$mask 2>/dev/null &
             done
             numbers=$(grep vbus.*-pair /proc/interrupts | cut -d : -f 1)
             online=/sys/devices/system/cpu/cpu1/online
             for i in 1 2 3 4 5; do
                 for n in $numbers; do echo $((1 + i % 2)) >/proc/irq/$n/smp_affinity; done
                 sleep 1; echo 0 >$online; sleep 1; echo 1 >$online; sleep 1
             done
             sleep 8
             for n in $numbers; do echo $(cat /proc/irq/$n/effective_affinity); done
             for mask in 1 2; do grep -q same /tmp/done$mask && echo $mask; done
             grep -q other /tmp/done1 && echo lost",
            240,
        );
        // The last move was to the second vCPU: the interrupt of the pair that belongs there left
        // with it and is back. The programs on that vCPU could not start while the interrupt was
        // away.
        assert_eq!((code, said.as_str()), (1, "1\n2\n1\n2\n"), "{layer}");
    }
}

/// Two machines on a bus of vbusd, and a device that an administrator takes away and gives back.
#[test]
#[ignore = "long: make test-release"]
fn machines_meet_on_a_bus_and_a_card_comes_and_goes() {
    let mut host = host();
    bus(&mut host);
    let up = |address: &str| {
        format!("ip addr add {address}/24 dev eth0; ip link set eth0 up; ip link set lo up;")
    };
    let serve = format!(
        "{} mkdir /w; dd if=/dev/urandom of=/w/file bs=1M count=4 2>/dev/null
         sha256sum </w/file >/w/sum; httpd -f -h /w",
        up("10.8.0.1")
    );
    detach(&mut host, "one", "--net bus:lan/switch", &serve);
    let (code, said) = machine(
        &mut host,
        "--net bus:lan/switch",
        &format!(
            "{} for i in $(seq 100); do
                 wget -q -O /tmp/theirs http://10.8.0.1/sum && break; sleep 0.3; done
             ping -c 3 -W 20 10.8.0.1 >/dev/null && echo pinged
             wget -q -O - http://10.8.0.1/file | sha256sum | cmp - /tmp/theirs && echo same",
            up("10.8.0.2")
        ),
        120,
    );
    assert_eq!((code, said.as_str()), (0, "pinged\nsame\n"));
    let card = "paravane exec one -- test -e /sys/class/net/eth0";
    host.ok("paravane vbus unlink lan switch", 10);
    until(&mut host, &format!("! {card}"));
    host.ok("paravane vbus link lan switch", 10);
    until(&mut host, card);
    host.ok("paravane rm --force one", 30);
}

/// The machine has all devices of the bus, and follows changes by an administrator and by another
/// vbusd.
#[test]
#[ignore = "long: make test-release"]
fn devices_of_a_whole_bus_come_and_go() {
    let mut host = host();
    bus(&mut host);
    host.ok(
        "mkdir -p /root/.local/state/paravane/vbus/disks
         truncate -s 4M /root/.local/state/paravane/vbus/disks/store
         paravane vbus create-device store vblk file=store",
        10,
    );
    detach(
        &mut host,
        "all",
        "--cpus 2 --net none --bus lan",
        "exec sleep 100000",
    );
    let there = |path: &str| format!("paravane exec all -- test -e {path}");
    let (card, second) = ("/sys/class/net/eth0", "/sys/class/net/eth1");
    until(&mut host, &there(card));
    host.ok(&format!("! {}", there("/sys/block/vbd0")), 10);
    host.ok(
        "paravane vbus create-device mirror echo && paravane vbus link lan mirror
         paravane vbus create-device other venet-switch && paravane vbus link lan other
         paravane vbus link lan store",
        10,
    );
    until(&mut host, &there(second));
    until(&mut host, &there("/dev/vbd0"));
    let said = host.ok(
        "paravane exec all -- sh -c 'dd if=/dev/urandom of=/tmp/data bs=1M count=3 2>/dev/null
             dd if=/tmp/data of=/dev/vbd0 bs=64k conv=notrunc,fsync 2>/dev/null
             cat /sys/bus/vbus/devices/*/type | sort'",
        60,
    );
    assert_eq!(said, "virtual-block\nvirtual-ethernet\nvirtual-ethernet\n");
    host.ok(
        "paravane vbus unlink lan other && paravane vbus unlink lan store",
        10,
    );
    until(&mut host, &format!("! {}", there(second)));
    until(&mut host, &format!("! {}", there("/sys/block/vbd0")));
    host.ok(&there(card), 10);
    host.ok("kill -9 $(cat /tmp/vbusd)", 10);
    vbusd(&mut host);
    host.ok("paravane vbus link lan store", 10);
    until(&mut host, &there("/dev/vbd0"));
    host.ok(
        "paravane exec all -- sh -c 'dd if=/dev/vbd0 of=/tmp/back bs=1M count=3 2>/dev/null
             cmp /tmp/data /tmp/back'",
        60,
    );
    host.ok(
        "for device in store switch; do paravane vbus unlink lan $device; done",
        10,
    );
    until(
        &mut host,
        "! paravane exec all -- grep -q . /sys/bus/vbus/devices/*/type",
    );
    host.ok("paravane rm --force all", 30);
}

/// A card on a tap.
#[test]
#[ignore = "long: make test-release"]
fn a_card_on_a_tap() {
    let mut host = host();
    host.ok(
        "tunctl -t vm0 && ip addr add 10.9.0.1/24 dev vm0 && ip link set vm0 up &&
         httpd -p 10.9.0.1:80 -h /tmp/w",
        10,
    );
    let (code, said) = machine(
        &mut host,
        "--net venet-tap:vm0",
        "ip addr add 10.9.0.2/24 dev eth0; ip link set eth0 up
         wget -q -O /tmp/theirs http://10.9.0.1/sum
         wget -q -O - http://10.9.0.1/file | sha256sum | cmp - /tmp/theirs && echo same",
        120,
    );
    assert_eq!((code, said.as_str()), (0, "same\n"));
}

/// Rare notifications of a card on a tap, and of one on a bus: the vCPU that makes them does the
/// card's work, unless that is turned off. Each echo is answered either way.
#[test]
#[ignore = "long: make test-release"]
fn a_vcpu_does_the_work_of_its_card() {
    const ECHOES: u64 = 10;
    let mut host = host();
    bus(&mut host);
    host.ok("paravane vbus set switch kick-us=35", 10);
    host.ok(
        "tunctl -t vm0 && ip addr add 10.9.0.1/24 dev vm0 && ip link set vm0 up",
        10,
    );
    let up = |address: &str| {
        format!("ip addr add {address}/24 dev eth0; ip link set eth0 up; exec sleep 100000")
    };
    detach(&mut host, "peer", "--net bus:lan/switch", &up("10.8.0.1"));
    for (net, address, other, kick) in [
        ("venet-tap:vm0", "10.9.0.2", "10.9.0.1", 20),
        ("bus:lan/switch", "10.8.0.2", "10.8.0.1", 35),
    ] {
        for without in ["", "--without kicker-work"] {
            let options = format!("--net {net} {without}");
            detach(&mut host, "one", &options, &up(address));
            let ping = format!("paravane exec one -- ping -c {ECHOES} -W 20 {other}");
            until(&mut host, &format!("{ping} | grep -q \" 0% packet loss\""));
            let stat = host.ok("paravane stat --json one", 20);
            let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
            let devices = stat["devices"].as_array().unwrap();
            let card = devices
                .iter()
                .find(|device| !device["attributes"].is_null());
            let card = card.unwrap();
            let count = |what: &str| card[what].as_u64().unwrap();
            let [all, by_vcpu] = ["notifications", "by_vcpu"].map(count);
            eprintln!("{options}: {by_vcpu} of {all} notifications by the vCPU");
            if without.is_empty() {
                assert_eq!(card["attributes"]["kick-us"], kick);
                assert!(by_vcpu >= ECHOES / 2 && by_vcpu <= all, "{by_vcpu}");
            } else {
                assert_eq!(by_vcpu, 0);
            }
            host.ok("paravane rm --force one", 30);
        }
    }
    host.ok("paravane rm --force peer", 30);
}

/// A root on the bus, data of every size, a driver that leaves its device and returns.
#[test]
#[ignore = "long: make test-release"]
fn a_disk_keeps_what_is_written() {
    let mut host = host();
    host.ok("truncate -s 16M /tmp/disk; cp /tmp/w/file /tmp/source", 10);
    let (code, said) = machine(
        &mut host,
        "--cpus 2 --net none --disk /tmp/source:ro:vbus --disk /tmp/disk:vbus",
        "cat /sys/block/vbd0/ro /sys/block/vbd1/ro
         dd if=/dev/vbd0 of=/dev/vbd1 bs=64k conv=fsync 2>/dev/null
         driver=/sys/bus/vbus/drivers/vblk
         device=$(basename $(readlink -f /sys/block/vbd1/device))
         echo $device >$driver/unbind; test -e /sys/block/vbd1 || echo gone
         rm -f /dev/vbd1
         echo $device >$driver/bind
         n=0; until test -b /dev/vbd1; do n=$((n + 1)); test $n -lt 100 || break; sleep 0.1; done
         dd if=/dev/vbd1 of=/dev/vbd1 bs=4k seek=2048 count=2048 conv=fsync,notrunc 2>/dev/null
         echo 3 >/proc/sys/vm/drop_caches
         dd if=/dev/vbd1 bs=1M skip=8 count=8 iflag=direct 2>/dev/null | sha256sum",
        120,
    );
    let sum = host.ok("cat /tmp/w/sum", 10);
    assert_eq!((code, said), (0, format!("1\n0\ngone\n{sum}")));
    let both = host.ok(
        "head -c 8388608 /tmp/disk | sha256sum; tail -c 8388608 /tmp/disk | sha256sum",
        20,
    );
    assert_eq!(both, format!("{sum}{sum}"));
}

/// A console carries more data than the queues hold, in both directions. The client waits until the
/// terminal is raw: before that, it obeys bytes such as Ctrl-C.
#[test]
#[ignore = "long: make test-release"]
fn a_console_carries_bytes_of_every_value() {
    let mut host = host();
    host.ok(
        "head -c 1048576 /tmp/w/file >/tmp/small; : >/tmp/came
         { until grep -q raw /tmp/came; do sleep 0.1; done; cat /tmp/small; sleep 600; } |
             unix_client /tmp/console >/tmp/came 2>&1 &",
        10,
    );
    let (code, said) = machine(
        &mut host,
        "--net none --console /tmp/console",
        "exec 3<>/dev/vbc0; stty raw -echo <&3; echo raw >&3
         head -c 1048576 <&3 >/tmp/file; sha256sum </tmp/file; cat /tmp/file >&3",
        180,
    );
    let sum = host.ok("sha256sum </tmp/small", 10);
    assert_eq!((code, said), (0, sum.clone()));
    let back = host.ok("tail -c 1048576 /tmp/came | sha256sum", 20);
    assert_eq!(back, sum);
}

/// One line says so, before the guest searches for a card in vain.
#[test]
#[ignore = "long: make test-release"]
fn a_kernel_of_a_distribution_is_told_that_it_has_no_driver() {
    let kernel = paravane_tests::kvm_host::Kernel::get();
    let mut host = Parts::new(1).file("/d/vmlinuz", &kernel.image()).start();
    let reply = host.run(
        "paravane run --timeout 1 --hypervisor kvm --kernel /d/vmlinuz --net venet -- true 2>&1",
        60,
    );
    let expected = "--net venet needs a driver that Linux ";
    assert!(reply.output.contains(expected), "{}", reply.output);
}
