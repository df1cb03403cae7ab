#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# crates.sh: prints the crates that the program is linked from, and their licences, each text once.

. "$(dirname "$0")/../lib.sh"
cd "$root"

crates=$(cargo tree --locked --package paravane --edges normal --prefix none --no-dedupe \
	--format '{p} {l}' | grep -v '(/' | sed 's/ (proc-macro)//' | sort -u)
[ -n "$crates" ] || die "cargo tree names no crates"
printf 'This program is linked from these crates:\n\n%s\n' "$crates"

declare -A printed=()
registry="${CARGO_HOME:-$HOME/.cargo}/registry/src"
while read -r name version _; do
	crate=$name-${version#v}
	for file in "$registry"/*/"$crate"/{LICEN[CS]E,COPYING,COPYRIGHT,NOTICE,UNLICENSE}*; do
		[ -f "$file" ] || continue
		sum=$(sha256sum <"$file")
		[ -z "${printed[$sum]:-}" ] || continue
		printed[$sum]=1
		printf '\n\n==== %s: %s\n\n' "$name" "${file##*/}"
		cat "$file"
	done
done <<<"$crates"
[ ${#printed[@]} -gt 0 ] || die "no licence of a crate is in $registry"
