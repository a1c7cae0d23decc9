// Command client makes the calls of metal-stack's driver for MCM with metal-stack's own client, and checks the answers.
package main

import (
	"fmt"
	"os"

	metalgo "github.com/metal-stack/metal-go"
	"github.com/metal-stack/metal-go/api/client/machine"
	"github.com/metal-stack/metal-go/api/models"
)

const cluster = "cluster.metal-stack.io/id=go"

func pointer[T any](value T) *T { return &value }

func check(fits bool, format string, arguments ...any) {
	if !fits {
		fmt.Fprintf(os.Stderr, format+"\n", arguments...)
		os.Exit(1)
	}
}

func main() {
	url, token, hmac := os.Args[1], os.Args[2], os.Args[3]
	partition, size, image, project, network := os.Args[4], os.Args[5], os.Args[6], os.Args[7], os.Args[8]
	for _, credentials := range [][2]string{{token, ""}, {"", hmac}} {
		client, err := metalgo.NewDriver(url, credentials[0], credentials[1])
		check(err == nil, "client: %v", err)
		life(client.Machine(), partition, size, image, project, network)
	}
	client, err := metalgo.NewDriver(url, "", "another key")
	check(err == nil, "client: %v", err)
	_, err = client.Machine().FindMachines(machine.NewFindMachinesParams().WithBody(&models.V1MachineFindRequest{}), nil)
	failed, is := err.(*machine.FindMachinesDefault)
	check(is && failed.Code() == 401, "another key: %T %v", err, err)
}

// life is that of one machine.
func life(api machine.ClientService, partition, size, image, project, network string) {
	order := &models.V1MachineAllocateRequest{
		Description:   "m created by Gardener.",
		Name:          "m",
		Hostname:      "m",
		UserData:      "#cloud-config",
		Sizeid:        &size,
		Projectid:     &project,
		Partitionid:   &partition,
		Imageid:       &image,
		Networks:      []*models.V1MachineAllocationNetwork{{Autoacquire: pointer(true), Networkid: &network}},
		Tags:          []string{cluster},
		SSHPubKeys:    []string{},
		PlacementTags: []string{cluster},
	}
	allocated, err := api.AllocateMachine(machine.NewAllocateMachineParams().WithBody(order), nil)
	check(err == nil, "allocate: %v", err)
	id := *allocated.Payload.ID
	check(*allocated.Payload.Allocation.Name == "m", "allocated: %v", allocated.Payload)

	found, err := api.FindMachine(machine.NewFindMachineParams().WithID(id), nil)
	check(err == nil && *found.Payload.Partition.ID == partition, "find: %v", err)
	filter := &models.V1MachineFindRequest{
		ID: id, AllocationProject: project, Tags: []string{cluster}, AllocationRole: models.V1MachineAllocationRoleMachine,
	}
	byID, err := api.FindMachines(machine.NewFindMachinesParams().WithBody(filter), nil)
	check(err == nil && len(byID.Payload) == 1, "find by ID: %v", err)
	byName, err := api.FindMachines(machine.NewFindMachinesParams().WithBody(
		&models.V1MachineFindRequest{AllocationName: "m", AllocationProject: project, Tags: []string{cluster}}), nil)
	check(err == nil && len(byName.Payload) == 1 && *byName.Payload[0].ID == id, "find by name: %v", err)
	others, err := api.FindMachines(machine.NewFindMachinesParams().WithBody(
		&models.V1MachineFindRequest{AllocationProject: project, Tags: []string{cluster + "x"}}), nil)
	check(err == nil && len(others.Payload) == 0, "find of others: %v", err)
	update := &models.V1MachineUpdateRequest{ID: &id, Description: pointer("d"), Tags: []string{cluster, "a=b"}}
	updated, err := api.UpdateMachine(machine.NewUpdateMachineParams().WithBody(update), nil)
	check(err == nil && updated.Payload.Allocation.Description == "d", "update: %v", err)

	order.Sizeid = pointer("no such size")
	_, err = api.AllocateMachine(machine.NewAllocateMachineParams().WithBody(order), nil)
	refused, is := err.(*machine.AllocateMachineDefault)
	check(is && refused.Code() == 400 && refused.Payload.StatusCode == 400, "wrong size: %T %v", err, err)

	freed, err := api.FreeMachine(machine.NewFreeMachineParams().WithID(id), nil)
	check(err == nil && freed.Payload.Allocation == nil, "free: %v", err)
	_, err = api.FreeMachine(machine.NewFreeMachineParams().WithID("nope"), nil)
	absent, is := err.(*machine.FreeMachineDefault)
	check(is && absent.Code() == 404, "free of nothing: %T %v", err, err)
}
