package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The admission of VirtualMachineInstances lets only KubeVirt's own accounts change a status.
const handler = "system:serviceaccount:kubevirt:kubevirt-handler"

// A DataVolume with this text in the URL of its source fails.
const broken = "broken.invalid"

const period = 200 * time.Millisecond

var (
	dataVolumes = schema.GroupVersionResource{Group: "cdi.kubevirt.io", Version: "v1beta1", Resource: "datavolumes"}
	instances   = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstances"}
	claims      = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	volumes     = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
)

type player struct {
	admin, handler dynamic.Interface
}

func play(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	admin, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: handler}
	asHandler, err := dynamic.NewForConfig(as)
	if err != nil {
		return err
	}
	player := player{admin: admin, handler: asHandler}
	for {
		// A failure, such as of a conflict, is repeated in the next round.
		for _, round := range []func(context.Context) error{player.importImages, player.runInstances} {
			if err := round(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "stage:", err)
			}
		}
		time.Sleep(period)
	}
}

// Plays CDI: each DataVolume gets a claim that is bound, and succeeds.
func (p player) importImages(ctx context.Context) error {
	all, err := p.admin.Resource(dataVolumes).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		volume := &all.Items[i]
		phase, _, _ := unstructured.NestedString(volume.Object, "status", "phase")
		if phase != "" || volume.GetDeletionTimestamp() != nil {
			continue
		}
		url, _, _ := unstructured.NestedString(volume.Object, "spec", "source", "http", "url")
		phase = "Succeeded"
		if strings.Contains(url, broken) {
			phase = "Failed"
		} else if err := p.bind(ctx, volume); err != nil {
			return err
		}
		patch := fmt.Sprintf(`{"status": {"phase": %q}}`, phase)
		api := p.admin.Resource(dataVolumes).Namespace(volume.GetNamespace())
		if _, err := api.Patch(ctx, volume.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); ignored(err) != nil {
			return err
		}
	}
	return nil
}

func (p player) bind(ctx context.Context, volume *unstructured.Unstructured) error {
	name, namespace := volume.GetName(), volume.GetNamespace()
	storage := map[string]any{"storage": "1Gi"}
	modes := []any{"ReadWriteOnce"}
	bound := string(volume.GetUID())
	persistent := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume", "metadata": map[string]any{"name": bound},
		"spec": map[string]any{
			"capacity": storage, "accessModes": modes, "hostPath": map[string]any{"path": "/none"},
			"claimRef": map[string]any{"namespace": namespace, "name": name},
		},
	}}
	if _, err := p.admin.Resource(volumes).Create(ctx, persistent, metav1.CreateOptions{}); ignored(err) != nil {
		return err
	}
	yes := true
	claim := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": map[string]any{
			"name": name, "namespace": namespace,
			"annotations": map[string]any{"pv.kubernetes.io/bind-completed": "yes"},
		},
		"spec": map[string]any{
			"accessModes": modes, "volumeName": bound, "resources": map[string]any{"requests": storage},
		},
	}}
	claim.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: "cdi.kubevirt.io/v1beta1", Kind: "DataVolume", Name: name, UID: volume.GetUID(),
		Controller: &yes, BlockOwnerDeletion: &yes,
	}})
	api := p.admin.Resource(claims).Namespace(namespace)
	if _, err := api.Create(ctx, claim, metav1.CreateOptions{}); ignored(err) != nil {
		return err
	}
	patch := []byte(`{"status": {"phase": "Bound"}}`)
	_, err := api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// Plays virt-handler: each instance whose pod runs is running.
func (p player) runInstances(ctx context.Context) error {
	all, err := p.admin.Resource(instances).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range all.Items {
		instance := &all.Items[i]
		phase, _, _ := unstructured.NestedString(instance.Object, "status", "phase")
		if phase != "Scheduled" || instance.GetDeletionTimestamp() != nil {
			continue
		}
		api := p.handler.Resource(instances).Namespace(instance.GetNamespace())
		patch := []byte(`{"status": {"phase": "Running", "interfaces": [{"name": "default", "ipAddress": "10.1.2.3"}]}}`)
		if _, err := api.Patch(ctx, instance.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); ignored(err) != nil {
			return err
		}
	}
	return nil
}

// Another round did it, or the object is gone.
func ignored(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
