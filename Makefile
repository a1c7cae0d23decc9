# Commands for developers. Run `make` to list the targets.

CARGO ?= cargo
N ?= 200
COUNT ?= 10000
FIRST ?= 1000000
CLOUD_MACHINES ?= 500
SOAK_MINUTES ?= 30
# Features beyond the default ones for tests, such as FEATURES=aws,gcp; FEATURES=all is every driver of a cloud.
FEATURES ?=
export CAPI CLOUD CONTROL_PLANE FEATURES K8S KEEP

.DEFAULT_GOAL := help
.PHONY: help build static demo test test-rules book test-charts test-clusterctl test-pages test-drivers test-reference test-clouds test-dashboard test-openstack test-kubevirt count-calls soak-orphans seeds mutants check check-features fmt crds proto-go bench faults deny clean release release-twice test-release

help: ## List the targets
	@bold= plain=; [ -t 1 ] && [ -z "$$NO_COLOR" ] && bold=$$(printf '\033[1m') plain=$$(printf '\033[0m'); \
	awk -F ':.*## ' -v bold="$$bold" -v plain="$$plain" '/^[a-z-]+:.*## / { printf "  %s%-16s%s %s\n", bold, $$1, plain, $$2 }' $(MAKEFILE_LIST)

build: ## Build the debug binary without cloud drivers, target/debug/mcm
	$(CARGO) build --locked

static: ## Build the release binary for an image, without shared libraries
	@hack/build-static

release: ## Make the release VERSION=v0.1.0 in dist/VERSION, offline (IMAGE=REGISTRY/mcm:TAG names its image, KEY=FILE signs it; see docs/install.md)
	@hack/release/run $(VERSION) $(if $(IMAGE),--image $(IMAGE)) $(if $(KEY),--key $(KEY)) $(RELEASE)

release-twice: ## Make the release VERSION=v0.1.0 two times in different folders, and compare all bytes
	@hack/release/run $(VERSION) --twice $(if $(IMAGE),--image $(IMAGE)) $(if $(KEY),--key $(KEY)) $(RELEASE)

demo: ## Create, roll, kill, drain and delete machines (CONTROL_PLANE=real with Kubernetes; CLOUD=aws, or another folder of src/drivers/; CAPI=1 with Cluster API; KEEP=1 leaves it running)
	@hack/demo

test: ## Run all tests: unit, model, and integration on a real control plane (K8S=1.34 for another minor; FEATURES=aws,gcp with drivers of clouds)
	@hack/test

test-rules: ## Test the alerts and dashboards with promtool (a part of make test)
	@hack/test-rules

book: ## Render the docs to target/book with mdBook (the first run builds mdBook)
	@hack/book

test-release: ## Test the release with skopeo, umoci, krew, clusterctl and an emulator
	@hack/test-release

test-clusterctl: ## Run the tests with clusterctl and the real core of Cluster API
	@hack/test-clusterctl

test-charts: ## Test the Helm chart and the kustomize bases with the real helm
	@hack/test-charts

test-pages: ## Follow the first page of each of the three users literally, with a release on disk
	@hack/test-pages

test-drivers: ## Test the driver in Python and the bridge for Go drivers
	@hack/test-drivers

test-reference: ## Run the integration tests that the Go reference has for its providers against mcm (PROGRAMS=go: against the Go programs)
	@hack/test-reference

test-dashboard: ## Test the page of mcm dashboard in headless Chromium with axe, and make its pictures (skipped without Chromium; needs npm)
	@hack/dashboard

test-clouds: ## Test the drivers of clouds and mcm with them in simulations of these clouds (FEATURES=aws,gcp for some; needs Python)
	@hack/test-clouds

test-openstack: ## Test the driver of OpenStack on real Keystone, Placement, Nova, Neutron, Glance, Cinder and Octavia (the first set-up takes minutes)
	hack/openstack/openstack get
	$(CARGO) test --locked -p mcm-driver-openstack --lib -- --ignored

test-kubevirt: ## Test the driver of KubeVirt on real virt-api and virt-controller (the first build takes minutes)
	hack/kubevirt get
	KUBEBUILDER_ASSETS=$$(hack/control-plane get) $(CARGO) test --locked --features kubevirt --test clouds kubevirt::real

count-calls: ## Count the calls of EC2 in the life of CLOUD_MACHINES=500 machines on moto, next to those of the Go provider
	KUBEBUILDER_ASSETS=$$(hack/control-plane get) CLOUD_MACHINES=$(CLOUD_MACHINES) $(CARGO) test --locked --features aws --test clouds aws::calls:: -- --nocapture

soak-orphans: ## Let the orphan collectors of two namespaces with one cluster tag run for SOAK_MINUTES=30 on simulations of two clouds
	KUBEBUILDER_ASSETS=$$(hack/control-plane get) SOAK_MINUTES=$(SOAK_MINUTES) $(CARGO) test --locked --features aws,gcp --test clouds collectors_of_two_namespaces -- --nocapture

seeds: ## Play COUNT=10000 seeds of the model from FIRST=1000000 on, with an optimized build (AREAS=in-place,volumes)
	@hack/seeds --first $(FIRST) --areas "$(AREAS)" $(COUNT)

mutants: ## Break the code in each place of hack/mutants.toml, and say which tests notice (RANDOM=60 SEED=1 for as many random places)
	@hack/mutants $(if $(RANDOM),--random $(RANDOM) --seed $(or $(SEED),1))

check: ## Check formatting, lints, the places of the mutants and the tool for renames, as CI does
	@hack/mutants --check
	@python3 -B hack/rename --self-test
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --workspace --all-features --all-targets -- -D warnings
	$(CARGO) clippy --locked --workspace --all-features --test charts --test clouds --test clusterctl --test faults --test pages -- -D warnings

check-features: ## Check each driver alone, and none
	@hack/check-features

fmt: ## Format the code
	$(CARGO) fmt --all

crds: ## Regenerate crds/ from the types
	UPDATE_CRDS=1 $(CARGO) test --locked -p mcm --lib crds_on_disk

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
