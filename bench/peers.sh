#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# peers.sh: measures one static program (bench/micro/) on the host, in a Paravane machine and in
# QEMU's software emulation (TCG), with the same kernel and the same root in both machines.
#
#   bench/peers.sh [--turns N] [--write FILE]... [ROW...]
#
# Each turn measures every row on all three, one after the other. The table shows the median of the
# turns, and the median of the ratios to the host's figure of the same turn. --write puts the table
# between the markers `bench:peers` of FILE as well. PARAVANE names the program, target/release by
# default. The host must be quiet, or the figures mean little.

. "$(dirname "$0")/../scripts/lib.sh"
paravane=${PARAVANE:-$root/target/release/paravane}
memory=512
turns=5
pages=()
rows=()

# The operation of a row, for the table.
operation() {
	case $1 in
	start) echo "start a machine, run one program, end the machine" ;;
	getppid) echo "system call (getppid)" ;;
	anonymous_fault) echo "first write to a page" ;;
	pipe_switch) echo "switch to another process through a pipe" ;;
	fork_exec) echo "fork, exec of a static program, exit, wait" ;;
	shell) echo "sh -c with two commands" ;;
	compile) echo "gcc -O2 -c of a C file" ;;
	tcp_round_trip) echo "a byte over TCP on loopback and back" ;;
	*) die "unknown row $1: start, getppid, anonymous_fault, pipe_switch, fork_exec, shell," \
		"compile and tcp_round_trip are possible" ;;
	esac
}

while [ $# -gt 0 ]; do
	case $1 in
	--turns | --write)
		[ $# -gt 1 ] || die "$1 needs a value"
		[ "$1" = --turns ] && turns=$2 || pages+=("$2")
		shift
		;;
	-*) die "unknown option $1: --turns and --write are possible" ;;
	*) operation "$1" >/dev/null && rows+=("$1") ;;
	esac
	shift
done
[[ $turns =~ ^[1-9][0-9]*$ ]] || die "--turns $turns: a number from 1 on is possible"
[ ${#rows[@]} -gt 0 ] || rows=(start getppid anonymous_fault fork_exec compile tcp_round_trip)
for page in "${pages[@]}"; do
	grep -q '^<!-- bench:peers begin -->$' "$page" ||
		die "$page: no line <!-- bench:peers begin -->"
done
for tool in gcc make cpio busybox qemu-system-x86_64 taskset timeout; do
	have "$tool" || die "$tool is not installed (apt-get install build-essential cpio" \
		"busybox-static qemu-system-x86)"
done
[ -x "$paravane" ] || die "$paravane: not there (make build, or set PARAVANE)"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tree=$folder/tree
say "the kernel and the root"
"$paravane" kernel build --output "$folder/kernel" >"$folder/log" 2>&1 ||
	die "$(tail -n 1 "$folder/log")"
make -s -C "$root/bench/micro" OUT="$folder/micro"

# copy FILE: into the root, under its own name, with the libraries that it is linked with.
copy() {
	local file
	for file in "$1" $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*'); do
		mkdir -p "$tree$(dirname "$file")"
		cp -L "$file" "$tree$file"
	done
}

mkdir -p "$tree"/{dev,proc,sys,tmp,etc,root}
cp "$folder/micro/micro" "$(command -v busybox)" "$tree"
mv "$tree/busybox" "$tree/sh"
cp "$tree/micro" "$tree/init"
cp "$root"/bench/micro/*.[ch] "$tree"
compiler=$(command -v gcc)
for tool in "$compiler" "$(gcc -print-prog-name=cc1)" "$(command -v as)"; do
	copy "$tool"
done
for file in $(cd "$tree" && gcc -O2 -M main.c | tr ' ' '\n' | grep '^/'); do
	copy "$file"
done
(cd "$tree" && find . | cpio --quiet -o -H newc) >"$folder/initrd"

# figure ROW: the nanoseconds in a program's output, which is on stdin.
figure() {
	tr -d '\r' | awk -v row="$1" '$1 == "micro" && $2 == row { print $3; found = 1 }
		END { exit !found }'
}

# elapsed COMMAND...: its wall-clock time, ns.
elapsed() {
	local from
	from=$(date +%s%N)
	"$@" >"$folder/output" 2>&1 </dev/null || die "$1 failed: $(tail -n 1 "$folder/output")"
	echo $(($(date +%s%N) - from))
}

on_paravane() {
	timeout 300 "$paravane" run --hypervisor process --kernel "$folder/kernel/vmlinux" \
		--initrd "$folder/initrd" --memory "$memory" --net none --workdir / \
		--env "compiler=$compiler" -- "$@"
}

on_qemu() {
	timeout 900 qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max -m "$memory" \
		-smp 1 -display none -vga none -serial stdio \
		-nodefaults -no-user-config -no-reboot \
		-kernel "$folder/kernel/bzImage" -initrd "$folder/initrd" \
		-append "console=ttyS0 quiet micro=$1 compiler=$compiler"
}

# All sides are on one CPU, and so are both ends of a round trip: otherwise the row of a side that
# has two would be the time in which an idle CPU starts.
cpu=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')

# measure WHERE ROW: one figure, ns. A start has all CPUs, as for users.
measure() {
	[ "$2" = start ] || taskset -cp "$cpu" $BASHPID >/dev/null
	case $1-$2 in
	host-start) elapsed "$tree/micro" true ;;
	paravane-start) elapsed on_paravane /micro true ;;
	qemu-start) elapsed on_qemu "" ;;
	host-*) (cd "$tree" && compiler=$compiler ./micro "$2") | figure "$2" ;;
	paravane-*) on_paravane /micro "$2" </dev/null | figure "$2" ;;
	qemu-*) on_qemu "$2" </dev/null | figure "$2" ;;
	esac || die "$2 could not be measured on $1"
}

for ((turn = 1; turn <= turns; turn++)); do
	for row in "${rows[@]}"; do
		say "turn $turn of $turns: $row"
		# In turn from either end, so that no side always comes after the same one.
		if ((turn % 2)); then
			host=$(measure host "$row")
			vm=$(measure paravane "$row")
			tcg=$(measure qemu "$row")
		else
			tcg=$(measure qemu "$row")
			vm=$(measure paravane "$row")
			host=$(measure host "$row")
		fi
		echo "$row $host $vm $tcg" >>"$folder/figures"
	done
done

table() {
	local row
	echo "| operation | host | Paravane | QEMU (TCG) |"
	echo "| --- | ---: | ---: | ---: |"
	for row in "${rows[@]}"; do
		grep "^$row " "$folder/figures" | awk -v what="$(operation "$row")" -v row="$row" '
			function median(a, n,    i, j, t) {
				for (i = 2; i <= n; i++)
					for (j = i; j > 1 && a[j - 1] > a[j]; j--) {
						t = a[j]; a[j] = a[j - 1]; a[j - 1] = t
					}
				return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
			}
			function time(ns) {
				if (ns < 1e3) return sprintf("%.0f ns", ns)
				if (ns < 1e6) return sprintf("%.1f us", ns / 1e3)
				if (ns < 1e9) return sprintf("%.1f ms", ns / 1e6)
				return sprintf("%.2f s", ns / 1e9)
			}
			{
				n++
				host[n] = $2; vm[n] = $3; tcg[n] = $4
				a[n] = $3 / $2; b[n] = $4 / $2
			}
			END {
				h = time(median(host, n))
				v = time(median(vm, n))
				t = time(median(tcg, n))
				if (row == "start")
					printf "| %s | - | %s | %s |\n", what, v, t
				else
					printf "| %s | %s | %s (%.2f) | %s (%.1f) |\n",
						what, h, v, median(a, n), t, median(b, n)
			}'
	done
}

table | tee "$folder/table"
for page in "${pages[@]}"; do
	awk -v table="$folder/table" '
		/^<!-- bench:peers begin -->$/ {
			print; print ""
			while ((getline line < table) > 0) print line
			print ""; skip = 1
		}
		/^<!-- bench:peers end -->$/ { skip = 0 }
		!skip' "$page" >"$folder/page"
	cat "$folder/page" >"$page"
done
