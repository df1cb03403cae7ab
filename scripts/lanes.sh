# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash
#
# The tests of the workspace, two programs at a time. To be sourced.
#
# Many programs start one virtual machine after the other and leave a processor idle, others wait.
# Each runs one test at a time here, so the host has no more to do than with two tests of one
# program at a time. Programs that measure time, or need the host for themselves, say so in a line
# `// Alone: REASON` of their source. They run after the others, one after the other, and with one
# test at a time. A program that decides itself which of its tests run at the same time says so in a
# line `// Threads: REASON`, and has libtest's default number of threads when it runs alone.

lanes=2

# The longest that a unit may take, in seconds. A unit that takes longer hangs. The slowest takes
# five minutes.
unit_seconds=900
# Seconds since the start of the script. A unit that hangs later is not repeated, so that a run
# takes no more than 90 minutes.
again_until=3000

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

# is_alone NAME: does the program with this name, of whatever crate, need the host for itself?
is_alone() {
	has_line "$1" Alone
}

# plans_threads NAME: does this program decide itself which of its tests run at the same time?
plans_threads() {
	has_line "$1" Threads
}

# has_line NAME WORD: has the source of a program with this name a line `// WORD: REASON`?
has_line() {
	local source
	for source in "$root"/{,*/,*/*/}tests/"$1".rs; do
		[ ! -e "$source" ] || ! grep -q "^// $2: " "$source" || return 0
	done
	return 1
}

# run_unit LOG UNIT ARGUMENT...: runs the tests of a unit; prints all that they have printed at the
# end, and appends it to the log. A unit that fails is named in LOG.failed, and in LOG.died if no
# test of it has failed. A unit that hangs is ended, with a report of its processes, and named in
# LOG.hung; its results are not in the log. LOG.done names each unit that has ended. LOG.times has
# a line for each: the seconds that it took, its processor time in seconds, its name.
run_unit() {
	local log=$1 unit=$2 output tests limit first='' failed='' begun=$SECONDS seconds
	shift 2
	output=$(mktemp)
	# Background processes of a shell ignore these signals, which tests send to programs.
	# shellcheck disable=SC2086 # Several arguments.
	env --default-signal=INT,QUIT cargo test --locked --workspace --no-fail-fast $unit "$@" \
		</dev/null >"$output" 2>&1 &
	tests=$!
	sleep "$unit_seconds" </dev/null >/dev/null 2>&1 &
	limit=$!
	trap 'say "$unit was running:"; tail -n 20 "$output" >&2; rm -f "$output"; exit 143' TERM
	wait -n -p first "$tests" "$limit" || failed=failed
	if [ "${first:-}" = "$limit" ]; then
		failed=hung
		{
			echo
			say "$unit: ended, it ran for more than $unit_seconds s"
			tell_processes "$tests"
		} >>"$output" 2>&1
		end_processes "$tests"
	else
		kill "$limit"
	fi
	wait || true
	# The second line is for children: MmSs MmSs, in user mode and in the kernel. A pipe would
	# run this in a new shell, which has no children.
	times >"$output.times"
	seconds=$(awk -F '[m s]' 'NR == 2 {
		printf "%.0f", 60 * ($1 + $4) + $2 + $5
	}' "$output.times")
	rm "$output.times"
	(
		flock 9
		if [ "$failed" = hung ]; then
			cat "$output"
		else
			tee -a "$log" <"$output"
		fi
		printf '%s\n' "$unit" >>"$log.done"
		printf '%s\n' "$((SECONDS - begun)) $seconds $unit" >>"$log.times"
		[ -z "$failed" ] || printf '%s\n' "$unit" >>"$log.$failed"
		[ "$failed" != failed ] || grep -q '^test result: FAILED' "$output" ||
			printf '%s\n' "$unit" >>"$log.died"
	) 9>>"$log.lock"
	rm -f "$output"
}

# tell_slowest LOG COUNT: prints the units that took longest, and the sums of all.
tell_slowest() {
	say "the slowest units: seconds, seconds of processor time"
	sort -rn "$1.times" | head -n "$2" | sed 's/^/  /'
	awk '{ s += $1; p += $2 } END { printf "  %d %d all units\n", s, p }' "$1.times"
}

# run_lanes LOG UNITS ARGUMENT...: runs all units of the file UNITS. Fails if one has failed. A unit
# that hangs runs once more, with nothing beside it, as a test that fails does (failed.sh). Two that
# hang, or one that hangs twice, fail the run. So does a unit of which nothing is known.
run_lanes() {
	local log=$1 units=$2 unit hung
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
		run_alone "$log" "${unit#alone }" "$@"
	done <"$units"
	if [ -s "$log.hung" ]; then
		hung=$(cat "$log.hung")
		if [ "$(wc -l <<<"$hung")" -eq 1 ] && [ "$SECONDS" -lt "$again_until" ]; then
			say "again, alone: $hung, which hung"
			: >"$log.hung"
			run_alone "$log" "$hung" "$@"
			[ -s "$log.hung" ] || say "unsteady: $hung hung and has ended alone"
		fi
		cat "$log.hung" >>"$log.died"
	fi
	# A unit whose shell has died.
	sed 's/^alone //' "$units" | sort -u | comm -23 - <(sort -u "$log.done") >>"$log.died"
	trap - INT TERM
	[ ! -s "$log.failed" ] && [ ! -s "$log.died" ]
}

# run_alone LOG UNIT ARGUMENT...: runs a unit, and waits for it. Its tests run one after the other,
# so that none disturbs what another one measures.
run_alone() {
	set -m
	if plans_threads "${2#--test }"; then
		run_unit "$@" &
	else
		RUST_TEST_THREADS=1 run_unit "$@" &
	fi
	set +m
	wait
}

# end_lanes: ends what runs. Each unit says what it was doing.
end_lanes() {
	local job
	for job in $(jobs -p); do
		kill -TERM -- "-$job" 2>/dev/null || true
	done
	wait
}

# descendants PID: it, and the processes that it or one of them has started. By /proc: a small
# installation has no ps.
descendants() {
	printf '%s\n' "$1"
	# PID (NAME) STATE PARENT ...: a name may have spaces. Processes end meanwhile.
	cat /proc/[0-9]*/stat 2>/dev/null | sed 's/(.*)//' | awk -v top="$1" '
		{ parent[$1] = $3 }
		END {
			for (pid in parent) {
				for (p = pid; p != top && p in parent; )
					p = parent[p]
				if (p == top && pid != top)
					print pid
			}
		}'
}

# tell_processes PID: its descendants with their threads, and where each thread waits.
tell_processes() {
	local pid task
	for pid in $(descendants "$1"); do
		[ -d "/proc/$pid" ] || continue
		printf '%s: %s\n' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
		for task in /proc/"$pid"/task/*; do
			# State and system call. The stack is root's to read.
			printf '  %s: %s, %s, %s\n' "${task##*/}" \
				"$(sed -n 's/^State:[[:space:]]*//p' "$task/status" 2>&1)" \
				"$(cat "$task/wchan" 2>&1)" "$(cat "$task/syscall" 2>&1)"
			cat "$task/stack" 2>/dev/null || true
		done
	done
}

# end_processes PID: kills its descendants.
end_processes() {
	local pids
	pids=$(descendants "$1")
	# shellcheck disable=SC2086 # Several processes.
	kill -KILL $pids 2>/dev/null || true
}
