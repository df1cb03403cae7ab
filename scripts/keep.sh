#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# keep.sh [WORD]: keeps what is released as tests/blobs/vmi-MAJOR.MINOR[-WORD]: the conformance
# kernel and the ROM of each layer, and their hashes. Linux's files are too large for the
# repository: only their hashes are kept there, and they themselves in the folder PARAVANE_KEPT, or
# in the user's cache, each under its hash. See tests/blobs/README.md.

. "$(dirname "$0")/lib.sh"
cd "$root"

number() {
	sed -n "s/^$1 = \([0-9]*\)\$/\1/p" abi/vmi.toml | head -n 1
}
version=vmi-$(number major).$(number minor)${1:+-$1}
list=tests/blobs/SHA256SUMS
if [ -e "tests/blobs/$version" ]; then
	echo "keep.sh: $version is kept already; what is kept is never changed" >&2
	exit 2
fi
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
make -s -C layers OUT="$build"
make -s -C guest/conformance OUT="$build"
program=${PARAVANE:-${CARGO_TARGET_DIR:-target}/release/paravane}
# Linux VERSION (how): FOLDER
linux=$("$program" kernel build | sed -n '$s/.*): //p')

mkdir "tests/blobs/$version"
strip --strip-debug -o "tests/blobs/$version/conformance.elf" "$build/conformance.elf"
cp "$build"/{native,native-stats,kvm}.rom "tests/blobs/$version"
(cd tests/blobs && sha256sum "$version"/*) >>"$list"
kept=${PARAVANE_KEPT:-${XDG_CACHE_HOME:-$HOME/.cache}/paravane/tests/kept}
mkdir -p "$kept"
for name in vmlinux bzImage; do
	hash=$(sha256sum "$linux/$name" | cut -d ' ' -f 1)
	cp "$linux/$name" "$kept/$hash"
	echo "$hash  $version/$name" >>"$list"
done
tail -n 6 "$list"
echo "Linux's files are in $kept: publish them with the release"
