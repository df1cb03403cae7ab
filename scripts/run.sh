#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# run.sh: Linux in a virtual machine: a shell at a terminal, a short demo elsewhere.

. "$(dirname "$0")/lib.sh"
cd "$root"

cargo_build --release
paravane="${CARGO_TARGET_DIR:-target}/release/paravane"

if [ -t 0 ] && [ -t 1 ]; then
	cat <<'END'

This is Linux in a virtual machine made of ordinary host processes: no hardware virtualization, no
root. Look around; `exit` or Ctrl-] leaves it and ends the machine.

END
	exec "$paravane" run --cpus "${CPUS:-2}" --memory 512M
fi
# shellcheck disable=SC2016 # The guest's shell expands it.
tour='
set -e
echo "Linux in a virtual machine made of ordinary host processes:"
memory=$(awk "/MemTotal/ {print int(\$2 / 1024)}" /proc/meminfo)
echo "  kernel     $(uname -sr), $(nproc) CPUs, $memory MiB"
echo "  layer      $(dmesg | sed -n "s/.*VMI: layer //p")"
echo "  booted in  $(cut -d " " -f 1 /proc/uptime) s"
echo "  processes  $(ps | tail -n +2 | wc -l), of which process 1 is $(cat /proc/1/comm)"
numbers() { i=0; while [ $i -lt 200 ]; do echo $i | cat; i=$((i + 1)); done; }
echo "  a pipeline of 200 processes: $(numbers | awk "{s += \$1} END {print s}")"
sum=$(head -c 16777216 /dev/zero | tee /tmp/file | sha256sum | cut -c 1-16)
echo "  a file of 16 MiB: $sum... and again $(sha256sum /tmp/file | cut -c 1-16)..."
'
"$paravane" run --cpus "${CPUS:-2}" --memory 512M -- sh -c "$tour"
printf '\nYour own: %s run -- COMMAND, or %s run for a shell\n' "$paravane" "$paravane"
