//! Drivers without a manager, with classes and machines for them.

use std::collections::BTreeMap;

use mcm::{
    api::machine::{Machine, MachineClass},
    driver_tester::DriverTester,
};
use serde_json::Value;

use crate::simulation::Simulation;

/// The driver of a cloud, with a class and the credentials of the cloud.
pub fn driver_for(cloud: &dyn Simulation, spec: Value) -> DriverTester {
    let secret: BTreeMap<String, String> = serde_json::from_value(cloud.secret()).unwrap();
    let secret = secret.into_iter().map(|(key, value)| (key, value.into_bytes())).collect();
    DriverTester::new(class(cloud, spec), secret).unwrap()
}

pub fn class(cloud: &dyn Simulation, spec: Value) -> MachineClass {
    let provider = cloud.provider().to_owned();
    let mut class = MachineClass { provider, provider_spec: spec, ..MachineClass::default() };
    class.metadata.name = Some("class".to_owned());
    class.metadata.namespace = Some("ns".to_owned());
    class
}

pub fn machine(name: &str) -> Machine {
    let mut machine = Machine::default();
    machine.metadata.name = Some(name.to_owned());
    machine.metadata.namespace = Some("ns".to_owned());
    machine.metadata.uid = Some(format!("uid-{name}"));
    machine
}
