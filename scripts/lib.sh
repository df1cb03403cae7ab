# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash
#
# What the scripts share. To be sourced.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Where tools are kept that are neither in the distribution nor worth building for every checkout.
tools="${XDG_CACHE_HOME:-$HOME/.cache}/paravane/tools"
# A compiler from rustup is there before the next login puts it on the path.
PATH="$PATH:$HOME/.cargo/bin"
export PATH

# say WORD...: what a script is doing, on stderr.
say() {
	printf '==> %s\n' "$*" >&2
}

# die WORD...: one line that says what is wrong and what to do.
die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

# slowly WHAT COMMAND...: runs a command that takes long and says little. Prints what it does when
# it starts, and every 10 s.
slowly() {
	local what=$1 start=$SECONDS ticker status=0
	shift
	say "$what"
	(
		trap 'kill $! 2>/dev/null; exit 0' TERM
		while :; do
			sleep 10 &
			wait $!
			# An interrupted script does not stop this one.
			kill -0 $$ 2>/dev/null || exit 0
			say "$what: $((SECONDS - start)) s so far"
		done
	) </dev/null >/dev/null &
	ticker=$!
	"$@" || status=$?
	kill "$ticker" 2>/dev/null || true
	wait "$ticker" 2>/dev/null || true
	return $status
}

# cargo_build ARGUMENT...: cargo build. It draws a bar on a terminal; elsewhere a crate that takes a
# minute is one line.
cargo_build() {
	if [ -t 2 ]; then
		cargo build --locked "$@"
	else
		slowly "building the program (cargo build $*)" cargo build --locked "$@"
	fi
}

# have COMMAND: is it there?
have() {
	command -v "$1" >/dev/null 2>&1
}

# skipped_tests FILE: how many tests have said in it that they were skipped: skip.rs of the crate
# paravane-tests adds lines `PROGRAM TEST: REASON`, for each run of a test. A test that was skipped
# `(in part)` has tested the rest.
skipped_tests() {
	sed -n 's/^\([^ ]* [^ ]*\): .*/\1/p' "$1" | sort -u | wc -l
}

# tell_skipped FILE LOG: prints what was skipped and why: what the tests have said in the file, and
# those with #[ignore], of which the output of cargo test in the log tells.
tell_skipped() {
	{
		cat "$1"
		sed -n 's/^test \(.*[^ ]\) *\.\.\. ignored,\{0,1\}/\1: #[ignore]/p' "$2"
	} | sort -u | sed 's/^/==> skipped: /' >&2
}

# closing_line PASSED FAILED [SKIPPED]: the line that every run of tests ends with.
closing_line() {
	if [ "${3:-0}" -gt 0 ]; then
		printf '%d passed, %d failed, %d skipped\n' "$1" "$2" "$3"
	else
		printf '%d passed, %d failed\n' "$1" "$2"
	fi
}
