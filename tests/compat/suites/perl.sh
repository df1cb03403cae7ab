#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# perl: built, and the tests of its core and of its modules, each file a verdict.

. /suites/lib.sh
cd /src/perl
PART_LIMIT=3600
part perl_configure as_tester sh Configure -des -Dusedevel -Dman1dir=none -Dman3dir=none
part perl_build as_tester make -j "$jobs" test_prep
cat >/tmp/file <<'END'
. /suites/lib.sh
cd /src/perl/t
part "$(echo "$1" | tr / _)" ./perl -I../lib TEST "$1"
END
cd t
printf '%s\n' base/*.t cmd/*.t comp/*.t io/*.t op/*.t re/*.t uni/*.t mro/*.t lib/*.t |
	as_tester xargs -P "$jobs" -n 1 sh /tmp/file
