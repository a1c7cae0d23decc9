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
    CLUSTER, ROLE, UID_TAG, World, driver_that_settles,
    fake::{MetalApi, TOKEN},
    spec, unmeasured,
};

#[async_trait]
impl suite::World for World {
    const CALLS: CallNames =
        CallNames { look: "device.list", look_by_id: "device.get", create: "device.create", delete: "device.delete" };
    const SECRETS: &[&str] = &[TOKEN, "hunter2"];

    fn error(case: Case) -> Reply {
        let api = MetalApi::new(0);
        match case {
            Case::Throttle => api.error(429, "Too many requests"),
            Case::Auth => api.error(401, "Invalid authentication token"),
            Case::Denied => api.error(403, "You are not authorized to view this device"),
            Case::StockOut => {
                api.error(422, "The metro ny has no provisionable c3.small.x86 servers matching your criteria")
            }
            Case::Quota => api.error(422, "You have reached the maximum number of devices: 3"),
            _ => api.error(404, "Not found"),
        }
    }

    async fn new() -> Self {
        Self::with(300).await
    }

    fn driver_with(&self, attempt: Duration, settles: Duration) -> Box<dyn Driver> {
        Box::new(driver_that_settles(attempt, settles, unmeasured()))
    }

    fn request_with(&self, name: &str, uid: &str) -> MachineRequest {
        self.request_for(name, uid, spec())
    }

    fn put_for(&self, name: &str, uid: Option<&str>) -> String {
        let uid = uid.map(|uid| format!("{UID_TAG}={uid}"));
        self.put(name, &[CLUSTER, ROLE].into_iter().chain(uid.as_deref()).collect::<Vec<_>>())
    }

    fn put_elsewhere(&self, name: &str, uid: &str) -> String {
        let id = self.put_for(name, Some(uid));
        self.metal.lock().cloud.devices[0].project = "00000000-9999-4000-8000-000000000000".to_owned();
        id
    }

    fn unlist(&self, id: &str) {
        self.metal.lock().cloud.unlisted.insert(id.rsplit('/').next().unwrap().to_owned());
    }

    fn delay_deletions(&self, looks: usize) {
        self.metal.lock().cloud.lingers = looks;
    }

    fn switch(&self) -> &dyn FaultSwitch {
        &*self.metal
    }

    fn vms(&self) -> usize {
        self.count()
    }

    fn remaining(&self) -> usize {
        self.metal.lock().cloud.devices.len()
    }

    fn check_requests(&self) {
        self.assert_valid_requests();
    }
}

driver_suite!(World);
driver_suite! { World:
    a_creation_that_is_carried_out_after_its_time_out_is_not_made_twice
    a_deletion_waits_for_the_request_of_a_dropped_call
    a_throttled_creation_is_repeated_within_the_call
    a_vm_in_another_place_is_left_alone
    an_answer_without_end_is_given_up
    an_unknown_outcome_pauses_the_calls_of_controllers
    machines_that_wait_together_share_their_look_ups
    the_next_process_waits_for_a_request_that_is_under_way
    the_next_process_waits_for_a_request_that_was_announced
}

mod over_grpc {
    mcm_driver::driver_suite!(mcm_driver_host::remote::testing::RemoteWorld<super::World>);
}
