# Commands for developers. Run `make` to list the targets.

CARGO ?= cargo
N ?= 200
COUNT ?= 10000
FIRST ?= 1000000
CLOUD_MACHINES ?= 500
SOAK_MINUTES ?= 30
# Features beyond the default ones for `make test`, such as FEATURES=aws,gcp.
FEATURES ?=
export CAPI CLOUD K8S KEEP

.DEFAULT_GOAL := help
.PHONY: help build static demo test test-clusterctl test-drivers test-clouds count-calls soak-orphans seeds check check-features fmt crds proto-go bench faults deny clean

help: ## List the targets
	@bold= plain=; [ -t 1 ] && [ -z "$$NO_COLOR" ] && bold=$$(printf '\033[1m') plain=$$(printf '\033[0m'); \
	awk -F ':.*## ' -v bold="$$bold" -v plain="$$plain" '/^[a-z-]+:.*## / { printf "  %s%-16s%s %s\n", bold, $$1, plain, $$2 }' $(MAKEFILE_LIST)

build: ## Build the debug binary without cloud drivers, target/debug/mcm
	$(CARGO) build --locked

static: ## Build the release binary for an image, without shared libraries
	@hack/build-static

demo: ## Create, roll, kill, drain and delete machines on a real control plane (CLOUD=aws, gcp or metal-stack; CAPI=1 with Cluster API; KEEP=1 leaves it running)
	@hack/demo

test: ## Run all tests: unit, model, and integration on a real control plane (K8S=1.34 for another minor; FEATURES=aws,gcp with drivers of clouds)
	@hack/test --features "$(FEATURES)"

test-clusterctl: ## Run the tests with clusterctl and the real core of Cluster API
	@hack/test-clusterctl --features "$(FEATURES)"

test-drivers: ## Test the driver in Python and the bridge for Go drivers
	@hack/test-drivers

test-clouds: ## Test the drivers of real clouds against simulations of them (needs Python)
	$(CARGO) test --locked --features aws,gcp,metal-stack --lib --test clouds --no-run
	$(CARGO) test --locked --features aws,gcp,metal-stack --lib driver::
	KUBEBUILDER_ASSETS=$$(hack/control-plane get) $(CARGO) test --locked --features aws,gcp,metal-stack --test clouds

count-calls: ## Count the calls of EC2 in the life of CLOUD_MACHINES=500 machines on moto, next to those of the Go provider
	KUBEBUILDER_ASSETS=$$(hack/control-plane get) CLOUD_MACHINES=$(CLOUD_MACHINES) $(CARGO) test --locked --features aws,gcp --test clouds calls:: -- --nocapture

soak-orphans: ## Let the orphan collectors of two namespaces with one cluster tag run for SOAK_MINUTES=30 on simulations of two clouds
	KUBEBUILDER_ASSETS=$$(hack/control-plane get) SOAK_MINUTES=$(SOAK_MINUTES) $(CARGO) test --locked --features aws,gcp --test clouds soak:: -- --nocapture

seeds: ## Play COUNT=10000 seeds of the model from FIRST=1000000 on, with an optimized build (AREAS=in-place,volumes)
	@hack/seeds --first $(FIRST) --areas "$(AREAS)" $(COUNT)

check: ## Check formatting and lints, as CI does
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --all-features --all-targets -- -D warnings
	$(CARGO) clippy --locked --all-features --test clusterctl --test faults -- -D warnings

check-features: ## Check each driver alone, and none
	@hack/check-features

fmt: ## Format the code
	$(CARGO) fmt

crds: ## Regenerate crds/ from the types
	UPDATE_CRDS=1 $(CARGO) test --locked --lib crds_on_disk

proto-go: ## Regenerate the Go code of proto/
	cd sdk/go/generate && go run . ../driverv1

bench: ## Benchmark against the Go reference (N=200 machines by default)
	@hack/bench/run -n $(N)

faults: ## Run what goes wrong outside, in the large: an hour and a half (RUN="volumes machines=10" for one, RUN=--quick for a first look)
	@hack/faults $(RUN)

deny: ## Check licences, sources and known vulnerabilities of dependencies
	$(CARGO) deny check

clean: ## Remove build and demo output
	$(CARGO) clean
