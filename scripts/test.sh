#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# test.sh [--long]: lint, then every test of the workspace; each fuzz target for 5 s, or an hour
# (PARAVANE_FUZZ_SECONDS says otherwise). With --long also the tests in bare Debian roots: the
# package, and what README tells a newcomer to do. The last line is always `N passed, N failed`,
# with `, N skipped` if there are any. A test that fails runs once more, alone (failed.sh). Before
# the last line are the names of all that failed, and of those that were skipped, with the reasons:
# tests with #[ignore], and tests that cannot run on this host. A program that hangs is ended after
# PARAVANE_UNIT_SECONDS (lanes.sh).

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/failed.sh"
. "$(dirname "$0")/lanes.sh"
cd "$root"

# Each fuzz target.
seconds=5
[ "${1:-}" != --long ] || seconds=3600
export PARAVANE_FUZZ_SECONDS=${PARAVANE_FUZZ_SECONDS:-$seconds}
profile=() all=() longest=900
if [ "${1:-}" = --long ]; then
	# More vCPUs, more repetitions, more random cases, and the program as it is shipped.
	longest=43200
	export PARAVANE_TEST_LONG=1 PROPTEST_CASES=20000
	profile=(--release) all=(-- --include-ignored)
fi

# Of lanes.sh. No unit has more than 20 of the 23 fuzz targets.
# shellcheck disable=SC2034
unit_seconds=${PARAVANE_UNIT_SECONDS:-$((longest + 20 * PARAVANE_FUZZ_SECONDS))}

# took WHAT: how long it took since the last of these.
since=$SECONDS
took() {
	say "$1 took $((SECONDS - since)) s"
	since=$SECONDS
}

# build_kernel ARGUMENT...: builds Linux, which most tests boot. cargo gets the arguments. No test
# waits for that on a machine with empty caches.
build_kernel() {
	[ -z "${PARAVANE_TEST_KERNEL:-}" ] || return 0
	slowly "building Linux, unless it is in the cache" \
		cargo run --locked --quiet --package paravane --bin paravane "$@" -- kernel build
}

if ! scripts/lint.sh; then
	closing_line 0 1
	exit 1
fi

log=$(mktemp) units=$(mktemp)
# A test that cannot run here passes for cargo, and says in this file that it was skipped.
PARAVANE_SKIPPED=$(mktemp)
export PARAVANE_SKIPPED
trap 'rm -f "$log" "$log".* "$units" "$PARAVANE_SKIPPED"' EXIT
# counts: how many tests passed, failed and were skipped so far. Each test program ends with
# test result: ok. 12 passed; 0 failed; 0 ignored; ...
counts() {
	awk '/^test result: / { gsub(";", ""); p += $4; f += $6; i += $8 }
		END { printf "%d %d %d\n", p, f, i }' "$log"
}
took "lint"
say "tests"
status=0
if test_units "${profile[@]}" >"$units"; then
	build_kernel "${profile[@]}" || status=1
	took "the build"
	run_lanes "$log" "$units" "${profile[@]}" "${all[@]}" || status=$?
else
	status=1
fi
# A program that dies before its result has failed too, whatever its tests do when they run alone.
read -r _ failed _ < <(counts)
again=$(failed_again "$log" "$failed" "${profile[@]}")
unsteady=$((failed - again))
if [ "$unsteady" -gt 0 ] && [ "$again" -eq 0 ] && all_have_results "$log" &&
	[ ! -s "$log.died" ]; then
	status=0
fi
took "the run"
[ ! -e "$log.times" ] || tell_slowest "$log" 15
# The order of memory accesses between the monitor and the layer, in every order of the threads.
say "wake-ups under loom"
RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test --locked --package paravane-wakeup \
	--target-dir target/loom 2>&1 | tee -a "$log" || status=$?
# The same for the two sides of the virtual bus's queues.
RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test --locked --package paravane-vbus-shm \
	--test loom --target-dir target/loom 2>&1 | tee -a "$log" || status=$?
took "loom"

read -r passed failed ignored < <(counts)
skipped=$(skipped_tests "$PARAVANE_SKIPPED")
passed=$((passed + unsteady - skipped)) failed=$((failed - unsteady))
tell_skipped "$PARAVANE_SKIPPED" "$log"
# What does not compile or dies without a result has failed too.
if [ $status -ne 0 ] && [ "$failed" -eq 0 ]; then
	failed=1
fi
if [ "${1:-}" = --long ]; then
	for script in test-package newcomer; do
		say "$script"
		"scripts/$script.sh" | tee "$log" || status=$?
		# Each ends with: N passed, N failed
		read -r p f < <(
			sed -n '$s/^\([0-9]*\) passed, \([0-9]*\) failed.*/\1 \2/p' "$log"
		) || p=0 f=1
		passed=$((passed + p)) failed=$((failed + f))
	done
fi
closing_line "$passed" "$failed" "$((ignored + skipped))"
[ $status -eq 0 ] && [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
