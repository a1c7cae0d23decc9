//go:build tools

// Package tools keeps the programs that hack/kubevirt builds in go.mod.
package tools

import (
	_ "kubevirt.io/kubevirt/cmd/virt-api"
	_ "kubevirt.io/kubevirt/cmd/virt-controller"
)
