//! The suite of all drivers.

use std::time::Duration;

use async_trait::async_trait;
use mcm_driver::{
    Driver, MachineRequest, driver_suite,
    testing::{
        matrix::Case,
        server::{FaultSwitch, Reply},
        suite::{self, CallNames, DeletionView},
    },
};

use super::{
    CLUSTER, ROLE, UID_TAG, World, driver,
    fake::{Ecs, KEY_ID, KEY_SECRET, REGION},
    spec, unmeasured,
};

#[async_trait]
impl suite::World for World {
    const CALLS: CallNames = CallNames {
        look: "DescribeInstances",
        look_by_id: "DescribeInstances",
        create: "RunInstances",
        delete: "DeleteInstance",
    };
    const SECRETS: &[&str] = &[KEY_ID, KEY_SECRET, "hunter2"];
    const MOST_CREATIONS: usize = 230;
    const DELETIONS: DeletionView = DeletionView::AsStop;

    fn error(case: Case) -> Reply {
        match case {
            Case::Throttle => Ecs::error(400, "Throttling.User", "request was denied due to user flow control"),
            Case::Auth => Ecs::error(404, "InvalidAccessKeyId.NotFound", "the specified access key is not found"),
            Case::Denied => Ecs::error(403, "Forbidden.RAM", "user not authorized to operate on the resource"),
            Case::StockOut => Ecs::error(403, "OperationDenied.NoStock", "the resource is sold out"),
            Case::Quota => Ecs::error(403, "QuotaExceed.ElasticQuota", "no additional quota is available"),
            _ => Ecs::error(404, "InvalidInstanceId.NotFound", "the specified InstanceId does not exist"),
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
        let uid = uid.map(|uid| (UID_TAG, uid));
        self.put(name, &[CLUSTER, ROLE].into_iter().chain(uid).collect::<Vec<_>>())
    }

    fn put_elsewhere(&self, name: &str, uid: &str) -> String {
        let id = self.put_for(name, Some(uid));
        let ecs = &mut *self.ecs.lock();
        ecs.cloud.instances.values_mut().for_each(|instance| instance.region = "cn-hangzhou");
        id.replace(REGION, "cn-hangzhou")
    }

    fn delay_deletions(&self, looks: usize) {
        self.ecs.lock().cloud.lingers = looks;
    }

    fn switch(&self) -> &dyn FaultSwitch {
        &*self.ecs
    }

    fn vms(&self) -> usize {
        self.count()
    }

    fn remaining(&self) -> usize {
        self.ecs.lock().cloud.instances.len()
    }

    fn check_requests(&self) {
        self.assert_valid_requests();
    }
}

driver_suite!(World);
driver_suite! { World:
    a_throttled_creation_is_repeated_within_the_call
    a_vm_in_another_place_is_left_alone
    an_answer_without_end_is_given_up
    machines_that_wait_together_share_their_look_ups
}

mod over_grpc {
    mcm_driver::driver_suite!(mcm_driver_host::remote::testing::RemoteWorld<super::World>);
}
