# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=sh
#
# What the suites share. To be sourced. A suite says `verdict NAME pass|fail|skip` of each of its parts, and nothing else on stdout.

set -eu
LC_ALL=C.UTF-8
export LC_ALL
# What a part printed, for who wants to know why.
logs=/tmp/logs
# Parts that somebody else runs come here, too.
[ -d "$logs" ] || mkdir -m 1777 "$logs"

# part NAME COMMAND...: passes if the command does within a quarter of an hour.
part() {
	part_name=$1
	shift
	if timeout -k 10 "${PART_LIMIT:-900}" "$@" >"$logs/$part_name" 2>&1 </dev/null; then
		echo "verdict $part_name pass"
	else
		part_code=$?
		echo "verdict $part_name fail"
		{
			echo "--- $part_name: exit code $part_code"
			tail -n 25 "$logs/$part_name"
		} >&2
	fi
}

# $as_tester COMMAND...: by somebody who is not root. No function: timeout could not run it.
as_tester='setpriv --reuid tester --regid tester --init-groups env HOME=/home/tester USER=tester LOGNAME=tester'

# Half a minute of the machine's processors at most is wasted by who waits for others.
jobs=$(nproc)
