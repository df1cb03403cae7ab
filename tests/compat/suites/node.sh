#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# The tests of Node.js's core that are about files, processes, signals, sockets, timers and threads.

. /suites/lib.sh
cat >/tmp/file <<'END'
. /suites/lib.sh
name=$(basename "$1" .js)
log=$logs/$name
mkdir -p "/tmp/node-$$"
export NODE_TEST_DIR="/tmp/node-$$"
if ! timeout -k 10 120 node "$1" >"$log" 2>&1 </dev/null; then
	echo "verdict $name fail"
	{ echo "--- $name"; tail -n 30 "$log"; } >&2
elif grep -q '^1\.\.0 # Skipped' "$log"; then
	echo "verdict $name skip"
else
	echo "verdict $name pass"
fi
rm -rf "/tmp/node-$$"
END
cd /src/nodejs/test/parallel
ls test-child-process-* test-dgram-* test-fs-* test-net-* test-process-* test-pipe-* \
	test-signal-* test-std* test-timers-* \
	test-worker-* test-os-* test-tty-* | grep '\.js$' >/tmp/files
# One after the other, since some use the same ports.
$as_tester xargs -n 1 sh /tmp/file </tmp/files
