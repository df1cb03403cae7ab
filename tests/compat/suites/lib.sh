# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=sh
#
# Shared by the suites, which source it. On stdout a suite prints `verdict NAME pass|fail|skip` for
# each of its parts, perhaps with words after it, and nothing else.

set -eu
LC_ALL=C.UTF-8
export LC_ALL
# The output of each part, to find out why it failed.
logs=/tmp/logs
# Parts that another user runs write here, too.
[ -d "$logs" ] || mkdir -m 1777 "$logs"

# part NAME COMMAND...: passes if the command does within a quarter of an hour.
part() {
	part_name=$1
	shift
	if timeout -k 10 "${PART_LIMIT:-900}" "$@" >"$logs/$part_name" 2>&1 </dev/null; then
		echo "verdict $part_name pass"
	else
		part_code=$?
		echo "verdict $part_name fail ${PART_WORD:-}"
		{
			echo "--- $part_name: exit code $part_code"
			tail -n 25 "$logs/$part_name"
		} >&2
	fi
}

# each SCRIPT: runs `sh SCRIPT WORD` as the tester for each line of stdin, a WORD, as many at a time
# as there are CPUs. Tests have limits of time, which a guest that has more CPUs than processors may
# miss. So what has failed runs once more, alone, and that is its verdict. To a verdict of failure a
# script adds the WORD.
each() {
	# grep fails if it prints nothing.
	$as_tester xargs -r -P "$jobs" -n 1 sh "$1" | tee /tmp/each |
		grep -v '^verdict [^ ]* fail' || true
	sed -n 's/^verdict [^ ]* fail //p' /tmp/each | $as_tester xargs -r -n 1 sh "$1"
}

# $as_tester COMMAND...: runs a command as a user other than root. It is not a function, since
# timeout could not run that.
as_tester='setpriv --reuid tester --regid tester --init-groups env HOME=/home/tester'
as_tester="$as_tester USER=tester LOGNAME=tester"

# At most half a minute of CPU time is wasted while parts wait for others.
jobs=$(nproc)
