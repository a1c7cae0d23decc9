// Program stage prepares a cluster for virt-api and virt-controller, and plays the parts of KubeVirt that need real Nodes.
//
//	stage definitions                  prints the definitions of KubeVirt's resources
//	stage webhooks URL CA-FILE         prints the webhooks of virt-api at a URL
//	stage play KUBECONFIG              plays CDI and virt-handler until it is killed
package main

import (
	"context"
	"fmt"
	"os"

	admission "k8s.io/api/admissionregistration/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "stage:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 1 && arguments[0] == "definitions":
		return definitions()
	case len(arguments) == 3 && arguments[0] == "webhooks":
		return webhooks(arguments[1], arguments[2])
	case len(arguments) == 2 && arguments[0] == "play":
		return play(context.Background(), arguments[1])
	}
	return fmt.Errorf("usage: stage definitions | stage webhooks URL CA-FILE | stage play KUBECONFIG")
}

func definitions() error {
	all := []func() (*extensions.CustomResourceDefinition, error){
		components.NewVirtualMachineCrd,
		components.NewVirtualMachineInstanceCrd,
		components.NewPresetCrd,
		components.NewReplicaSetCrd,
		components.NewVirtualMachineInstanceMigrationCrd,
		components.NewVirtualMachinePoolCrd,
		components.NewVirtualMachineSnapshotCrd,
		components.NewVirtualMachineSnapshotContentCrd,
		components.NewVirtualMachineRestoreCrd,
		components.NewVirtualMachineExportCrd,
		components.NewVirtualMachineBackupCrd,
		components.NewVirtualMachineBackupTrackerCrd,
		components.NewVirtualMachineInstancetypeCrd,
		components.NewVirtualMachineClusterInstancetypeCrd,
		components.NewVirtualMachinePreferenceCrd,
		components.NewVirtualMachineClusterPreferenceCrd,
		components.NewMigrationPolicyCrd,
		components.NewVirtualMachineCloneCrd,
		components.NewKubeVirtCrd,
	}
	for _, definition := range all {
		object, err := definition()
		if err != nil {
			return err
		}
		if err := show(object); err != nil {
			return err
		}
	}
	return nil
}

func webhooks(url, caFile string) error {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return err
	}
	at := func(config *admission.WebhookClientConfig) {
		address := url + *config.Service.Path
		*config = admission.WebhookClientConfig{URL: &address, CABundle: ca}
	}
	validating := components.NewVirtAPIValidatingWebhookConfiguration("kubevirt")
	for i := range validating.Webhooks {
		at(&validating.Webhooks[i].ClientConfig)
	}
	mutating := components.NewVirtAPIMutatingWebhookConfiguration("kubevirt")
	for i := range mutating.Webhooks {
		at(&mutating.Webhooks[i].ClientConfig)
	}
	const version = "admissionregistration.k8s.io/v1"
	validating.APIVersion, validating.Kind = version, "ValidatingWebhookConfiguration"
	mutating.APIVersion, mutating.Kind = version, "MutatingWebhookConfiguration"
	if err := show(validating); err != nil {
		return err
	}
	return show(mutating)
}

func show(object any) error {
	text, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("---\n%s", text)
	return err
}
