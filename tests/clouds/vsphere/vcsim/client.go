package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// client is another program that works with a vCenter: it reads a VM in the folder "workers", and makes another one with the calls of
// Gardener's driver. It prints both.
func client(host, name, other string) error {
	ctx := context.Background()
	address, err := url.Parse(host + "/sdk")
	if err != nil {
		return err
	}
	address.User = url.UserPassword(user, password)
	c, err := govmomi.NewClient(ctx, address, false)
	if err != nil {
		return err
	}
	defer c.Logout(ctx)
	finder := find.NewFinder(c.Client, true)
	center, err := finder.DefaultDatacenter(ctx)
	if err != nil {
		return err
	}
	finder.SetDatacenter(center)
	manager, err := object.GetCustomFieldsManager(c.Client)
	if err != nil {
		return err
	}
	vm, err := finder.VirtualMachine(ctx, "workers/"+name)
	if err != nil {
		return err
	}
	read, err := describe(ctx, vm, manager)
	if err != nil {
		return err
	}
	made, err := makeVM(ctx, c, finder, manager, other)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"read": read, "made": made})
}

func describe(ctx context.Context, vm *object.VirtualMachine, manager *object.CustomFieldsManager) (map[string]any, error) {
	var found mo.VirtualMachine
	if err := vm.Properties(ctx, vm.Reference(), []string{"name", "config", "runtime.powerState", "customValue"}, &found); err != nil {
		return nil, err
	}
	names, err := manager.Field(ctx)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for _, value := range found.CustomValue {
		fields[names.ByKey(value.GetCustomFieldValue().Key).Name] = value.(*types.CustomFieldStringValue).Value
	}
	return map[string]any{"uuid": found.Config.Uuid, "power": found.Runtime.PowerState, "cpus": found.Config.Hardware.NumCPU, "fields": fields}, nil
}

func makeVM(ctx context.Context, c *govmomi.Client, finder *find.Finder, manager *object.CustomFieldsManager, name string) (any, error) {
	source, err := finder.VirtualMachine(ctx, "template")
	if err != nil {
		return nil, err
	}
	folder, err := finder.Folder(ctx, "workers")
	if err != nil {
		return nil, err
	}
	pool, err := finder.ResourcePool(ctx, "DC0_C0/Resources")
	if err != nil {
		return nil, err
	}
	folders, pools := folder.Reference(), pool.Reference()
	task, err := source.Clone(ctx, folder, name, types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{Folder: &folders, Pool: &pools},
	})
	if err != nil {
		return nil, err
	}
	info, err := task.WaitForResult(ctx, nil)
	if err != nil {
		return nil, err
	}
	vm := object.NewVirtualMachine(c.Client, info.Result.(types.ManagedObjectReference))
	if task, err = vm.Reconfigure(ctx, types.VirtualMachineConfigSpec{NumCPUs: 2}); err != nil {
		return nil, err
	}
	if err := task.Wait(ctx); err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"mcm.gardener.cloud/cluster": "shoot", "mcm.gardener.cloud/role": "node"} {
		// The other program has defined it.
		key, err := manager.FindKey(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := manager.Set(ctx, vm.Reference(), key, value); err != nil {
			return nil, err
		}
	}
	if task, err = vm.PowerOn(ctx); err != nil {
		return nil, err
	}
	if err := task.Wait(ctx); err != nil {
		return nil, err
	}
	return describe(ctx, vm, manager)
}
