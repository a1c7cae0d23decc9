//! The request of an allocation.

use serde_json::{Value, json};

use super::{
    server::tags_of,
    spec::{Scope, Spec},
};
use mcm_driver::{
    Code, DriverError, SecretData,
    cloud::{MachineIdentity, SecretReader},
};

const USER_DATA: &str = "userData";

/// A machine that is ordered.
pub(super) struct Order<'a> {
    pub spec: &'a Spec,
    pub scope: &'a Scope,
    pub wanted: MachineIdentity<'a>,
    pub owner: &'a str,
    /// It is sent as it is, although the Swagger document requires Base64.
    pub user_data: &'a str,
}

impl Order<'_> {
    pub fn body(&self) -> Value {
        let Self { spec, wanted, .. } = self;
        let mut body = json!({
            "name": wanted.name,
            "hostname": wanted.name,
            "description": format!("{} created by Gardener.", wanted.name),
            "partitionid": spec.partition,
            "sizeid": spec.size,
            "imageid": spec.image,
            "projectid": spec.project,
            "networks": [{"networkid": spec.network, "autoacquire": true}],
            "ssh_pub_keys": spec.ssh_keys,
            "tags": tags_of(&spec.tags, wanted.uid, self.owner),
            // Machines of a cluster are spread over racks.
            "placement_tags": [self.scope.tag()],
        });
        if !self.user_data.is_empty() {
            body["user_data"] = self.user_data.into();
        }
        let servers = |field: &str, all: &[String]| all.iter().map(|one| json!({field: one})).collect::<Vec<_>>();
        if !spec.dns_servers.is_empty() {
            body["dns_servers"] = servers("ip", &spec.dns_servers).into();
        }
        if !spec.ntp_servers.is_empty() {
            body["ntp_servers"] = servers("address", &spec.ntp_servers).into();
        }
        body
    }
}

/// The user data, without surrounding white space; empty if there are none.
///
/// # Errors
/// [`Code::InvalidArgument`]: they are no text, so JSON cannot hold them.
pub(super) fn user_data(secret: &SecretData) -> Result<&str, DriverError> {
    let data = SecretReader(secret).raw(USER_DATA).unwrap_or_default();
    std::str::from_utf8(data).map(str::trim).map_err(|_| {
        let message = format!("{USER_DATA} in the secret of the class is no text in UTF-8: metal-api takes no other");
        DriverError::new(Code::InvalidArgument, message)
    })
}
