package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	user     = "administrator@vsphere.local"
	password = "hunter2-of-vsphere"
)

// options of a vCenter.
type options struct {
	// Datacenters is their number; 0 is one.
	Datacenters int
	// Folders F0, F1 and so on, each with one of the first datacenters, which is then named DC0.
	Folders int
	// Plain connections, without TLS.
	Plain bool
	// Page is the most objects in an answer, if it is not 0.
	Page int32
}

// settings of the next clones.
type settings struct {
	// Fault with which their tasks fail; empty if they succeed.
	CloneFault string
	// CloneTime in milliseconds.
	CloneTime int
	// HasNoAddress until this is false.
	HasNoAddress bool
}

// vCenter is one simulator.
type vCenter struct {
	model  *simulator.Model
	server *simulator.Server
	url    *url.URL
	admin  *govmomi.Client
	// Path of the first datacenter.
	center  string
	cloning sync.Mutex
	// Names of VMs that are being made.
	making  sync.Map
	created int
	settings
	next int
}

func newVCenter(wanted options) (*vCenter, error) {
	model := simulator.VPX()
	model.Datacenter = max(wanted.Datacenters, 1)
	model.Pod, model.ClusterHost, model.Datastore, model.Machine, model.Pool = 1, 2, 2, 2, 1
	if err := model.Create(); err != nil {
		return nil, err
	}
	one := &vCenter{model: model}
	one.prepare(wanted)
	service := model.Service
	service.RegisterEndpoints = true
	service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword(user, password)}
	if !wanted.Plain {
		service.TLS = new(tls.Config)
	}
	one.server = service.NewServer()
	one.url = one.server.URL
	one.url.User = service.Listen.User
	var err error
	if one.admin, err = govmomi.NewClient(context.Background(), one.url, true); err != nil {
		return nil, err
	}
	return one, one.addFolders(wanted.Folders)
}

func (v *vCenter) context() *simulator.Context { return v.model.Service.Context }

// prepare replaces what the simulator lacks, and names the templates.
func (v *vCenter) prepare(wanted options) {
	ctx := v.context()
	// The simulator lets everybody read without a session.
	ctx.Map.Handler = func(ctx *simulator.Context, method *simulator.Method) (mo.Reference, types.BaseMethodFault) {
		if read, ok := method.Body.(*types.RetrievePropertiesEx); ok {
			if ctx.Session == nil {
				return nil, &types.NotAuthenticated{NoPermission: types.NoPermission{Object: &method.This, PrivilegeId: "System.View"}}
			}
			if wanted.Page > 0 {
				read.Options.MaxObjects = wanted.Page
			}
		}
		return nil, nil
	}
	content := ctx.Map.Get(types.ManagedObjectReference{Type: "ServiceInstance", Value: "ServiceInstance"}).(*simulator.ServiceInstance).Content
	ctx.Map.Put(&storageManager{ctx.Map.Get(*content.StorageResourceManager).(*simulator.StorageResourceManager)})
	ctx.Map.Put(&searchIndex{ctx.Map.Get(*content.SearchIndex).(*simulator.SearchIndex), v})
	for _, found := range ctx.Map.All("StoragePod") {
		pod := found.(*simulator.StoragePod)
		pod.PodStorageDrsEntry.StorageDrsConfig.PodConfig.Enabled = true
		for _, datastore := range ctx.Map.All("Datastore") {
			if strings.HasSuffix(datastore.Entity().Name, "LocalDS_1") {
				pod.ChildEntity = append(pod.ChildEntity, datastore.Reference())
			}
		}
	}
	vms := ctx.Map.All("VirtualMachine")
	slices.SortFunc(vms, func(a, b mo.Entity) int { return strings.Compare(a.Entity().Name, b.Entity().Name) })
	names := []string{"template", "template-plain", "template-ignition", "other"}
	for number, name := range names[:min(len(vms), 4)] {
		vm := vms[number].(*simulator.VirtualMachine)
		vm.Name, vm.Config.Name, vm.Summary.Config.Name = name, name, name
		switch name {
		case "template":
			vm.Config.VAppConfig = properties(true, "hostname", "user-data", "password", "instance-id")
			fixed := properties(false, "fixed").Property[0]
			fixed.Key = 9
			vm.Config.VAppConfig.GetVmConfigInfo().Property = append(vm.Config.VAppConfig.GetVmConfigInfo().Property, fixed)
		case "template-ignition":
			vm.Config.GuestId = "coreos64Guest"
			vm.Config.VAppConfig = properties(true, "guestinfo.ignition.config.data")
		case "other":
			continue
		}
		vm.Runtime.PowerState = types.VirtualMachinePowerStatePoweredOff
		vm.MarkAsTemplate(&types.MarkAsTemplate{This: vm.Self})
		ctx.Map.Put(&template{vm, v})
	}
}

func properties(isConfigurable bool, ids ...string) *types.VmConfigInfo {
	info := new(types.VmConfigInfo)
	for key, id := range ids {
		property := types.VAppPropertyInfo{Key: int32(key), Id: id, UserConfigurable: &isConfigurable, Type: "string"}
		if id == "instance-id" {
			property.DefaultValue = "id-ovf"
		}
		info.Property = append(info.Property, property)
	}
	return info
}

// template is a VM whose clones have its vApp configuration and an ID that no other VM ever had.
type template struct {
	*simulator.VirtualMachine
	vCenter *vCenter
}

func (t *template) CloneVMTask(ctx *simulator.Context, request *types.CloneVM_Task) soap.HasFault {
	// The simulator locks the object of a task until its end, so nothing could look at the template while a slow clone is made.
	object := t.Self
	if t.vCenter.settings.CloneTime > 0 {
		object.Value = "clone-" + uuid.NewString()
	}
	task := simulator.CreateTask(object, "cloneVm", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		settings := t.vCenter.settings
		time.Sleep(time.Duration(settings.CloneTime) * time.Millisecond)
		if settings.CloneFault != "" {
			return nil, faultOf(settings.CloneFault)
		}
		if request.Spec.Config == nil {
			request.Spec.Config = new(types.VirtualMachineConfigSpec)
		}
		request.Spec.Config.Uuid = uuid.NewString()
		// Of two clones of one name the second is refused only after the first.
		t.vCenter.cloning.Lock()
		defer t.vCenter.cloning.Unlock()
		// A VM that is destroyed while it is made would end the simulator.
		t.vCenter.making.Store(request.Name, true)
		defer t.vCenter.making.Delete(request.Name)
		body := t.VirtualMachine.CloneVMTask(ctx, request).(*methods.CloneVM_TaskBody)
		if body.Fault_ != nil {
			return nil, body.Fault_.VimFault().(types.BaseMethodFault)
		}
		inner := ctx.Map.Get(body.Res.Returnval).(*simulator.Task)
		inner.Wait()
		if inner.Info.Error != nil {
			return nil, inner.Info.Error.Fault
		}
		clone := ctx.Map.Get(inner.Info.Result.(types.ManagedObjectReference)).(*simulator.VirtualMachine)
		t.vCenter.finish(clone, t.Config)
		return clone.Self, nil
	})
	began := task.Run(ctx)
	if object != t.Self {
		t.RecentTask = append(t.RecentTask, began)
	}
	return &methods.CloneVM_TaskBody{Res: &types.CloneVM_TaskResponse{Returnval: began}}
}

func (v *vCenter) finish(clone *simulator.VirtualMachine, of *types.VirtualMachineConfigInfo) {
	if of.VAppConfig != nil {
		copied := *of.VAppConfig.GetVmConfigInfo()
		copied.Property = slices.Clone(copied.Property)
		clone.Config.VAppConfig = &copied
	}
	v.created++
	v.next++
	address := fmt.Sprintf("10.0.%d.%d", v.next/250, v.next%250+1)
	clone.Guest.Net = nil
	clone.Guest.IpAddress = ""
	if !v.HasNoAddress {
		clone.Guest.IpAddress = address
		clone.Guest.Net = []types.GuestNicInfo{{IpAddress: []string{address, "fe80::1"}}}
	}
}

func faultOf(name string) types.BaseMethodFault {
	switch name {
	case "NoDiskSpace":
		return &types.NoDiskSpace{FileFault: types.FileFault{File: "[LocalDS_0] a/a.vmdk"}, Datastore: "LocalDS_0"}
	case "NoCompatibleHost":
		return new(types.NoCompatibleHost)
	default:
		return new(types.RuntimeFault)
	}
}

// storageManager recommends a datastore of a pod also if the request names no disks.
type storageManager struct {
	*simulator.StorageResourceManager
}

func (m *storageManager) RecommendDatastores(ctx *simulator.Context, request *types.RecommendDatastores) soap.HasFault {
	pods := &request.StorageSpec.PodSelectionSpec
	if pods.StoragePod != nil && len(pods.InitialVmConfig) == 0 {
		pods.InitialVmConfig = []types.VmPodConfigForPlacement{{StoragePod: *pods.StoragePod}}
	}
	return m.StorageResourceManager.RecommendDatastores(ctx, request)
}

// searchIndex finds objects in folders with VMs that are being made. They have no name yet, at which the simulator panics.
type searchIndex struct {
	*simulator.SearchIndex
	vCenter *vCenter
}

func (s *searchIndex) FindChild(ctx *simulator.Context, request *types.FindChild) soap.HasFault {
	folder, ok := ctx.Map.Get(request.Entity).(*simulator.Folder)
	if !ok {
		return s.SearchIndex.FindChild(ctx, request)
	}
	var children []types.ManagedObjectReference
	ctx.WithLock(folder, func() { children = slices.Clone(folder.ChildEntity) })
	body := &methods.FindChildBody{Res: new(types.FindChildResponse)}
	if _, isMade := s.vCenter.making.Load(request.Name); isMade {
		return body
	}
	for _, child := range children {
		if entity, ok := ctx.Map.Get(child).(mo.Entity); ok && entity.Entity().Name == request.Name {
			body.Res.Returnval = &child
		}
	}
	return body
}

func (s *searchIndex) FindByInventoryPath(ctx *simulator.Context, request *types.FindByInventoryPath) soap.HasFault {
	found := &s.rootFolder(ctx).Self
	for _, name := range strings.FieldsFunc(request.InventoryPath, func(c rune) bool { return c == '/' }) {
		if found != nil {
			child := s.FindChild(ctx, &types.FindChild{Entity: *found, Name: name})
			found = child.(*methods.FindChildBody).Res.Returnval
		}
	}
	return &methods.FindByInventoryPathBody{Res: &types.FindByInventoryPathResponse{Returnval: found}}
}

func (s *searchIndex) rootFolder(ctx *simulator.Context) *simulator.Folder {
	instance := ctx.Map.Get(types.ManagedObjectReference{Type: "ServiceInstance", Value: "ServiceInstance"})
	return ctx.Map.Get(instance.(*simulator.ServiceInstance).Content.RootFolder).(*simulator.Folder)
}

// addFolders adds folders for VMs to all datacenters, and moves the first datacenters into folders of their own.
func (v *vCenter) addFolders(count int) error {
	ctx := context.Background()
	finder := find.NewFinder(v.admin.Client, true)
	centers, err := finder.DatacenterList(ctx, "*")
	if err != nil {
		return err
	}
	v.center = centers[0].InventoryPath
	root := object.NewRootFolder(v.admin.Client)
	for number, center := range centers {
		folders, err := center.Folders(ctx)
		if err != nil {
			return err
		}
		workers, err := folders.VmFolder.CreateFolder(ctx, "workers")
		if err != nil {
			return err
		}
		if _, err := workers.CreateFolder(ctx, "pool"); err != nil {
			return err
		}
		if number >= count {
			continue
		}
		folder, err := root.CreateFolder(ctx, fmt.Sprintf("F%d", number))
		if err != nil {
			return err
		}
		task, err := folder.MoveInto(ctx, []types.ManagedObjectReference{center.Reference()})
		if err != nil {
			return err
		}
		if err := task.Wait(ctx); err != nil {
			return err
		}
		moved := v.context().Map.Get(center.Reference()).(*simulator.Datacenter)
		v.context().WithLock(moved, func() { moved.Name = "DC0" })
		if number == 0 {
			v.center = "/F0/DC0"
		}
	}
	return nil
}

func (v *vCenter) stop(*http.Request) (any, error) {
	v.server.Close()
	v.model.Remove()
	return nil, nil
}

// A shown VM.
type shown struct {
	Name, UUID, Folder, Power, GuestID, Datastore, Host, Pool, Network, Nic, Customization string
	Version                                                                                string
	CPUs, MemoryMB, DiskGB                                                                 int64
	IsReserved, HasDiskUUID                                                                bool
	Fields, Extra, Properties                                                              map[string]string
	Disks                                                                                  []string
}

// vms shows all VMs but the templates whose names begin with a prefix, and how many were ever created. Tasks that were begun before
// end first.
func (v *vCenter) vms(r *http.Request) (any, error) {
	ctx := r.Context()
	for _, task := range v.context().Map.AllReference("Task") {
		task.(*simulator.Task).Wait()
	}
	for {
		var refs []types.ManagedObjectReference
		for _, vm := range v.context().Map.All("VirtualMachine") {
			if strings.HasPrefix(vm.Entity().Name, r.URL.Query().Get("prefix")) {
				refs = append(refs, vm.Reference())
			}
		}
		if len(refs) == 0 {
			return map[string]any{"created": v.created, "vms": []shown{}}, nil
		}
		var found []mo.VirtualMachine
		err := v.admin.Retrieve(ctx, refs, []string{"name", "parent", "config", "runtime", "resourcePool", "datastore", "customValue"}, &found)
		if fault.Is(err, &types.ManagedObjectNotFound{}) {
			// It was destroyed in between.
			continue
		}
		if err != nil {
			return nil, err
		}
		return v.described(ctx, found)
	}
}

func (v *vCenter) described(ctx context.Context, found []mo.VirtualMachine) (any, error) {
	manager, err := object.GetCustomFieldsManager(v.admin.Client)
	if err != nil {
		return nil, err
	}
	fields, err := manager.Field(ctx)
	if err != nil {
		return nil, err
	}
	all := []shown{}
	for _, vm := range found {
		if vm.Config == nil || vm.Config.Template || vm.Name == "other" || strings.Contains(vm.Name, "_VM") {
			continue
		}
		all = append(all, v.shown(vm, fields))
	}
	return map[string]any{"created": v.created, "vms": all}, nil
}

func (v *vCenter) shown(vm mo.VirtualMachine, fields object.CustomFieldDefList) shown {
	named := func(ref *types.ManagedObjectReference) string {
		if ref == nil {
			return ""
		}
		return v.context().Map.Get(*ref).(mo.Entity).Entity().Name
	}
	one := shown{
		Name: vm.Name, UUID: vm.Config.Uuid, Folder: named(vm.Parent), Power: string(vm.Runtime.PowerState),
		GuestID: vm.Config.GuestId, Host: named(vm.Runtime.Host), Pool: named(vm.ResourcePool), Version: vm.Config.Version,
		CPUs: int64(vm.Config.Hardware.NumCPU), MemoryMB: int64(vm.Config.Hardware.MemoryMB),
		IsReserved:  vm.Config.MemoryReservationLockedToMax != nil && *vm.Config.MemoryReservationLockedToMax,
		HasDiskUUID: vm.Config.Flags.DiskUuidEnabled != nil && *vm.Config.Flags.DiskUuidEnabled,
		Fields:      map[string]string{}, Extra: map[string]string{}, Properties: map[string]string{},
		Disks: []string{},
	}
	if len(vm.Datastore) > 0 {
		one.Datastore = named(&vm.Datastore[0])
	}
	for _, value := range vm.CustomValue {
		one.Fields[fields.ByKey(value.GetCustomFieldValue().Key).Name] = value.(*types.CustomFieldStringValue).Value
	}
	for _, option := range vm.Config.ExtraConfig {
		one.Extra[option.GetOptionValue().Key] = fmt.Sprint(option.GetOptionValue().Value)
	}
	if vm.Config.VAppConfig != nil {
		for _, property := range vm.Config.VAppConfig.GetVmConfigInfo().Property {
			one.Properties[property.Id] = property.Value
		}
	}
	for _, device := range vm.Config.Hardware.Device {
		switch device := device.(type) {
		case *types.VirtualDisk:
			one.DiskGB = max(one.DiskGB, device.CapacityInKB>>20)
			one.Disks = append(one.Disks, device.Backing.(*types.VirtualDiskFlatVer2BackingInfo).FileName)
		case types.BaseVirtualEthernetCard:
			one.Nic = fmt.Sprintf("%T", device)
			switch backing := device.GetVirtualEthernetCard().Backing.(type) {
			case *types.VirtualEthernetCardNetworkBackingInfo:
				one.Network = backing.DeviceName
			case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
				one.Network = backing.Port.SwitchUuid + "/" + backing.Port.PortgroupKey
			}
		}
	}
	return one
}

// create makes a VM by hand, in the folder "workers" of the first datacenter or in one below it, with custom fields: a clone of the
// template, or a copy of another VM there, with its extra configuration as vCenter copies it.
func (v *vCenter) create(r *http.Request) (any, error) {
	var wanted struct {
		Name   string
		CopyOf string
		// Folder is below "workers", such as "/pool".
		Folder string
		Fields map[string]string
		IsOff  bool
	}
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		return nil, err
	}
	ctx := r.Context()
	finder := find.NewFinder(v.admin.Client, true)
	name := "template"
	if wanted.CopyOf != "" {
		name = "workers/" + wanted.CopyOf
	}
	source, err := finder.VirtualMachine(ctx, v.center+"/vm/"+name)
	if err != nil {
		return nil, err
	}
	spec := types.VirtualMachineCloneSpec{Config: new(types.VirtualMachineConfigSpec)}
	if wanted.CopyOf != "" {
		var of mo.VirtualMachine
		if err := source.Properties(ctx, source.Reference(), []string{"config.extraConfig"}, &of); err != nil {
			return nil, err
		}
		spec.Config.ExtraConfig = of.Config.ExtraConfig
	}
	folder, err := finder.Folder(ctx, v.center+"/vm/workers"+wanted.Folder)
	if err != nil {
		return nil, err
	}
	pool, err := finder.ResourcePool(ctx, v.center+"/host/DC0_C0/Resources")
	if err != nil {
		return nil, err
	}
	pools := pool.Reference()
	spec.Location.Pool = &pools
	task, err := source.Clone(ctx, folder, wanted.Name, spec)
	if err != nil {
		return nil, err
	}
	info, err := task.WaitForResult(ctx, nil)
	if err != nil {
		return nil, err
	}
	vm := object.NewVirtualMachine(v.admin.Client, info.Result.(types.ManagedObjectReference))
	manager, err := object.GetCustomFieldsManager(v.admin.Client)
	if err != nil {
		return nil, err
	}
	for name, value := range wanted.Fields {
		key, err := manager.FindKey(ctx, name)
		if err == object.ErrKeyNameNotFound {
			var field *types.CustomFieldDef
			if field, err = manager.Add(ctx, name, "VirtualMachine", nil, nil); err == nil {
				key = field.Key
			}
		}
		if err != nil {
			return nil, err
		}
		if err := manager.Set(ctx, vm.Reference(), key, value); err != nil {
			return nil, err
		}
	}
	if !wanted.IsOff {
		task, err := vm.PowerOn(ctx)
		if err != nil {
			return nil, err
		}
		if err := task.Wait(ctx); err != nil {
			return nil, err
		}
	}
	return map[string]string{"uuid": vm.UUID(ctx)}, nil
}

// change sets how the next clones go, and gives VMs without addresses one if they are to have them.
func (v *vCenter) change(r *http.Request) (any, error) {
	var wanted settings
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		return nil, err
	}
	v.settings = wanted
	if !wanted.HasNoAddress {
		for _, one := range v.context().Map.All("VirtualMachine") {
			if vm, ok := one.(*simulator.VirtualMachine); ok && vm.Guest != nil && vm.Guest.IpAddress == "" {
				vm.Guest.IpAddress = "10.1.0.1"
				vm.Guest.Net = []types.GuestNicInfo{{IpAddress: []string{"10.1.0.1"}}}
			}
		}
	}
	return nil, nil
}

// attach makes a disk, and attaches it to a VM.
func (v *vCenter) attach(r *http.Request) (any, error) {
	var wanted struct{ UUID, Path string }
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		return nil, err
	}
	ctx := r.Context()
	center, err := find.NewFinder(v.admin.Client, true).Datacenter(ctx, v.center)
	if err != nil {
		return nil, err
	}
	files := object.NewFileManager(v.admin.Client)
	if err := files.MakeDirectory(ctx, path.Dir(wanted.Path), center, true); err != nil && !fault.Is(err, &types.FileAlreadyExists{}) {
		return nil, err
	}
	spec := &types.FileBackedVirtualDiskSpec{
		VirtualDiskSpec: types.VirtualDiskSpec{AdapterType: "lsiLogic", DiskType: "thin"}, CapacityKb: 1 << 10,
	}
	task, err := object.NewVirtualDiskManager(v.admin.Client).CreateVirtualDisk(ctx, wanted.Path, center, spec)
	if err != nil {
		return nil, err
	}
	if err := task.Wait(ctx); err != nil {
		return nil, err
	}
	found, err := object.NewSearchIndex(v.admin.Client).FindByUuid(ctx, nil, wanted.UUID, true, nil)
	if err != nil || found == nil {
		return nil, fmt.Errorf("there is no VM %s: %w", wanted.UUID, err)
	}
	vm := object.NewVirtualMachine(v.admin.Client, found.Reference())
	devices, err := vm.Device(ctx)
	if err != nil {
		return nil, err
	}
	controller, err := devices.FindDiskController("")
	if err != nil {
		return nil, err
	}
	store, err := v.datastore(ctx, wanted.Path)
	if err != nil {
		return nil, err
	}
	// A disk without a size exists already.
	return nil, vm.AddDevice(ctx, devices.CreateDisk(controller, store.Reference(), wanted.Path))
}

// hasFile returns whether a datastore has a file.
func (v *vCenter) hasFile(r *http.Request) (any, error) {
	var wanted struct{ Path string }
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		return nil, err
	}
	store, err := v.datastore(r.Context(), wanted.Path)
	if err != nil {
		return nil, err
	}
	var of object.DatastorePath
	of.FromString(wanted.Path)
	if _, err := store.Stat(r.Context(), of.Path); err != nil {
		var missing object.DatastoreNoSuchFileError
		var without object.DatastoreNoSuchDirectoryError
		if errors.As(err, &missing) || errors.As(err, &without) {
			return false, nil
		}
		return nil, err
	}
	return true, nil
}

// datastore of a path.
func (v *vCenter) datastore(ctx context.Context, file string) (*object.Datastore, error) {
	var of object.DatastorePath
	if !of.FromString(file) {
		return nil, fmt.Errorf("%q is not the path of a file", file)
	}
	return find.NewFinder(v.admin.Client, true).Datastore(ctx, v.center+"/datastore/"+of.Datastore)
}

// end removes a VM.
func (v *vCenter) end(r *http.Request) (any, error) {
	ctx := r.Context()
	found, err := object.NewSearchIndex(v.admin.Client).FindByUuid(ctx, nil, r.PathValue("uuid"), true, nil)
	if err != nil || found == nil {
		return nil, err
	}
	vm := object.NewVirtualMachine(v.admin.Client, found.Reference())
	if task, err := vm.PowerOff(ctx); err == nil {
		task.Wait(ctx)
	}
	task, err := vm.Destroy(ctx)
	if err != nil {
		return nil, err
	}
	return nil, task.Wait(ctx)
}

// expire ends all sessions of others.
func (v *vCenter) expire(r *http.Request) (any, error) {
	ctx := r.Context()
	manager := session.NewManager(v.admin.Client)
	own, err := manager.UserSession(ctx)
	if err != nil {
		return nil, err
	}
	var found mo.SessionManager
	if err := v.admin.RetrieveOne(ctx, *v.admin.ServiceContent.SessionManager, []string{"sessionList"}, &found); err != nil {
		return nil, err
	}
	count := 0
	for _, one := range found.SessionList {
		if one.Key == own.Key {
			continue
		}
		if err := manager.TerminateSession(ctx, []string{one.Key}); err != nil && !fault.Is(err, &types.NotFound{}) {
			return nil, err
		}
		count++
	}
	return count, nil
}
