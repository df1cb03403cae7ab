#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# git: builds it and runs the scripts of its test suite: the basic ones, or all with GIT_ALL=1.

. /suites/lib.sh
cd /src/git
PART_LIMIT=3600 part git_build $as_tester make -j "$jobs" NO_TCLTK=1
cat >/tmp/script <<'END'
. /suites/lib.sh
cd /src/git/t
PART_WORD=$1
part "$(basename "$1" .sh)" sh "./$1" --root="/tmp/git-$$"
rm -rf "/tmp/git-$$"
END
cd t
if [ "${GIT_ALL:-}" = 1 ]; then
	set -- t[0-9]*.sh
else
	set -- t0[0-9]*.sh t1[0-9]*.sh t3[0-4]*.sh
fi
printf '%s\n' "$@" | each /tmp/script
