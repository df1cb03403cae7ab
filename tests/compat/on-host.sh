#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# on-host.sh ROOT SUITES COMMAND...: runs a command on the host in a writable view of ROOT, which
# stays unchanged, with SUITES at /suites, and with PID and mount namespaces of its own.

set -euo pipefail
[ "$(id -u)" = 0 ] || {
	echo 'error: on-host.sh mounts file systems: run it as root' >&2
	exit 1
}
if [ "${ON_HOST_INSIDE:-}" != 1 ]; then
	exec env ON_HOST_INSIDE=1 unshare --mount --pid --fork --kill-child --ipc --uts "$0" "$@"
fi
root=$1 suites=$2
shift 2
top=$(mktemp -d)
trap 'umount -R -l "$top" 2>/dev/null; rmdir "$top"' EXIT
mount -t tmpfs -o size=12G tmpfs "$top"
mkdir "$top/upper" "$top/work" "$top/root"
# Tests expect that some of the root's space is in use.
echo used >"$top/used"
mount -t overlay -o "lowerdir=$root,upperdir=$top/upper,workdir=$top/work" overlay "$top/root"
mount -t proc proc "$top/root/proc"
mount -t sysfs sysfs "$top/root/sys"
mount --rbind /dev "$top/root/dev"
mount -t tmpfs tmpfs "$top/root/tmp"
mount -t tmpfs tmpfs "$top/root/run"
mkdir "$top/root/suites"
mount --bind "$suites" "$top/root/suites"
# Tests of programs check for unexpected open files.
(
	for fd in /proc/self/fd/*; do
		fd=${fd##*/}
		[ "$fd" -le 2 ] || eval "exec $fd>&-"
	done
	path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
	exec env -i PATH=$path HOME=/root chroot "$top/root" "$@"
)
