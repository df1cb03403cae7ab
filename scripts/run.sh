#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# run.sh: the conformance suite at host speed on the process hypervisor, then the same guest on software-emulated bare
# metal, with no layer and with each native one; then Linux: a shell, or without a terminal a short tour.

. "$(dirname "$0")/lib.sh"
cd "$root"

cargo build --locked
paravane="${CARGO_TARGET_DIR:-target}/debug/paravane"
output=$(mktemp)
trap 'rm -f "$output"' EXIT

status=0 passed=0 failed=0 skipped=0
for machine in "process process" "qemu none" "qemu native" "qemu native-stats"; do
	printf '\n'
	"$paravane" conformance --hypervisor "${machine% *}" --layer "${machine#* }" --cpus "${CPUS:-2}" | tee "$output" || status=1
	# The last line is always: N passed, N failed[, N skipped]
	read -r p _ f _ s _ < <(tail -n 1 "$output") || true
	passed=$((passed + ${p:-0})) failed=$((failed + ${f:-0})) skipped=$((skipped + ${s:-0}))
done
printf '\nAll four together:\n'
closing_line "$passed" "$failed" "$skipped"
[ $status -eq 0 ] || exit $status

printf '\n'
if [ -t 0 ] && [ -t 1 ]; then
	cat <<'END'
This is Linux in a virtual machine made of ordinary host processes: no hardware virtualization, no root.
Look around; `exit` or Ctrl-] leaves it and ends the machine.

END
	exec "$paravane" run --cpus "${CPUS:-2}" --memory 512M
fi
# shellcheck disable=SC2016 # The guest's shell expands it.
tour='
set -e
echo "Linux in a virtual machine made of ordinary host processes:"
echo "  kernel     $(uname -sr), $(nproc) CPUs, $(awk "/MemTotal/ {print int(\$2 / 1024)}" /proc/meminfo) MiB"
echo "  layer      $(dmesg | sed -n "s/.*VMI: layer //p")"
echo "  booted in  $(cut -d " " -f 1 /proc/uptime) s"
echo "  processes  $(ps | tail -n +2 | wc -l), of which process 1 is $(cat /proc/1/comm)"
echo "  a pipeline of 200 processes: $(i=0; while [ $i -lt 200 ]; do echo $i | cat; i=$((i + 1)); done | awk "{s += \$1} END {print s}")"
echo "  a file of 16 MiB: $(head -c 16777216 /dev/zero | tee /tmp/file | sha256sum | cut -c 1-16)... and again $(sha256sum /tmp/file | cut -c 1-16)..."
'
"$paravane" run --cpus "${CPUS:-2}" --memory 512M -- sh -c "$tour"
printf '\nYour own: %s run -- COMMAND, or %s run for a shell\n' "$paravane" "$paravane"
