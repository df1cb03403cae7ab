#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# build.sh SOURCE OUT: builds the kernel. SOURCE is a tarball of Linux 6.12, or a directory with one unpacked
# (which is copied, not changed). In OUT: vmlinux (with its relocations, for the process hypervisor), bzImage
# (for bare metal), config, build/ (what a rebuild needs). Everything that matters is in this directory, in
# abi/include, in guest/common and in SOURCE.
#
# JOBS: parallel jobs. CONFIGS: fragments of config/ in place of all.
set -eu

die() {
	echo "build.sh: $*" >&2
	exit 1
}

[ $# -eq 2 ] || die "usage: build.sh SOURCE OUT"
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
source=$1
mkdir -p "$2" || die "cannot make $2"
out=$(cd "$2" && pwd)
jobs=${JOBS:-$(nproc)}

for tool in make gcc ld flex bison bc cpio patch tar gzip; do
	command -v "$tool" >/dev/null || die "$tool is missing: apt-get install build-essential flex bison bc cpio"
done
echo '#include <gelf.h>' | gcc -E - >/dev/null 2>&1 || die "libelf is missing: apt-get install libelf-dev"

tree=$out/build/source
object=$out/build/object
log=$out/build/log
rm -rf "$tree"
mkdir -p "$tree" "$object"
: >"$log"

echo "unpacking"
if [ -d "$source" ]; then
	[ -f "$source/Makefile" ] || die "$source has no kernel source"
	cp -a "$source/." "$tree/"
else
	[ -f "$source" ] || die "$source does not exist"
	tar -xf "$source" -C "$tree" --strip-components=1 2>>"$log" || die "cannot unpack $source: see $log"
fi
version=$(make -s -C "$tree" kernelversion 2>>"$log") || die "$source has no kernel source"
case $version in
6.12 | 6.12.*) ;;
*) die "this port is for Linux 6.12, $source is $version" ;;
esac

echo "patching $version"
while read -r patch; do
	case $patch in '' | '#'*) continue ;; esac
	patch -d "$tree" -p1 -N -s --no-backup-if-mismatch <"$here/patches/$patch" >>"$log" 2>&1 ||
		die "$patch does not apply to $version: see $log"
done <"$here/patches/series"
cp -a "$here/overlay/." "$tree/"
mkdir -p "$tree/arch/x86/vmi/include/paravane"
cp "$root/abi/include/paravane/vmi.h" "$tree/arch/x86/vmi/include/paravane/"
cp "$root/guest/common/vmi_rom.c" "$root/guest/common/vmi_rom.h" "$tree/arch/x86/vmi/"

# The same inputs give the same files.
export KBUILD_BUILD_TIMESTAMP="1970-01-01 00:00:00 UTC" KBUILD_BUILD_USER=build KBUILD_BUILD_HOST=paravane
export KBUILD_BUILD_VERSION=1

run() {
	make -C "$tree" O="$object" -j"$jobs" "$@" >>"$log" 2>&1 || die "make $* failed: see $log"
}

echo "configuring"
run tinyconfig
fragments=${CONFIGS:-$(cd "$here/config" && echo *.config)}
for fragment in $fragments; do
	[ -f "$here/config/$fragment" ] || die "config/$fragment does not exist"
	cat "$here/config/$fragment"
done >"$out/build/fragments"
(cd "$tree" && ./scripts/kconfig/merge_config.sh -m -O "$object" "$object/.config" "$out/build/fragments") \
	>>"$log" 2>&1 || die "cannot merge the configuration: see $log"
run olddefconfig
# What was asked for and is not there depends on something that is missing.
grep '^CONFIG_' "$out/build/fragments" | while read -r line; do
	grep -qxF -- "$line" "$object/.config" || die "the configuration lost $line"
done

echo "building with $jobs jobs"
run vmlinux bzImage
cp "$object/vmlinux.unstripped" "$out/vmlinux"
cp "$object/arch/x86/boot/bzImage" "$object/.config" "$out/"
mv -f "$out/.config" "$out/config"
