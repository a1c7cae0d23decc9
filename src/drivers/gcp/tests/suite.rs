//! The suite of all drivers.

use std::time::Duration;

use async_trait::async_trait;
use mcm_driver::{
    Driver, MachineRequest, driver_suite,
    testing::{
        matrix::Case,
        server::{Fault, FaultSwitch, Reply},
        suite::{self, CallNames, DeletionView},
    },
};

use serde_json::json;

use super::{CLUSTER, ROLE, UID_LABEL, World, ZONE, driver, fake, flows::id, spec};

/// A fault of the suite, in this fake.
pub(super) fn fault_of(fault: Fault) -> fake::Fault {
    match fault {
        Fault::LostAnswer => fake::Fault::LostAnswer,
        Fault::TimeOut => fake::Fault::Timeout,
        Fault::Endless => fake::Fault::Endless,
        Fault::Malformed => fake::Fault::Malformed,
        Fault::Error(reply) if reply.body.starts_with('{') => fake::Fault::Reply(reply.body.leak(), reply.status),
        Fault::Error(reply) => fake::Fault::Error(reply.body.leak(), reply.status),
        Fault::Status(status) => fake::Fault::Status(status),
        Fault::Late(pause) => fake::Fault::Late(pause),
        Fault::LostAndLate(pause) => fake::Fault::LostAndLate(pause),
        Fault::Slow(pause) => fake::Fault::Slow(pause),
        other => panic!("the fake has no {other:?}"),
    }
}

impl FaultSwitch for World {
    fn fail(&self, call: &'static str, fault: Fault, times: usize) {
        let mut gce = self.gce.lock();
        if call == "zoneOperations.get" {
            // Single operations are read only without the permission to list them.
            gce.faults.push(("zoneOperations.list", fake::Fault::Error("forbidden", 403), 9_999));
        }
        // Polls of operations have no number of attempts.
        gce.faults.push((call, fault_of(fault), if times > 9 { 9_999 } else { times }));
    }

    fn clear(&self) {
        self.gce.lock().faults.clear();
    }

    fn calls(&self, call: &str) -> usize {
        self.gce.lock().bodies(call).len()
    }

    fn fail_every(&self, _: &'static str, number: usize, fault: Fault) {
        self.gce.lock().fails_every = Some((number, fault_of(fault)));
    }

    fn late(&self) -> usize {
        self.gce.lock().late
    }
}

#[async_trait]
impl suite::World for World {
    const CALLS: CallNames = CallNames {
        look: "instances.list",
        look_by_id: "instances.list",
        create: "instances.insert",
        delete: "instances.delete",
    };
    const SECRETS: &[&str] = &["PRIVATE KEY", "ya29", "hunter2", "eyJ"];
    /// Keys sign slowly.
    const SHORT: Duration = Duration::from_secs(3);
    const MOST_CREATIONS: usize = 300;
    const DELETIONS: DeletionView = DeletionView::AsStop;
    const FOLLOWS_IDS: bool = true;
    const HAS_UNIQUE_NAMES: bool = true;

    fn error(case: Case) -> Reply {
        let (name, status) = match case {
            Case::Throttle => ("rateLimitExceeded", 403),
            Case::Auth => ("authError", 401),
            Case::Denied => ("forbidden", 403),
            Case::StockOut => ("resourcePoolExhausted", 503),
            Case::Quota => ("quotaExceeded", 403),
            _ => ("notFound", 404),
        };
        Reply { status, body: name.to_owned() }
    }

    async fn new() -> Self {
        Self::new().await
    }

    fn driver_with(&self, attempt: Duration, _: Duration) -> Box<dyn Driver> {
        Box::new(driver(&self.url, attempt))
    }

    fn request_with(&self, name: &str, uid: &str) -> MachineRequest {
        self.request_for(name, uid, spec())
    }

    fn put_for(&self, name: &str, uid: Option<&str>) -> String {
        match uid {
            Some(uid) => self.put_for(name, uid),
            None => self.put(name, "RUNNING"),
        }
        id(name)
    }

    fn put_elsewhere(&self, name: &str, uid: &str) -> String {
        self.gce.lock().put("europe-west1-c", name, &[CLUSTER, ROLE], &json!({ UID_LABEL: uid }), "RUNNING");
        id(name).replace(ZONE, "europe-west1-c")
    }

    fn delay_deletions(&self, looks: usize) {
        self.gce.lock().steps = looks;
    }

    fn switch(&self) -> &dyn FaultSwitch {
        self
    }

    fn vms(&self) -> usize {
        self.gce.lock().vms.values().filter(|vm| vm.resource["status"] != "STOPPING").count()
    }

    fn remaining(&self) -> usize {
        self.count()
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
