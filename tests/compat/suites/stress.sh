#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# stress-ng's stressors one after the other, with verification, each for STRESS_SECONDS (10).

. /suites/lib.sh
cd /tmp
for class in cpu memory vm scheduler interrupt pipe; do
	# "class 'cpu' stressors: atomic bad-altstack ..."
	for name in $(stress-ng --class "$class?" 2>&1 | sed "s/.*stressors: //"); do
		# A stressor of two classes has one verdict.
		! grep -qx "$name" /tmp/done 2>/dev/null || continue
		echo "$name" >>/tmp/done
		log=$logs/$name
		code=0
		# root's madvise marks pages as broken, including its own, if the kernel can do
		# that.
		by=
		[ "$name" != madvise ] || by=$as_tester
		timeout -k 10 300 $by stress-ng --"$name" 1 --timeout "${STRESS_SECONDS:-10}" \
			--verify --oomable --temp-path /tmp \
			>"$log" 2>&1 </dev/null || code=$?
		case $code in
		0)
			r=pass
			! grep -q 'skipped' "$log" || grep -q 'passed: 1' "$log" || r=skip
			;;
		3 | 4) r=skip ;;	# no resource, not implemented here
		*)
			r=fail
			# stress-ng skips it because it could crash the machine.
			! grep -q 'No stress workers invoked' "$log" || r=skip
			[ $r = skip ] || {
				echo "--- $name: exit code $code"
				tail -n 15 "$log"
			} >&2
			;;
		esac
		echo "verdict $name $r"
	done
done
