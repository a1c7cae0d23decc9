// Program client uses the fake of an API server with KubeVirt as KubeVirt's own client for Go does.
//
//	client URL TOKEN NAMESPACE
package main

import (
	"context"
	"fmt"
	"os"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	kubevirt "kubevirt.io/api/core/v1"
	"kubevirt.io/client-go/kubecli"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: client URL TOKEN NAMESPACE")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, token, namespace string) error {
	client, err := kubecli.GetKubevirtClientFromRESTConfig(&rest.Config{Host: url, BearerToken: token})
	if err != nil {
		return err
	}
	vms, secrets := client.VirtualMachine(namespace), client.CoreV1().Secrets(namespace)

	for _, name := range []string{"a", "b"} {
		secret := &core.Secret{ObjectMeta: meta.ObjectMeta{Name: "userdata-" + name}, Data: map[string][]byte{"userdata": []byte("x")}}
		if _, err := secrets.Create(ctx, secret, meta.CreateOptions{}); err != nil {
			return fmt.Errorf("create a Secret: %w", err)
		}
		created, err := vms.Create(ctx, machine(name), meta.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create a VM: %w", err)
		}
		if created.UID == "" || created.ResourceVersion == "" || created.CreationTimestamp.IsZero() {
			return fmt.Errorf("a new VM lacks metadata: %+v", created.ObjectMeta)
		}
	}
	if _, err := vms.Create(ctx, machine("a"), meta.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("a second VM of a name: %v", err)
	}

	found, err := vms.Get(ctx, "a", meta.GetOptions{})
	if err != nil {
		return fmt.Errorf("get a VM: %w", err)
	}
	if found.Status.PrintableStatus != kubevirt.VirtualMachineStatusRunning || found.Labels["pool"] != "workers" {
		return fmt.Errorf("a VM is not as expected: %+v", found)
	}
	if _, err := vms.Get(ctx, "c", meta.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("an absent VM: %v", err)
	}

	options := meta.ListOptions{LabelSelector: "pool=workers", Limit: 1}
	names := map[string]bool{}
	for {
		page, err := vms.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list VMs: %w", err)
		}
		for _, vm := range page.Items {
			names[vm.Name] = true
		}
		if page.Continue == "" {
			break
		}
		options.Continue = page.Continue
	}
	if len(names) != 2 {
		return fmt.Errorf("the pages have %v", names)
	}

	patch := []byte(`{"metadata": {"labels": {"pool": null, "team": "x"}}}`)
	changed, err := vms.Patch(ctx, "a", types.MergePatchType, patch, meta.PatchOptions{})
	if err != nil || changed.Labels["team"] != "x" || changed.Labels["pool"] != "" {
		return fmt.Errorf("patch of labels: %v %v", changed, err)
	}

	other := types.UID("another")
	refused := vms.Delete(ctx, "a", meta.DeleteOptions{Preconditions: &meta.Preconditions{UID: &other}})
	if !apierrors.IsConflict(refused) {
		return fmt.Errorf("deletion of another UID: %v", refused)
	}
	for _, name := range []string{"a", "b"} {
		if err := vms.Delete(ctx, name, meta.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete a VM: %w", err)
		}
		if err := secrets.Delete(ctx, "userdata-"+name, meta.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete a Secret: %w", err)
		}
	}
	if err := vms.Delete(ctx, "a", meta.DeleteOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("a second deletion: %v", err)
	}

	stranger, err := kubecli.GetKubevirtClientFromRESTConfig(&rest.Config{Host: url, BearerToken: "wrong"})
	if err != nil {
		return err
	}
	if _, err := stranger.VirtualMachine(namespace).Get(ctx, "a", meta.GetOptions{}); !apierrors.IsUnauthorized(err) {
		return fmt.Errorf("a wrong token: %v", err)
	}
	return nil
}

func machine(name string) *kubevirt.VirtualMachine {
	always := kubevirt.RunStrategyAlways
	disk := func(name string) kubevirt.Disk {
		return kubevirt.Disk{Name: name, DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.DiskBusVirtio}}}
	}
	source := &kubevirt.CloudInitNoCloudSource{UserDataSecretRef: &core.LocalObjectReference{Name: "userdata-" + name}}
	return &kubevirt.VirtualMachine{
		ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{"pool": "workers"}},
		Spec: kubevirt.VirtualMachineSpec{
			RunStrategy: &always,
			Template: &kubevirt.VirtualMachineInstanceTemplateSpec{
				Spec: kubevirt.VirtualMachineInstanceSpec{
					Domain: kubevirt.DomainSpec{
						Resources: kubevirt.ResourceRequirements{Requests: core.ResourceList{
							core.ResourceCPU: resource.MustParse("2"), core.ResourceMemory: resource.MustParse("4Gi"),
						}},
						Devices: kubevirt.Devices{Disks: []kubevirt.Disk{disk("cloudinitdisk")}},
					},
					Volumes: []kubevirt.Volume{{Name: "cloudinitdisk", VolumeSource: kubevirt.VolumeSource{CloudInitNoCloud: source}}},
				},
			},
		},
	}
}
