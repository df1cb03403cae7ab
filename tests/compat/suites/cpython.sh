#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Debian's CPython test suite. Each module is a run of its own.

. /suites/lib.sh

cat >/tmp/module <<'END'
. /suites/lib.sh
cd "$(mktemp -d)"
log=$logs/$1
if ! timeout -k 10 900 python3 -m test "$1" >"$log" 2>&1 </dev/null; then
	echo "verdict $1 fail $1"
	{ echo "--- $1"; tail -n 40 "$log"; } >&2
elif grep -q "^1 test skipped" "$log"; then
	echo "verdict $1 skip"
else
	echo "verdict $1 pass"
fi
END
# Without the modules that need a display, and a suite of tools that Debian does not ship.
python3 -m test --list-tests |
	grep -vxE 'test_(idle|tkinter|ttk_guionly|ttk_textonly|tix|tk|turtle|tools)' >/tmp/modules
each /tmp/module </tmp/modules
