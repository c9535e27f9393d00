# make without a target prints what there is.

GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
FUZZTIME ?= 30s
KILLS    ?= 500
SEED     ?= 0
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null)

# Packages with fuzz targets, and those whose tests print pages.
FUZZED  = $(sort $(dir $(shell grep -rl --include='*_test.go' --exclude-dir=node_modules '^func Fuzz' .)))
PRINTED = $(sort $(dir $(shell grep -rl --include='*_test.go' --exclude-dir=node_modules 'flag.Bool("rewrite"' .)))

.DEFAULT_GOAL := help
.PHONY: help build test check format vet lint fuzz crash power bench demo docs tools clean

help: ## Print this help
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build bin/sidecar, which says VERSION: the commit, where git knows it
	CGO_ENABLED=0 go build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/sidecar ./cmd/sidecar

test: tools ## Install what the tests need (on Debian, as root) and run them all with the race detector
	go test -race -timeout 15m $$(go list ./... | grep -v '/examples$$')
	go test -v -timeout 15m ./examples

check: format vet lint ## Before every commit: format, vet, all linters, the rules of the house, quick tests
	go test -short -timeout 5m ./...

format: ## Fail where gofmt would change something
	@files=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [ -n "$$files" ]; then echo "gofmt -w would change:"; echo "$$files"; exit 1; fi

vet: ## Run go vet, with and without the crash points
	go vet ./...
	go vet -tags crashpoints ./...

lint: ## Run every linter that .golangci.yml leaves on
	go run $(GOLANGCI) run ./...

fuzz: ## Fuzz each target for FUZZTIME (30s, or a number of runs as in 2000x)
	@set -e; for dir in $(FUZZED); do \
	  for name in $$(go test -list '^Fuzz' $$dir | grep '^Fuzz'); do \
	    echo "go test -run ^$$ -fuzz ^$$name\$$ -fuzztime $(FUZZTIME) $$dir"; \
	    go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s $$dir; \
	  done; \
	done

crash: ## Kill a sidecar KILLS times (500) under load, and hold its answers against the provider's ledger
	go test ./internal/crashtest -run TestStorm -count 1 -v -timeout 60m -crash.kills $(KILLS) -crash.seed $(SEED)

power: ## Cut the power of a real disk while the sidecar writes to it (Linux, as root, with a loop device)
	go test ./internal/crashtest -run 'PowerLoss|C81' -tags powerloss -count 1 -v -timeout 10m -crash.seed $(SEED)

bench: ## Measure the store, and the sidecar beside nginx
	go test -run '^$$' -bench . ./keystore/badger
	go run ./bench

demo: ## See a crash between effect and receipt, and no second effect
	go run ./cmd/sidecar demo

docs: ## Print the pages and golden files that are printed from code
	go test -count 1 $(PRINTED) -rewrite

tools: ## Install from Debian what is missing: a C compiler for -race, Node, npm, Python and curl for the examples, strace
	@missing=""; \
	command -v gcc >/dev/null || missing="$$missing gcc libc6-dev"; \
	command -v node >/dev/null || missing="$$missing nodejs"; \
	command -v npm >/dev/null || missing="$$missing npm"; \
	command -v python3 >/dev/null || missing="$$missing python3"; \
	command -v curl >/dev/null || missing="$$missing curl"; \
	[ "$$(uname -s)" != Linux ] || command -v strace >/dev/null || missing="$$missing strace"; \
	if [ -n "$$missing" ]; then \
	  command -v apt-get >/dev/null || { echo "install these first:$$missing"; exit 1; }; \
	  [ "$$(id -u)" = 0 ] || { echo "missing, and only root can install:$$missing; run apt-get install$$missing"; exit 1; }; \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing; \
	fi

clean: ## Remove what was built
	rm -rf bin
