#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# prepare.sh PARAVANE DIR: makes DIR/root, a Debian 12 with compilers, interpreters and the sources
# that the suites build and test, and DIR/root.ext4 with the same files. Needs root, as on-host.sh
# does.

set -euo pipefail
paravane=$1 to=$2

packages=(
	build-essential python3-dev libpython3.11-testsuite git procps strace stress-ng time
	xz-utils dpkg-dev
	zlib1g-dev libexpat1-dev libcurl4-openssl-dev libssl-dev gettext libgdbm-dev
	libdb-dev libbz2-dev
	golang-go nodejs default-jdk-headless
	gdb rsync libcap-dev libnuma-dev liburing-dev
)
sources=(zlib git perl nodejs)
# The parts of Linux's sources that its tests need.
kernel=(
	Makefile scripts include/{uapi,asm-generic,vdso} include/linux/compiler_types.h
	arch/x86/{Makefile,include,entry/syscalls,tools,lib}
	usr/include lib 'mm/*.h' tools/{arch,build,include,lib,scripts} 'tools/testing/selftests/*'
)

die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

[ "$(id -u)" = 0 ] || die "prepare.sh makes device nodes and file owners: run it as root"
mkdir -p "$to"
work=$(mktemp -d "$to/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

"$paravane" image build --suite bookworm --format tar \
	--include "$(IFS=, && printf '%s' "${packages[*]}")" "$work/root.tar"
mkdir "$work/root"
tar -C "$work/root" --numeric-owner -xpf "$work/root.tar"
rm "$work/root.tar"

# The Debian's own apt fetches sources, over the host's network.
cp --remove-destination -L /etc/resolv.conf "$work/root/etc/resolv.conf" 2>/dev/null || true
sed -n 's/^deb /deb-src /p' "$work/root/etc/apt/sources.list" \
	>"$work/root/etc/apt/sources.list.d/sources.list"
mkdir "$work/root/src"
cat >"$work/root/src/fetch" <<'END'
set -e
apt-get -qq update
cd /src
for package; do
	# A mirror may list versions that it does not have any more, or not yet.
	for version in $(apt-cache showsrc --only-source "$package" |
		sed -n 's/^Version: //p' | sort -rV); do
		! apt-get -qq source -o APT::Sandbox::User=root "$package=$version" >/dev/null ||
			break
	done
	mv "$package"-*/ "$package"
done
rm -f ./*.dsc ./*.tar.* ./*.asc fetch
apt-get clean
END
chroot "$work/root" sh /src/fetch "${sources[@]}" ||
	die "the sources of ${sources[*]} cannot be fetched"
# Keep only the tests of Node.js.
mv "$work/root/src/nodejs/test" "$work/test"
rm -rf "$work/root/src/nodejs"
mkdir "$work/root/src/nodejs"
mv "$work/test" "$work/root/src/nodejs/"

# Build the tests of the kernel here, once. Two of them lack an #include; 32-bit programs are not
# built.
chroot "$work/root" sh -ec 'cd /tmp
	apt-get -qq download -o APT::Sandbox::User=root linux-source-6.12
	dpkg-deb --fsys-tarfile linux-source-6.12_*.deb |
		tar -xO ./usr/src/linux-source-6.12.tar.xz >/src/linux.tar.xz
	rm linux-source-6.12_*.deb' || die "the kernel's sources cannot be fetched"
mkdir "$work/root/src/linux"
tar -C "$work/root/src/linux" --strip-components 1 --wildcards -xJf "$work/root/src/linux.tar.xz" \
	"${kernel[@]/#/linux-source-6.12/}"
rm "$work/root/src/linux.tar.xz"
chroot "$work/root" sh -ec 'cd /src/linux && make -s headers && cd tools/testing/selftests
	make -s -k TARGETS="x86 timers futex mm" >/src/linux/built 2>&1 || true
	make -s TARGETS="x86 timers futex mm" EXTRA_CFLAGS="-include ../kselftest.h" \
		>>/src/linux/built 2>&1' ||
	die "the tests of the kernel cannot be built"
printf 'nameserver 127.0.0.1\n' >"$work/root/etc/resolv.conf"
# Some suites run as an ordinary user: root may do what their tests expect to be refused.
chroot "$work/root" useradd --create-home --shell /bin/sh tester
chroot "$work/root" chown -R tester: /src

truncate -s 12G "$work/root.ext4"
mke2fs -q -F -t ext4 -d "$work/root" "$work/root.ext4"
rm -rf "$to/root" "$to/root.ext4"
mv "$work/root" "$work/root.ext4" "$to/"
