# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Every target first installs what it needs (scripts/setup.sh).

.DEFAULT_GOAL := help
.PHONY: help run conformance test test-release build lint bench clean

help:
	@echo 'make run           Linux in a virtual machine: a shell, or a short tour without a terminal'
	@echo 'make test          lint, and every test (under 30 minutes on two cores)'
	@echo 'make conformance   the conformance suite on the process hypervisor and on bare metal'
	@echo 'make test-release  make test, and the tests that take long'
	@echo 'make build         the program: target/release/paravane'
	@echo 'make lint          format, clippy, licences, crates'
	@echo 'make bench         the tables of docs/benchmarks.md'
	@echo 'make clean         remove what was built'

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

lint:
	@scripts/setup.sh test
	@scripts/lint.sh

bench:
	@scripts/setup.sh conformance
	@PATH="$$PATH:$$HOME/.cargo/bin" cargo run --locked --release -- bench native --write docs/benchmarks.md

clean:
	@rm -rf target build
