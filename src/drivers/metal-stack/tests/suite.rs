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
    CLUSTER, UID_TAG, World, driver_that_settles,
    fake::{HMAC, MetalApi},
    spec, unmeasured,
};

#[async_trait]
impl suite::World for World {
    const CALLS: CallNames = CallNames {
        look: "machine.find",
        look_by_id: "machine.find",
        create: "machine.allocate",
        delete: "machine.free",
    };
    const SECRETS: &[&str] = &[HMAC, "hunter2"];
    const DELETIONS: DeletionView = DeletionView::Hidden;

    fn error(case: Case) -> Reply {
        let api = MetalApi::new(0);
        match case {
            Case::Throttle => api.error(422, "too many parallel machine allocations taking place, try again later"),
            Case::Auth => api.error(401, "wrong hmac"),
            Case::Denied => api.error(403, "you are not member in one of metal-edit"),
            Case::StockOut => api.error(422, "no machine available"),
            Case::Quota => api.error(422, "project quota for machines reached max:3"),
            _ => api.error(404, "NotFound no machine with id found"),
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
        self.put(name, &[CLUSTER].into_iter().chain(uid.as_deref()).collect::<Vec<_>>())
    }

    fn put_elsewhere(&self, name: &str, uid: &str) -> String {
        let id = self.put_for(name, Some(uid));
        let metal = &mut *self.metal.lock();
        let allocations = metal.cloud.machines.values_mut().filter_map(|machine| machine.allocation.as_mut());
        allocations.for_each(|allocation| allocation["project"] = "00000000-0000-4000-8000-0000000000bb".into());
        id
    }

    fn unlist(&self, id: &str) {
        let metal = &mut *self.metal.lock();
        let machine = metal.cloud.machines.get_mut(id.rsplit('/').next().unwrap()).unwrap();
        machine.tags.retain(|tag| tag != CLUSTER);
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
        self.metal.lock().cloud.shown_allocations()
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
