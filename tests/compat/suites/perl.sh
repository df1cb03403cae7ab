#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# perl: builds it and runs the tests of its core, with a verdict for each file.

. /suites/lib.sh
cd /src/perl
PART_LIMIT=3600
part perl_configure $as_tester sh Configure -des -Dusedevel -Dman1dir=none -Dman3dir=none
part perl_build $as_tester make -j "$jobs" test_prep
# There is no terminal.
export PERL_SKIP_TTY_TEST=1
cat >/tmp/file <<'END'
. /suites/lib.sh
cd /src/perl/t
name=$(echo "$1" | tr / _)
log=$logs/$name
if timeout -k 10 900 ./perl -I../lib TEST "$1" >"$log" 2>&1 </dev/null; then
	echo "verdict $name pass"
elif grep -q ' \.\.\. skipped$' "$log"; then
	echo "verdict $name skip"
else
	echo "verdict $name fail $1"
	{ echo "--- $name"; tail -n 40 "$log"; } >&2
fi
END
cd t
printf '%s\n' base/*.t cmd/*.t comp/*.t io/*.t op/*.t re/*.t uni/*.t mro/*.t lib/*.t |
	each /tmp/file
