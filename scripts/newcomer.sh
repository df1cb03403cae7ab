#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# newcomer.sh: does what README says, in bare roots of Debian 12 and 13, or of $SUITE: as an
# ordinary user and as root, or as $AS (user, root). Each of them has a root of its own, empty
# caches and a clone of the committed tree, and runs `make run` and `make test`. Both must end well,
# and `make run` must build the kernel and never be silent for long. The last line is: N passed, N
# failed
#
# To debug it: NEWCOMER_ROOTS=DIR keeps the roots and what was done in them, and the next run goes
# on there; NEWCOMER_SEED=1 puts this user's kernel and crates into the caches, so that neither is
# made.

. "$(dirname "$0")/lib.sh"
. "$root/scripts/roots.sh"
need_root "$0" "$@"
cd "$root"

# From a line of `make run` to the next one. Lines come every 10 s; the host may be busy.
silence_s=20

passed=0 failed=0
# report OUTCOME WHAT SECONDS
report() {
	printf '%-7s %s (%d min %d s)\n' "$1" "$2" $(($3 / 60)) $(($3 % 60))
	if [ "$1" = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

# step NAME COMMAND...: runs a step unless one before it failed, and prints its time. In a kept root
# it does not run a second time.
step() {
	local name=$1 start=$SECONDS status
	shift
	[ "$going" = yes ] || return 0
	if [ -e "$dir.done/$name" ]; then
		printf 'done before: %s: %s\n' "$what" "$name"
		return 0
	fi
	say "$what: $name"
	# In a condition, the shell would go on after a command that fails.
	set +e
	(set -e; "$@")
	status=$?
	set -e
	if [ $status -eq 0 ]; then
		report ok "$what: $name" $((SECONDS - start))
		mkdir -p "$dir.done"
		touch "$dir.done/$name"
	else
		report FAILED "$what: $name" $((SECONDS - start))
		going=no
	fi
}

# The packages that README takes for granted. An ordinary user becomes root by sudo.
prepare() {
	rm -rf --one-file-system "$dir"
	bare_root "$suite" "$dir" ${sudo:+sudo}
	# As the owner of the repository: git refuses a repository of another user.
	runuser -u "$(stat -c %U .git)" -- git -C "$root" bundle create --quiet - HEAD \
		>"$dir/tmp/bundle"
	git -c advice.detachedHead=false clone --quiet "$dir/tmp/bundle" "$dir$home/paravane"
	rm "$dir/tmp/bundle"
	chroot "$dir" chown -R "$user:$user" "$home/paravane"
	[ -z "${NEWCOMER_SEED:-}" ] || seed
}

# Fills the caches from those of this user, for debugging. Tests find the kernel where the compiler
# is the host's.
seed() {
	local cache="${XDG_CACHE_HOME:-$HOME/.cache}/paravane"
	mkdir -p "$dir$home/.cache/paravane" "$dir$home/.cargo"
	tar -C "$cache" --exclude='./kernel/work*' -c ./kernel |
		tar -C "$dir$home/.cache/paravane" -x
	cp -a "${CARGO_HOME:-$HOME/.cargo}/registry" "$dir$home/.cargo/"
	chroot "$dir" chown -R "$user:$user" "$home/.cache" "$home/.cargo"
}

empty_caches() {
	[ ! -e "$dir$home/.cache" ] && [ ! -e "$dir$home/.cargo/registry" ] &&
		[ ! -e "$dir$home/paravane/target" ]
}

install_make() {
	local log=$dir.make.log
	in_root "$dir" "$user" "$sudo apt-get update && $sudo apt-get -y install make" \
		>"$log" 2>&1 || show "$log"
}

# show LOG: the end of what a step has said, on the way to its failure.
show() {
	tail -n 40 "$1" >&2
	return 1
}

# logged LOG COMMAND...: keeps what a command says, and in LOG.silence how long it was silent at
# most.
logged() {
	local log=$1 line last=$SECONDS most=0 status=0
	shift
	{ "$@" 2>&1 || echo "newcomer: exit code $?"; } | {
		while IFS= read -r line; do
			[ $((SECONDS - last)) -le $most ] || most=$((SECONDS - last))
			last=$SECONDS
			printf '%s\n' "$line"
		done >"$log"
		[ $((SECONDS - last)) -le $most ] || most=$((SECONDS - last))
		echo $most >"$log.silence"
	}
	! grep -q '^newcomer: exit code' "$log" || show "$log"
}

# logs LOG PATTERN: does a line of it match?
logs() {
	grep -q "$2" "$1" || { say "$what: no line matches $2" && show "$1"; }
}

make_run() {
	local log=$dir.run.log
	logged "$log" in_root "$dir" "$user" 'cd paravane && make run' || return 1
	# The tour's end, and before it the build of the kernel.
	logs "$log" '^  kernel     Linux 6\.12\.' && logs "$log" '^Your own: ' || return 1
	if [ -z "${NEWCOMER_SEED:-}" ]; then
		logs "$log" '^paravane: building Linux 6\.12\.[0-9]*: [0-9]* of about [0-9]* obj' ||
			return 1
	fi
	compgen -G "$dir$home/.cache/paravane/kernel/*/vmlinux" >/dev/null ||
		{ say "$what: there is no kernel in the cache" && return 1; }
	say "$what: make run was silent for $(cat "$log.silence") s at most"
	[ "$(cat "$log.silence")" -le "$silence_s" ]
}

make_test() {
	local log=$dir.test.log last
	logged "$log" in_root "$dir" "$user" 'cd paravane && make test' || return 1
	last=$(tail -n 1 "$log")
	say "$what: $last"
	[[ $last =~ ^[1-9][0-9]*\ passed,\ 0\ failed ]] || show "$log"
}

work=${NEWCOMER_ROOTS:-}
if [ -z "$work" ]; then
	# Not in /tmp, which may be memory: a root with all that is built takes 20 GB.
	mkdir -p "$root/target"
	work=$(mktemp -d "$root/target/newcomer.XXXXXX")
	trap 'rm -rf --one-file-system "$work"' EXIT
fi
mkdir -p "$work"
work=$(realpath "$work")
for suite in ${SUITE:-bookworm trixie}; do
	for as in ${AS:-user root}; do
		user=root home=/root sudo=
		[ "$as" = root ] || user=$tester home=/home/$tester sudo=sudo
		what="$suite, $as" dir=$work/$suite-$as
		going=yes
		step "a bare Debian" prepare
		[ -n "${NEWCOMER_SEED:-}" ] || step "empty caches" empty_caches
		step "apt-get install make" install_make
		step "make run" make_run
		step "make test" make_test
		[ -n "${NEWCOMER_ROOTS:-}" ] || rm -rf --one-file-system "$dir" "$dir.done"
	done
done
closing_line "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
