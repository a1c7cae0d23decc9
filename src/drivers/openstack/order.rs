//! The requests that create a server and its parts.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use mcm_driver::{
    DriverError, SecretData,
    cloud::{MachineIdentity, SecretReader, UserDataLimit},
};
use serde_json::{Value, json};

use super::{
    names::{OWNER_KEY, UID_KEY, description_of},
    spec::Spec,
};

/// Nova takes 65,535 bytes in Base64.
const USER_DATA_LIMIT: UserDataLimit = UserDataLimit::new("Nova", 65_535 / 4 * 3);

/// A server that is ordered.
#[derive(Clone)]
pub(crate) struct Order {
    pub spec: Spec,
    /// Name and UID of the Machine.
    pub name: String,
    pub uid: String,
    /// Marker of its owner; empty for none.
    pub owner: String,
    /// In Base64.
    pub user_data: String,
}

/// IDs of what the class names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub image: String,
    pub flavor: String,
    pub networks: Vec<String>,
    pub port: Option<String>,
    pub volume: Option<String>,
}

impl Order {
    pub fn wanted(&self) -> MachineIdentity<'_> {
        MachineIdentity { name: &self.name, uid: &self.uid }
    }

    /// The body of a server.
    pub fn server(&self, resolved: &Resolved) -> Value {
        let Self { spec, .. } = self;
        let networks = resolved.networks.iter().map(|id| match &resolved.port {
            Some(port) => json!({"uuid": id, "port": port}),
            None => json!({"uuid": id}),
        });
        let mut server = json!({
            "name": self.name,
            "imageRef": resolved.image,
            "flavorRef": resolved.flavor,
            "networks": networks.collect::<Vec<_>>(),
            "availability_zone": spec.zone,
            "key_name": spec.key_pair,
            "metadata": self.metadata(),
            "user_data": self.user_data,
        });
        if !spec.security_groups.is_empty() {
            let groups = spec.security_groups.iter().map(|name| json!({"name": name}));
            server["security_groups"] = groups.collect::<Vec<_>>().into();
        }
        if let Some(config_drive) = spec.config_drive {
            server["config_drive"] = config_drive.into();
        }
        if spec.disk_size > 0 {
            server["block_device_mapping_v2"] = json!([self.disk(resolved)]);
        }
        let mut body = json!({"server": server});
        if let Some(group) = &spec.server_group {
            body["os:scheduler_hints"] = json!({"group": group});
        }
        body
    }

    /// The volume that the server boots from.
    fn disk(&self, resolved: &Resolved) -> Value {
        let (kind, id) = match &resolved.volume {
            Some(volume) => ("volume", volume),
            None => ("image", &resolved.image),
        };
        json!({
            "boot_index": 0, "uuid": id, "volume_size": self.spec.disk_size, "source_type": kind, "destination_type": "volume",
            // A volume that was created before the server is deleted after it.
            "delete_on_termination": resolved.volume.is_none(),
        })
    }

    /// The body of a port, with these security groups. It has the UID from the first moment on, so that it is found after a lost
    /// answer; its tags are set later.
    pub fn port(&self, network: &str, groups: &[String]) -> Value {
        let Spec { subnets, pod_cidrs, .. } = &self.spec;
        let mut port = json!({
            "name": self.name,
            "network_id": network,
            "description": description_of(&self.uid),
            "fixed_ips": subnets.iter().map(|subnet| json!({"subnet_id": subnet})).collect::<Vec<_>>(),
            "allowed_address_pairs": pod_cidrs.iter().map(|cidr| json!({"ip_address": cidr})).collect::<Vec<_>>(),
        });
        if !groups.is_empty() {
            port["security_groups"] = groups.into();
        }
        json!({"port": port})
    }

    /// The body of a volume.
    pub fn volume(&self, image: &str) -> Value {
        let Spec { zone, disk_size, disk_type, .. } = &self.spec;
        let mut volume = json!({
            "name": self.name, "size": disk_size, "imageRef": image, "availability_zone": zone, "metadata": self.metadata(),
        });
        if let Some(kind) = disk_type.as_ref().filter(|kind| !kind.is_empty()) {
            volume["volume_type"] = kind.as_str().into();
        }
        json!({"volume": volume})
    }

    fn metadata(&self) -> BTreeMap<&str, &str> {
        let of_class = self.spec.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let owner = Some((OWNER_KEY, self.owner.as_str())).filter(|(_, owner)| !owner.is_empty());
        of_class.chain([(UID_KEY, self.uid.as_str())]).chain(owner).collect()
    }
}

/// The user data of a Secret in Base64, whatever they are: data that are Base64 already may be so by accident.
///
/// # Errors
/// [`Code::InvalidArgument`]: there are none, or they are longer than Nova accepts.
pub(crate) fn user_data(secret: &SecretData) -> Result<String, DriverError> {
    Ok(BASE64_STANDARD.encode(USER_DATA_LIMIT.fit(SecretReader(secret).user_data()?)?))
}
