# Commands for developers. Run `make` to list the targets.

CARGO ?= cargo
N ?= 200
export K8S KEEP

.DEFAULT_GOAL := help
.PHONY: help build demo test check fmt crds bench deny clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  \033[1m%-8s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the debug binary without cloud drivers, target/debug/mcm
	$(CARGO) build --locked

demo: ## Create, roll, kill, drain and delete machines on a real control plane (KEEP=1 leaves it running)
	@hack/demo

test: ## Run all tests: unit, model, and integration on a real control plane (K8S=1.34 for another minor)
	@hack/test

check: ## Check formatting and lints, as CI does
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings

fmt: ## Format the code
	$(CARGO) fmt

crds: ## Regenerate crds/ from the types
	UPDATE_CRDS=1 $(CARGO) test --locked --lib crds_on_disk

bench: ## Benchmark against the Go reference (N=200 machines by default)
	@hack/bench/run -n $(N)

deny: ## Check licences, sources and known vulnerabilities of dependencies
	$(CARGO) deny check

clean: ## Remove build and demo output
	$(CARGO) clean
