# What people run. Each target is one line or one script, so that it can be run without make, too.

PART ?= switch
CASES ?= 20000
FUZZ_SECONDS ?= 720
DPDK_SECONDS ?= 600
# The older program of a rolling upgrade: that of the last tag, if there is one.
SLUICE_OLD ?= $(if $(shell git tag --list 2>/dev/null),$(shell scripts/old-program.sh))

.DEFAULT_GOAL := help
.PHONY: help setup demo build dist man guest cni install deb reproducible test bench soak old audit goldens docs clean-lab

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: ## Install what is missing (DRY_RUN=1: only say what)
	@scripts/setup.sh all

build: ## Build the program, and install what that takes
	@scripts/setup.sh build || echo "setup is not complete: \`sluice steer\` may be built without XDP"
	cargo build --release --package sluice

dist: ## Build the program as it is packaged: smaller and faster, and in three times the time
	@scripts/setup.sh build || echo "setup is not complete: \`sluice steer\` may be built without XDP"
	cargo build --profile dist --package sluice

man: build ## Write manual pages and completions of shells into target/man
	target/release/sluice man target/man
	for shell in bash zsh fish; do target/release/sluice completions $$shell >target/man/sluice.$$shell || exit; done

guest: ## Build `sluice guest` for virtual machines, one static file: target/guest/sluice-guest
	@scripts/static.sh guest

cni: ## Build the plugins of container runtimes, a static file each: target/cni/sluice-cni, sluice-netavark, sluice-docker
	@scripts/static.sh cni

install: dist cni ## Install the programs with units, manual, completions and plugins (DESTDIR=…)
	@scripts/install.sh $(DESTDIR)/

deb: ## Build a package for Debian, into target/deb; prints its path
	@. scripts/remap.sh && $(MAKE) --no-print-directory dist cni && scripts/deb.sh

reproducible: ## Build the package twice in two folders, and require the same bytes without a path of this machine
	@scripts/reproducible.sh

demo: ## Show that lossless beats lossy, in namespaces on this machine; needs root
	@scripts/setup.sh demo
	cargo build --release --package sluice
	@scripts/demo.sh

test: ## Run everything that a change must pass (STEPS="fmt unit": only those)
	@scripts/setup.sh test || echo "setup is not complete: what needs it will be skipped"
	@scripts/test.sh $(STEPS)

bench: ## Measure a part, into target/bench/PART.json (PART=switch, sim, fabric, dataplane, containers, chip, churn, evpn, placement, steer)
	@scripts/setup.sh bench
	cargo build --profile dist --package sluice-bench $(if $(filter fabric dataplane containers churn steer,$(PART)),--package sluice)
	cargo run --profile dist --package sluice-bench -- $(PART)
	cargo xtask results target/bench/$(PART).json

soak: ## Long property tests and long fuzzing, about an hour (CASES=20000 FUZZ_SECONDS=720 DPDK_SECONDS=600 SLUICE_OLD=PROGRAM)
	PROPTEST_CASES=$(CASES) cargo test --profile soak \
		-p sluice-base -p sluice-wire -p sluice-switch -p sluice-control -p sluice-host
	SLUICE_MOVE_SECONDS=60 cargo test --profile soak -p sluice-daemon --lib tests::spread -- --nocapture
	SLUICE_REFILLS=500 cargo test --profile soak -p sluice-daemon --lib guests::refills
	FUZZ_SECONDS=$(FUZZ_SECONDS) VERBOSE=1 scripts/test.sh fuzz
	cargo xtask planted --all
	cargo build --package sluice
	cargo build --profile dist --package sluice --package sluice-cni --package sluice-bench
	SLUICE_SOAK=1 cargo test --package sluice-daemon --test live -- --include-ignored --test-threads=1 bucket_moves_every_millisecond steer_cycles
	SLUICE=$(CURDIR)/target/dist/sluice SLUICE_SOAK=1 cargo test --package sluice-daemon --test live -- --include-ignored --test-threads=1 --nocapture \
		isolation:: stuck:: random_drill:: partition:: parity:: cni_kills:: cni_time:: remote:: neutron:: containerd:: libvirt::
	scripts/guest.sh backports || echo "no newer kernel is to be had: what needs it is skipped"
	SLUICE_SOAK=1 cargo test --package sluice-daemon --test live -- --include-ignored --test-threads=1 --nocapture backpressure::newest
	scripts/guest.sh switchdev || echo "no switch is to be had: what needs it is skipped"
	SLUICE_SOAK=1 cargo test --package sluice-daemon --test live -- --include-ignored --test-threads=1 --nocapture switchdev::switch
	SLUICE_OLD=$(SLUICE_OLD) cargo test --package sluice-daemon --test live -- --include-ignored --test-threads=1 --nocapture rolling::
	SLUICE=$(CURDIR)/target/dist/sluice SLUICE_DPDK_SECONDS=$(DPDK_SECONDS) cargo test --package sluice-daemon \
		--test live -- --include-ignored --test-threads=1 --nocapture dpdk::
	cargo run --profile dist --package sluice-bench -- fabric --only hung --load 600
	scripts/reproducible.sh

old: ## Build the program of the last tag, or of COMMIT=…, for SLUICE_OLD of `make soak`; prints its path
	@scripts/old-program.sh $(COMMIT)

audit: ## Look for known weaknesses of what comes from outside (needs the network), and write bills of materials into target/sbom
	@scripts/audit.sh

goldens: ## Ask this machine's kernel again what TCP sends (ONLY="reno-last": only that); needs root
	cargo run --package sluice-lab --example tcp_goldens -- $(ONLY)

docs: ## Build the pages as a book, into target/book, where mdbook is installed
	@scripts/docs.sh

clean-lab: ## Take down every lab that is still up
	@scripts/clean-lab.sh
