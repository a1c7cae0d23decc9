//go:build tools

// Package tools keeps the programs that hack/control-plane builds in go.mod.
package tools

import _ "k8s.io/cloud-provider-aws/cmd/aws-cloud-controller-manager"
