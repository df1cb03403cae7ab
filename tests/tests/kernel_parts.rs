// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The optional parts of VMI-Linux that add file systems, networks, block devices and services: a
//! kernel with all of them is built, and Debian's tools use what they add.

#![allow(clippy::unwrap_used)] // A failure to set up fails the test.

use paravane_tests::{debian, program};
use std::fs;

const PACKAGES: [&str; 8] = [
    "btrfs-progs",
    "exfatprogs",
    "f2fs-tools",
    "udftools",
    "ntfs-3g",
    "mdadm",
    "lvm2",
    "nfs-kernel-server",
];

/// Each file system keeps a file over an unmount, each block device a file system.
const STORE: &str = r#"
set -e
mkdir -p /run/t /mnt/a
cd /run/t
mount -t tmpfs none /run/t
kept() { # device type
    mount -t $2 $1 /mnt/a
    echo $2 >/mnt/a/file
    umount /mnt/a
    mount -t $2 $1 /mnt/a
    [ "$(cat /mnt/a/file)" = $2 ]
    umount /mnt/a
}
loop() { # name, MiB
    truncate -s $2M $1
    losetup --find --show $1
}
l=$(loop btrfs 128); mkfs.btrfs -q $l >/dev/null 2>&1; kept $l btrfs; echo btrfs
l=$(loop exfat 32); mkfs.exfat $l >/dev/null; kept $l exfat; echo exfat
l=$(loop f2fs 128); mkfs.f2fs -q $l >/dev/null; kept $l f2fs; echo f2fs
l=$(loop udf 32); mkudffs $l >/dev/null; kept $l udf; echo udf
l=$(loop ntfs 32); mkntfs -qQ $l >/dev/null 2>&1; kept $l ntfs3; echo ntfs3
a=$(loop a 32); b=$(loop b 32)
mdadm --create /dev/md0 --run --level 1 --raid-devices 2 --metadata 1.2 $a $b >/dev/null 2>&1
mkfs.ext4 -q /dev/md0
kept /dev/md0 ext4
mdadm --manage /dev/md0 --fail $b >/dev/null 2>&1
kept /dev/md0 ext4
mdadm --stop /dev/md0 2>/dev/null
echo raid1
export DM_DISABLE_UDEV=1 # LVM creates the device nodes: no udev runs.
a=$(loop p 64)
pvcreate -q $a >/dev/null 2>&1
vgcreate -q v $a >/dev/null 2>&1
lvcreate -qq -L 16M -T v/pool -V 64M -n thin >/dev/null 2>&1
mkfs.ext4 -q /dev/v/thin
kept /dev/v/thin ext4
lvcreate -qq -s -n before v/thin >/dev/null 2>&1
echo thin
grep -q nbd /proc/devices && echo nbd
modprobe zram; echo 16M >/sys/block/zram0/disksize; mkfs.ext4 -q /dev/zram0
kept /dev/zram0 ext4
echo zram
"#;

/// A server of NFS in the guest, and its client; CIFS and 9p without a server.
const SHARE: &str = r#"
set -e
mkdir -p /run/t /mnt/a
mount -t tmpfs none /run/t
mkdir -p /run/t/share /var/lib/nfs/rpc_pipefs
mount -t nfsd nfsd /proc/fs/nfsd
echo '/run/t/share *(rw,fsid=0,no_subtree_check,no_root_squash)' >/etc/exports
exportfs -a
rpc.mountd --no-udp -N 3 -N 2
rpc.nfsd -N 3 -G 10 -L 10 2
mount -t nfs4 127.0.0.1:/ /mnt/a
echo hello >/mnt/a/file
[ "$(cat /run/t/share/file)" = hello ]
umount /mnt/a
echo nfs
for kind in cifs 9p; do grep -qw $kind /proc/filesystems; echo $kind; done
"#;

const CONNECT: &str = r#"
set -e
ip link add d0 type dummy
ip link add d1 type dummy
ip link add bond7 type bond mode active-backup
ip link set d0 master bond7
ip link set d1 master bond7
ip link set bond7 up
grep -q 'Slave Interface: d1' /proc/net/bonding/bond7
echo bond
ip link add g0 type gretap local 10.9.9.1 remote 10.9.9.2
ip link add s0 type sit local 10.9.9.1 remote 10.9.9.2
ip link add i0 type ipip local 10.9.9.1 remote 10.9.9.2
ip link add ge0 type geneve id 3 remote 10.9.9.2
ip link add vrf0 type vrf table 10
echo tunnels
key=0x0123456789012345678901234567890123456789
ip link set lo up
for pair in '127.0.0.8 127.0.0.9 17' '127.0.0.9 127.0.0.8 18'; do
    set -- $pair
    ip xfrm state add src $1 dst $2 proto esp spi $3 mode transport \
        aead 'rfc4106(gcm(aes))' $key 128
    ip xfrm policy add src $1 dst $2 dir out tmpl src $1 dst $2 proto esp mode transport
    ip xfrm policy add src $1 dst $2 dir in tmpl src $1 dst $2 proto esp mode transport
done
echo ipsec
ip xfrm state | grep -q 'rfc4106(gcm(aes))'
[ "$(cat /proc/sys/net/mptcp/enabled)" = 1 ]
ip mptcp endpoint add 10.9.9.3 dev lo id 1 signal
echo mptcp
grep -qw tls /proc/sys/net/ipv4/tcp_available_ulp
echo tls
tc qdisc add dev d0 root cake
echo cake
"#;

const SERVE: &str = r#"
set -e
[ -e /dev/watchdog ] && echo watchdog
[ -e /proc/self/loginuid ] && echo audit
"#;

#[test]
#[ignore = "half an hour, and needs a Debian mirror: make test-release"]
fn what_each_part_adds_works() {
    let folder = tempfile::tempdir().unwrap();
    let names = "filesystems,network,services,storage";
    let mut build = program::command();
    build.args(["kernel", "build", "--with", names, "--output"]);
    build.arg(folder.path());
    let built = program::finish_within(&mut build, program::LONGEST_OF_ALL).unwrap();
    assert_eq!(built.code, 0, "{built:?}");
    let list = program::finish(program::command().args(["kernel", "list"]));
    assert!(
        list.stdout.contains(&format!("  {names}  Linux ")),
        "{list:?}"
    );
    let config = fs::read_to_string(folder.path().join("config")).unwrap();
    assert!(config.contains("CONFIG_BTRFS_FS=y\n"));
    let image = debian::image("kernel-parts", &PACKAGES);
    for (script, expected) in [
        (STORE, "btrfs exfat f2fs udf ntfs3 raid1 thin nbd zram"),
        (SHARE, "nfs cifs 9p"),
        (CONNECT, "bond tunnels ipsec mptcp tls cake"),
        (SERVE, "watchdog audit"),
    ] {
        let mut run = program::command();
        run.args([
            "run",
            "--memory",
            "1G",
            "--kernel",
            &format!("with:{names}"),
        ]);
        run.arg("--rootfs")
            .arg(format!("{}:snapshot", image.display()));
        let run = program::finish(run.args(["--", "bash", "-c", script]));
        let words: Vec<_> = run.stdout.split_whitespace().collect();
        assert_eq!(
            (run.code, words.join(" ").as_str()),
            (0, expected),
            "{run:?}"
        );
    }
}
