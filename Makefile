# Targets with a description are listed by `make help`.
SHELL := /bin/sh
# Go's installer puts it here, which may not be on PATH.
export PATH := $(PATH):/usr/local/go/bin
# An older Go fetches the version of go.mod; distributions disable that.
export GOTOOLCHAIN ?= auto

GO        ?= go
# Architectures of the guest binaries that the CLI embeds.
ARCHES    ?= $(subst x86_64,amd64,$(subst aarch64,arm64,$(shell uname -m)))
OUT       := bin
TOOLS     := .cache/bin
GOLANGCI  := $(TOOLS)/golangci-lint-v2.15.0
VULNCHECK := $(TOOLS)/govulncheck-v1.9.0
# For releases only: v2.17.0 and v1.55.0 need modules that the module proxy lacks.
GORELEASER := $(TOOLS)/goreleaser-v2.16.0
SYFT       := $(TOOLS)/syft-v1.54.0

# The same source gives the same guest binary: its content is part of the image's name.
GUEST_FLAGS := -trimpath -buildvcs=false -ldflags "-s -w"
HOST_FLAGS  := -trimpath -ldflags "-s -w"
# Linters and tests with the flags of the programs' build reuse its compiled packages.
SAME        := CGO_ENABLED=0 GOFLAGS="$(GOFLAGS) -trimpath"

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: need-build $(ARCHES:%=entrypoint-%) ## build bin/sandbox-agent and bin/entrypoint
	CGO_ENABLED=0 $(GO) build $(HOST_FLAGS) -o $(OUT)/sandbox-agent ./cmd/sandbox-agent

.PHONY: need-build
need-build:
	@./scripts/need.sh build

# Both guest programs, compressed for the CLI to embed; bin/entrypoint and bin/guest have the last built architecture.
entrypoint-%: need-build
	@mkdir -p $(OUT)
	set -e; for p in entrypoint guest; do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$* $(GO) build $(GUEST_FLAGS) -o $(OUT)/$$p ./cmd/$$p; \
		gzip -9 -n -c $(OUT)/$$p >$(OUT)/$$p-linux-$*.gz; \
		{ sha256sum $(OUT)/$$p 2>/dev/null || shasum -a 256 $(OUT)/$$p; } | cut -c 1-64 >$(OUT)/$$p-linux-$*.sum; \
		mv $(OUT)/$$p-linux-$*.gz $(OUT)/$$p-linux-$*.sum image/entrypoint/; \
	done

.PHONY: image
image: build ## build the box's image on the engine
	./$(OUT)/sandbox-agent image build

.PHONY: test
test: ## the tests of every change; installs what is missing and starts an engine if none answers
	MAKE="$(MAKE)" ./scripts/test.sh

.PHONY: nightly
nightly: ## `make test` and the long tests (CONTRIBUTING.md)
	MAKE="$(MAKE)" ./scripts/test.sh nightly

.PHONY: unit
unit: ## tests that need no engine, no network and no root
	$(GO) test -race ./...

.PHONY: e2e
e2e: build ## tests on the engine that is running
	$(GO) test -tags e2e -count=1 -p 1 -parallel 5 -timeout 60m $$(grep -rl --include='*_test.go' '^//go:build e2e' . | xargs -r -n 1 dirname | sort -u)

.PHONY: demo
demo: ## a whole task on a sample repository: no account, no key
	MAKE="$(MAKE)" ./scripts/demo.sh

.PHONY: bench
bench: build ## times and memory of a run: medians, with the same minutes' minimum
	./scripts/bench.sh

.PHONY: pictures
pictures: build image ## the pictures of README and docs, of the demo's pull request and report
	./scripts/pictures.sh

ROUNDS ?= 100
SEED   ?= 20261121

.PHONY: chaos
chaos: build ## runs destroyed at random moments, and finished: ROUNDS=100 SEED=20261121; KIND=ChaosSandbox kills standalone sandboxes
	./scripts/chaos.sh $(ROUNDS) $(SEED) $(KIND)

.PHONY: attack
attack: build ## an agent that means harm, inside real boxes: prints attempt, expected, got
	./scripts/attack.sh

.PHONY: caps
caps: build image ## each capability of a box, and what fails without it: some 25 minutes, RUN=0 is quick
	./scripts/caps.sh

.PHONY: release
release: $(GORELEASER) $(SYFT) ## archives, Debian packages, checksums and SBOMs in dist/; a snapshot where no tag names the commit, published nowhere
	MAKE="$(MAKE)" ./scripts/release.sh $(GORELEASER) $(SYFT)

.PHONY: check
check: static unit ## what a change has to pass besides the tests on an engine

.PHONY: static
static: static-read vet-darwin generated ## what is found without running it: format, vet, linters, known vulnerabilities, generated files

.PHONY: static-read
static-read: fmt-check vet lint vulns tidy-check

.PHONY: vulns
vulns: $(VULNCHECK) ## known vulnerabilities of what the programs call
	$(SAME) ./scripts/vulns.sh $(VULNCHECK)

.PHONY: generated
generated: ## write generated and golden files anew: none may change
	./scripts/generated.sh

.PHONY: fmt
fmt: $(GOLANGCI) ## format the Go files
	$(GOLANGCI) fmt ./...

.PHONY: fmt-check
fmt-check: $(GOLANGCI)
	$(GOLANGCI) fmt --diff ./...

.PHONY: vet
vet: # of the files that the linters do not see; their govet looks at all others
	$(SAME) $(GO) vet -tags e2e ./e2e ./internal/guest/rootgit
	$(SAME) $(GO) vet -tags boxtest ./internal/guest/... ./runner/...

.PHONY: vet-darwin
vet-darwin: # compiles every package for macOS
	GOOS=darwin $(GO) vet ./cmd/sandbox-agent ./sandbox ./wire ./internal/host/...

.PHONY: lint
lint: $(GOLANGCI) ## the linters of .golangci.yml
	$(SAME) $(GOLANGCI) run --build-tags e2e,nightly,release,bench ./...

.PHONY: tidy-check
tidy-check:
	$(GO) mod tidy -diff

.PHONY: install-tools
install-tools: $(GOLANGCI) $(VULNCHECK) ## build the linter and govulncheck at their pinned versions
$(GOLANGCI):
	$(SAME) GOBIN=$(CURDIR)/$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	mv $(TOOLS)/golangci-lint $@
$(VULNCHECK):
	$(SAME) GOBIN=$(CURDIR)/$(TOOLS) $(GO) install golang.org/x/vuln/cmd/govulncheck@v1.9.0
	mv $(TOOLS)/govulncheck $@
$(GORELEASER):
	GOBIN=$(CURDIR)/$(TOOLS) $(GO) install github.com/goreleaser/goreleaser/v2@v2.16.0
	mv $(TOOLS)/goreleaser $@
$(SYFT):
	GOBIN=$(CURDIR)/$(TOOLS) $(GO) install github.com/anchore/syft/cmd/syft@v1.54.0
	mv $(TOOLS)/syft $@

.PHONY: clean
clean: ## remove what was built here (images and volumes stay: sandbox-agent gc)
	rm -rf $(OUT) $(TOOLS) dist .cache/release image/entrypoint/*.gz image/entrypoint/*.sum
