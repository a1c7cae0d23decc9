// Command example serves a driver of the Go MCM to mcm: the one that the benchmark gives to the Go MCM.
// The address of the simulated cloud comes from the environment variable SIMULATED_CLOUD, the tag of its VMs from SIMULATED_CLUSTER.
package main

import (
	"os"

	"mcm.invalid/bench/reference/cloud"
	"mcm.invalid/sdk/go/remote"
)

func main() {
	remote.Main("simulated", cloud.New(os.Getenv("SIMULATED_CLOUD"), os.Getenv("SIMULATED_CLUSTER")))
}
