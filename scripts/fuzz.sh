#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# fuzz.sh SECONDS [TARGET...]: runs each fuzz target for SECONDS, guided by coverage. Replaces its
# corpus (tests/corpus) by the smallest inputs that together have the same coverage. `cargo test`
# runs the same targets unguided.

. "$(dirname "$0")/lib.sh"
cd "$root"

seconds=${1:?fuzz.sh SECONDS [TARGET...]}
shift
# Target, package, test.
targets=(
	"agent paravane-agent-protocol agent"
	"balloon paravane-devices fuzz::simple::balloon"
	"blk paravane-devices fuzz::storage::blk"
	"bridge paravane-bridge fuzz::bridge"
	"bridge_disk paravane-bridge fuzz_disk::bridge_disk"
	"console paravane-devices fuzz::simple::console"
	"far paravane-bridge fuzz_far::far"
	"far_disk paravane-bridge fuzz_far::far_disk"
	"frames paravane-net user::fuzz::frames"
	"fs paravane-devices fuzz::storage::fs_"
	"net paravane-devices fuzz::links::net"
	"net_stack paravane-devices fuzz::links::net_stack"
	"registers paravane-devices fuzz::simple::registers"
	"rng paravane-devices fuzz::simple::rng"
	"vbus_block paravane-vbus vbus_block"
	"vbus_core paravane-vbus vbus_core"
	"vbus_lending paravane-vbus vbus_lending"
	"vbus_protocol paravane-vbus-protocol vbus_protocol"
	"vbusd_attributes paravane-vbusd fuzz::vbusd_attributes"
	"vbusd_cards paravane-vbusd card::fuzz::vbusd_cards"
	"vbusd_disks paravane-vbusd fuzz::disks::vbusd_disks"
	"vbusd_taps paravane-vbusd card::fuzz::taps::vbusd_taps"
	"vsock paravane-devices fuzz::links::vsock"
)

# Build scripts and macros have their own flags with --target.
host=$(rustc -vV | sed -n 's/^host: //p')
export PARAVANE_FUZZ_KEEP=1 PARAVANE_FUZZ_SECONDS=$seconds LLVM_PROFILE_FILE=/dev/null
export RUSTFLAGS='-C instrument-coverage --cfg paravane_coverage'
for target in "${targets[@]}"; do
	read -r name package test <<<"$target"
	if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
		continue
	fi
	say "fuzz: $name"
	# One test alone: the coverage of others would be taken for the target's.
	cargo test --quiet --locked --target "$host" --target-dir target/coverage \
		--package "$package" -- --exact --nocapture "$test" 2>&1 |
		grep -v '^$' || die "$name has failed"
done
