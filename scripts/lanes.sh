# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash
#
# The tests of the workspace, two programs at a time. To be sourced.
#
# Many programs start one virtual machine after the other and leave a processor idle, others wait.
# Each runs one test at a time here, so the host has no more to do than with two tests of one
# program at a time. Programs that measure time, or need the host for themselves, say so in a line
# `// Alone: REASON` of their source. They run after the others, one after the other.

lanes=2

# test_units ARGUMENT...: a line for each call of cargo that runs tests: what chooses them. First
# those that run beside others. cargo test gets the arguments.
test_units() {
	local names name
	# Executable tests/NAME.rs (target/debug/deps/NAME-HASH)
	names=$(cargo test --locked --workspace --no-run "$@" 2>&1 |
		tee >(grep -v '^ *Executable ' >&2) |
		sed -n 's|^ *Executable tests/\(.*\)\.rs (.*|\1|p' | sort -u) || return
	printf '%s\n' '--lib --bins' '--doc'
	for name in $names; do
		is_alone "$name" || printf '%s\n' "--test $name"
	done
	for name in $names; do
		! is_alone "$name" || printf '%s\n' "alone --test $name"
	done
}

# is_alone NAME: does the program with this name need the host for itself?
is_alone() {
	[ -e "$root/tests/tests/$1.rs" ] && grep -q '^// Alone: ' "$root/tests/tests/$1.rs"
}

# run_unit LOG UNIT ARGUMENT...: runs the tests of a unit; prints all that they have printed at the
# end, and appends it to the log. A unit that fails is named in LOG.failed, and in LOG.died if no
# test of it has failed.
run_unit() {
	local log=$1 unit=$2 output failed=
	shift 2
	output=$(mktemp)
	# shellcheck disable=SC2086 # Several arguments.
	cargo test --locked --workspace --no-fail-fast $unit "$@" </dev/null >"$output" 2>&1 ||
		failed=1
	(
		flock 9
		tee -a "$log" <"$output"
		[ -z "$failed" ] || printf '%s\n' "$unit" >>"$log.failed"
		[ -z "$failed" ] || grep -q '^test result: FAILED' "$output" ||
			printf '%s\n' "$unit" >>"$log.died"
	) 9>>"$log.lock"
	rm -f "$output"
}

# run_lanes LOG UNITS ARGUMENT...: runs all units of the file UNITS. Fails if one has failed.
run_lanes() {
	local log=$1 units=$2 unit
	shift 2
	trap 'end_lanes; exit 130' INT TERM
	while read -r unit; do
		[ "${unit%% *}" != alone ] || continue
		while [ "$(jobs -rp | wc -l)" -ge "$lanes" ]; do
			wait -n || true
		done
		# A group of its own for each, so that it can be ended with all that it has started.
		set -m
		RUST_TEST_THREADS=1 run_unit "$log" "$unit" "$@" &
		set +m
	done <"$units"
	wait
	while read -r unit; do
		[ "${unit%% *}" = alone ] || continue
		set -m
		run_unit "$log" "${unit#alone }" "$@" &
		set +m
		wait
	done <"$units"
	trap - INT TERM
	[ ! -s "$log.failed" ]
}

# end_lanes: ends what runs.
end_lanes() {
	local job
	for job in $(jobs -p); do
		kill -TERM -- "-$job" 2>/dev/null || true
	done
}
