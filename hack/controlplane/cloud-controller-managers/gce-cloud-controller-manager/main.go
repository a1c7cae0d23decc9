// A cloud controller manager with the provider of Google Cloud. The Go module proxy does not have the module of its own program,
// so this one has the controllers that all clouds share, and not those for the addresses of Nodes.
package main

import (
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	_ "k8s.io/cloud-provider-gcp/providers/gce"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
)

func main() {
	settings, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatalf("read the defaults of the flags: %v", err)
	}
	command := app.NewCloudControllerManagerCommand(settings, open, app.DefaultInitFuncConstructors,
		names.CCMControllerAliases(), flag.NamedFlagSets{}, wait.NeverStop)
	os.Exit(cli.Run(command))
}

// open returns the provider of --cloud-provider with the file of --cloud-config.
func open(completed *config.CompletedConfig) cloudprovider.Interface {
	provider := completed.ComponentConfig.KubeCloudShared.CloudProvider
	cloud, err := cloudprovider.InitCloudProvider(provider.Name, provider.CloudConfigFile)
	if err != nil {
		klog.Fatalf("open the cloud provider %q with %q: %v", provider.Name, provider.CloudConfigFile, err)
	}
	if cloud == nil {
		klog.Fatalf("there is no cloud provider %q; set --cloud-provider=gce", provider.Name)
	}
	return cloud
}
