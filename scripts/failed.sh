# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash
#
# Tests that failed: their names, and each of them once more, alone. To be sourced.

# How many tests may fail beside others and pass alone before a run has failed.
unsteady_at_most=3

# failed_tests LOG: a line for each test that failed in an output of cargo test: the arguments of
# cargo that choose its program, a tab, its name. A test in documentation has no program: "-".
failed_tests() {
	awk '
		/^ +Running / {
			program = $NF
			sub(/^.*\//, "", program)
			sub(/-[0-9a-f]+\)$/, "", program)
			dashed = program
			gsub(/_/, "-", dashed)
			if ($2 != "unittests")
				select = "--workspace --test " program
			else if ($3 == "src/lib.rs")
				select = "--package " dashed " --lib"
			else if ($3 == "src/main.rs")
				select = "--workspace --bin " dashed
			else
				select = "--workspace --bin " program
		}
		/^ +Doc-tests / { select = "-" }
		/^test .* \.\.\. FAILED/ {
			name = $0
			sub(/^test /, "", name)
			sub(/ +\.\.\. FAILED.*$/, "", name)
			# A test whose panic was expected, or not, says so after its name.
			sub(/ - should panic$/, "", name)
			print select "\t" name
		}' "$1"
}

# all_have_results LOG: has each program that cargo lists as failed printed its result?
all_have_results() {
	[ "$(grep -c '^test result: FAILED' "$1")" -eq "$(grep -c '^    `-p .*`$' "$1")" ]
}

# passes_alone SELECT NAME ARGUMENT...: runs one test. A name that no program knows has not passed.
passes_alone() {
	local select=$1 name=$2 output status=0
	shift 2
	# shellcheck disable=SC2086 # Several arguments.
	output=$(cargo test --locked $select "$@" -- --include-ignored --exact "$name" \
		</dev/null 2>&1) || status=$?
	printf '%s\n' "$output" >&2
	[ $status -eq 0 ] &&
		[ "$(awk '/^test result: ok/ { p += $4 } END { print p + 0 }' <<<"$output")" -eq 1 ]
}

# failed_again LOG FAILED ARGUMENT...: runs each test that LOG says has failed again, with nothing
# beside it, and prints how many have failed for good; cargo test gets the arguments. Timing on a
# busy host makes a test unsteady, which is a fault of the test: it is named, and more than a few
# fail the run. FAILED, the number of failures that the programs counted, must be that of the names.
failed_again() {
	local log=$1 failed=$2 select name again=0 names
	shift 2
	names=$(failed_tests "$log")
	if [ "$failed" -eq 0 ] || [ "$failed" -gt "$unsteady_at_most" ] ||
		[ "$(grep -c . <<<"$names")" -ne "$failed" ] || grep -q $'^-\t' <<<"$names"; then
		sed 's/^[^\t]*\t/==> failed: /' <<<"$names" >&2
		echo "$failed"
		return
	fi
	while IFS=$'\t' read -r select name; do
		say "again, alone: $name"
		if passes_alone "$select" "$name" "$@"; then
			say "unsteady: $name failed beside other tests and passed alone"
		else
			say "failed: $name"
			again=$((again + 1))
		fi
	done <<<"$names"
	echo "$again"
}
