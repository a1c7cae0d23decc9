//! The objects of a call.

use std::{fmt::Debug, sync::Arc};

use mcm_api::machine::{Machine, MachineClass};
use serde_json::Value;

use crate::{Code, DriverError, MachineRequest, SecretData};

/// User data with a text that no output may contain.
const USER_DATA: &str = "#!/bin/sh\nhunter2-hunter2\n";

/// A class in the namespace `ns`.
pub fn class(provider: &str, spec: Value) -> MachineClass {
    let mut class = MachineClass { provider: provider.to_owned(), provider_spec: spec, ..MachineClass::default() };
    class.metadata.name = Some("class".to_owned());
    class.metadata.namespace = Some("ns".to_owned());
    class
}

/// A Secret with user data and other values.
pub fn secret(values: &[(&str, &str)]) -> SecretData {
    let all = [("userData", USER_DATA)].into_iter().chain(values.iter().copied());
    SecretData(all.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).collect())
}

/// A request that waits for its end. Without a UID if it is empty.
pub fn request(name: &str, uid: &str, class: MachineClass, secret: SecretData, owner: &str) -> MachineRequest {
    let mut machine = Machine::default();
    machine.metadata.name = Some(name.to_owned());
    machine.metadata.namespace = Some("ns".to_owned());
    machine.metadata.uid = Some(uid.to_owned()).filter(|uid| !uid.is_empty());
    let (machine, class, owner) = (Arc::new(machine), Arc::new(class), owner.to_owned());
    MachineRequest { machine, class, secret, owner, may_pause: false }
}

/// The same request for a Machine with a provider ID.
pub fn with_id(mut request: MachineRequest, provider_id: &str) -> MachineRequest {
    Arc::make_mut(&mut request.machine).spec.provider_id = provider_id.to_owned();
    request
}

/// The code of a call that has to fail.
pub fn code<T: Debug>(result: Result<T, DriverError>) -> Code {
    result.unwrap_err().code
}
