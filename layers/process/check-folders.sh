#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#
#	check-folders.sh "FOLDER..." OBJECTS
#
# Each folder uses only itself and the folders listed before it, so no two folders depend on each
# other. The check reads what the code really refers to: the undefined symbols of the objects
# (OBJECTS/FOLDER/*.o) and the #include lines of the sources. They are those of process-stats, which
# has all folders.
set -eu

cd "$(dirname "$0")"
folders=$1
objects=$2

# Lines of: folder, file, folder that it uses, what it uses there.
uses() {
	for folder in $folders; do
		"${NM:-nm}" -A "$objects/$folder"/*.o
	done | awk '
		{
			path = $1
			sub(/:.*/, "", path)
			parts = split(path, part, "/")
			folder = part[parts - 1]
			if ($2 == "U")
				wanted[folder " " part[parts] " " $3] = 1
			# calls has the tables too, in a file that process-stats replaces
			else if ($2 ~ /^[A-Z]$/ && part[parts] != "header.o")
				home[$3] = folder
		}
		END {
			for (use in wanted) {
				split(use, field, " ")
				if (field[3] in home)
					print field[1], field[2], home[field[3]], field[3]
			}
		}'
	for folder in $folders; do
		for file in "$folder"/*.[chS]; do
			sed -n "s|^#include \"\([a-z]*\)/\(.*\)\".*|$folder ${file#*/} \1 \1/\2|p" \
				"$file"
		done
	done
}

known=$(echo "$folders" | tr ' ' '\n' | sort)
present=$(for folder in */; do echo "${folder%/}"; done | sort)
if [ "$known" != "$present" ]; then
	echo "layers/process: the Makefile's FOLDERS are not the folders that are there" >&2
	exit 1
fi
uses | awk -v folders="$folders" '
	BEGIN { count = split(folders, name, " "); for (i = 1; i <= count; i++) place[name[i]] = i }
	$3 in place && place[$3] > place[$1] {
		print "layers/process/" $1 "/" $2 " uses " $4 " of " $3 "/, a folder above its own"
		bad = 1
	}
	END { exit bad }' >&2
