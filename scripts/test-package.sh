#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# test-package.sh [FILE]: tests a package, or the one that package.sh makes, in bare roots of Debian
# 12 and 13, or of $SUITE. It installs without a compiler, an ordinary user's machine answers within
# two seconds, and what is left when it is removed is nothing. The last line is: N passed, N failed

. "$(dirname "$0")/lib.sh"
. "$root/scripts/roots.sh"
cd "$root"

package=${1:-}
[ -n "$package" ] || package=$(scripts/package.sh)
package=$(realpath "$package")
need_root "$0" "$package"

# From the command to the machine's answer.
limit_ms=2000

passed=0 failed=0
# check WHAT COMMAND...: counts and prints how it comes out.
check() {
	local what=$1
	shift
	if "$@"; then
		passed=$((passed + 1))
		printf 'ok      %s: %s\n' "$suite" "$what"
	else
		failed=$((failed + 1))
		printf 'FAILED  %s: %s\n' "$suite" "$what"
	fi
}

# files: all files of the root, but for what apt and dpkg keep for themselves, logs and users' own.
files() {
	local path but=()
	for path in var/lib/dpkg var/lib/apt var/cache var/log home tmp; do
		but+=(-path "$dir/$path" -o)
	done
	find "$dir" -xdev \( "${but[@]}" -false \) -prune -o -printf '%y %m %P\n' | sort
}

no_compiler() {
	# shellcheck disable=SC2016 # The root's shell expands it.
	in_root "$dir" root 'for name in cc gcc ld as make cargo rustc; do
			! command -v $name || exit 1
		done'
}

installs() {
	in_root "$dir" root 'export DEBIAN_FRONTEND=noninteractive
		apt-get -qq -o Dpkg::Use-Pty=0 -y --no-install-recommends install /paravane.deb' >&2
}

# The files of the package are there, unchanged, and of the kinds that are promised.
complete() {
	in_root "$dir" root 'dpkg --verify paravane
		cd /usr
		ls bin/paravane lib/paravane/kernel/vmlinux share/doc/paravane/copyright \
			share/man/man1/paravane-run.1.gz share/zsh/vendor-completions/_paravane \
			share/bash-completion/completions/paravane \
			share/fish/vendor_completions.d/paravane.fish >/dev/null
		bash -n /usr/share/bash-completion/completions/paravane'
}

# The median of nine runs is fast enough. The first one has no caches.
answers_in_time() {
	local line times=()
	while read -r line; do
		[[ $line =~ ^([0-9]+)\ ms:\ Linux\  ]] || { printf '%s\n' "$line" && return 1; }
		times+=("${BASH_REMATCH[1]}")
	done < <(in_root "$dir" "$tester" 'for run in 1 2 3 4 5 6 7 8 9; do
			start=$(date +%s%N)
			answer=$(paravane run -- uname -a)
			echo "$((($(date +%s%N) - start) / 1000000)) ms: $answer"
		done')
	[ ${#times[@]} -eq 9 ] || return 1
	mapfile -t times < <(printf '%s\n' "${times[@]}" | sort -n)
	# The second and the second last of nine enclose the median with a probability of 96 %.
	printf '        median %d ms, %d to %d ms\n' "${times[4]}" "${times[1]}" "${times[7]}"
	[ "${times[4]}" -le "$limit_ms" ]
}

# Of the package's kernel: nothing was built for that.
built_nothing() {
	[ ! -e "$dir/home/$tester/.cache/paravane/kernel" ]
}

# A kernel in the user's cache comes before that of the package if it is of the same recipe, and
# --kernel before both. The one in the cache is broken, which shows that it was chosen.
looks_for_the_kernel() {
	in_root "$dir" "$tester" 'cache=$HOME/.cache/paravane/kernel
		mkdir -p "$cache/key"
		echo broken >"$cache/key/vmlinux"
		ln -s key "$cache/current-another"
		paravane run -- true
		ln -s key "$cache/current-$(cat /usr/lib/paravane/kernel/recipe)"
		if paravane run -- true 2>error; then exit 1; fi
		grep -q "$cache/key/vmlinux" error || { cat error >&2; exit 1; }
		paravane run --kernel /usr/lib/paravane/kernel/vmlinux -- true
		rm -r "$cache" error'
}

# The machine's exit code is the program's, and root has machines, too.
passes_on_the_exit_code() {
	local code=0
	in_root "$dir" root 'paravane run -- sh -c "exit 7"' || code=$?
	[ "$code" -eq 7 ]
}

# removed REMOVE|PURGE
removed() {
	in_root "$dir" root "apt-get -qq -o Dpkg::Use-Pty=0 -y $1 paravane" >&2 || return 1
	files >"$work/after"
	diff "$work/before" "$work/after" >&2
}

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
if have lintian; then
	suite=package
	check "lintian has nothing to say" lintian --fail-on error,warning "$package"
fi
for suite in ${SUITE:-bookworm trixie}; do
	dir=$work/$suite
	bare_root "$suite" "$dir"
	cp "$package" "$dir/paravane.deb"
	in_root "$dir" root 'apt-get -qq update
		apt-get -qq -o Dpkg::Use-Pty=0 -y install busybox-static' >&2
	check "there is no compiler" no_compiler
	files >"$work/before"
	check "it installs" installs
	check "it is complete" complete
	check "an ordinary user's machine answers within $limit_ms ms" answers_in_time
	check "with the kernel of the package" built_nothing
	check "it looks for the kernel in the right order" looks_for_the_kernel
	check "a program's exit code is passed on" passes_on_the_exit_code
	check "apt remove leaves nothing" removed remove
	check "it installs again" installs
	check "apt purge leaves nothing" removed purge
	rm -rf --one-file-system "$dir"
done
closing_line "$passed" "$failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
