//! The request that creates a VM.

use super::{
    names::tags_of,
    query::Query,
    spec::{
        BlockDevice, CapacityReservation, CpuOptions, MetadataOptions, NetworkInterface, Placement, ROOT_DEVICE, Spec,
    },
};

/// A VM to create.
pub(super) struct Order<'a> {
    pub spec: &'a Spec,
    /// Name of the Machine.
    pub machine: &'a str,
    /// UID of the Machine.
    pub uid: &'a str,
    /// Marker of its owner; empty for none.
    pub owner: &'a str,
    pub token: &'a str,
    pub user_data: &'a [u8],
    /// What the image calls its root device.
    pub root_device: &'a str,
    /// The placement in the annotation of the Machine. That of the class comes first.
    pub placement: Option<Placement>,
}

impl Order<'_> {
    /// Writes the request: one VM, or the one that an earlier request with this token created.
    pub(super) fn write(&self, query: &mut Query) {
        let spec = self.spec;
        query.set("ClientToken", self.token);
        query.set("ImageId", &spec.ami);
        query.set("InstanceType", &spec.machine_type);
        query.set("MinCount", 1);
        query.set("MaxCount", 1);
        query.set("UserData", base64(self.user_data));
        query.maybe("IamInstanceProfile.Name", spec.profile_name.as_ref());
        query.maybe("IamInstanceProfile.Arn", spec.profile_arn.as_ref());
        query.maybe("KeyName", spec.key_name.as_ref());
        for (number, device) in (1..).zip(&spec.block_devices) {
            self.write_device(query, number, device);
        }
        for (number, interface) in (1..).zip(&spec.network_interfaces) {
            write_interface(query, number, interface);
        }
        for (number, resource) in (1..).zip(["instance", "volume", "network-interface"]) {
            self.write_tags(query, number, resource);
        }
        if let Some(reservation) = &spec.capacity_reservation {
            write_reservation(query, reservation);
        }
        write_market(query, spec);
        if let Some(options) = &spec.metadata_options {
            write_metadata(query, options);
        }
        if let Some(options) = &spec.cpu_options {
            write_cpu(query, options);
        }
        if let Some(placement) = spec.placement.as_ref().or(self.placement.as_ref()) {
            write_placement(query, placement);
        }
    }

    fn write_device(&self, query: &mut Query, number: usize, device: &BlockDevice) {
        let path = format!("BlockDeviceMapping.{number}");
        // The name of an only device does not count.
        let is_root = device.device_name == ROOT_DEVICE || self.spec.block_devices.len() == 1;
        query.set(format!("{path}.DeviceName"), if is_root { self.root_device } else { &device.device_name });
        query.set(format!("{path}.Ebs.VolumeType"), &device.volume_type);
        query.set(format!("{path}.Ebs.VolumeSize"), device.volume_size);
        query.maybe(format!("{path}.Ebs.Iops"), Some(device.iops).filter(|iops| *iops > 0));
        query.maybe(format!("{path}.Ebs.Throughput"), device.throughput);
        query.set(format!("{path}.Ebs.Encrypted"), device.encrypted);
        query.set(format!("{path}.Ebs.DeleteOnTermination"), device.delete_on_termination);
        query.maybe(format!("{path}.Ebs.SnapshotId"), device.snapshot_id.as_ref());
    }

    fn write_tags(&self, query: &mut Query, number: usize, resource: &str) {
        let of_instance = Some((self.uid, self.owner)).filter(|_| resource == "instance");
        let tags = tags_of(&self.spec.tags, self.machine, of_instance);
        query.set(format!("TagSpecification.{number}.ResourceType"), resource);
        for (index, (key, value)) in (1_usize..).zip(tags) {
            query.set(format!("TagSpecification.{number}.Tag.{index}.Key"), key);
            query.set(format!("TagSpecification.{number}.Tag.{index}.Value"), value);
        }
    }
}

fn write_interface(query: &mut Query, number: i32, interface: &NetworkInterface) {
    let path = format!("NetworkInterface.{number}");
    query.set(format!("{path}.DeviceIndex"), interface.device_index.unwrap_or(number - 1));
    query.maybe(format!("{path}.NetworkCardIndex"), interface.network_card_index);
    query.set(format!("{path}.SubnetId"), &interface.subnet_id);
    for (index, group) in (1_usize..).zip(&interface.security_group_ids) {
        query.set(format!("{path}.SecurityGroupId.{index}"), group);
    }
    query.maybe(format!("{path}.AssociatePublicIpAddress"), interface.associate_public_ip_address);
    query.maybe(format!("{path}.Description"), interface.description.as_ref());
    query.set(format!("{path}.DeleteOnTermination"), interface.delete_on_termination);
    query.maybe(format!("{path}.InterfaceType"), interface.interface_type.as_ref());
    if let Some(count) = interface.ipv6_address_count {
        query.set(format!("{path}.Ipv6AddressCount"), count);
        query.set(format!("{path}.PrimaryIpv6"), interface.primary_ipv6.unwrap_or(true));
    }
}

fn write_reservation(query: &mut Query, reservation: &CapacityReservation) {
    const PATH: &str = "CapacityReservationSpecification";
    if let Some(preference) = &reservation.preference {
        query.set(format!("{PATH}.CapacityReservationPreference"), preference);
    } else if let Some(arn) = &reservation.resource_group_arn {
        query.set(format!("{PATH}.CapacityReservationTarget.CapacityReservationResourceGroupArn"), arn);
    } else if let Some(id) = &reservation.id {
        query.set(format!("{PATH}.CapacityReservationTarget.CapacityReservationId"), id);
    }
}

fn write_market(query: &mut Query, spec: &Spec) {
    if let Some(market) = &spec.market_type {
        query.set("InstanceMarketOptions.MarketType", market);
    } else if let Some(price) = &spec.spot_price {
        query.set("InstanceMarketOptions.MarketType", "spot");
        query.set("InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time");
        query.maybe("InstanceMarketOptions.SpotOptions.MaxPrice", Some(price).filter(|price| !price.is_empty()));
    }
}

fn write_metadata(query: &mut Query, options: &MetadataOptions) {
    query.maybe("MetadataOptions.HttpEndpoint", options.endpoint.as_ref());
    query.maybe("MetadataOptions.HttpTokens", options.tokens.as_ref());
    query.maybe("MetadataOptions.HttpProtocolIpv6", options.protocol_ipv6.as_ref());
    query.maybe("MetadataOptions.HttpPutResponseHopLimit", options.hop_limit);
}

fn write_cpu(query: &mut Query, options: &CpuOptions) {
    query.maybe("CpuOptions.CoreCount", options.core_count);
    query.maybe("CpuOptions.ThreadsPerCore", options.threads_per_core);
    query.maybe("CpuOptions.AmdSevSnp", options.amd_sev_snp.as_ref());
}

fn write_placement(query: &mut Query, placement: &Placement) {
    query.maybe("Placement.Affinity", placement.affinity.as_ref());
    query.maybe("Placement.AvailabilityZone", placement.availability_zone.as_ref());
    query.maybe("Placement.AvailabilityZoneId", placement.availability_zone_id.as_ref());
    query.maybe("Placement.GroupId", placement.group_id.as_ref());
    query.maybe("Placement.GroupName", placement.group_name.as_ref());
    query.maybe("Placement.HostId", placement.host_id.as_ref());
    query.maybe("Placement.HostResourceGroupArn", placement.host_resource_group_arn.as_ref());
    query.maybe("Placement.PartitionNumber", placement.partition_number);
    query.maybe("Placement.SpreadDomain", placement.spread_domain.as_ref());
    query.maybe("Placement.Tenancy", placement.tenancy.as_ref());
}

fn base64(bytes: &[u8]) -> String {
    aws_smithy_types::base64::encode(bytes)
}
