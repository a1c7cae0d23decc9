//! A class with access to its account, and where its VMs are.

use super::{
    accounts::AccountKey,
    calls::Compute,
    names::{IDS, is_project},
    spec::{Scope, Spec},
};
use mcm_api::machine::Machine;
use mcm_driver::{
    DriverError,
    cloud::{MachineIdentity, is_word},
    code::Code,
};

/// Account, project and zone, which look-ups share.
pub(super) type LookUpKey = (AccountKey, String, String);

/// A class with access to its account.
pub(super) struct Session {
    pub spec: Spec,
    pub scope: Scope,
    pub key: AccountKey,
    pub compute: Compute,
}

impl Session {
    pub fn look_up_key(&self, zone: &str) -> LookUpKey {
        (self.key.clone(), self.compute.project.clone(), zone.to_owned())
    }

    /// The place of the VM of a Machine: that in its provider ID, or that of a creation.
    pub fn place_of<'a>(&'a self, machine: &'a Machine) -> Result<Place<'a>, DriverError> {
        let known = place_of_id(self, machine)?;
        Ok(known.unwrap_or(Place { zone: &self.scope.zone, name: MachineIdentity::from_machine(machine).name }))
    }
}

/// Where the VM of a Machine is.
pub(super) struct Place<'a> {
    pub zone: &'a str,
    pub name: &'a str,
}

/// The place in the provider ID of a Machine, if it has one.
fn place_of_id<'a>(session: &Session, machine: &'a Machine) -> Result<Option<Place<'a>>, DriverError> {
    let Some([project, zone, name]) = IDS.of_machine(machine)? else { return Ok(None) };
    if project != session.compute.project || !is_project(project) || !is_word(zone) {
        let message = format!(
            "machine {:?} has provider ID {:?}, and its secret is of project {:?}: check its class",
            MachineIdentity::from_machine(machine).name,
            machine.spec.provider_id,
            session.compute.project
        );
        return Err(DriverError::new(Code::InvalidArgument, message));
    }
    Ok(Some(Place { zone, name }))
}
