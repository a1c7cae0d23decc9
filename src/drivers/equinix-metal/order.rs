//! The requests of a creation.

use mcm_driver::{
    Code, DriverError, SecretData,
    cloud::{MachineIdentity, SecretReader},
};
use serde_json::{Value, json};

use crate::{device::tags_of, spec::Spec};

/// A device that is ordered.
pub(crate) struct Order<'a> {
    pub spec: &'a Spec,
    pub wanted: MachineIdentity<'a>,
    pub owner: &'a str,
    pub user_data: &'a str,
}

impl Order<'_> {
    /// The bodies of the attempts, in order: one for each reservation, then one on demand unless the class forbids it.
    pub fn attempts(&self) -> Vec<Value> {
        let reserved = self.spec.reservations.iter().map(Some);
        let on_demand = (!self.spec.is_reserved_only).then_some(None);
        reserved.chain(on_demand).map(|reservation| self.body(reservation)).collect()
    }

    fn body(&self, reservation: Option<&String>) -> Value {
        let Self { spec, wanted, .. } = self;
        let mut body = json!({
            "metro": spec.metro,
            "hostname": wanted.name,
            "userdata": self.user_data,
            "plan": spec.machine_type,
            "billing_cycle": spec.billing_cycle,
            "operating_system": spec.operating_system,
            "tags": tags_of(&spec.tags, wanted.uid, self.owner),
        });
        if let Some(url) = &spec.ipxe_script_url {
            body["ipxe_script_url"] = url.as_str().into();
        }
        if !spec.ssh_keys.is_empty() {
            body["project_ssh_keys"] = spec.ssh_keys.clone().into();
        }
        if let Some(reservation) = reservation {
            body["hardware_reservation_id"] = reservation.as_str().into();
        }
        body
    }
}

/// The user data, as they are.
///
/// # Errors
/// [`Code::InvalidArgument`]: there are none, or they are no text, so JSON cannot hold them.
pub(crate) fn user_data(secret: &SecretData) -> Result<&str, DriverError> {
    std::str::from_utf8(SecretReader(secret).user_data()?).map_err(|_| {
        let message = "userData in the secret of the class is no text in UTF-8: Equinix Metal takes no other";
        DriverError::new(Code::InvalidArgument, message)
    })
}
