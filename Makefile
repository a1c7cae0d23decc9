# Everything a person runs by hand. `make` alone lists the targets.

CARGO ?= cargo
N ?= 200
export K8S KEEP

.DEFAULT_GOAL := help
.PHONY: help build demo test check fmt crds bench deny clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  \033[1m%-8s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the quick binary (no clouds), target/debug/mcm
	$(CARGO) build --locked

demo: ## Watch machines being created, rolled, killed, drained on a real control plane (KEEP=1 leaves it running)
	@hack/demo

test: ## Run every test: plans, models, and the real binary on a real control plane (K8S=1.34 for another minor)
	@hack/test

check: ## Formatting and lints, as CI sees them
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings

fmt: ## Format the code
	$(CARGO) fmt

crds: ## Write crds/ anew from the types
	UPDATE_CRDS=1 $(CARGO) test --locked --lib crds_on_disk

bench: ## Measure against the Go reference (N=200 machines by default)
	@hack/bench/run -n $(N)

deny: ## Licences, sources and known vulnerabilities of dependencies
	$(CARGO) deny check

clean: ## Remove what builds and demos left here
	$(CARGO) clean
