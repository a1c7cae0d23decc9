//! The request that creates a VM.

use aws_sdk_ec2::{
    operation::run_instances::builders::RunInstancesInputBuilder as Request,
    types::{
        self, BlockDeviceMapping, CapacityReservationSpecification, CapacityReservationTarget, CpuOptionsRequest,
        EbsBlockDevice, IamInstanceProfileSpecification, InstanceMarketOptionsRequest, InstanceMetadataOptionsRequest,
        InstanceNetworkInterfaceSpecification, InstanceType, MarketType, ResourceType, SpotInstanceType,
        SpotMarketOptions, Tag, TagSpecification,
    },
};
use aws_smithy_types::base64;

use super::{
    names::tags_of,
    spec::{
        BlockDevice, CapacityReservation, CpuOptions, MetadataOptions, NetworkInterface, Placement, ROOT_DEVICE, Spec,
    },
};

/// Resources that get the tags of a VM.
const RESOURCES: [ResourceType; 3] = [ResourceType::Instance, ResourceType::Volume, ResourceType::NetworkInterface];

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
    /// Name of the root device of the image.
    pub root_device: &'a str,
    /// The placement in the annotation of the Machine. That of the class takes precedence.
    pub placement: Option<Placement>,
}

impl Order<'_> {
    /// The request: one VM, or the VM that an earlier request with this token created. Texts that are newer than the SDK pass.
    pub(super) fn request(&self) -> Request {
        let spec = self.spec;
        let placement = spec.placement.as_ref().or(self.placement.as_ref());
        Request::default()
            // The SDK would invent one.
            .client_token(self.token)
            .image_id(&spec.ami)
            .instance_type(InstanceType::from(spec.machine_type.as_str()))
            .min_count(1)
            .max_count(1)
            .user_data(base64::encode(self.user_data))
            .set_iam_instance_profile(profile(spec))
            .set_key_name(spec.key_name.clone())
            .set_block_device_mappings(Some(spec.block_devices.iter().map(|device| self.device(device)).collect()))
            .set_network_interfaces(Some((0..).zip(&spec.network_interfaces).map(interface).collect()))
            .set_tag_specifications(Some(RESOURCES.map(|resource| self.tags(resource)).into()))
            .set_capacity_reservation_specification(spec.capacity_reservation.as_ref().and_then(reservation))
            .set_instance_market_options(market(spec))
            .set_metadata_options(spec.metadata_options.as_ref().map(metadata))
            .set_cpu_options(spec.cpu_options.as_ref().map(cpu))
            .set_placement(placement.map(placed))
    }

    fn device(&self, device: &BlockDevice) -> BlockDeviceMapping {
        // The name of an only device does not count.
        let is_root = device.device_name == ROOT_DEVICE || self.spec.block_devices.len() == 1;
        let ebs = EbsBlockDevice::builder()
            .volume_type(device.volume_type.as_str().into())
            .volume_size(device.volume_size)
            .set_iops(Some(device.iops).filter(|iops| *iops > 0))
            .set_throughput(device.throughput)
            .encrypted(device.encrypted)
            .delete_on_termination(device.delete_on_termination)
            .set_snapshot_id(device.snapshot_id.clone());
        BlockDeviceMapping::builder()
            .device_name(if is_root { self.root_device } else { &device.device_name })
            .ebs(ebs.build())
            .build()
    }

    fn tags(&self, resource: ResourceType) -> TagSpecification {
        let of_instance = Some((self.uid, self.owner)).filter(|_| resource == ResourceType::Instance);
        let tags = tags_of(&self.spec.tags, self.machine, of_instance);
        let tags = tags.into_iter().map(|(key, value)| Tag::builder().key(key).value(value).build());
        TagSpecification::builder().resource_type(resource).set_tags(Some(tags.collect())).build()
    }
}

fn profile(spec: &Spec) -> Option<IamInstanceProfileSpecification> {
    let (name, arn) = (spec.profile_name.clone(), spec.profile_arn.clone());
    let has_any = name.is_some() || arn.is_some();
    has_any.then(|| IamInstanceProfileSpecification::builder().set_name(name).set_arn(arn).build())
}

fn interface((index, interface): (i32, &NetworkInterface)) -> InstanceNetworkInterfaceSpecification {
    InstanceNetworkInterfaceSpecification::builder()
        .device_index(interface.device_index.unwrap_or(index))
        .set_network_card_index(interface.network_card_index)
        .subnet_id(&interface.subnet_id)
        .set_groups(Some(interface.security_group_ids.clone()))
        .set_associate_public_ip_address(interface.associate_public_ip_address)
        .set_description(interface.description.clone())
        .delete_on_termination(interface.delete_on_termination)
        .set_interface_type(interface.interface_type.clone())
        .set_ipv6_address_count(interface.ipv6_address_count)
        .set_primary_ipv6(interface.ipv6_address_count.map(|_| interface.primary_ipv6.unwrap_or(true)))
        .build()
}

fn reservation(reservation: &CapacityReservation) -> Option<CapacityReservationSpecification> {
    let specification = CapacityReservationSpecification::builder();
    let target = CapacityReservationTarget::builder();
    let specification = if let Some(preference) = &reservation.preference {
        specification.capacity_reservation_preference(preference.as_str().into())
    } else if let Some(arn) = &reservation.resource_group_arn {
        specification.capacity_reservation_target(target.capacity_reservation_resource_group_arn(arn).build())
    } else {
        let id = reservation.id.as_ref()?;
        specification.capacity_reservation_target(target.capacity_reservation_id(id).build())
    };
    Some(specification.build())
}

fn market(spec: &Spec) -> Option<InstanceMarketOptionsRequest> {
    let options = InstanceMarketOptionsRequest::builder();
    if let Some(market) = &spec.market_type {
        return Some(options.market_type(market.as_str().into()).build());
    }
    let price = spec.spot_price.clone()?;
    let spot = SpotMarketOptions::builder()
        .spot_instance_type(SpotInstanceType::OneTime)
        .set_max_price(Some(price).filter(|price| !price.is_empty()));
    Some(options.market_type(MarketType::Spot).spot_options(spot.build()).build())
}

fn metadata(options: &MetadataOptions) -> InstanceMetadataOptionsRequest {
    InstanceMetadataOptionsRequest::builder()
        .set_http_endpoint(options.endpoint.as_deref().map(Into::into))
        .set_http_tokens(options.tokens.as_deref().map(Into::into))
        .set_http_protocol_ipv6(options.protocol_ipv6.as_deref().map(Into::into))
        .set_http_put_response_hop_limit(options.hop_limit)
        .build()
}

fn cpu(options: &CpuOptions) -> CpuOptionsRequest {
    CpuOptionsRequest::builder()
        .set_core_count(options.core_count)
        .set_threads_per_core(options.threads_per_core)
        .set_amd_sev_snp(options.amd_sev_snp.as_deref().map(Into::into))
        .build()
}

fn placed(placement: &Placement) -> types::Placement {
    types::Placement::builder()
        .set_affinity(placement.affinity.clone())
        .set_availability_zone(placement.availability_zone.clone())
        .set_availability_zone_id(placement.availability_zone_id.clone())
        .set_group_id(placement.group_id.clone())
        .set_group_name(placement.group_name.clone())
        .set_host_id(placement.host_id.clone())
        .set_host_resource_group_arn(placement.host_resource_group_arn.clone())
        .set_partition_number(placement.partition_number)
        .set_spread_domain(placement.spread_domain.clone())
        .set_tenancy(placement.tenancy.as_deref().map(Into::into))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_is_not_printed() {
        let spec = Spec { ami: "ami-1".to_owned(), ..Spec::default() };
        let order = Order {
            spec: &spec,
            machine: "m",
            uid: "u",
            owner: "o",
            token: "t",
            user_data: b"hunter2",
            root_device: "/dev/xvda",
            placement: None,
        };
        let shown = format!("{:?} {:?}", order.request(), order.request().build());
        assert!(shown.contains("ami-1"), "{shown}");
        assert!(!shown.contains("hunter2") && !shown.contains(&base64::encode("hunter2")), "{shown}");
    }
}
