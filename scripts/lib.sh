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

# have COMMAND: is it there?
have() {
	command -v "$1" >/dev/null 2>&1
}

# closing_line PASSED FAILED [SKIPPED]: the line that every run of tests ends with.
closing_line() {
	if [ "${3:-0}" -gt 0 ]; then
		printf '%d passed, %d failed, %d skipped\n' "$1" "$2" "$3"
	else
		printf '%d passed, %d failed\n' "$1" "$2"
	fi
}
