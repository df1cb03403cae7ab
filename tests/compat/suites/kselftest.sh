#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Linux's own tests of x86, timers, futex and mm, from the sources of the running kernel. They
# change the clock and the use of the whole machine's memory, so they run in a guest only. Each has
# a time limit.

. /suites/lib.sh
selftests=/src/linux/tools/testing/selftests

# run NAME COMMAND...: a part with kselftest's exit codes: 4 is "skipped".
run() {
	run_name=$1
	shift
	run_code=0
	timeout -k 10 "${PART_LIMIT:-300}" "$@" >"$logs/$run_name" 2>&1 </dev/null || run_code=$?
	case $run_code in
	0) echo "verdict $run_name pass" ;;
	4) echo "verdict $run_name skip" ;;
	*)
		echo "verdict $run_name fail"
		{
			echo "--- $run_name: exit code $run_code"
			tail -n 40 "$logs/$run_name"
		} >&2
		;;
	esac
}

x86() {
	cd $selftests/x86
	for program in ./*_64; do
		run "x86_$(basename "$program" _64)" "$program"
	done
}

futex() {
	cd $selftests/futex/functional
	number=0
	# The options of its own run.sh.
	for flags in '' -b '-b -l' '-b -o' -l -o '-b -l -t 5000' '-l -t 5000' '-b -l -t 500000' \
		'-l -t 500000' '-b -t 5000' '-t 5000' \
		'-b -t 500000' '-t 500000' '-b -o -t 5000' '-b -o -t 500000' '-b -l -t 2000000000' \
		'-l -t 2000000000'; do
		number=$((number + 1))
		# shellcheck disable=SC2086 # They are words.
		run "futex_requeue_pi_$number" ./futex_requeue_pi $flags
	done
	for program in requeue_pi_mismatched_ops requeue_pi_signal_restart wait_timeout \
		wait_wouldblock wait_uninitialized_heap \
		wait_private_mapped_file wait requeue waitv; do
		run "futex_$program" "./futex_$program"
	done
}

# Without alarmtimer-suspend, which suspends the machine.
timers() {
	cd $selftests/timers
	for program in posix_timers nanosleep nsleep-lat set-timer-lat mqueue-lat raw_skew \
		threadtest rtcpie valid-adjtimex set-tai \
		set-tz adjtick freq-step leapcrash; do
		run "timers_$program" "./$program"
	done
	run timers_inconsistency-check ./inconsistency-check -t 20
	run timers_clocksource-switch ./clocksource-switch -t 10
	run timers_leap-a-day ./leap-a-day -t -i 2
	# Four times two minutes.
	(PART_LIMIT=900 && run timers_set-2038 ./set-2038)
}

# Changes and measures the clock's rate: half an hour, most of it idle.
skew() {
	cd $selftests/timers
	(PART_LIMIT=1500 && run timers_change_skew ./change_skew)
	# It uses a wait status as its exit code, so only its output tells the result.
	# shellcheck disable=SC2016 # For the inner shell.
	(PART_LIMIT=900 && run timers_skew_consistency sh -c '
		./skew_consistency >log-skew 2>&1; code=$?; cat log-skew
		! grep -q "^not ok" log-skew && grep -q "^ok 1 " log-skew && exit $code')
}

# The tests of run_vmtests.sh, each by itself.
mm() {
	cd $selftests/mm
	fallocate -l 256M /tmp-swap
	chmod 600 /tmp-swap
	mkswap -q /tmp-swap
	swapon /tmp-swap
	grep -q ' /sys/kernel/debug ' /proc/mounts || mount -t debugfs debug /sys/kernel/debug
	echo 128 >/proc/sys/vm/nr_hugepages
	# Some map more memory than the machine has, and use little of it.
	echo 1 >/proc/sys/vm/overcommit_memory
	for program in hugepage-mmap hugepage-shm map_hugetlb hugepage-mremap hugepage-vmemmap \
		hugetlb-madvise hugetlb_dio; do
		run "mm_$program" "./$program"
	done
	echo 1 >/proc/sys/vm/nr_hugepages
	for program in hugetlb_fault_after_madv hugetlb_madv_vs_map; do
		run "mm_$program" "./$program"
	done
	echo 128 >/proc/sys/vm/nr_hugepages
	run mm_thuge-gen ./thuge-gen
	run mm_uffd-unit-tests ./uffd-unit-tests
	for kind in 'anon 20 16' 'hugetlb 64 32' 'hugetlb-private 64 32' 'shmem 20 16' \
		'shmem-private 20 16'; do
		# shellcheck disable=SC2086 # They are words.
		run "mm_uffd-stress_${kind%% *}" ./uffd-stress $kind
	done
	run mm_cow ./cow
	run mm_gup_longterm ./gup_longterm
	run mm_gup_test_fast ./gup_test -u
	run mm_gup_test_pin ./gup_test -a
	run mm_gup_test_dump ./gup_test -ct -F 0x1 0 19 0x1000
	echo 0 >/proc/sys/vm/nr_hugepages
	run mm_compaction_test ./compaction_test
	for program in map_fixed_noreplace map_populate mlock-random-test mlock2-tests \
		mrelease_test mremap_test mremap_dontunmap \
		mseal_test madv_populate memfd_secret soft-dirty pagemap_ioctl \
		protection_keys_64 khugepaged \
		split_huge_page_test migration mkdirty mdwe_test droppable ksm_functional_tests \
		va_high_addr_switch; do
		run "mm_$program" "./$program"
	done
	# Without protection keys it waits for ever.
	(PART_LIMIT=60 && run mm_pkey_sighandler_tests_64 ./pkey_sighandler_tests_64)
	# It expects to be refused.
	run mm_on-fault-limit $as_tester ./on-fault-limit
	run mm_seal_elf ./seal_elf
	run mm_transhuge-stress ./transhuge-stress -d 20
	run mm_khugepaged_small ./khugepaged -s 2
	run mm_ksm_huge ./ksm_tests -H -s 100
	run mm_ksm_time ./ksm_tests -P -s 100
	run mm_ksm_merge ./ksm_tests -M -p 10
	run mm_ksm_unmerge ./ksm_tests -U
	run mm_ksm_zero ./ksm_tests -Z -p 10 -z 0
	run mm_ksm_zero_pages ./ksm_tests -Z -p 10 -z 1
	# Its verdict depends on the address-space layout, so disable randomization.
	run mm_virtual_address_range setarch -R ./virtual_address_range
}

for group in ${KSELFTEST_GROUPS:-x86 futex mm timers skew}; do
	$group
done
