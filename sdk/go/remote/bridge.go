// Package remote serves a driver that was written for the Go Machine Controller Manager to mcm, from a process of its own.
// The main function of a driver needs one line:
//
//	func main() { remote.Main("aws", myDriver) }
package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sort"
	"sync/atomic"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	pb "mcm.invalid/sdk/go/driverv1"
)

const (
	protocolVersion = 1
	// Messages have at most 4 MiB; even with the longest IDs and names a page is smaller.
	page = 2000
)

// bridge is a driver of the Go MCM as the service of proto/.
type bridge struct {
	pb.UnimplementedDriverServer
	provider string
	driver   driver.Driver
	// Methods that the driver said it does not implement. The interface does not tell before.
	noInitialize, noList, noVolumeIDs atomic.Bool
}

func (b *bridge) GetCapabilities(_ context.Context, request *pb.GetCapabilitiesRequest) (*pb.GetCapabilitiesResponse, error) {
	var version uint32
	for _, spoken := range request.GetProtocolVersions() {
		if spoken == protocolVersion {
			version = protocolVersion
		}
	}
	return &pb.GetCapabilitiesResponse{
		ProtocolVersion: version,
		Providers: []*pb.Provider{{
			Name: b.provider, Initialize: !b.noInitialize.Load(), List: !b.noList.Load(), VolumeIds: !b.noVolumeIDs.Load(),
		}},
		Program: "sdk/go",
	}, nil
}

func (b *bridge) Health(context.Context, *pb.HealthRequest) (*pb.HealthResponse, error) {
	return &pb.HealthResponse{Serving: true}, nil
}

// Validate finds no problems: the interface has no such method. A class that is invalid fails in Create.
func (b *bridge) Validate(_ context.Context, request *pb.ValidateRequest) (*pb.ValidateResponse, error) {
	if _, err := read[v1alpha1.MachineClass]("MachineClass", request.GetClassJson()); err != nil {
		return &pb.ValidateResponse{Result: &pb.ValidateResponse_Failure{Failure: failure(err)}}, nil
	}
	return &pb.ValidateResponse{Result: &pb.ValidateResponse_Problems{Problems: &pb.Problems{}}}, nil
}

func (b *bridge) Create(ctx context.Context, request *pb.MachineRequest) (*pb.VmResponse, error) {
	return vmResponse(request, func(machine *v1alpha1.Machine, class *v1alpha1.MachineClass, secret *corev1.Secret) (*pb.Vm, error) {
		response, err := b.driver.CreateMachine(ctx, &driver.CreateMachineRequest{Machine: machine, MachineClass: class, Secret: secret})
		if response == nil {
			return nil, err
		}
		return &pb.Vm{
			ProviderId: response.ProviderID, NodeName: response.NodeName, Addresses: addresses(response.Addresses),
			LastKnownState: optional(response.LastKnownState),
		}, err
	}), nil
}

func (b *bridge) Initialize(ctx context.Context, request *pb.MachineRequest) (*pb.VmResponse, error) {
	return vmResponse(request, func(machine *v1alpha1.Machine, class *v1alpha1.MachineClass, secret *corev1.Secret) (*pb.Vm, error) {
		response, err := b.driver.InitializeMachine(ctx, &driver.InitializeMachineRequest{Machine: machine, MachineClass: class, Secret: secret})
		learn(&b.noInitialize, err)
		if response == nil {
			return nil, err
		}
		return &pb.Vm{ProviderId: response.ProviderID, NodeName: response.NodeName, Addresses: addresses(response.Addresses)}, err
	}), nil
}

func (b *bridge) Status(ctx context.Context, request *pb.MachineRequest) (*pb.VmResponse, error) {
	return vmResponse(request, func(machine *v1alpha1.Machine, class *v1alpha1.MachineClass, secret *corev1.Secret) (*pb.Vm, error) {
		response, err := b.driver.GetMachineStatus(ctx, &driver.GetMachineStatusRequest{Machine: machine, MachineClass: class, Secret: secret})
		if response == nil {
			return nil, err
		}
		return &pb.Vm{ProviderId: response.ProviderID, NodeName: response.NodeName, Addresses: addresses(response.Addresses)}, err
	}), nil
}

func (b *bridge) Delete(ctx context.Context, request *pb.MachineRequest) (*pb.DeleteResponse, error) {
	var state *string
	err := guarded(func() error {
		machine, class, secret, err := readRequest(request)
		if err != nil {
			return err
		}
		response, err := b.driver.DeleteMachine(ctx, &driver.DeleteMachineRequest{Machine: machine, MachineClass: class, Secret: secret})
		if response != nil {
			state = optional(response.LastKnownState)
		}
		return err
	})
	if err != nil {
		failed := failure(err)
		failed.LastKnownState = state
		return &pb.DeleteResponse{Result: &pb.DeleteResponse_Failure{Failure: failed}}, nil
	}
	return &pb.DeleteResponse{Result: &pb.DeleteResponse_Deleted{Deleted: &pb.Deleted{LastKnownState: state}}}, nil
}

func (b *bridge) List(request *pb.ListRequest, stream pb.Driver_ListServer) error {
	var vms []*pb.ListedVm
	err := guarded(func() error {
		class, err := read[v1alpha1.MachineClass]("MachineClass", request.GetClassJson())
		if err != nil {
			return err
		}
		secret := &corev1.Secret{Data: request.GetSecret()}
		response, err := b.driver.ListMachines(stream.Context(), &driver.ListMachinesRequest{MachineClass: class, Secret: secret})
		learn(&b.noList, err)
		if err == nil && response == nil {
			return status.Error(codes.Internal, "the driver returned neither a list nor an error")
		}
		if err != nil {
			return err
		}
		for id, name := range response.MachineList {
			vms = append(vms, &pb.ListedVm{ProviderId: id, MachineName: name})
		}
		return nil
	})
	if err != nil {
		return stream.Send(&pb.ListResponse{Part: &pb.ListResponse_Failure{Failure: failure(err)}})
	}
	sort.Slice(vms, func(i, j int) bool { return vms[i].ProviderId < vms[j].ProviderId })
	for start := 0; start < len(vms); start += page {
		part := &pb.Page{Vms: vms[start:min(start+page, len(vms))]}
		if err := stream.Send(&pb.ListResponse{Part: &pb.ListResponse_Page{Page: part}}); err != nil {
			return err
		}
	}
	return stream.Send(&pb.ListResponse{Part: &pb.ListResponse_End{End: &pb.End{Count: uint64(len(vms))}}})
}

func (b *bridge) VolumeIds(ctx context.Context, request *pb.VolumeIdsRequest) (*pb.VolumeIdsResponse, error) {
	var ids []string
	err := guarded(func() error {
		var specs []*corev1.PersistentVolumeSpec
		for _, text := range request.GetSpecsJson() {
			spec, err := read[corev1.PersistentVolumeSpec]("volume", text)
			if err != nil {
				return err
			}
			specs = append(specs, spec)
		}
		response, err := b.driver.GetVolumeIDs(ctx, &driver.GetVolumeIDsRequest{PVSpecs: specs})
		learn(&b.noVolumeIDs, err)
		if response != nil {
			ids = response.VolumeIDs
		}
		return err
	})
	if err != nil {
		return &pb.VolumeIdsResponse{Result: &pb.VolumeIdsResponse_Failure{Failure: failure(err)}}, nil
	}
	return &pb.VolumeIdsResponse{Result: &pb.VolumeIdsResponse_Volumes{Volumes: &pb.Volumes{Ids: ids}}}, nil
}

// learn remembers that the driver does not implement a method.
func learn(missing *atomic.Bool, err error) {
	if found, isStatus := status.FromError(err); isStatus && err != nil && found.Code() == codes.Unimplemented {
		missing.Store(true)
	}
}

// vmResponse makes a call. What a driver returns beside an error travels with the error.
func vmResponse(
	request *pb.MachineRequest,
	call func(*v1alpha1.Machine, *v1alpha1.MachineClass, *corev1.Secret) (*pb.Vm, error),
) *pb.VmResponse {
	var vm *pb.Vm
	err := guarded(func() error {
		machine, class, secret, err := readRequest(request)
		if err != nil {
			return err
		}
		vm, err = call(machine, class, secret)
		if err == nil && vm == nil {
			return status.Error(codes.Internal, "the driver returned neither a VM nor an error")
		}
		return err
	})
	if err == nil {
		return &pb.VmResponse{Result: &pb.VmResponse_Vm{Vm: vm}}
	}
	failed := failure(err)
	if vm != nil {
		failed.LastKnownState = vm.LastKnownState
		if failed.Code == pb.Code_CODE_UNINITIALIZED {
			failed.Vm = vm
		}
	}
	return &pb.VmResponse{Result: &pb.VmResponse_Failure{Failure: failed}}
}

// guarded turns a panic into an error, so that it ends one call and not the process. What was panicked with could contain anything.
func guarded(work func() error) (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			klog.Errorf("the driver panicked: %T\n%s", recovered, debug.Stack())
			err = status.Error(codes.Internal, "the driver panicked; its log has the stack")
		}
	}()
	return work()
}

func readRequest(request *pb.MachineRequest) (*v1alpha1.Machine, *v1alpha1.MachineClass, *corev1.Secret, error) {
	machine, err := read[v1alpha1.Machine]("Machine", request.GetMachineJson())
	if err != nil {
		return nil, nil, nil, err
	}
	class, err := read[v1alpha1.MachineClass]("MachineClass", request.GetClassJson())
	if err != nil {
		return nil, nil, nil, err
	}
	return machine, class, &corev1.Secret{Data: request.GetSecret()}, nil
}

// read decodes an object. The error names no values.
func read[T any](kind string, text []byte) (*T, error) {
	object := new(T)
	if err := json.Unmarshal(text, object); err != nil {
		return nil, status.Error(codes.InvalidArgument, fmt.Sprintf("the %s in the request cannot be read", kind))
	}
	return object, nil
}

// failure keeps the code of an error; one without a code is Unknown, as in the Go MCM.
func failure(err error) *pb.Failure {
	found, _ := status.FromError(err)
	return &pb.Failure{Code: pb.Code(found.Code()), Message: found.Message()}
}

func addresses(found []corev1.NodeAddress) []*pb.Address {
	var all []*pb.Address
	for _, one := range found {
		all = append(all, &pb.Address{Type: string(one.Type), Address: one.Address})
	}
	return all
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
