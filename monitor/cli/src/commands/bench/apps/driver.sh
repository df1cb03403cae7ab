# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash
#
# Runs scripts on one side of a benchmark, the same way on each. Its input is a line for each
# script, with \n for a new line and \\ for a backslash. Its output for each is three lines: exit
# code and microseconds, the last line that the script printed, its last error message.

set -u
# Both sides have the same mask. The host's side would inherit that of the user.
umask 022
export LC_ALL=C HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
text=$(mktemp -d /tmp/bench.XXXXXX) || exit 1
trap 'rm -rf "$text"' EXIT
# A command of its own may not exist in a small root: the shell does this itself.
last_line() {
	local line last=
	while IFS= read -r line || [ -n "$line" ]; do
		[ -z "$line" ] || last=$line
	done <"$1"
	printf '%s\n' "${last//[^[:print:]]/ }"
}
echo 'bench ready'
while IFS= read -r line; do
	printf -v script '%b' "$line"
	began=$EPOCHREALTIME
	(
		set -euo pipefail
		cd /srv
		eval "$script"
	) </dev/null >"$text/out" 2>"$text/err"
	status=$?
	ended=$EPOCHREALTIME
	echo "bench done $status $((${ended/./} - ${began/./}))"
	last_line "$text/out"
	last_line "$text/err"
done
