// Command reference is a machine-controller of the Go reference with a driver for the simulated cloud
// (docs/simulated-cloud.md), so that both implementations can be measured on the same cloud.
// The cloud's address comes from the environment variable SIMULATED_CLOUD, the tag of its VMs from SIMULATED_CLUSTER.
package main

import (
	"fmt"
	"os"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/app"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/app/options"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"

	"mcm.invalid/bench/reference/cloud"
)

func main() {
	server := options.NewMCServer()
	server.AddFlags(pflag.CommandLine)
	flag.InitFlags()
	logs.InitLogs()
	defer logs.FlushLogs()

	address := os.Getenv("SIMULATED_CLOUD")
	if address == "" {
		fmt.Fprintln(os.Stderr, "SIMULATED_CLOUD is not set: give the address of the simulated cloud, such as http://127.0.0.1:10270")
		os.Exit(1)
	}
	if err := app.Run(server, cloud.New(address, os.Getenv("SIMULATED_CLUSTER"))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
