// Command client makes the calls of Gardener's driver for Equinix Metal with Equinix' own client, and checks the answers.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/equinix/equinix-sdk-go/services/metalv1"
)

var (
	ctx  = context.Background()
	tags = []string{"kubernetes.io/cluster/go: 1", "kubernetes.io/role/node: 1"}
)

func pointer[T any](value T) *T { return &value }

func check(fits bool, format string, arguments ...any) {
	if !fits {
		fmt.Fprintf(os.Stderr, format+"\n", arguments...)
		os.Exit(1)
	}
}

func client(url, token string) *metalv1.APIClient {
	configuration := metalv1.NewConfiguration()
	configuration.Servers = metalv1.ServerConfigurations{{URL: url}}
	configuration.AddDefaultHeader("X-Auth-Token", token)
	return metalv1.NewAPIClient(configuration)
}

func main() {
	url, token, project, metro, plan, system, reservation :=
		os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6], os.Args[7]
	order := func(name string) metalv1.CreateDeviceRequest {
		return metalv1.CreateDeviceRequest{DeviceCreateInMetroInput: &metalv1.DeviceCreateInMetroInput{
			Metro:           metro,
			Hostname:        pointer(name),
			Userdata:        pointer("#cloud-config"),
			Plan:            plan,
			BillingCycle:    pointer(metalv1.DEVICECREATEINPUTBILLINGCYCLE_HOURLY),
			OperatingSystem: system,
			Tags:            tags,
		}}
	}
	api := client(url, token).DevicesApi
	create := func(request metalv1.CreateDeviceRequest) (*metalv1.Device, *http.Response, error) {
		return api.CreateDevice(ctx, project).CreateDeviceRequest(request).Execute()
	}

	_, response, err := client(url, "another").DevicesApi.FindProjectDevices(ctx, project).Execute()
	check(err != nil && response.StatusCode == 401, "another token: %v", err)

	device, response, err := create(order("m"))
	check(err == nil && response.StatusCode == 201, "create: %v", err)
	id := device.GetId()
	check(device.GetHostname() == "m" && device.Metro.GetCode() == metro, "created: %v", device)
	check(device.GetState() == metalv1.DEVICESTATE_ACTIVE && len(device.GetTags()) == 2, "created: %v", device)

	found, _, err := api.FindDeviceById(ctx, id).Execute()
	check(err == nil && found.GetId() == id, "find: %v", err)
	updated, _, err := api.UpdateDevice(ctx, id).DeviceUpdateInput(metalv1.DeviceUpdateInput{Tags: append(tags, "a=b")}).Execute()
	check(err == nil && len(updated.GetTags()) == 3, "update: %v", err)

	reserved := order("reserved")
	reserved.DeviceCreateInMetroInput.HardwareReservationId = &reservation
	_, _, err = create(reserved)
	check(err == nil, "reservation: %v", err)
	_, response, err = create(reserved)
	check(err != nil && response.StatusCode == 422, "reservation in use: %v", err)
	reservations := client(url, token).HardwareReservationsApi
	used, _, err := reservations.FindHardwareReservationById(ctx, reservation).Execute()
	check(err == nil && !used.GetProvisionable(), "reservation: %v", err)

	for number := range 11 {
		_, _, err = create(order(fmt.Sprintf("more-%d", number)))
		check(err == nil, "more: %v", err)
	}
	first, _, err := api.FindProjectDevices(ctx, project).Execute()
	check(err == nil && len(first.Devices) == 10 && first.Meta.GetTotal() == 13, "first page: %v", err)
	all, err := api.FindProjectDevices(ctx, project).ExecuteWithPagination()
	check(err == nil && len(all.Devices) == 13, "all pages: %v", err)
	named, _, err := api.FindProjectDevices(ctx, project).Hostname("more").PerPage(1000).Execute()
	check(err == nil && len(named.Devices) == 11, "by name: %v", err)

	wrong := order("m")
	wrong.DeviceCreateInMetroInput.Plan = "no such plan"
	_, response, err = create(wrong)
	check(err != nil && response.StatusCode == 422, "wrong plan: %v", err)
	failed, is := err.(*metalv1.GenericOpenAPIError)
	check(is, "wrong plan: %T", err)
	model, is := failed.Model().(metalv1.Error)
	check(is && len(model.GetErrors()) == 1, "wrong plan: %v", failed.Model())

	server := metalv1.ServerInfo{Metro: &metro, Plan: &plan, Quantity: pointer("1")}
	capacity, _, err := client(url, token).CapacityApi.CheckCapacityForMetro(ctx).
		CapacityInput(metalv1.CapacityInput{Servers: []metalv1.ServerInfo{server}}).Execute()
	check(err == nil && capacity.Servers[0].GetAvailable(), "capacity: %v", err)
	_, _, err = client(url, token).ProjectsApi.FindProjectById(ctx, project).Execute()
	check(err == nil, "project: %v", err)
	plans, _, err := client(url, token).PlansApi.FindPlansByProject(ctx, project).Execute()
	check(err == nil && plans.Plans[0].GetSlug() == plan, "plans: %v", err)
	systems, _, err := client(url, token).OperatingSystemsApi.FindOperatingSystems(ctx).Execute()
	check(err == nil && systems.OperatingSystems[0].GetSlug() == system, "operating systems: %v", err)
	metros, _, err := client(url, token).MetrosApi.FindMetros(ctx).Execute()
	check(err == nil && metros.Metros[0].GetCode() == metro, "metros: %v", err)

	for _, device := range all.Devices {
		response, err = api.DeleteDevice(ctx, device.GetId()).Execute()
		check(err == nil && response.StatusCode == 204, "delete: %v", err)
	}
	leaving, _, err := api.FindDeviceById(ctx, id).Execute()
	check(err == nil && leaving.GetState() == metalv1.DEVICESTATE_DEPROVISIONING, "deleted: %v", err)
	response, err = api.DeleteDevice(ctx, "00000000-0000-4000-8000-000000000000").Execute()
	check(err != nil && response.StatusCode == 404, "delete of nothing: %v", err)
}
