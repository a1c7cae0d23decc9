# Commands for developers. Run `make` to list the targets.

CARGO ?= cargo
N ?= 200
COUNT ?= 10000
FIRST ?= 1000000
CLOUD_MACHINES ?= 500
SOAK_MINUTES ?= 30
MINUTES ?= 30
PLANES ?= 200
MACHINES ?= 50
GO_SHOOTS ?= 20
MOVES ?= 5
# Features beyond the default ones for tests, such as FEATURES=aws,gcp; FEATURES=all is every driver of a cloud.
FEATURES ?=
export CAPI CLOUD CLUSTER_API CONTROL_PLANE FEATURES K8S KEEP

.DEFAULT_GOAL := help
.PHONY: help build static demo test test-rules book test-charts test-clusterctl test-flavours test-pages test-drivers test-reference test-clouds test-dashboard test-openstack test-kubevirt count-calls soak-orphans soak-fleet idle-fleet bench-hostile-targets seed seeds mutants check check-tools check-default check-features fmt crds proto-go bench memory faults deny clean release release-twice test-release

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

test-clusterctl: ## Run the tests with clusterctl and the real core of Cluster API (CLUSTER_API=1.11 for the oldest core)
	@hack/test-clusterctl

# The other cases of this test take too long for each change.
test-flavours: ## Create, upgrade twice and delete a cluster of each flavour and ClusterClass (CLUSTER_API=1.11 for the oldest core)
	@FEATURES=$(or $(FEATURES),all) hack/test-clusterctl whole_life:: -- --include-ignored

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

soak-fleet: ## Let three replicas share PLANES=200 control planes of MACHINES=50 for MINUTES=30, with a fault each 20 s (SEED=1 repeats a run; needs libfaketime)
	@hack/faults fleet_soak planes=$(PLANES) machines=$(MACHINES) minutes=$(MINUTES) $(if $(SEED),seed=$(SEED))

idle-fleet: ## Measure three replicas with PLANES=200 control planes of MACHINES=50 while nothing happens, and their restart (IDLE=--release for the static binary)
	@hack/faults idle_fleet planes=$(PLANES) machines=$(MACHINES) $(IDLE)

bench-hostile-targets: ## Compare the time of new machines in PLANES=200 control planes with and without 50 dead, 10 slow and 1 flooding target
	@hack/faults hostile_fleet planes=$(PLANES) dead=50 slow=10 flooding=1 $(HOSTILE)

seed: ## Hibernate, melt, migrate and restore PLANES=200 shoots of a seed, of which Go programs serve GO_SHOOTS=20, and MOVES=5 of these move (SEED=1 repeats a run; needs Go)
	@hack/faults seed planes=$(PLANES) go=$(GO_SHOOTS) moves=$(MOVES) $(if $(SEED),seed=$(SEED))

seeds: ## Play COUNT=10000 seeds of the model from FIRST=1000000 on, with an optimized build (AREAS=in-place,volumes)
	@hack/seeds --first $(FIRST) --areas "$(AREAS)" $(COUNT)

mutants: ## Break the code in each place of hack/mutants.toml, and say which tests notice (RANDOM=60 SEED=1 for as many random places)
	@hack/mutants $(if $(RANDOM),--random $(RANDOM) --seed $(or $(SEED),1))

check: check-tools check-default ## Check formatting, lints, the places of the mutants and the tool for renames, as CI does
	$(CARGO) clippy --locked --workspace --all-features --all-targets -- -D warnings
	$(CARGO) clippy --locked --workspace --all-features --test charts --test clouds --test clusterctl --test faults --test memory --test pages -- -D warnings

check-tools:
	@hack/mutants --check
	@python3 -B hack/rename --self-test
	$(CARGO) fmt --all --check

check-default:
	@hack/check-features trees
	$(CARGO) clippy --locked -p mcm --all-targets -- -D warnings
	$(CARGO) clippy --locked -p mcm --lib --bins --no-default-features -- -D warnings

check-features: ## Check each driver alone, and none, in about 20 min
	@hack/check-features

fmt: ## Format the code
	$(CARGO) fmt --all

crds: ## Regenerate crds/ from the types
	UPDATE_CRDS=1 $(CARGO) test --locked -p mcm --lib crds_on_disk

proto-go: ## Regenerate the Go code of proto/
	cd sdk/go/generate && go run . ../driverv1

bench: ## Benchmark against the Go reference (N=200 machines by default)
	@hack/bench/run -n $(N)

memory: ## Measure the memory of a cached machine, of a relist, and of 20,000 lives of machines
	$(CARGO) test --locked --release --test memory -- --nocapture

faults: ## Run what goes wrong outside, in the large: about two hours (RUN="volumes machines=10" for one, RUN=--quick for a first look)
	@hack/faults $(RUN)

deny: ## Check licences, sources and known vulnerabilities of dependencies
	$(CARGO) deny check

clean: ## Remove build and demo output
	$(CARGO) clean
