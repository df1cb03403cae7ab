// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What threads with sockets of the Internet may do with them.

use super::*;

/// Calls of `net-user`, with the first three arguments.
#[test]
fn a_socket_s_protocol_and_options_decide() {
    const BAD: u64 = u64::MAX;
    const TUNSETIFF: u64 = 0x4004_54ca;
    const TUNSETPERSIST: u64 = 0x4004_54cb;
    let filters = filters();
    for (thread, call, [a, b, c], expected) in [
        ("net-user", libc::SYS_socket, [2, 0x80801, 0], Fate::Made),
        ("net-user", libc::SYS_socket, [10, 0x80802, 0], Fate::Made),
        // Other protocols: SCTP, MPTCP, L2TP, ICMP, UDP-Lite.
        ("net-user", libc::SYS_socket, [2, 1, 132], Fate::Died),
        ("net-user", libc::SYS_socket, [2, 1, 262], Fate::Died),
        ("net-user", libc::SYS_socket, [2, 2, 115], Fate::Died),
        ("net-user", libc::SYS_socket, [2, 2, 1], Fate::Died),
        ("net-user", libc::SYS_socket, [10, 2, 136], Fate::Died),
        // A socket gets a port by its first datagram, and none that the thread names.
        ("net-user", libc::SYS_bind, [BAD, 0, 0], Fate::Died),
        ("net-user", libc::SYS_listen, [BAD, 0, 0], Fate::Died),
        ("net-user", libc::SYS_accept4, [BAD, 0, 0], Fate::Made),
        // vbusd publishes ports while it runs.
        ("vbusd-networks", libc::SYS_accept4, [BAD, 0, 0], Fate::Made),
        ("vbusd-networks", libc::SYS_bind, [BAD, 0, 0], Fate::Made),
        ("vbusd-networks", libc::SYS_listen, [BAD, 0, 0], Fate::Made),
        // SO_REUSEADDR, and not SO_REUSEPORT, which shares the port of another program.
        (
            "vbusd-networks",
            libc::SYS_setsockopt,
            [BAD, 1, 2],
            Fate::Made,
        ),
        (
            "vbusd-networks",
            libc::SYS_setsockopt,
            [BAD, 1, 15],
            Fate::Died,
        ),
        ("net-user", libc::SYS_setsockopt, [BAD, 1, 2], Fate::Died),
        (
            "vbusd-networks",
            libc::SYS_socket,
            [2, 0x80801, 0],
            Fate::Made,
        ),
        ("vbusd-networks", libc::SYS_socket, [1, 1, 0], Fate::Died),
        ("vbusd-tap-keeper", libc::SYS_socket, [2, 1, 0], Fate::Died),
        ("vbusd-tap-keeper", libc::SYS_socket, [1, 2, 0], Fate::Made),
        ("vbusd-taps", libc::SYS_socket, [1, 2, 0], Fate::Died),
        // passt is started by another process: local sockets and pipes are all that it takes.
        (
            "vbusd-network-keeper",
            libc::SYS_socketpair,
            [1, 0x80001, 0],
            Fate::Made,
        ),
        (
            "vbusd-network-keeper",
            libc::SYS_socketpair,
            [2, 1, 0],
            Fate::Died,
        ),
        (
            "vbusd-network-keeper",
            libc::SYS_socket,
            [2, 1, 0],
            Fate::Died,
        ),
        ("vbusd-network-keeper", libc::SYS_execve, [0; 3], Fate::Died),
        (
            "vbusd-networks",
            libc::SYS_socketpair,
            [1, 1, 0],
            Fate::Died,
        ),
        // IFF_PERSIST and the owner of a tap stay as they are. The thread that moves frames opens
        // no tap.
        (
            "vbusd-tap-keeper",
            libc::SYS_ioctl,
            [BAD, TUNSETPERSIST, 1],
            Fate::Died,
        ),
        (
            "vbusd-tap-keeper",
            libc::SYS_ioctl,
            [BAD, TUNSETIFF, 0],
            Fate::Made,
        ),
        (
            "vbusd-taps",
            libc::SYS_ioctl,
            [BAD, TUNSETIFF, 0],
            Fate::Died,
        ),
        // Whether an interface is up can be asked, and not changed.
        ("vbusd-taps", libc::SYS_ioctl, [BAD, 0x8913, 0], Fate::Made),
        ("vbusd-taps", libc::SYS_ioctl, [BAD, 0x8914, 0], Fate::Died),
        ("net", libc::SYS_ioctl, [BAD, 0x8913, 0], Fate::Made),
        ("net", libc::SYS_ioctl, [BAD, 0x8914, 0], Fate::Died),
        ("net", libc::SYS_socket, [16, 3, 0], Fate::Died),
        // TCP_NODELAY, SO_KEEPALIVE, SO_OOBINLINE, SO_LINGER, TCP_KEEPIDLE and the like.
        ("net-user", libc::SYS_setsockopt, [BAD, 6, 1], Fate::Made),
        ("net-user", libc::SYS_setsockopt, [BAD, 1, 9], Fate::Made),
        ("net-user", libc::SYS_setsockopt, [BAD, 1, 10], Fate::Made),
        ("net-user", libc::SYS_setsockopt, [BAD, 1, 13], Fate::Made),
        ("net-user", libc::SYS_setsockopt, [BAD, 6, 4], Fate::Made),
        ("net-user", libc::SYS_setsockopt, [BAD, 6, 5], Fate::Made),
        ("net-user", libc::SYS_setsockopt, [BAD, 6, 6], Fate::Made),
        // The rest reaches far into the kernel: packet filters (IPT_SO_SET_REPLACE,
        // SO_ATTACH_FILTER), other protocols on a connection (TCP_ULP), other interfaces
        // (SO_BINDTODEVICE), all of the host's addresses as one's own (IP_TRANSPARENT).
        ("net-user", libc::SYS_setsockopt, [BAD, 0, 64], Fate::Died),
        ("net-user", libc::SYS_setsockopt, [BAD, 1, 26], Fate::Died),
        ("net-user", libc::SYS_setsockopt, [BAD, 6, 31], Fate::Died),
        ("net-user", libc::SYS_setsockopt, [BAD, 1, 25], Fate::Died),
        ("net-user", libc::SYS_setsockopt, [BAD, 0, 19], Fate::Died),
        // SO_ERROR.
        ("net-user", libc::SYS_getsockopt, [BAD, 1, 4], Fate::Made),
        ("net-user", libc::SYS_getsockopt, [BAD, 1, 26], Fate::Died),
        ("net-user", libc::SYS_getsockopt, [BAD, 0, 64], Fate::Died),
        // Messages with more than data and an address.
        ("net-user", libc::SYS_sendmsg, [BAD, 0, 0], Fate::Died),
        ("net-user", libc::SYS_recvmsg, [BAD, 0, 0], Fate::Died),
        ("gdb", libc::SYS_setsockopt, [BAD, 6, 1], Fate::Made),
        ("gdb", libc::SYS_setsockopt, [BAD, 1, 26], Fate::Died),
    ] {
        assert_eq!(
            fate(&filters[thread], call, [a, b, c, 0, 0, 0]),
            expected,
            "{thread}: call {call} {a:x}, {b:x}, {c:x}"
        );
    }
}
