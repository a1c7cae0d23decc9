//go:build tools

// Package tools keeps the program that hack/control-plane builds in go.mod.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
