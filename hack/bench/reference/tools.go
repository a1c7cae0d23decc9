//go:build tools

package main

import _ "github.com/gardener/machine-controller-manager/cmd/machine-controller-manager"
