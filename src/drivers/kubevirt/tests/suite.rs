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

use serde_json::{Value, json};

use super::{
    CLUSTER, ROLE, UID_LABEL, World, driver_that_settles,
    fake::{Kubernetes, TOKEN},
    spec, unmeasured,
};

#[async_trait]
impl suite::World for World {
    const CALLS: CallNames =
        CallNames { look: "vm.get", look_by_id: "vm.get", create: "vm.create", delete: "vm.delete" };
    const SECRETS: &[&str] = &[TOKEN, "hunter2"];
    const MOST_CREATIONS: usize = 300;
    const HAS_UNIQUE_NAMES: bool = true;

    fn error(case: Case) -> Reply {
        let error = |status, reason, message| Kubernetes::error(status, reason, message, "virtualmachines", "a");
        match case {
            Case::Throttle => error(429, "TooManyRequests", "too many requests, please try again later"),
            Case::Auth => error(401, "Unauthorized", "Unauthorized"),
            Case::Denied => error(403, "Forbidden", "user mcm cannot do this in namespace vms"),
            Case::StockOut => error(403, "Forbidden", "virtualmachines a is forbidden: exceeded quota: cpu, used: 8"),
            Case::Quota => error(403, "Forbidden", "virtualmachines a is forbidden: exceeded quota: count, used: 3"),
            _ => error(404, "NotFound", "virtualmachines a not found"),
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
        self.put(name, &labels(uid))
    }

    /// IDs name no namespace.
    fn put_elsewhere(&self, name: &str, uid: &str) -> String {
        self.kubernetes.lock().cloud.put_in_other_namespace(name, &labels(Some(uid)));
        format!("kubevirt://{name}")
    }

    fn delay_deletions(&self, looks: usize) {
        self.kubernetes.lock().cloud.lingers = looks;
    }

    fn switch(&self) -> &dyn FaultSwitch {
        &*self.kubernetes
    }

    fn vms(&self) -> usize {
        self.count()
    }

    fn remaining(&self) -> usize {
        self.kubernetes.lock().cloud.vms.len()
    }

    fn check_requests(&self) {
        self.assert_valid_requests();
    }
}

fn labels(uid: Option<&str>) -> Value {
    let mut labels = json!({CLUSTER: "shoot", ROLE: "node"});
    if let Some(uid) = uid {
        labels[UID_LABEL] = uid.into();
    }
    labels
}

driver_suite!(World);
driver_suite! { World:
    a_creation_that_is_carried_out_after_its_time_out_is_not_made_twice
    a_deletion_waits_for_the_request_of_a_dropped_call
    a_throttled_creation_is_repeated_within_the_call
    an_answer_without_end_is_given_up
    machines_that_wait_together_share_their_look_ups
}

mod over_grpc {
    mcm_driver::driver_suite!(mcm_driver_host::remote::testing::RemoteWorld<super::World>);
}
