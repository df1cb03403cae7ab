#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#
# Entries that count must not use GS in calls that may have any GS base. Compares their list (ANY_GS
# and STOPS in common/counted.inc; jumps need none) with vmi.toml.
set -eu

cd "$(dirname "$0")"
wanted=$(awk '
	/^\[\[section\]\]/ { in_section = 1 }
	/^\[\[section\.call\]\]/ { in_section = 0; name = ""; jump = 0 }
	/^name = / { gsub(/"/, "", $3); if (in_section) section = $3; else name = $3 }
	/^class = "jump"/ { jump = 1 }
	/^any_gs = true/ { if (!jump) print toupper("VMI_CALL_" section "_" name) }
' ../abi/vmi.toml | sort)
listed=$(grep -oE '\(?num == VMI_CALL_[A-Z_]+' common/counted.inc | sed 's/.*== //' | sort)
if [ "$wanted" != "$listed" ]; then
	echo "counted.inc and vmi.toml differ about calls of any GS base:" >&2
	printf '%s\n%s\n' "$wanted" "$listed" | sort | uniq -u >&2
	exit 1
fi
