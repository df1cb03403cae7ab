# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=sh
#
# Shared by the suites, which source it. On stdout a suite prints `verdict NAME pass|fail|skip` for
# each of its parts, and nothing else.

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
		echo "verdict $part_name fail"
		{
			echo "--- $part_name: exit code $part_code"
			tail -n 25 "$logs/$part_name"
		} >&2
	fi
}

# $as_tester COMMAND...: runs a command as a user other than root. It is not a function, since
# timeout could not run that.
as_tester='setpriv --reuid tester --regid tester --init-groups env HOME=/home/tester'
as_tester="$as_tester USER=tester LOGNAME=tester"

# At most half a minute of CPU time is wasted while parts wait for others.
jobs=$(nproc)
