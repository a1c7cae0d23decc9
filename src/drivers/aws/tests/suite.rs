//! The suite of all drivers.

use std::time::Duration;

use async_trait::async_trait;
use mcm_driver::{
    Driver, MachineRequest, driver_suite,
    testing::{
        matrix::Case,
        server::{Fault, FaultSwitch, Reply},
        suite::{self, CallNames},
    },
};

use super::{
    driver_that_waits,
    fake::{self, Shared},
    flows::put,
    request_for, spec, start_cloud,
};

/// A cloud and its URL.
pub(super) struct World {
    pub cloud: Shared,
    url: String,
}

/// A fault of the suite, in this fake.
fn fault_of(fault: Fault) -> fake::Fault {
    match fault {
        Fault::LostAnswer => fake::Fault::LostAnswer,
        Fault::TimeOut => fake::Fault::Timeout,
        Fault::Endless => fake::Fault::Endless,
        Fault::Malformed => fake::Fault::Malformed,
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
        let fault = match (call, fault_of(fault)) {
            ("RunInstances", fake::Fault::Error(NOT_FOUND, status)) => {
                fake::Fault::Error("InvalidSubnetID.NotFound", status)
            }
            ("DescribeImages", fake::Fault::Error(NOT_FOUND, status)) => {
                fake::Fault::Error("InvalidAMIID.NotFound", status)
            }
            (_, fault) => fault,
        };
        self.cloud.lock().faults.push((call, fault, times));
    }

    fn clear(&self) {
        self.cloud.lock().faults.clear();
    }

    fn calls(&self, call: &str) -> usize {
        self.cloud.lock().sent(call).len()
    }

    fn fail_every(&self, _: &'static str, number: usize, fault: Fault) {
        self.cloud.lock().fails_every = Some((number, fault_of(fault)));
    }

    fn late(&self) -> usize {
        self.cloud.lock().late
    }
}

/// The name of what was not found.
const NOT_FOUND: &str = "InvalidInstanceID.NotFound";

#[async_trait]
impl suite::World for World {
    const CALLS: CallNames = CallNames {
        look: "DescribeInstances",
        look_by_id: "DescribeInstances",
        create: "RunInstances",
        delete: "TerminateInstances",
    };
    const SECRETS: &[&str] = &["AKIDEXAMPLE", "top-secret-key", "hunter2"];
    const MOST_CREATIONS: usize = 300;

    fn error(case: Case) -> Reply {
        let (name, status) = match case {
            Case::Throttle => ("RequestLimitExceeded", 503),
            Case::Auth => ("AuthFailure", 401),
            Case::Denied => ("UnauthorizedOperation", 403),
            Case::StockOut => ("InsufficientInstanceCapacity", 500),
            Case::Quota => ("VcpuLimitExceeded", 400),
            _ => (NOT_FOUND, 400),
        };
        Reply { status, body: name.to_owned() }
    }

    async fn new() -> Self {
        let (cloud, url) = start_cloud().await;
        Self { cloud, url }
    }

    fn driver_with(&self, attempt: Duration, _: Duration) -> Box<dyn Driver> {
        Box::new(driver_that_waits(&self.url, attempt))
    }

    fn request_with(&self, name: &str, uid: &str) -> MachineRequest {
        request_for(name, uid, spec())
    }

    fn put_for(&self, name: &str, uid: Option<&str>) -> String {
        let id = format!("i-{}", self.vms());
        let uid = uid.map(|uid| ("machine.sapcloud.io/machine-uid", uid));
        let tags: Vec<_> = [("Name", name)].into_iter().chain(uid).collect();
        put(&self.cloud, &id, &tags, "running");
        format!("aws:///eu-west-1/{id}")
    }

    fn put_elsewhere(&self, name: &str, uid: &str) -> String {
        let id = self.put_for(name, Some(uid));
        self.cloud.lock().instances.values_mut().for_each(|instance| instance.region = Some("eu-central-1"));
        id.replace("eu-west-1", "eu-central-1")
    }

    fn delay_deletions(&self, looks: usize) {
        self.cloud.lock().lingers = Some(looks);
    }

    fn switch(&self) -> &dyn FaultSwitch {
        self
    }

    fn vms(&self) -> usize {
        self.cloud.lock().alive().len()
    }

    fn remaining(&self) -> usize {
        self.cloud.lock().instances.values().filter(|instance| instance.state != "terminated").count()
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
