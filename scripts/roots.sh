# SPDX-License-Identifier: Apache-2.0 OR MIT
# shellcheck shell=bash
#
# Bare Debian roots for tests: how they are made and how commands run in them. To be sourced, after
# lib.sh. Both need root.

# The user of the roots that is not root.
tester=tester

# need_root COMMAND...: runs the script again by sudo if this user is not root.
need_root() {
	local keep=PATH,HOME,XDG_CACHE_HOME,CARGO_HOME,RUSTUP_HOME,CARGO_TARGET_DIR
	keep+=,SUITE,AS,NEWCOMER_ROOTS,NEWCOMER_SEED
	[ "$(id -u)" -eq 0 ] || exec sudo --preserve-env="$keep" "$@"
}

# apt_sources SUITE: this host's lines for apt, for another release of Debian. Nothing if the host
# is no Debian.
apt_sources() {
	local own
	own=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	[ -n "$own" ] || return 0
	# shellcheck disable=SC2016 # apt-get expands it.
	apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		awk -v own="$own" -v suite="$1" '
			$2 == own || $2 == own "-updates" || $2 == own "-security" {
				sub(own, suite, $2)
				if (!seen[$1 $2 $3]++) print "deb", $1, $2, $3
			}'
}

# apt_options: what this host's apt needs to reach its mirror, as lines of apt.conf.
apt_options() {
	local http='https?::(Proxy|Verify-Peer|Pipeline-Depth)'
	apt-config dump | grep -E "^Acquire::($http|Check-Valid-Until|Check-Date|Retries) " |
		grep -v ' "";$' || true
}

# bare_root SUITE DIR PACKAGE...: makes a root of the essential packages, apt and these, with an
# ordinary user. It reaches the network as the host does: mirror, proxy, name server and
# certificates are the host's.
bare_root() {
	local suite=$1 dir=$2 include options=() line sources home config
	shift 2
	have mmdebstrap || die "mmdebstrap is missing: apt-get install mmdebstrap"
	include=$(IFS=, && printf '%s' "$*")
	while IFS= read -r line; do options+=("--aptopt=${line%;}"); done < <(apt_options)
	sources=$(apt_sources "$suite")
	if [ "$suite" = bookworm ]; then
		# As the installer has it, without the tool that converts old systems.
		options+=(--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr)
		include+=${include:+,}usr-is-merged
	fi
	mkdir -p "$dir"
	slowly "making a bare Debian ($suite)" mmdebstrap --quiet --variant=minbase \
		${include:+--include="$include"} "${options[@]}" "$suite" "$dir" \
		${sources:+-} <<<"$sources" >&2 ||
		die "no Debian could be made (mmdebstrap): is the network there?"
	cp -L /etc/resolv.conf /etc/hosts "$dir/etc/"
	hostname >"$dir/etc/hostname"
	if [ -d /usr/local/share/ca-certificates ]; then
		mkdir -p "$dir/usr/local/share/ca-certificates"
		cp -RL /usr/local/share/ca-certificates/. "$dir/usr/local/share/ca-certificates/"
	fi
	chroot "$dir" useradd --create-home --shell /bin/bash "$tester"
	for home in "$dir/root" "$dir/home/$tester"; do
		config="${CARGO_HOME:-$HOME/.cargo}/config.toml"
		[ -e "$config" ] || continue
		mkdir -p "$home/.cargo"
		cp -L "$config" "$home/.cargo/"
	done
	chroot "$dir" chown -R "$tester:$tester" "/home/$tester"
	if [ -d "$dir/etc/sudoers.d" ]; then
		printf '%s ALL=(ALL) NOPASSWD: ALL\n' "$tester" >"$dir/etc/sudoers.d/$tester"
		chmod 440 "$dir/etc/sudoers.d/$tester"
	fi
}

# in_root DIR USER SCRIPT [WORD...]: runs a script of bash in a root, as that user, in namespaces of
# its own for mounts and processes. No process of it is left afterwards. Of the environment, only
# what programs need to reach the network is passed on.
in_root() {
	local dir=$1 user=$2 script=$3 home=/root path=/usr/local/bin:/usr/bin:/bin
	local name environment=()
	shift 3
	if [ "$user" = root ]; then
		path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
	else
		home=/home/$user
	fi
	for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
		[ -z "${!name:-}" ] || environment+=("$name=${!name}")
	done
	# shellcheck disable=SC2016 # The inner shell expands it.
	unshare --mount --propagation private --pid --fork --kill-child -- bash -euc '
		dir=$1 user=$2
		shift 2
		mount --rbind "$dir" "$dir"
		mount -t proc proc "$dir/proc"
		mount --rbind /sys "$dir/sys"
		mount --rbind /dev "$dir/dev"
		mount -t tmpfs tmpfs "$dir/run"
		# Not by chroot alone: there a user could make no user namespace.
		cd "$dir"
		pivot_root . .
		umount -l .
		cd /
		# This shell stays: the first process of a namespace has to reap orphans.
		status=0
		runuser -u "$user" -- "$@" || status=$?
		exit "$status"
	' bash "$dir" "$user" env -i HOME="$home" USER="$user" LOGNAME="$user" PATH="$path" \
		"${environment[@]}" bash -euo pipefail -c "cd; $script" bash "$@" </dev/null
}
