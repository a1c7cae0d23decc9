//! The request of a VM.

use base64::{Engine, engine::general_purpose::STANDARD};
use mcm_driver::cloud::MachineIdentity;

use super::{
    names::tags_of,
    parameters::Parameters,
    spec::{DataDisk, Spec},
};

/// A VM that is ordered.
pub(crate) struct Order<'a> {
    pub spec: &'a Spec,
    pub wanted: MachineIdentity<'a>,
    pub owner: &'a str,
    /// Requests with the same token create one VM.
    pub token: &'a str,
    pub user_data: &'a [u8],
}

impl Order<'_> {
    /// The parameters of `RunInstances`. Those without a value are left out, which ECS treats in the same way.
    pub fn parameters(&self) -> Parameters {
        let Self { spec, wanted, .. } = self;
        let mut all = Parameters::new();
        all.add("ImageId", &spec.image_id);
        all.add("InstanceType", &spec.instance_type);
        all.add("InstanceName", wanted.name);
        all.add("ClientToken", self.token);
        let optional = [
            ("ZoneId", &spec.zone_id),
            ("SecurityGroupId", &spec.security_group_id),
            ("VSwitchId", &spec.v_switch_id),
            ("PrivateIpAddress", &spec.private_ip_address),
            ("InstanceChargeType", &spec.instance_charge_type),
            ("InternetChargeType", &spec.internet_charge_type),
            ("SpotStrategy", &spec.spot_strategy),
            ("IoOptimized", &spec.io_optimized),
            ("KeyPairName", &spec.key_pair_name),
        ];
        for (name, value) in optional {
            all.add_some(name, value.as_ref());
        }
        all.add_some("InternetMaxBandwidthIn", spec.internet_max_bandwidth_in);
        all.add_some("InternetMaxBandwidthOut", spec.internet_max_bandwidth_out);
        if let Some(disk) = &spec.system_disk {
            all.add_some("SystemDisk.Category", disk.category.as_ref());
            all.add_some("SystemDisk.Size", disk.size);
        }
        for (number, disk) in (1..).zip(&spec.data_disks) {
            self.add_disk(&mut all, number, disk);
        }
        for (number, (key, value)) in (1..).zip(tags_of(&spec.tags, wanted.uid, self.owner)) {
            all.add_tag(number, &key, &value);
        }
        if !self.user_data.is_empty() {
            all.add("UserData", STANDARD.encode(self.user_data));
        }
        all
    }

    fn add_disk(&self, all: &mut Parameters, number: u32, disk: &DataDisk) {
        let mut add = |field: &str, value: Option<String>| all.add_some(&format!("DataDisk.{number}.{field}"), value);
        add("DiskName", Some(format!("{}-{}-data-disk", self.wanted.name, disk.name)));
        add("Category", disk.category.clone());
        add("Description", Some(disk.description.clone()).filter(|text| !text.is_empty()));
        add("Size", Some(disk.size.to_string()));
        add("Encrypted", Some(disk.is_encrypted.to_string()));
        add("DeleteWithInstance", disk.delete_with_instance.map(|value| value.to_string()));
    }
}
