// Package suite runs the integration tests that the Go reference has for its providers, with the simulated cloud as the provider.
// See hack/test-reference.
package suite

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/gardener/machine-controller-manager/pkg/test/integration/common"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

const (
	limitSeconds = 120
	pauseSeconds = 1
)

// vms is the tracker of what machines leave behind: the VMs of the namespace.
type vms struct {
	list string
}

func (v *vms) InitializeResourcesTracker(*v1alpha1.MachineClass, map[string][]byte, string) error {
	query := url.Values{"cluster": {os.Getenv("CONTROL_CLUSTER_NAMESPACE")}}
	v.list = os.Getenv("SIMULATED_CLOUD") + "/v1/vms?" + query.Encode()
	_, err := v.count()
	return err
}

// IsOrphanedResourcesAvailable is true if a VM is left, and if the cloud does not answer.
func (v *vms) IsOrphanedResourcesAvailable() bool {
	count, err := v.count()
	return err != nil || count > 0
}

func (v *vms) count() (int, error) {
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get(v.list)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("list the VMs: %s", response.Status)
	}
	var listed struct {
		Items []json.RawMessage `json:"items"`
	}
	err = json.NewDecoder(response.Body).Decode(&listed)
	return len(listed.Items), err
}

var framework = common.NewIntegrationTestFramework(&vms{}, limitSeconds, pauseSeconds)

var _ = ginkgo.BeforeSuite(framework.SetupBeforeSuite)

var _ = ginkgo.AfterSuite(framework.Cleanup)

var _ = ginkgo.Describe("Machine controllers test", func() {
	ginkgo.Describe("Machine operations", func() {
		framework.BeforeEachCheck()
		framework.ControllerTests()
	})
})

func TestMachineControllers(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "Machine controllers")
}
