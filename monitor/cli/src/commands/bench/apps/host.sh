# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=sh
#
# host.sh ROOT SRV MNT NET DRIVER: makes the host's side of a benchmark of a root, in namespaces of
# its own, and becomes the driver. The root is read-only; SRV becomes /srv, and MNT becomes /mnt,
# unless it is empty.

set -eu
root=$1 srv=$2 mnt=$3 net=$4 driver=$5

# A mount of an ordinary user keeps the restrictions of the one below.
mount --rbind "$root" "$root"
kept=$(findmnt -n -o VFS-OPTIONS -T "$root" | tr ',' '\n' | grep -E '^no(suid|dev|exec)$' |
	tr '\n' ',')
mount -o "remount,bind,${kept}ro" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount --bind "$srv" "$root/srv"
if [ -n "$mnt" ]; then
	mount --bind "$mnt" "$root/mnt"
	mount -o "remount,bind,${kept}ro" "$root/mnt"
fi
# Servers of the host must not be in the way.
[ "$net" = host ] || ip link set lo up
exec chroot "$root" /bin/bash -c "$driver"
