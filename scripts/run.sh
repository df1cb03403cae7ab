#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# run.sh: the conformance suite on software-emulated bare metal, with no layer and with each native one.

. "$(dirname "$0")/lib.sh"
cd "$root"

cargo build --locked
paravane="${CARGO_TARGET_DIR:-target}/debug/paravane"
summary=$(mktemp)
trap 'rm -f "$summary"' EXIT

status=0
for layer in none native native-stats; do
	printf '\n'
	# The closing line of each run is the last of its output; all of it is shown as it comes.
	"$paravane" conformance --hypervisor qemu --layer "$layer" --cpus "${CPUS:-2}" > >(tee "$summary.$layer") || status=1
	wait $!
	tail -n 1 "$summary.$layer" >>"$summary"
	rm -f "$summary.$layer"
done
printf '\nAll layers: '
awk '{ p += $1; f += $3; s += $5 } END { printf "%d %d %d\n", p, f, s }' "$summary" >"$summary.sum"
read -r passed failed skipped <"$summary.sum"
rm -f "$summary.sum"
closing_line "$passed" "$failed" "$skipped"
exit $status
