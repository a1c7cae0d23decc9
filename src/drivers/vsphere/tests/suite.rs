//! The suite of all drivers.

use std::time::Duration;

use async_trait::async_trait;
use mcm_driver::{
    Driver, MachineRequest, driver_suite,
    testing::{
        matrix::Case,
        server::{Fault, FaultSwitch, Reply},
        suite::{self, CallNames, DeletionView, PATIENT},
    },
};

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::json;

use super::{
    CLUSTER, ROLE, UID, World, driver, driver_that_settles,
    faults::SHORTEST_ATTEMPT,
    spec, spec_with, unmeasured,
    vcenter::{PASSWORD, VCenter, fault},
};

impl FaultSwitch for VCenter {
    fn fail(&self, call: &'static str, fault: Fault, times: usize) {
        self.settings.lock().faults.push((call, fault, times));
    }

    fn clear(&self) {
        self.settings.lock().faults.clear();
    }

    fn calls(&self, call: &str) -> usize {
        self.settings.lock().count(call)
    }

    fn fail_every(&self, call: &'static str, number: usize, fault: Fault) {
        self.settings.lock().fails_every = Some((call, number, fault));
    }

    fn late(&self) -> usize {
        self.settings.lock().late
    }
}

#[async_trait]
impl suite::World for World {
    const CALLS: CallNames =
        CallNames { look: "FindChild", look_by_id: "FindAllByUuid", create: "CloneVM_Task", delete: "Destroy_Task" };
    const SECRETS: &[&str] = &[PASSWORD, "hunter2"];
    const SHORT: Duration = SHORTEST_ATTEMPT;
    const DELETIONS: DeletionView = DeletionView::Hidden;
    const FOLLOWS_IDS: bool = true;
    const HAS_UNIQUE_NAMES: bool = true;

    fn error(case: Case) -> Reply {
        match case {
            Case::Throttle => Reply { status: 503, body: "503 Service Unavailable".to_owned() },
            Case::Auth => fault("NotAuthenticated", "The session is not authenticated."),
            Case::Denied => fault("NoPermission", "Permission to perform this operation was denied."),
            Case::StockOut => fault("NoDiskSpace", "There is not enough space."),
            Case::Quota => fault("InsufficientMemoryResourcesFault", "The host does not have sufficient memory."),
            _ => fault("ManagedObjectNotFound", "The object has already been deleted."),
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

    /// It was moved to a folder below that of the class.
    fn put_elsewhere(&self, name: &str, uid: &str) -> String {
        format!("vsphere://eu/{}", self.vcenter.create_in("/pool", name, &[CLUSTER, ROLE, (UID, uid)]))
    }

    fn attach_disk(&self, id: &str) -> String {
        let path = "[LocalDS_0] kubevols/pvc-1.vmdk";
        self.vcenter.attach(id.rsplit('/').next().unwrap(), path);
        path.to_owned()
    }

    fn has_disk(&self, disk: &str) -> bool {
        self.vcenter.has_file(disk)
    }

    /// vCenter deletes a VM at once.
    fn delay_deletions(&self, _: usize) {}

    fn switch(&self) -> &dyn FaultSwitch {
        &self.vcenter
    }

    fn vms(&self) -> usize {
        self.vcenter.vms_named(&self.case).len()
    }

    fn remaining(&self) -> usize {
        suite::World::vms(self)
    }

    /// In a vCenter that cases share.
    async fn for_matrix() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let case = format!("case-{}-", NUMBER.fetch_add(1, Relaxed));
        Self { vcenter: VCenter::shared().await, driver: driver(PATIENT, unmeasured()), case }
    }

    fn request_of_matrix(&self) -> MachineRequest {
        let name = &self.case;
        let tags = json!({CLUSTER.0: name, ROLE.0: ROLE.1, name: "a field that is not defined yet"});
        self.request_for(name, &format!("uid-{name}"), spec_with(&json!({"tags": tags})))
    }
}

driver_suite!(World);
driver_suite! { World:
    a_creation_that_is_carried_out_after_its_time_out_is_not_made_twice
    a_deletion_waits_for_the_request_of_a_dropped_call
    a_disk_of_others_outlives_the_vm
    a_vm_in_another_place_is_left_alone
    an_answer_without_end_is_given_up
    an_unknown_outcome_pauses_the_calls_of_controllers
    machines_that_wait_together_share_their_look_ups
}

mod over_grpc {
    mcm_driver::driver_suite!(mcm_driver_host::remote::testing::RemoteWorld<super::World>);
}
