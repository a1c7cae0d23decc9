module mcm.invalid/control-plane/other-providers

go 1.26.0

// Only their CRDs are used: hack/other-providers.
require (
	sigs.k8s.io/cluster-api-provider-aws/v2 v2.13.0
	sigs.k8s.io/cluster-api-provider-gcp v1.10.0
)
