//! Resources that instances need and that can be read: as in Google's documentation, without fields that are never
//! read.

use serde_json::{Value, json};

use super::{Gce, PROJECT};

/// A service account that VMs may have.
pub const NODES: &str = "nodes@my-project.iam.gserviceaccount.com";

impl Gce {
    /// A project with a zone, a network, an image and a service account.
    pub fn furnish(&mut self) {
        let own = |path: &str| format!("{PROJECT}/{path}");
        let url = |path: &str| format!("https://www.googleapis.com/compute/v1/projects/{PROJECT}/{path}");
        let quota = |metric: &str, usage: f64, limit: f64| json!({"metric": metric, "usage": usage, "limit": limit});
        let quotas = [quota("INSTANCES", 1.0, 72.0), quota("N2_CPUS", 2.0, 24.0), quota("SSD_TOTAL_GB", 50.0, 500.0)];
        let things: [(String, Value); 11] = [
            (
                PROJECT.to_owned(),
                json!({"kind": "compute#project", "defaultServiceAccount": "1-compute@developer.gserviceaccount.com"}),
            ),
            (
                own("zones/europe-west1-b"),
                json!({"kind": "compute#zone", "status": "UP", "region": url("regions/europe-west1")}),
            ),
            (own("regions/europe-west1"), json!({"kind": "compute#region", "status": "UP", "quotas": quotas})),
            (
                own("zones/europe-west1-b/machineTypes/n2-standard-2"),
                json!({"kind": "compute#machineType", "guestCpus": 2, "memoryMb": 8192}),
            ),
            (own("zones/europe-west1-b/diskTypes/pd-ssd"), json!({"kind": "compute#diskType"})),
            (own("zones/europe-west1-b/diskTypes/local-ssd"), json!({"kind": "compute#diskType"})),
            (
                own("zones/europe-west1-b/acceleratorTypes/nvidia-l4"),
                json!({"kind": "compute#acceleratorType", "maximumCardsPerInstance": 8}),
            ),
            ("os/global/images/os-1".to_owned(), json!({"kind": "compute#image", "name": "os-1", "status": "READY"})),
            (own("global/networks/vpc"), json!({"kind": "compute#network", "name": "vpc"})),
            (
                own("regions/europe-west1/subnetworks/nodes"),
                json!({
                    "kind": "compute#subnetwork", "network": url("global/networks/vpc"), "ipCidrRange": "10.0.0.0/16",
                    "secondaryIpRanges": [{"rangeName": "pods", "ipCidrRange": "10.1.0.0/16"}],
                }),
            ),
            (NODES.to_owned(), json!({"email": NODES, "uniqueId": "1"})),
        ];
        self.things.extend(things);
    }
}
