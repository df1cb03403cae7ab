// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Daemons on a root whose systemd does not run. Each test starts one the way people do, with
//! `paravane run -- sh -c 'DAEMON start'`, and checks that it answers.
//!
//! Takes a mirror for the image: `make test-release` runs it.

use paravane_tests::{debian, program, vm};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// One test at a time uses the host's processors.
static ALONE: Mutex<()> = Mutex::new(());

fn image() -> PathBuf {
    debian::image(
        "daemons",
        &[
            "apache2",
            "cron",
            "curl",
            "dbus",
            "iptables",
            "mariadb-server",
            "memcached",
            "netavark",
            "crun",
            "iproute2",
            "iputils-ping",
            "nftables",
            "nginx-light",
            "openssh-client",
            "openssh-server",
            "podman",
            "postgresql",
            "redis-server",
            "rsyslog",
            "busybox-static",
        ],
    )
}

/// Runs a script with the agent as process 1. Returns its output.
fn shell(script: &str) -> String {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let root = format!("{}:snapshot", image().display());
    let mut command = vm::command(["--memory", "1G", "--cpus", "2", "--rootfs", &root]);
    command.args(["--timeout", "300", "--", "sh", "-ec", script]);
    let run = program::finish(&mut command);
    assert_eq!(run.code, 0, "{script}\n{}\n{}", run.stdout, run.stderr);
    run.stdout
}

fn last_line(script: &str) -> String {
    let printed = shell(script);
    printed
        .lines()
        .last()
        .unwrap_or_default()
        .trim()
        .to_string()
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn apache() {
    let script = "apachectl start; curl --retry 9 --retry-connrefused -sI http://127.0.0.1/";
    let answer = shell(script);
    assert!(
        answer.contains("200 OK") && answer.contains("Server: Apache"),
        "{answer}"
    );
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn nginx() {
    let script = "service nginx start; curl --retry 9 --retry-connrefused -sI http://127.0.0.1/";
    let answer = shell(script);
    assert!(
        answer.contains("200 OK") && answer.contains("Server: nginx"),
        "{answer}"
    );
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn mariadb() {
    let script = "service mariadb start; mysqladmin ping; mysql -Ne 'select 6*7'";
    let answer = shell(script);
    assert!(
        answer.contains("mysqld is alive") && answer.ends_with("42\n"),
        "{answer}"
    );
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn postgresql() {
    let script = "service postgresql start; pg_isready; su postgres -c \"psql -Atc 'select 6*7'\"";
    let answer = shell(script);
    assert!(
        answer.contains("accepting connections") && answer.ends_with("42\n"),
        "{answer}"
    );
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn redis() {
    let script = "service redis-server start; redis-cli ping";
    assert_eq!(last_line(script), "PONG");
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn memcached() {
    let script = "service memcached start; sleep 1
        printf 'set a 0 0 2\\r\\n42\\r\\nget a\\r\\nquit\\r\\n' | busybox nc 127.0.0.1 11211";
    let answer = shell(script);
    assert!(answer.contains("VALUE a 0 2\r\n42\r\nEND"), "{answer}");
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn sshd() {
    // The image has no host keys.
    let script = "ssh-keygen -A >/dev/null; service ssh start
        mkdir -p -m 700 ~/.ssh; ssh-keygen -qt ed25519 -N '' -f ~/.ssh/id_ed25519
        cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys
        ssh -o StrictHostKeyChecking=no -o LogLevel=ERROR root@localhost 'tty; hostname'";
    assert_eq!(last_line(script), "paravane");
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn cron() {
    let script = "echo '@reboot root echo by $LOGNAME > /tmp/done' > /etc/cron.d/test
        service cron start
        for n in $(seq 50); do [ -s /tmp/done ] && break; sleep 0.2; done; cat /tmp/done";
    assert_eq!(last_line(script), "by root");
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn rsyslog() {
    let script = "rsyslogd; logger -t tester a word
        for n in $(seq 50); do grep -q tester /var/log/syslog && break; sleep 0.2; done
        grep -o 'tester: .*' /var/log/syslog";
    assert_eq!(last_line(script), "tester: a word");
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn podman() {
    let script = "mkdir -p /i/bin /i/tmp; cp /bin/busybox /i/bin/
        chroot /i /bin/busybox --install /bin
        tar -C /i -c . | podman import - box >/dev/null
        podman run --rm --memory 64m --pids-limit 50 --hostname inner box sh -c \
            'hostname; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max'
        podman run -d --name web -p 8081:80 box sh -c \
            'mkdir /w; echo from a container > /w/index.html; exec httpd -f -p 80 -h /w' >/dev/null
        curl --retry 9 --retry-connrefused -s http://127.0.0.1:8081/";
    let answer = shell(script);
    assert_eq!(answer, "inner\n67108864\n50\nfrom a container\n");
}

/// Firewalls and traffic control: each rule is accepted, and those that drop packets drop them.
#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn packets_are_filtered_and_queued() {
    let script = "ping -qc1 -W2 127.0.0.1 >/dev/null
        printf '%s\\n' 'table inet t {' \
            'flowtable f { hook ingress priority 0; devices = { lo }; }' \
            'chain forward { type filter hook forward priority 0; ip protocol tcp flow add @f; }' \
            'chain input { type filter hook input priority 0; meta l4proto icmp counter drop; }' \
            '}' | nft -f -
        if ping -qc1 -W1 127.0.0.1 >/dev/null; then echo nft; fi
        nft flush ruleset
        iptables -A INPUT -m ttl --ttl-eq 64 -m string --algo bm --string never -j DROP
        iptables -A INPUT -m time --timestart 00:00 --timestop 23:59:59 -j ACCEPT
        iptables -I INPUT -m ttl --ttl-gt 60 -p icmp -j DROP
        if ping -qc1 -W1 127.0.0.1 >/dev/null; then echo iptables; fi
        iptables -F
        iptables -t mangle -A OUTPUT -p icmp -j TTL --ttl-set 5
        iptables -A INPUT -m ttl --ttl-eq 5 -p icmp -j DROP
        if ping -qc1 -W1 127.0.0.1 >/dev/null; then echo TTL; fi
        iptables -F; iptables -t mangle -F
        tc qdisc add dev lo root handle 1: prio
        tc filter add dev lo parent 1: protocol ip prio 1 flower ip_proto icmp action drop
        if ping -qc1 -W1 127.0.0.1 >/dev/null; then echo flower; fi
        tc filter del dev lo parent 1: prio 1
        tc filter add dev lo parent 1: protocol ip prio 2 matchall action drop
        if ping -qc1 -W1 127.0.0.1 >/dev/null; then echo matchall; fi
        tc qdisc del dev lo root
        ping -qc1 -W2 127.0.0.1 >/dev/null
        ls /sys/class/net | grep dummy || true
        ip link add dummy0 type dummy; ls /sys/class/net | grep -c dummy";
    assert_eq!(shell(script), "1\n");
}

#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn the_root_looks_booted() {
    let script = "getent hosts $(hostname) | grep -c paravane
        [ ! -e /run/systemd/system ]; stat -c '%a' /run/lock /dev/shm /tmp
        stat -c '%U %G %a' /run/postgresql /run/mysqld
        readlink -f /var/run /var/lock; findmnt -no PROPAGATION /; ulimit -Hn";
    assert_eq!(
        shell(script),
        "1\n1777\n1777\n1777\npostgres postgres 2775\nmysql root 755\n\
         /run\n/run/lock\nshared\n524288\n"
    );
}
