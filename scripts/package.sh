#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# package.sh: target/package/paravane_VERSION_amd64.deb, with the program, its kernel, completions
# and manual pages. The package is for Debian 12 and 13: the program must not need a newer C library
# than Debian 12's. A program that was built on Debian 13 can need one, and is then refused.

. "$(dirname "$0")/lib.sh"
. "$root/scripts/stage.sh"
cd "$root"

# Debian 12's C library.
glibc=2.36
maintainer="Paravane maintainers <maintainers@users.noreply.paravane.invalid>"

cargo_build --release
program="${CARGO_TARGET_DIR:-target}/release/paravane"

# The newest version of the C library that the program needs, but for weak references.
needed=$(objdump -p "$program" |
	sed -n 's/^ *0x[0-9a-f]* 0x00 [0-9]* GLIBC_\([0-9.]*\)$/\1/p' | sort -V | tail -n 1)
[ -n "$needed" ] || die "$program needs no C library: it was not built as expected"
dpkg --compare-versions "$needed" le "$glibc" ||
	die "the program needs glibc $needed, which Debian 12 does not have: build it on Debian 12"

version=$("$program" --version | cut -d ' ' -f 2)
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

out="${CARGO_TARGET_DIR:-target}/package"
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage "$work/usr" "$program" zsh/vendor-completions
strip --strip-unneeded "$work/usr/bin/paravane"

doc="$work/usr/share/doc/paravane"
mkdir -p "$doc" "$work/usr/share/lintian/overrides" "$work/DEBIAN"
# shellcheck disable=SC2154 # stage() sets kernel_version.
year=$(date -ud "@$SOURCE_DATE_EPOCH" +%Y)
sed -e "s/@KERNEL@/Linux $kernel_version/" -e "s/@COMMIT@/$commit/" -e "s/@YEAR@/$year/" \
	scripts/package/copyright >"$doc/copyright"
scripts/package/crates.sh | gzip -9n >"$doc/crates.gz"
{
	printf 'paravane (%s-1) unstable; urgency=medium\n\n' "$version"
	printf '  * Built from commit %s. CHANGELOG.md says what is new.\n\n' "$commit"
	printf ' -- %s  %s\n' "$maintainer" "$(date -Rud "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$doc/changelog.Debian.gz"
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
cp scripts/package/lintian-overrides "$work/usr/share/lintian/overrides/paravane"
chmod 644 "$doc"/* "$work/usr/share/lintian/overrides/paravane"

cat >"$work/DEBIAN/control" <<END
Package: paravane
Version: $version-1
Architecture: amd64
Maintainer: $maintainer
Section: admin
Priority: optional
Installed-Size: $(du -sk --apparent-size "$work/usr" | cut -f 1)
Depends: busybox-static, libc6 (>= $needed), libgcc-s1
Recommends: ca-certificates, passt
Suggests: mmdebstrap
Description: Linux virtual machines without hardware virtualization
 Paravane runs real Linux virtual machines without hardware virtualization,
 /dev/kvm or root. A machine has its own Linux kernel, processes, network and
 disks, and runs wherever an ordinary program runs: in a cloud instance, in a
 container, on a CI runner.
 .
 This package has the program and the kernel of its machines.
END
(cd "$work" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$work/DEBIAN/md5sums"
find "$work" -type d -exec chmod 755 {} +
find "$work" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

package="$out/paravane_$version-1_amd64.deb"
slowly "compressing $package" dpkg-deb --root-owner-group -Zxz --build "$work" "$package.part" >&2
mv "$package.part" "$package"
printf '%s\n' "$package"
