//! Reads the fields of a `providerSpec`, and reports unknown ones.

use serde_json::Value;

use super::types::{BlockDevice, CapacityReservation, CpuOptions, MetadataOptions, NetworkInterface, Placement, Spec};
use crate::names::PLACEMENT_ANNOTATION;
use mcm_driver::{
    cloud::{filled, known, number, required_known},
    spec::{ClassProblems, FieldReader, ScalarType, boolean, one_of, string, text},
};

const FIELDS: [&str; 19] = [
    "apiVersion",
    "ami",
    "region",
    "machineType",
    "iam",
    "keyName",
    "blockDevices",
    "capacityReservation",
    "networkInterfaces",
    "spotPrice",
    "instanceMarketOptions",
    "srcAndDstChecksEnabled",
    "tags",
    "instanceMetadataOptions",
    "cpuOptions",
    "placement",
    "ebsOptimized",
    "monitoring",
    "userDataStore",
];
const DEVICE_FIELDS: [&str; 4] = ["deviceName", "ebs", "noDevice", "virtualName"];
const EBS_FIELDS: [&str; 8] =
    ["volumeType", "volumeSize", "iops", "throughput", "encrypted", "deleteOnTermination", "snapshotID", "kmsKeyID"];
const RESERVATION_FIELDS: [&str; 3] =
    ["capacityReservationPreference", "capacityReservationId", "capacityReservationResourceGroupArn"];
const INTERFACE_FIELDS: [&str; 11] = [
    "subnetID",
    "securityGroupIDs",
    "associatePublicIPAddress",
    "description",
    "deleteOnTermination",
    "deviceIndex",
    "networkCardIndex",
    "interfaceType",
    "ipv6AddressCount",
    "primaryIpv6",
    "ipv6PrefixCount",
];
const METADATA_FIELDS: [&str; 4] = ["httpEndpoint", "httpTokens", "httpProtocolIpv6", "httpPutResponseHopLimit"];
const CPU_FIELDS: [&str; 3] = ["coreCount", "threadsPerCore", "amdSevSnp"];
const PLACEMENT_FIELDS: [&str; 5] = ["tenancy", "hostId", "groupId", "partitionNumber", "affinity"];
const ANNOTATION_FIELDS: [&str; 10] = [
    "affinity",
    "availabilityZone",
    "availabilityZoneId",
    "groupId",
    "groupName",
    "hostId",
    "hostResourceGroupArn",
    "partitionNumber",
    "spreadDomain",
    "tenancy",
];

/// Stores of user data. An unknown one must not lead to user data in EC2.
const STORES: [&str; 1] = ["SecretsManager"];
const VOLUME_TYPES: [&str; 7] = ["gp2", "gp3", "io1", "io2", "st1", "sc1", "standard"];
const MARKET_TYPES: [&str; 3] = ["spot", "capacity-block", "interruptible-capacity-reservation"];
const PREFERENCES: [&str; 3] = ["open", "none", "capacity-reservations-only"];
const INTERFACE_TYPES: [&str; 3] = ["interface", "efa", "efa-only"];
const SWITCH: [&str; 2] = ["enabled", "disabled"];
const TOKENS: [&str; 2] = ["required", "optional"];
const TENANCIES: [&str; 3] = ["default", "dedicated", "host"];
const AFFINITIES: [&str; 2] = ["default", "host"];

pub(super) fn spec(value: &Value, problems: &mut ClassProblems) -> Spec {
    if value.is_null() {
        problems.expected("providerSpec", "an object", "nothing");
    }
    let mut fields = FieldReader::of_spec(value, &FIELDS, problems);
    fields.optional("apiVersion", &text());
    fields.optional("ebsOptimized", &boolean());
    fields.optional("monitoring", &boolean());
    let profile = fields.object("iam", &["name", "arn"], |iam| Some((filled(iam, "name"), filled(iam, "arn"))));
    let (profile_name, profile_arn) = profile.unwrap_or_default();
    Spec {
        ami: fields.required("ami", &string()).unwrap_or_default(),
        region: fields.required("region", &string()).unwrap_or_default(),
        machine_type: fields.required("machineType", &string()).unwrap_or_default(),
        profile_name,
        profile_arn,
        key_name: filled(&mut fields, "keyName"),
        block_devices: fields.objects("blockDevices", &DEVICE_FIELDS, |device| Some(block_device(device))),
        capacity_reservation: fields.object("capacityReservation", &RESERVATION_FIELDS, |reservation| {
            Some(CapacityReservation {
                preference: known(reservation, "capacityReservationPreference", &PREFERENCES),
                resource_group_arn: filled(reservation, "capacityReservationResourceGroupArn"),
                id: filled(reservation, "capacityReservationId"),
            })
        }),
        network_interfaces: fields.objects("networkInterfaces", &INTERFACE_FIELDS, |one| Some(interface(one))),
        spot_price: fields.optional("spotPrice", &text()),
        market_type: fields.object("instanceMarketOptions", &["marketType"], |market| {
            required_known(market, "marketType", &MARKET_TYPES)
        }),
        source_dest_check: fields.optional("srcAndDstChecksEnabled", &boolean()),
        tags: fields.map("tags", &text()),
        metadata_options: fields.object("instanceMetadataOptions", &METADATA_FIELDS, |options| {
            Some(MetadataOptions {
                endpoint: known(options, "httpEndpoint", &SWITCH),
                tokens: known(options, "httpTokens", &TOKENS),
                protocol_ipv6: known(options, "httpProtocolIpv6", &SWITCH),
                hop_limit: options.optional("httpPutResponseHopLimit", &number(0, 64)),
            })
        }),
        cpu_options: fields.object("cpuOptions", &CPU_FIELDS, |cpu| {
            Some(CpuOptions {
                core_count: cpu.optional("coreCount", &number(1, i32::MAX)),
                threads_per_core: cpu.optional("threadsPerCore", &number(1, 2)),
                amd_sev_snp: known(cpu, "amdSevSnp", &SWITCH),
            })
        }),
        placement: fields
            .object("placement", &PLACEMENT_FIELDS, |one| Some(placement(one)))
            .filter(|placement| *placement != Placement::default()),
        has_user_data_store: fields.optional("userDataStore", &one_of(&STORES)).is_some(),
    }
}

pub(super) fn annotated_placement(value: &Value, problems: &mut ClassProblems) -> Placement {
    let path = format!("annotation {}", PLACEMENT_ANNOTATION);
    let mut fields = FieldReader::from_value(path, value, &ANNOTATION_FIELDS, problems);
    Placement {
        affinity: filled(&mut fields, "affinity"),
        availability_zone: filled(&mut fields, "availabilityZone"),
        availability_zone_id: filled(&mut fields, "availabilityZoneId"),
        group_id: filled(&mut fields, "groupId"),
        group_name: filled(&mut fields, "groupName"),
        host_id: filled(&mut fields, "hostId"),
        host_resource_group_arn: filled(&mut fields, "hostResourceGroupArn"),
        partition_number: fields.optional("partitionNumber", &number(1, i32::MAX)),
        spread_domain: filled(&mut fields, "spreadDomain"),
        tenancy: filled(&mut fields, "tenancy"),
    }
}

fn block_device(device: &mut FieldReader<'_>) -> BlockDevice {
    for ignored in ["noDevice", "virtualName"] {
        device.optional(ignored, &text());
    }
    let name = device.optional("deviceName", &text()).unwrap_or_default();
    let ebs = device.required_object("ebs", &EBS_FIELDS, |ebs| {
        ebs.optional("kmsKeyID", &text());
        Some(BlockDevice {
            device_name: String::new(),
            volume_type: required_known(ebs, "volumeType", &VOLUME_TYPES).unwrap_or_default(),
            volume_size: ebs.required("volumeSize", &number(1, i32::MAX)).unwrap_or_default(),
            iops: ebs.optional("iops", &number(0, i32::MAX)).unwrap_or_default(),
            throughput: ebs.optional("throughput", &number(1, i32::MAX)),
            encrypted: ebs.optional("encrypted", &boolean()).unwrap_or_default(),
            delete_on_termination: ebs.optional("deleteOnTermination", &boolean()).unwrap_or(true),
            snapshot_id: filled(ebs, "snapshotID"),
        })
    });
    BlockDevice { device_name: name, ..ebs.unwrap_or_default() }
}

fn interface(fields: &mut FieldReader<'_>) -> NetworkInterface {
    NetworkInterface {
        subnet_id: fields.required("subnetID", &string()).unwrap_or_default(),
        security_group_ids: fields.list("securityGroupIDs", &word()),
        associate_public_ip_address: fields.optional("associatePublicIPAddress", &boolean()),
        description: fields.optional("description", &text()),
        delete_on_termination: fields.optional("deleteOnTermination", &boolean()).unwrap_or(true),
        device_index: fields.optional("deviceIndex", &number(0, i32::MAX)),
        network_card_index: fields.optional("networkCardIndex", &number(0, i32::MAX)),
        interface_type: known(fields, "interfaceType", &INTERFACE_TYPES),
        ipv6_address_count: fields.optional("ipv6AddressCount", &number(0, i32::MAX)),
        primary_ipv6: fields.optional("primaryIpv6", &boolean()),
        ipv6_prefix_count: fields.optional("ipv6PrefixCount", &number(0, i32::MAX)),
    }
}

fn placement(fields: &mut FieldReader<'_>) -> Placement {
    Placement {
        tenancy: known(fields, "tenancy", &TENANCIES),
        host_id: filled(fields, "hostId"),
        group_id: filled(fields, "groupId"),
        partition_number: fields.optional("partitionNumber", &number(1, i32::MAX)),
        affinity: known(fields, "affinity", &AFFINITIES),
        ..Placement::default()
    }
}

/// A text that is not blank.
fn word() -> ScalarType<String> {
    let parse = |value: &Value| value.as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned);
    ScalarType::new("a string that is not blank", parse)
}
