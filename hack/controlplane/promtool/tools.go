//go:build tools

// Package tools keeps the program that hack/test-rules builds in go.mod.
package tools

import _ "github.com/prometheus/prometheus/cmd/promtool"
