#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# conformance.sh: the conformance suite on the process hypervisor, then the same guest on bare metal
# that QEMU emulates, with no layer and with each native one. The last line sums up all four.

. "$(dirname "$0")/lib.sh"
cd "$root"

cargo_build --release
paravane="${CARGO_TARGET_DIR:-target}/release/paravane"
output=$(mktemp)
trap 'rm -f "$output"' EXIT

status=0 passed=0 failed=0 skipped=0
for machine in "process process" "qemu none" "qemu native" "qemu native-stats"; do
	printf '\n'
	"$paravane" conformance --hypervisor "${machine% *}" --layer "${machine#* }" \
		--cpus "${CPUS:-2}" | tee "$output" || status=1
	# The last line is always: N passed, N failed[, N skipped]
	read -r p _ f _ s _ < <(tail -n 1 "$output") || true
	passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0})) skipped=$((skipped + ${s:-0}))
done
printf '\nAll four together:\n'
closing_line "$passed" "$failed" "$skipped"
exit $status
