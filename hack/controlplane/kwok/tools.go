//go:build tools

// Package tools keeps the program that hack/control-plane builds in go.mod.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
