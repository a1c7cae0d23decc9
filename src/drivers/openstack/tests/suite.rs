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

use super::{
    CLUSTER, ROLE, UID, World, driver_that_settles,
    fake::{self, PASSWORD},
    spec, unmeasured,
};

#[async_trait]
impl suite::World for World {
    const CALLS: CallNames =
        CallNames { look: "server.list", look_by_id: "server.get", create: "server.create", delete: "server.delete" };
    const SECRETS: &[&str] = &[PASSWORD, "hunter2"];

    fn error(case: Case) -> Reply {
        match case {
            Case::Throttle => fake::nova(429, "overLimit", "This request was rate-limited."),
            Case::Auth => fake::keystone(401, "The request you have made requires authentication."),
            Case::Denied => fake::nova(403, "forbidden", "Policy doesn't allow it to be performed."),
            Case::StockOut => {
                fake::neutron(409, "IpAddressGenerationFailure", "No more IP addresses available on network n.")
            }
            Case::Quota => fake::nova(
                403,
                "forbidden",
                "Quota exceeded for instances: Requested 1, but already used 3 of 3 instances",
            ),
            _ => fake::nova(404, "itemNotFound", "It could not be found."),
        }
    }

    async fn new() -> Self {
        Self::new().await
    }

    fn driver_with(&self, attempt: Duration, settles: Duration) -> Box<dyn Driver> {
        Box::new(driver_that_settles(attempt, settles, unmeasured()))
    }

    fn request_with(&self, name: &str, uid: &str) -> MachineRequest {
        self.request_for(name, uid, spec())
    }

    fn put_for(&self, name: &str, uid: Option<&str>) -> String {
        let uid = uid.map(|uid| (UID, uid));
        self.put(name, &[CLUSTER, ROLE].into_iter().chain(uid).collect::<Vec<_>>())
    }

    fn unlist(&self, id: &str) {
        self.openstack.lock().cloud.unlist(id.rsplit('/').next().unwrap());
    }

    fn attach_disk(&self, _: &str) -> String {
        self.openstack.lock().cloud.put_volume("pvc-1", "in-use", &[CLUSTER, ROLE])
    }

    fn has_disk(&self, disk: &str) -> bool {
        self.openstack.lock().cloud.volumes.contains_key(disk)
    }

    fn delay_deletions(&self, looks: usize) {
        self.openstack.lock().cloud.lingers = looks;
    }

    fn switch(&self) -> &dyn FaultSwitch {
        &*self.openstack
    }

    fn vms(&self) -> usize {
        self.count()
    }

    fn remaining(&self) -> usize {
        self.openstack.lock().cloud.servers.len()
    }

    fn check_requests(&self) {
        self.assert_valid_requests();
    }

    fn request_of_matrix(&self) -> MachineRequest {
        self.request_with_parts("a")
    }
}

driver_suite!(World);
driver_suite! { World:
    a_deletion_waits_for_the_request_of_a_dropped_call
    a_disk_of_others_outlives_the_vm
    a_throttled_creation_is_repeated_within_the_call
    an_answer_without_end_is_given_up
    an_unknown_outcome_pauses_the_calls_of_controllers
    machines_that_wait_together_share_their_look_ups
    the_next_process_waits_for_a_request_that_is_under_way
    the_next_process_waits_for_a_request_that_was_announced
}

mod over_grpc {
    mcm_driver::driver_suite!(mcm_driver_host::remote::testing::RemoteWorld<super::World>);
}
