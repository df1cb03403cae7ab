# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Every target first installs what it needs (scripts/setup.sh).

.DEFAULT_GOAL := help
.PHONY: help run test build install uninstall package conformance lint bench
.PHONY: test-release test-package test-newcomer clean

help:
	@echo 'make run            Linux in a virtual machine: a shell; a demo without a terminal'
	@echo 'make test           lint, and the tests but the long ones (under an hour)'
	@echo 'make build          the program: target/release/paravane'
	@echo 'make install        program, kernel, completions, manual pages [PREFIX=] [DESTDIR=]'
	@echo 'make uninstall      removes them [PREFIX=] [DESTDIR=]'
	@echo 'make package        the same as a .deb for Debian 12 and 13, in target/package'
	@echo 'make conformance    the conformance suite, on processes and on bare metal'
	@echo 'make lint           format, clippy, licences, crates'
	@echo 'make bench          bench native, and its table in docs/benchmarks.md'
	@echo 'make test-release   make test, the tests that take long, and the two below'
	@echo 'make test-package   the package in bare Debian roots [SUITE=bookworm|trixie]'
	@echo 'make test-newcomer  make run and make test in bare Debian roots [SUITE=]'
	@echo 'make clean          remove what was built'

run:
	@scripts/setup.sh run
	@scripts/run.sh

conformance:
	@scripts/setup.sh conformance
	@scripts/conformance.sh

test:
	@scripts/setup.sh test
	@scripts/test.sh

test-release:
	@scripts/setup.sh release
	@scripts/test.sh --long

build:
	@scripts/setup.sh build
	@scripts/build.sh

install:
	@scripts/setup.sh run
	@scripts/install.sh install

uninstall:
	@scripts/install.sh uninstall

package:
	@scripts/setup.sh run
	@scripts/package.sh

test-package:
	@scripts/setup.sh release
	@scripts/test-package.sh

test-newcomer:
	@scripts/setup.sh release
	@scripts/newcomer.sh

lint:
	@scripts/setup.sh test
	@scripts/lint.sh

bench:
	@scripts/setup.sh conformance
	@scripts/build.sh
	@"$${CARGO_TARGET_DIR:-target}/release/paravane" bench native --write docs/benchmarks.md

clean:
	@rm -rf target build
