#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# lint-text.sh: what a reader sees of the sources: the length of lines and files, phrases that the
# glossary replaces, links and names of tests in documents, and a description of each folder. Prints
# every mistake; exit code 1 if any.

. "$(dirname "$0")/lib.sh"
cd "$root"

columns=100
lines=500

# Files whose text is not written here, or is not text.
generated() {
	case $1 in
	abi/include/* | abi/src/generated.rs | abi/src/process.rs | abi/src/process/area.rs) ;;
	vbus/include/paravane/vbus_layout.h | vbus/shm/src/layout.rs) ;;
	Cargo.lock | *.json) ;;
	LICENSE-* | LICENSES/*.txt | tests/blobs/*/* | tests/corpus/* | tests/profiles/*) ;;
	*) return 1 ;;
	esac
}

# text_files: the tracked files that people write and read.
text_files() {
	local file
	git grep --cached -Il . | while IFS= read -r file; do
		[ ! -f "$file" ] || generated "$file" || printf '%s\n' "$file"
	done
}

# No line is longer than the limit. A tab ends at the next multiple of 8. Excepted are lines with a
# URL, generated parts of documents, and in patches all but the message.
line_lengths() {
	xargs -d '\n' awk -v columns="$columns" '
		FNR == 1 { skip = 0; patch = FILENAME ~ /\.patch$/ }
		/^<!-- (bench:[a-z]+|abigen) begin/ { skip = 1 }
		/^<!-- (bench:[a-z]+|abigen) end/ { skip = 0 }
		patch && /^(---|diff )/ { skip = 1 }
		skip || /https?:\/\// { next }
		{
			width = 0
			count = split($0, piece, "\t")
			for (i = 1; i <= count; i++) {
				width += length(piece[i])
				if (i < count)
					width += 8 - width % 8
			}
			if (width > columns) {
				printf "%s:%d: %d columns\n", FILENAME, FNR, width
				bad = 1
			}
		}
		END { exit bad }'
}

# No source file is longer than the limit.
file_lengths() {
	grep -E '\.(rs|c|h|S|s|sh|py|lds|inc|mk)$|(^|/)Makefile$' | xargs -d '\n' wc -l |
		awk -v lines="$lines" '$2 != "total" && $1 > lines {
			printf "%s: %d lines\n", $2, $1
			bad = 1
		} END { exit bad }'
}

# Phrases that the glossary replaces, in documents and in Rust's comments of items and modules. Not
# in words in backquotes, in indented blocks of documents, in "behind a router", and in the pages
# that quote such phrases. A phrase may begin at the end of the line before.
phrases() {
	grep -E '\.(md|rs)$' | grep -vxE 'docs/glossary\.md|CHANGELOG\.md' | xargs -d '\n' awk '
		BEGIN {
			words = "nobody|whoever|anew|dear|wish|behind|in front of|comes? into being"
			be = "(is|are|was|were|be|been|being) "
			phrase = "[^a-z_](" words "|" be "told|(is|are) (gone|to be|to run))[^a-z_]"
		}
		FNR == 1 { list = 0; before = "" }
		{ text = tolower($0) }
		FILENAME ~ /\.rs$/ && !sub(/^[ \t]*\/\/[\/!]/, "", text) { before = ""; next }
		FILENAME ~ /\.md$/ && /^    [^ ]/ && !list { before = ""; next }
		FILENAME ~ /\.md$/ { list = /^ *([*]|[0-9]+\.) / || list && /^ / }
		{
			gsub(/`[^`]*`/, "", text)
			gsub(/behind (a|the) router/, "", text)
			gsub(/^ +/, "", text)
			text = before " " text " "
			if (match(text, phrase)) {
				found = substr(text, RSTART + 1, RLENGTH - 2)
				printf "%s:%d: the glossary replaces \"%s\"\n", FILENAME, FNR, found
				bad = 1
			}
			count = split(text, word, " ")
			before = " "
			if (count && word[count] ~ /^(is|are|was|were|be|been|being|in)$/)
				before = " " word[count]
		}
		END { exit bad }'
}

# Each relative link in a document leads to a file.
links() {
	local page target bad=0
	while IFS= read -r page; do
		while IFS= read -r target; do
			target=${target%%#*}
			[ -z "$target" ] || [ -e "$(dirname "$page")/$target" ] || {
				printf '%s: no such file: the link to %s\n' "$page" "$target"
				bad=1
			}
		done < <(grep -o ']([^)]*)' "$page" | sed 's/^](//; s/)$//' | grep -v '^[a-z]*:')
	done < <(grep '\.md$')
	return $bad
}

# Each test that a document names exists: words in backquotes between "Test:" or "Tests:" and the
# end of the list item, if they look like a test's name.
named_tests() {
	local name page pages="docs/security.md docs/tuning.md SPECIFICATION.md" bad=0
	# Names of functions, of files of tests and of rows of benchmarks.
	{
		git ls-files '*.rs' | xargs -d '\n' grep -hos 'fn [a-z0-9_]*' | awk '{ print $2 }'
		git ls-files 'tests/tests/*.rs' | sed 's|.*/||; s|\.rs$||'
		grep -o '^| [a-z0-9_]* |' docs/benchmarks.md | tr -d '| '
	} >"$names"
	while IFS= read -r name; do
		grep -qx "$name" "$names" || {
			# shellcheck disable=SC2086 # A list.
			page=$(grep -l "$name" $pages | head -n 1)
			printf '%s: no such test: %s\n' "$page" "$name"
			bad=1
		}
	done < <(
		# shellcheck disable=SC2086 # A list.
		awk '
			/^(\* |#|$)/ { inside = 0 }
			/Tests?: / || /^\* .*\(`/ { inside = 1; sub(/.*Tests?: /, "") }
			inside' $pages | grep -o '`[a-z0-9_]*`' | tr -d '`' | grep '_.*_' | sort -u
	)
	return $bad
}

# Each folder with sources says what belongs there: in a README.md, or in the first lines of its
# crate's or module's file. A folder below one with a README.md is described there. So are the
# files for Linux's tree, by guest/linux/README.md.
folders() {
	local folder file bad=0
	local places="README.md mod.rs lib.rs main.rs ../README.md ../../README.md ../Cargo.toml"
	while IFS= read -r folder; do
		for file in $places; do
			[ ! -f "$folder/$file" ] || continue 2
		done
		# The folder of a module has the module's file beside it.
		[ -f "$folder.rs" ] || [[ $folder == guest/linux/overlay/* ]] || {
			printf '%s: no README.md, and no module says what belongs there\n' "$folder"
			bad=1
		}
	done < <(grep -E '\.(rs|c|h|S)$' | sed 's|/[^/]*$||' | sort -u)
	return $bad
}

names=$(mktemp)
trap 'rm -f "$names" "$names.files"' EXIT
text_files >"$names.files"
status=0
for check in line_lengths file_lengths phrases links named_tests folders; do
	"$check" <"$names.files" || status=1
done
exit $status
