# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash
#
# What `make install` and `make package` install. To be sourced, after lib.sh.

# stage DIR PROGRAM ZSH: fills DIR with the files that belong below a prefix: the program, its
# kernel (built now if there is none), completions and manual pages. ZSH is the folder of zsh's
# completions.
stage() {
	local dir=$1 program=$2 zsh=$3 page
	mkdir -p "$dir/bin" "$dir/lib/paravane/kernel" "$dir/share/man/man1" "$dir/share/$zsh" \
		"$dir/share/bash-completion/completions" "$dir/share/fish/vendor_completions.d"
	cp "$program" "$dir/bin/paravane"
	"$program" completions bash >"$dir/share/bash-completion/completions/paravane"
	"$program" completions zsh >"$dir/share/$zsh/_paravane"
	"$program" completions fish >"$dir/share/fish/vendor_completions.d/paravane.fish"
	"$program" man "$dir/share/man/man1"
	for page in "$dir"/share/man/man1/*.1; do
		gzip -9n "$page"
	done
	# Linux VERSION (how): FOLDER
	read -r _ kernel_version _ < <("$program" kernel build --output "$dir/lib/paravane/kernel")
	[ -n "$kernel_version" ] || die "there is no kernel to install"
	# The same modes whatever the umask is.
	find "$dir" -type d -exec chmod 755 {} +
	find "$dir" -type f -exec chmod 644 {} +
	chmod 755 "$dir/bin/paravane"
}
