#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# install.sh install|uninstall: the program, its kernel, completions and manual pages, below
# $DESTDIR$PREFIX (/usr/local). What is missing is built first. Where the user may not write, sudo
# copies.

. "$(dirname "$0")/lib.sh"
. "$root/scripts/stage.sh"
cd "$root"

prefix=${PREFIX:-/usr/local}
[[ $prefix == /* ]] || die "PREFIX must be an absolute path: $prefix"
to=${DESTDIR:-}$prefix
zsh=zsh/site-functions
[ "$prefix" != /usr ] || zsh=zsh/vendor-completions

# may_write PATH: is the closest folder that exists one that this user may write to?
may_write() {
	local path=$1
	while [ ! -e "$path" ]; do path=$(dirname "$path"); done
	[ -d "$path" ] && [ -w "$path" ]
}
as_owner=()
if ! may_write "$to"; then
	[ "$(id -u)" -ne 0 ] || die "$to cannot be written to"
	have sudo ||
		die "$to cannot be written to, and there is no sudo: try PREFIX=\$HOME/.local"
	as_owner=(sudo)
fi

case ${1:-} in
install)
	cargo_build --release
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	stage "$work" "${CARGO_TARGET_DIR:-target}/release/paravane" "$zsh"
	while IFS= read -r -d '' file; do
		mode=644
		[ ! -x "$work/$file" ] || mode=755
		"${as_owner[@]}" install -D -m "$mode" "$work/$file" "$to/$file"
	done < <(cd "$work" && find . -type f -printf '%P\0')
	say "installed: $to/bin/paravane"
	;;
uninstall)
	"${as_owner[@]}" rm -rf "$to/lib/paravane"
	"${as_owner[@]}" rm -f "$to/bin/paravane" \
		"$to"/share/man/man1/paravane.1.gz "$to"/share/man/man1/paravane-*.1.gz \
		"$to/share/bash-completion/completions/paravane" "$to/share/$zsh/_paravane" \
		"$to/share/fish/vendor_completions.d/paravane.fish"
	;;
*) die "usage: install.sh install|uninstall" ;;
esac
