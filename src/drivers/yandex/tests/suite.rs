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

use super::{CLUSTER, ROLE, UID, World, driver_that_settles, fake::YandexApi, faults::BUSY, spec, unmeasured};

#[async_trait]
impl suite::World for World {
    const CALLS: CallNames = CallNames {
        look: "instance.list",
        look_by_id: "instance.get",
        create: "instance.create",
        delete: "instance.delete",
    };
    const SECRETS: &[&str] = &["PRIVATE KEY", "hunter2", "t1.9euelZ"];
    /// Keys sign slowly.
    const SHORT: Duration = Duration::from_secs(2);

    fn error(case: Case) -> Reply {
        let api = YandexApi::new();
        match case {
            Case::Throttle => api.error(8, BUSY),
            Case::Auth => api.error(16, "Token is invalid or has expired."),
            Case::Denied => api.error(7, "Permission denied"),
            Case::StockOut => api.error(8, "Not enough resources"),
            Case::Quota => api.quota_error(),
            _ => api.error(5, "not found"),
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
        let uid = uid.map(|uid| format!("{UID}={uid}"));
        self.put(name, &[CLUSTER, ROLE].into_iter().chain(uid.as_deref()).collect::<Vec<_>>())
    }

    fn put_elsewhere(&self, name: &str, uid: &str) -> String {
        let id = self.put_for(name, Some(uid));
        let yandex = &mut *self.yandex.lock();
        yandex.cloud.instances.values_mut().for_each(|instance| instance["folderId"] = "b1gother".into());
        id
    }

    /// It was moved within the folder while the list was read.
    fn unlist(&self, id: &str) {
        self.yandex.lock().cloud.unlisted.push(id.rsplit('/').next().unwrap().to_owned());
    }

    fn delay_deletions(&self, looks: usize) {
        self.yandex.lock().cloud.steps = looks;
    }

    fn switch(&self) -> &dyn FaultSwitch {
        &*self.yandex
    }

    fn vms(&self) -> usize {
        self.count()
    }

    fn remaining(&self) -> usize {
        self.yandex.lock().cloud.instances.len()
    }

    fn check_requests(&self) {
        self.assert_valid_requests();
    }
}

driver_suite!(World);
driver_suite! { World:
    a_deletion_waits_for_the_request_of_a_dropped_call
    a_throttled_creation_is_repeated_within_the_call
    a_vm_in_another_place_is_left_alone
    an_answer_without_end_is_given_up
    machines_that_wait_together_share_their_look_ups
}

mod over_grpc {
    mcm_driver::driver_suite!(mcm_driver_host::remote::testing::RemoteWorld<super::World>);
}
