// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's card on a tap has a carrier while the tap's interface is up, and learns of a change
//! without a frame.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::own_net::in_namespace;

/// Several changes, the last of which leave it up; then frames pass. The guest says what it sees,
/// and sends nothing before.
fn carrier_follows(prepare: &str, net: &str) {
    let script = r#"
        set -e
        folder=$1
        shift
        ip link set lo up
        # Hosts without IPv6 send nothing by themselves.
        echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true
        ip tuntap add vm0 mode tap
        ip addr add 10.9.0.1/24 dev vm0
        PREPARE
        mkfifo "$folder/output"
        "$@" --net NET --timeout 100 -- sh -c '
            echo 1 2>/dev/null > /proc/sys/net/ipv6/conf/all/disable_ipv6
            ip addr add 10.9.0.2/24 dev eth0 && ip link set eth0 up
            for state in 0 1 0 1 0 1; do
                until test $(cat /sys/class/net/eth0/carrier) = $state; do usleep 10000; done
                echo $state
            done
            cat /sys/class/net/eth0/statistics/tx_packets
            until ping -c 1 -W 1 10.9.0.1 >/dev/null; do test -e /sys/class/net/eth0; done
            echo passed' >"$folder/output" &
        machine=$!
        exec 3<"$folder/output"
        read line <&3
        echo "$line"
        for state in up down up down up; do
            ip link set vm0 $state
            read line <&3
            echo "$line"
        done
        read line <&3
        echo "$line"
        read line <&3
        echo "$line"
        wait $machine
    "#;
    let script = script.replace("PREPARE", prepare).replace("NET", net);
    if let Some(done) = in_namespace(&script) {
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (0, "0\n1\n0\n1\n0\n1\n0\npassed\n"),
            "{done:?}"
        );
    }
}

#[test]
fn a_card_on_a_tap_hears_of_its_state() {
    carrier_follows("", "tap:vm0");
}

#[test]
fn a_card_of_a_virtual_bus_on_a_tap_hears_of_its_state() {
    carrier_follows("", "venet-tap:vm0");
}

#[test]
fn a_card_on_a_tap_of_vbusd_hears_of_its_state() {
    let prepare = r#"
        export XDG_STATE_HOME=$folder
        "$1" vbus daemon >/dev/null &
        trap "kill $!" EXIT
        until "$1" vbus create-bus lan 2>/dev/null; do sleep 0.1; done
        "$1" vbus create-device out venet-tap tap=vm0
        "$1" vbus link lan out
    "#;
    carrier_follows(prepare, "bus:lan/out");
}
