# SoftRNIC. `make` alone says what there is.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS   += --no-print-directory

GO     ?= go
PREFIX ?= /usr/local
DEPS   := scripts/deps.sh
# AGAIN=1 runs a test that failed once more, and says so: for machines that others use as well.
AGAIN  ?=
REPORT := $(GO) run ./scripts/testreport $(if $(AGAIN),-again)
LINT   := $(GO) tool -modfile=tools/go.mod golangci-lint
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# The drop-in libraries travel inside bin/rnic: they are built first, then embedded from here.
EMBED := internal/dropin/files

# Everything but the programs' own end-to-end tests, which run alone: they measure time.
UNIT  := . ./internal/... ./verbs/... ./rdmacm/... ./clib/... ./cmd/... ./examples/... \
         ./scripts/... ./test/conformance/... ./test/nictest/... ./test/bench
E2E   := ./test/e2e/... ./test/pyverbs ./test/rsocket
# What works with several threads, or with memory that others write.
RACE  := . ./internal/... ./verbs/... ./rdmacm/...

PKG  ?=
T    ?= 30s
SEED ?= 1
N    ?= 200
ARGS ?=

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Targets that need Debian packages install the missing ones and say which."

.PHONY: build
build: clib ## build bin/rnic with the drop-in libraries inside
	$(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/rnic ./cmd/rnic

.PHONY: clib
clib: ## build the drop-in C libraries into build/clib, and copy them where bin/rnic embeds them
	@$(DEPS) build
	@$(MAKE) -s -C clib
	@for lib in build/clib/*.so build/clib/*.so.?; do \
	    cmp -s "$$lib" "$(EMBED)/$${lib##*/}" || install -m 644 "$$lib" $(EMBED)/; \
	done

.PHONY: install
install: build ## install rnic, and the libraries beside it, below PREFIX (and DESTDIR)
	install -D -m 755 bin/rnic '$(DESTDIR)$(PREFIX)/bin/rnic'
	install -d '$(DESTDIR)$(PREFIX)/lib/softrnic'
	install -m 644 build/clib/*.so build/clib/*.so.? '$(DESTDIR)$(PREFIX)/lib/softrnic/'

.PHONY: demo
demo: build ## run two unmodified perftest programs on a SoftRNIC and show their report
	@$(DEPS) demo
	@scripts/demo.sh

.PHONY: test
test: build ## unit tests, then end-to-end tests with unmodified programs; says what was skipped
	@$(DEPS) test
	$(REPORT) -count=1 $(UNIT) -- -count=1 -p 1 -timeout 50m $(E2E)

.PHONY: e2e
e2e: build ## end-to-end tests only
	@$(DEPS) test
	$(REPORT) -count=1 -p 1 -timeout 50m $(E2E)

.PHONY: interop
interop: build ## programs between a SoftRNIC and the kernel's rdma_rxe in a virtual machine; needs root
	@$(DEPS) interop
	RNIC_INTEROP=$${RNIC_INTEROP:-1} $(REPORT) -count=1 -timeout 120m ./test/interop/...

.PHONY: race
race: clib ## unit tests under the race detector (PKG narrows them)
	$(REPORT) -race -timeout 30m $(or $(PKG),$(RACE))

.PHONY: fuzz
fuzz: ## fuzz for T a target: every one (below PKG, a directory)
	scripts/fuzz.sh $(T) $(PKG)

.PHONY: sim
sim: clib ## simulate N seeds from SEED on: faults, and checkers from outside
	$(GO) run ./cmd/rnic sim --seed $(SEED) --count $(N)

.PHONY: bench
bench: build ## SoftRNIC beside its peers, into docs/bench; ARGS='-only latency -rounds 3' for less
	@$(DEPS) bench
	@$(GO) run ./test/bench $(ARGS)

.PHONY: lint
lint: clib ## linters and formatters in check mode, go vet, and the rules of internal/tidy
	@$(DEPS) lint
	$(GO) vet ./...
	$(LINT) run ./...
	$(LINT) fmt --diff
	$(GO) mod tidy -diff
	@$(MAKE) -s -C clib check
	$(GO) test ./internal/tidy

.PHONY: fmt
fmt: ## format the Go sources
	$(LINT) fmt

.PHONY: generate
generate: ## regenerate the C header and other generated files
	$(GO) generate ./...

.PHONY: verify
verify: ## what CI runs, in its order
	.ci/run

.PHONY: clean
clean: ## remove what was built
	rm -rf bin build
	find $(EMBED) -name '*.so*' -delete
