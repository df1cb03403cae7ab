#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Go's tests of its packages os, os/exec, runtime, net and sync, one by one.

. /suites/lib.sh
cat >/tmp/package <<'END'
. /suites/lib.sh
cd /tmp
export GOCACHE=/tmp/go-cache GOFLAGS=-vet=off
name=$(echo "$1" | tr / _)
test=/tmp/go-$name.test
part "go_${name}_build" go test -c -o "$test" "$1"
log=$logs/go_$name
cd "$(go list -f '{{.Dir}}' "$1")"
code=0
# Verdicts of tests start at the margin; those of subtests are indented.
verdicts() {
	sed -n "s/^--- PASS: \([^ ]*\) .*/verdict go_${name}_\1 pass/p
		s/^--- SKIP: \([^ ]*\) .*/verdict go_${name}_\1 skip/p
		s/^--- FAIL: \([^ ]*\) .*/verdict go_${name}_\1 fail/p" "$1"
}
run() {
	run_log=$1
	shift
	timeout -k 10 1800 "$test" -test.short -test.v -test.timeout 25m "$@" \
		>"$run_log" 2>&1 </dev/null
}
run "$log" || code=$?
verdicts "$log" | grep -v ' fail$' || true
# 1: tests have failed, perhaps by a limit of time. Each of them runs once more, alone.
[ $code != 1 ] || ! grep -q '^--- FAIL' "$log" || code=0
for failed in $(sed -n 's/^--- FAIL: \([^ ]*\) .*/\1/p' "$log"); do
	run "$log.$failed" -test.run "^$failed\$" || {
		code=1
		tail -n 25 "$log.$failed" >&2
	}
	verdicts "$log.$failed"
done
if [ $code = 0 ]; then
	echo "verdict go_$name pass"
else
	echo "verdict go_$name fail"
	{
		echo "--- $1: exit code $code"
		grep -B 25 -e '^--- FAIL' -e '^panic' -e '^fatal error' "$log" || tail -n 60 "$log"
	} >&2
fi
END
for package in sync os os/exec net runtime; do
	$as_tester sh /tmp/package $package
done
