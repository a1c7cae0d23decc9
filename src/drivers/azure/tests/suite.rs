//! The suite of all drivers.

use std::time::Duration;

use async_trait::async_trait;
use mcm_driver::{
    Driver, MachineRequest, driver_suite,
    testing::{
        matrix::Case,
        server::{FaultSwitch, Reply},
        suite::{self, CallNames},
    },
};

use serde_json::json;

use super::{
    CLUSTER, ROLE, UID_TAG, World, driver,
    fake::{Arm, CLIENT_SECRET, URN},
    spec, spec_with, unmeasured,
};

#[async_trait]
impl suite::World for World {
    const CALLS: CallNames = CallNames { look: "vm.get", look_by_id: "vm.get", create: "vm.put", delete: "vm.delete" };
    const SECRETS: &[&str] = &[CLIENT_SECRET, "token-top-secret", "hunter2"];
    /// A creation has several calls before the failing call.
    const SHORT: Duration = Duration::from_millis(2400);
    const MOST_CREATIONS: usize = 300;
    const MOST_LOOKS: usize = 600;
    const HAS_UNIQUE_NAMES: bool = true;

    fn error(case: Case) -> Reply {
        match case {
            Case::Throttle => Arm::error(429, "SubscriptionRequestsThrottled", "too many requests"),
            Case::Auth => Arm::error(401, "InvalidAuthenticationToken", "The access token is invalid."),
            Case::Denied => Arm::error(403, "AuthorizationFailed", "The client has no permission."),
            Case::StockOut => Arm::error(409, "SkuNotAvailable", "The requested VM size is not available."),
            Case::Quota => Arm::error(409, "QuotaExceeded", "Exceeding approved cores quota."),
            _ => Arm::error(404, "ResourceNotFound", "The resource was not found."),
        }
    }

    async fn new() -> Self {
        Self::new().await
    }

    fn driver_with(&self, attempt: Duration, _settles: Duration) -> Box<dyn Driver> {
        Box::new(driver(attempt, unmeasured()))
    }

    fn request_with(&self, name: &str, uid: &str) -> MachineRequest {
        self.request_for(name, uid, spec())
    }

    fn put_for(&self, name: &str, uid: Option<&str>) -> String {
        let mut tags = json!({CLUSTER: "1", ROLE: "1"});
        if let Some(uid) = uid {
            tags[UID_TAG] = uid.into();
        }
        self.put(name, &tags)
    }

    fn put_elsewhere(&self, name: &str, uid: &str) -> String {
        let id = self.arm.lock().cloud.put_in_other_group(name, &json!({CLUSTER: "1", ROLE: "1", UID_TAG: uid}));
        format!("azure://{id}")
    }

    /// As the CSI driver does, with the tags of the cluster.
    fn attach_disk(&self, id: &str) -> String {
        let (cloud, name) = (&mut self.arm.lock().cloud, "pvc-1");
        cloud.put_disk(name, &json!({CLUSTER: "1", ROLE: "1"}));
        let disk = json!({"name": name, "lun": 5, "createOption": "Attach", "deleteOption": "Detach"});
        let vm = cloud.vm_mut(id.rsplit('/').next().unwrap());
        vm["properties"]["storageProfile"]["dataDisks"] = json!([disk]);
        name.to_owned()
    }

    fn has_disk(&self, disk: &str) -> bool {
        self.arm.lock().cloud.disks().iter().any(|one| one["name"] == disk)
    }

    fn delay_deletions(&self, looks: usize) {
        self.arm.lock().cloud.steps = looks;
    }

    fn switch(&self) -> &dyn FaultSwitch {
        &*self.arm
    }

    fn vms(&self) -> usize {
        self.count()
    }

    fn remaining(&self) -> usize {
        self.arm.lock().cloud.shown_vms()
    }

    fn check_requests(&self) {
        self.assert_valid_requests();
    }

    /// With an image of the marketplace, and a disk from an image.
    fn request_of_matrix(&self) -> MachineRequest {
        let disks = json!([{"lun": 0, "diskSizeGB": 9, "storageAccountType": "Premium_LRS", "imageRef": {"id": "/i"}}]);
        let image = ("properties.storageProfile.imageReference", json!({"urn": URN}));
        self.request_for("a", "uid-a", spec_with(&[image, ("properties.storageProfile.dataDisks", disks)]))
    }
}

driver_suite!(World);
driver_suite! { World:
    a_disk_of_others_outlives_the_vm
    a_throttled_creation_is_repeated_within_the_call
    a_vm_in_another_place_is_left_alone
    an_answer_without_end_is_given_up
}

mod over_grpc {
    mcm_driver::driver_suite!(mcm_driver_host::remote::testing::RemoteWorld<super::World>);
}
