#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# build.sh: the program, target/release/paravane.

. "$(dirname "$0")/lib.sh"
cd "$root"

cargo_build --release
