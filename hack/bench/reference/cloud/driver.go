// Package cloud is the simulated cloud as a driver of the Go reference.
package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
)

// cloud is the simulated cloud as a driver of the reference.
type cloud struct {
	base    string
	cluster string
	client  *http.Client
}

type vm struct {
	ProviderID  string `json:"providerID"`
	NodeName    string `json:"nodeName"`
	MachineName string `json:"machineName"`
}

type failure struct {
	Code           string `json:"code"`
	Message        string `json:"message"`
	LastKnownState string `json:"lastKnownState"`
	VM             *vm    `json:"vm"`
}

// New is the driver of the cloud at an address such as http://127.0.0.1:10270. VMs have the tag of the cluster, or of the namespace
// of their machine if it is empty.
func New(base, cluster string) driver.Driver {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext}
	return &cloud{base: base, cluster: cluster, client: &http.Client{Transport: transport, Timeout: time.Minute}}
}

// call answers nil and an error coded as the cloud coded it, and the body of a failure.
func (c *cloud) call(ctx context.Context, method, path string, query url.Values, body, answer any) (*failure, error) {
	var payload bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&payload).Encode(body); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path+"?"+query.Encode(), &payload)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return nil, status.Error(transportCode(err), err.Error())
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode < 300 {
		if answer == nil || response.StatusCode == http.StatusNoContent {
			return nil, nil
		}
		if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
			return nil, status.Error(codes.Unknown, err.Error())
		}
		return nil, nil
	}
	var failed failure
	if err := json.NewDecoder(response.Body).Decode(&failed); err != nil || failed.Code == "" {
		return nil, status.Error(codes.Unknown, "not an answer of the simulated cloud: "+response.Status)
	}
	return &failed, status.Error(codes.StringToCode(failed.Code), failed.Message)
}

func transportCode(err error) codes.Code {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return codes.Unavailable
	case errors.As(err, &timeout) && timeout.Timeout():
		return codes.DeadlineExceeded
	default:
		return codes.Unknown
	}
}

func (c *cloud) clusterOf(namespace string) string {
	if c.cluster != "" {
		return c.cluster
	}
	return namespace
}

func (c *cloud) which(machine *v1alpha1.Machine) url.Values {
	query := url.Values{"cluster": {c.clusterOf(machine.Namespace)}}
	if machine.Spec.ProviderID != "" {
		query.Set("providerID", machine.Spec.ProviderID)
	} else {
		query.Set("machine", machine.Name)
	}
	return query
}

func (c *cloud) CreateMachine(ctx context.Context, request *driver.CreateMachineRequest) (*driver.CreateMachineResponse, error) {
	body := map[string]any{
		"machineName":   request.Machine.Name,
		"namespace":     request.Machine.Namespace,
		"cluster":       c.clusterOf(request.Machine.Namespace),
		"token":         string(request.Machine.UID),
		"userDataBytes": len(request.Secret.Data["userData"]),
		"providerSpec":  json.RawMessage(request.MachineClass.ProviderSpec.Raw),
	}
	var made vm
	if failed, err := c.call(ctx, http.MethodPost, "/v1/vms", nil, body, &made); err != nil {
		if failed != nil && failed.LastKnownState != "" {
			return &driver.CreateMachineResponse{LastKnownState: failed.LastKnownState}, err
		}
		return nil, err
	}
	return &driver.CreateMachineResponse{ProviderID: made.ProviderID, NodeName: made.NodeName}, nil
}

func (c *cloud) InitializeMachine(context.Context, *driver.InitializeMachineRequest) (*driver.InitializeMachineResponse, error) {
	return nil, status.Error(codes.Unimplemented, "VMs of the benchmark need no initialization")
}

func (c *cloud) DeleteMachine(ctx context.Context, request *driver.DeleteMachineRequest) (*driver.DeleteMachineResponse, error) {
	if _, err := c.call(ctx, http.MethodDelete, "/v1/vms", c.which(request.Machine), nil, nil); err != nil {
		return nil, err
	}
	return &driver.DeleteMachineResponse{}, nil
}

func (c *cloud) GetMachineStatus(ctx context.Context, request *driver.GetMachineStatusRequest) (*driver.GetMachineStatusResponse, error) {
	var found vm
	failed, err := c.call(ctx, http.MethodGet, "/v1/vms", c.which(request.Machine), nil, &found)
	if err != nil {
		if failed != nil && failed.VM != nil {
			return &driver.GetMachineStatusResponse{ProviderID: failed.VM.ProviderID, NodeName: failed.VM.NodeName}, err
		}
		return nil, err
	}
	return &driver.GetMachineStatusResponse{ProviderID: found.ProviderID, NodeName: found.NodeName}, nil
}

func (c *cloud) ListMachines(ctx context.Context, request *driver.ListMachinesRequest) (*driver.ListMachinesResponse, error) {
	var listed struct {
		Items []vm `json:"items"`
	}
	query := url.Values{"cluster": {c.clusterOf(request.MachineClass.Namespace)}}
	if _, err := c.call(ctx, http.MethodGet, "/v1/vms", query, nil, &listed); err != nil {
		return nil, err
	}
	machines := make(map[string]string, len(listed.Items))
	for _, item := range listed.Items {
		machines[item.ProviderID] = item.MachineName
	}
	return &driver.ListMachinesResponse{MachineList: machines}, nil
}

func (c *cloud) GetVolumeIDs(_ context.Context, request *driver.GetVolumeIDsRequest) (*driver.GetVolumeIDsResponse, error) {
	var ids []string
	for _, spec := range request.PVSpecs {
		if spec.CSI != nil {
			ids = append(ids, spec.CSI.VolumeHandle)
		}
	}
	return &driver.GetVolumeIDsResponse{VolumeIDs: ids}, nil
}
