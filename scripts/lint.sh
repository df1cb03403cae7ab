#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# lint.sh: what can be said of the sources without running them. Says all that is wrong, not only
# the first.

. "$(dirname "$0")/lib.sh"
cd "$root"

failed=()
# check NAME COMMAND...
check() {
	local name=$1
	shift
	say "lint: $name"
	"$@" >&2 || failed+=("$name")
}

# Every source file says under which licence it is.
licence_lines() {
	local file bad=0
	while IFS= read -r -d '' file; do
		case $file in
		*.rs | *.[chS] | *.s | *.ld | *.lds | *.inc | *.sh | *.py | *.mk | *.toml) ;;
		*/Makefile | Makefile | .ci/run) ;;
		*) continue ;;
		esac
		[ -f "$file" ] || continue
		if ! head -n 5 "$file" | grep -q 'SPDX-License-Identifier: '; then
			printf '%s: no SPDX-License-Identifier in its first five lines\n' "$file"
			bad=1
		fi
	done < <(git ls-files -z)
	return $bad
}

# The generated files agree with abi/vmi.toml, abi/process.toml and abi/vbus.toml.
generated_files() {
	cargo run --quiet --locked --package abigen -- --check
}

clippy() {
	if cargo clippy --version >/dev/null 2>&1; then
		cargo clippy --quiet --locked --workspace --all-targets -- -D warnings &&
			cargo clippy --quiet --locked --package paravane --bins \
				--features test-hooks -- -D warnings
	elif [ -n "${CI:-}" ]; then
		echo "clippy is not installed, and this is where it has to be"
		return 1
	else
		echo "clippy is not installed (Debian 12 has no package, rustup has it): skipped"
	fi
}

# Crates of the monitor and the bus that need no unsafe code forbid it. The others deny it but for
# the modules that they name, each with its reason. In the crate confine every module makes host
# calls, and vbus/guest is C.
unsafe_code() {
	local folder attribute bad=0
	for folder in monitor/*/ vbus/*/; do
		folder=${folder%/}
		case ${folder#*/} in
		policies | confine | guest | include) continue ;;
		bridge | cli | devices | hypervisor | machine) attribute='#![deny(unsafe_code)]' ;;
		c | client | core | daemon | shm) attribute='#![deny(unsafe_code)]' ;;
		*) attribute='#![forbid(unsafe_code)]' ;;
		esac
		grep -qsxF "$attribute" "$folder"/src/lib.rs "$folder"/src/main.rs || {
			printf '%s: its first file has no %s\n' "$folder" "$attribute"
			bad=1
		}
	done
	if git grep -nE '(allow|expect)\(unsafe_code\)' -- '*.rs'; then
		echo "unsafe code is expected without a reason"
		bad=1
	fi
	return $bad
}

check "licence lines" licence_lines
check "texts: lengths, links, names, folders" scripts/lint-text.sh
check "unsafe code" unsafe_code
check "format (cargo fmt)" cargo fmt --all --check
check "generated files (abigen)" generated_files
check "planted faults (layers/faults.txt)" make --no-print-directory -s -C layers check
check "clippy" clippy
check "crates (cargo deny)" "$tools/cargo-deny/bin/cargo-deny" --log-level error --locked \
	check bans licenses sources
[ ${#failed[@]} -eq 0 ] || die "lint: $(printf '%s; ' "${failed[@]}" | sed 's/; $//')"
