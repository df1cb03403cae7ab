#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#
# A layer runs wherever it is loaded, so each reference in its ELF file, linked with --emit-relocs,
# must be relative to its own place. Sections that the linker script does not name would be missing
# from the image.
set -eu

bad=$("${READELF:-readelf}" -rW "$1" |
	awk '$3 ~ /^R_X86_64_/ && $3 !~ /^R_X86_64_(PC32|PLT32|PC64)$/')
if [ -n "$bad" ]; then
	echo "$1: not position independent:" >&2
	echo "$bad" >&2
	exit 1
fi

stray=$("${READELF:-readelf}" -SW "$1" | sed 's/^ *\[ *[0-9]*\]//' |
	awk '$7 ~ /A/ && $5 !~ /^0+$/ && $1 != ".image" && $1 != ".bss" { print $1 }')
if [ -n "$stray" ]; then
	echo "$1: sections outside the image: $stray" >&2
	exit 1
fi
