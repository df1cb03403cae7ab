#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# setup.sh build|run|conformance|test|release|peers: installs what is missing for that purpose, on
# Debian 12 or 13. It changes nothing and takes no time when nothing is missing. On other systems it
# says what is missing. Each purpose includes the one before it, but for `peers`: what `paravane
# bench apps --against` measures.

. "$(dirname "$0")/lib.sh"

# The oldest compiler that the workspace builds with (rust-version in Cargo.toml).
rust_minor=91
# The newest cargo-deny that this compiler builds.
deny_version=0.18.3

purpose=${1:-run}
case $purpose in
build | run | conformance | test | release | peers) ;;
*) die "usage: setup.sh build|run|conformance|test|release|peers" ;;
esac

# What a first build puts on disks, in GB: objects into the target folder, Linux's source and its
# objects into the user's cache.
case $purpose in
build) objects=2 linux=0 ;;
run) objects=2 linux=3 ;;
*) objects=6 linux=3 ;;
esac

# existing FOLDER: the folder that it will be in.
existing() {
	local folder=$1
	while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
	printf '%s\n' "$folder"
}

# check_disk FOLDER GIGABYTES: refuses what would fill its disk.
check_disk() {
	local free
	free=$(df -Pk "$1" | awk 'NR == 2 { print int($4 / 1000000) }')
	[ "$free" -ge "$2" ] ||
		die "$1: a first build takes $2 GB, and $free GB are free: make room"
}

# check_room: a first build that would fill a disk is refused.
check_room() {
	local target=${CARGO_TARGET_DIR:-$root/target} cache=${tools%/*}/kernel
	[ ! -e "$target" ] || objects=0
	[ ! -e "$cache" ] || linux=0
	target=$(existing "$target")
	cache=$(existing "$cache")
	if [ "$(stat -c %d "$target")" = "$(stat -c %d "$cache")" ]; then
		check_disk "$target" $((objects + linux))
	else
		check_disk "$target" "$objects"
		check_disk "$cache" "$linux"
	fi
}

# rust_is_new: is cargo there, and new enough?
rust_is_new() {
	local version
	have cargo && have rustc || return 1
	version=$(cargo --version 2>/dev/null) || return 1
	version=${version#cargo }
	[ "${version%%.*}" -gt 1 ] && return 0
	version=${version#1.}
	[ "${version%%.*}" -ge $rust_minor ]
}

# candidate_is_new PACKAGE: would apt install a new enough compiler as this package?
candidate_is_new() {
	local version
	version=$(LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: //p')
	[ -n "$version" ] && [ "$version" != "(none)" ] &&
		dpkg --compare-versions "$version" ge "1.$rust_minor"
}

# as_root COMMAND...: runs it, by sudo if need be.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

updated=
# update PACKAGE...: fetches apt's lists of packages, once. Says what root has to do where this user
# cannot become root.
update() {
	[ -z "$updated" ] || return 0
	local as_root="as root, run: apt-get update && apt-get install $*"
	if [ "$(id -u)" -ne 0 ]; then
		have sudo || die "missing: $*, and there is no sudo: $as_root"
		# It may ask for a password, before the lines that tell the time.
		sudo true || die "missing: $*, and sudo refuses: $as_root"
	fi
	slowly "updating the lists of packages (apt-get update)" as_root apt-get -qq update ||
		die "apt-get update failed: is the network there?"
	updated=1
}

# install PACKAGE...: from the distribution, without what is only recommended.
install() {
	have apt-get ||
		die "missing (Debian's names): $*: install them with your system's package manager"
	update "$@"
	# --no-remove: a package that is installed must not go away for ours.
	slowly "installing $*" as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get -qq -y -o Dpkg::Use-Pty=0 --no-install-recommends --no-remove \
		install "$@" >&2 ||
		die "apt-get could not install: $*"
}

if [ "$purpose" = peers ]; then
	packages=()
	have linux.uml || packages+=(user-mode-linux)
	have qemu-system-x86_64 || packages+=(qemu-system-x86)
	have runsc || packages+=(runsc)
	have mmdebstrap || packages+=(mmdebstrap)
	[ ${#packages[@]} -eq 0 ] || install "${packages[@]}"
	exit 0
fi

check_room

# The freestanding parts need a compiler, its assembler and linker, and make; Rust programs link
# against libc.
packages=()
have gcc || packages+=(gcc)
have ld || packages+=(binutils)
have make || packages+=(make)
# The question is for a file, not a program: a gcc without libc's headers is possible.
[ -e /usr/include/stdio.h ] || packages+=(libc6-dev)
# Cargo fetches crates by HTTPS, and paravane fetches images.
[ -e /etc/ssl/certs/ca-certificates.crt ] || packages+=(ca-certificates)
if [ "$purpose" != build ]; then
	# Linux, by `paravane kernel build`, which fetches the source by itself.
	for pair in flex:flex bison:bison bc:bc cpio:cpio patch:patch perl:perl tar:tar \
		xz:xz-utils; do
		have "${pair%:*}" || packages+=("${pair#*:}")
	done
	[ -e /usr/include/gelf.h ] || packages+=(libelf-dev)
	# The programs of its smallest root.
	have busybox || packages+=(busybox-static)
	# The network of its machines.
	have passt || packages+=(passt)
fi
if [ "$purpose" != build ] && [ "$purpose" != run ]; then
	# Bare metal for the native layers.
	have qemu-system-x86_64 || packages+=(qemu-system-x86)
fi
if [ "$purpose" = test ] || [ "$purpose" = release ]; then
	have git || packages+=(git)
	# tests/tests/gdb.rs
	have gdb || packages+=(gdb)
	# tests/tests/tutorial.rs
	have curl || packages+=(curl)
	# File systems, images and networks of small guests.
	[ -x /sbin/mke2fs ] || packages+=(e2fsprogs)
	have ip || packages+=(iproute2)
	have qemu-img || packages+=(qemu-utils)
	have mksquashfs || packages+=(squashfs-tools)
	have mkfs.erofs || packages+=(erofs-utils)
	[ -x /sbin/mkfs.xfs ] || packages+=(xfsprogs)
fi
if [ "$purpose" = release ]; then
	# Images of Debian, by `paravane image build`; by an ordinary user, in both ways.
	have mmdebstrap || packages+=(mmdebstrap)
	have fakeroot || packages+=(fakeroot)
	have fakechroot || packages+=(fakechroot)
	have newuidmap || packages+=(uidmap)
	# What speaks with the servers of tests/tests/services.rs.
	have ssh || packages+=(openssh-client)
	have wrk || packages+=(wrk)
	have iperf3 || packages+=(iperf3)
	# What looks at the package.
	have lintian || packages+=(lintian)
fi
[ ${#packages[@]} -eq 0 ] || install "${packages[@]}"

if ! rust_is_new; then
	if have cargo && ! have apt-get; then
		die "$(cargo --version) is too old: 1.$rust_minor or later is needed"
	fi
	have apt-get ||
		die "Rust 1.$rust_minor is missing: install it with rustup or your package manager"
	say "looking for Rust 1.$rust_minor or later"
	update "cargo and rustc 1.$rust_minor or later (rustc-web on Debian 12 and 13)"
	# Debian's rustc is that of its release. Debian 12 and 13 get new ones as rustc-web.
	if candidate_is_new rustc; then
		install cargo rustc rustfmt rust-clippy
	elif candidate_is_new rustc-web; then
		install cargo-web rustc-web rustfmt-web
	else
		die "no package has Rust 1.$rust_minor or later: install it with rustup"
	fi
	rust_is_new ||
		die "$(command -v cargo) is too old: remove it from the PATH, or run rustup update"
fi

# The programs of the built-in root: the host's busybox, or if that is missing or needs libraries,
# one of our own beside it, since Debian's packages busybox and busybox-static exclude each other.
# is_static FILE: is it a program that needs no libraries?
is_static() {
	[ -x "$1" ] && ! readelf -l "$1" 2>/dev/null | grep -q INTERP
}
if [ "$purpose" != build ] && ! is_static /bin/busybox && ! is_static "$tools/busybox"; then
	have apt-get || die "a statically linked busybox is missing: put one to $tools/busybox"
	part=$(mktemp -d)
	trap 'rm -rf "$part"' EXIT
	(cd "$part" && slowly "fetching busybox-static" apt-get -qq download busybox-static &&
		dpkg-deb -x busybox-static_*.deb .) >&2 ||
		die "busybox-static could not be fetched: is the network there?"
	mkdir -p "$tools"
	cp "$(find "$part" -name busybox -type f | head -n 1)" "$tools/busybox.part"
	chmod 755 "$tools/busybox.part"
	mv "$tools/busybox.part" "$tools/busybox"
fi

[ "$purpose" = test ] || [ "$purpose" = release ] || exit 0

# What make lint needs on top. A compiler from rustup brings them as components.
if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
	if have rustup; then
		slowly "adding rustfmt and clippy" rustup component add rustfmt clippy >&2 ||
			die "rustup component add rustfmt clippy failed: is the network there?"
	fi
fi
if ! cargo fmt --version >/dev/null 2>&1; then
	if candidate_is_new rustc; then install rustfmt; else install rustfmt-web; fi
fi
# Debian 12 has no clippy for its newer compiler; make lint then says so and goes on.
if ! cargo clippy --version >/dev/null 2>&1 && candidate_is_new rust-clippy; then
	install rust-clippy
fi

deny="$tools/cargo-deny-$deny_version"
if [ ! -x "$deny/bin/cargo-deny" ]; then
	# Renamed when it is whole: an interrupted build must not look like a finished one.
	rm -rf "$deny.part"
	mkdir -p "$tools"
	# Without optimization, which would take most of the time: it runs for seconds.
	slowly "building cargo-deny $deny_version, once (some minutes)" \
		env CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=0 \
		CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_STRIP=debuginfo \
		cargo install --quiet --locked --root "$deny.part" "cargo-deny@$deny_version" ||
		die "cargo-deny $deny_version could not be built: is the network there?"
	rm -rf "$deny"
	mv "$deny.part" "$deny"
fi
ln -sfn "cargo-deny-$deny_version" "$tools/cargo-deny"
