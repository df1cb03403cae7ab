# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Every target installs what it needs first (scripts/setup.sh); nothing has to be done before.

.DEFAULT_GOAL := help
.PHONY: help run test test-release build lint bench clean

help:
	@echo 'make run           the conformance suite on the process hypervisor and on emulated bare metal, then Linux: a shell or a tour'
	@echo 'make test          lint, and every test (under 30 minutes on two cores)'
	@echo 'make test-release  the same, and what takes long'
	@echo 'make build         the program: target/release/paravane'
	@echo 'make lint          format, clippy, licences, crates'
	@echo 'make bench         the tables of docs/benchmarks.md'
	@echo 'make clean         remove what was built'

run:
	@scripts/setup.sh run
	@scripts/run.sh

test:
	@scripts/setup.sh test
	@scripts/test.sh

test-release:
	@scripts/setup.sh release
	@scripts/test.sh --long

build:
	@scripts/setup.sh build
	@PATH="$$PATH:$$HOME/.cargo/bin" cargo build --locked --release

lint:
	@scripts/setup.sh test
	@scripts/lint.sh

bench:
	@scripts/setup.sh run
	@PATH="$$PATH:$$HOME/.cargo/bin" cargo run --locked --release -- bench native --write docs/benchmarks.md

clean:
	@rm -rf target build
