#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#
# Checks that faults.txt lists exactly the faults that are planted in the sources.
set -eu

cd "$(dirname "$0")"
planted=$(grep -rhoE 'FAULT\([A-Z][A-Z0-9_]+\)' native native-stats kvm process common/*.S \
		common/*.c common/*.inc |
	sed 's/FAULT(\(.*\))/\1/' | sort -u)
listed=$(sed -n 's/^\([A-Z][A-Z0-9_]*\) .*/\1/p' faults.txt | sort -u)
if [ "$planted" != "$listed" ]; then
	echo "faults.txt does not list the faults that are planted:" >&2
	printf '%s\n%s\n' "$planted" "$listed" | sort | uniq -u >&2
	exit 1
fi
layers='(native|native-stats|kvm|kvm/qemu|process|process-stats)'
test='[a-z0-9_.]+'
if grep -vE '^(#.*|)$' faults.txt |
	grep -vE "^[A-Z][A-Z0-9_]* $layers [1-9][0-9]* $test( $test)?\$" >&2; then
	echo "faults.txt: a line is not: FAULT layer vcpus test [call]" >&2
	exit 1
fi
