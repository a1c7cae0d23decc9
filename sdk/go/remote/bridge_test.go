package remote

import (
	"context"
	"testing"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"

	pb "mcm.invalid/sdk/go/driverv1"
)

// partial implements only a part of the interface, as drivers of the Go MCM may.
type partial struct {
	driver.Driver
	code codes.Code
}

func (p *partial) InitializeMachine(context.Context, *driver.InitializeMachineRequest) (*driver.InitializeMachineResponse, error) {
	return nil, status.Error(p.code, "as told")
}

func (p *partial) GetVolumeIDs(context.Context, *driver.GetVolumeIDsRequest) (*driver.GetVolumeIDsResponse, error) {
	return nil, status.Error(p.code, "as told")
}

func capabilitiesAfter(t *testing.T, code codes.Code) *pb.Provider {
	t.Helper()
	b := &bridge{provider: "partial", driver: &partial{code: code}}
	request := &pb.MachineRequest{MachineJson: []byte("{}"), ClassJson: []byte("{}")}
	if _, err := b.Initialize(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if _, err := b.VolumeIds(t.Context(), &pb.VolumeIdsRequest{}); err != nil {
		t.Fatal(err)
	}
	response, err := b.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{ProtocolVersions: []uint32{1}})
	if err != nil {
		t.Fatal(err)
	}
	return response.GetProviders()[0]
}

func TestAMethodIsACapabilityUntilTheDriverSaysThatItIsNotImplemented(t *testing.T) {
	found := capabilitiesAfter(t, codes.Unimplemented)
	if found.GetInitialize() || found.GetVolumeIds() || !found.GetList() {
		t.Errorf("found %v", found)
	}
	found = capabilitiesAfter(t, codes.Unavailable)
	if !found.GetInitialize() || !found.GetVolumeIds() || !found.GetList() || found.GetInspect() || found.GetTag() {
		t.Errorf("found %v", found)
	}
}
