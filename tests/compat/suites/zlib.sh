#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# A C library: configures and builds it, and runs its tests.

. /suites/lib.sh
cd /src/zlib
part zlib_configure $as_tester ./configure
part zlib_build $as_tester make -j "$jobs"
part zlib_test $as_tester make test
