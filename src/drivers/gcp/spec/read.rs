//! Reads the fields of a `providerSpec`, and reports unknown ones.

use serde_json::Value;

use super::types::{DUAL_STACK, Disk, Encryption, Gpu, NetworkInterface, Scheduling, ServiceAccount, Shielded, Spec};
use mcm_driver::{
    cloud::{choice, filled, number},
    spec::{ClassProblems, FieldReader, ScalarType, boolean, one_of, string, text},
};

const FIELDS: [&str; 18] = [
    "apiVersion",
    "region",
    "zone",
    "machineType",
    "canIpForward",
    "deletionProtection",
    "description",
    "disks",
    "gpu",
    "labels",
    "metadata",
    "minCpuPlatform",
    "networkInterfaces",
    "scheduling",
    "serviceAccounts",
    "tags",
    "shieldedInstanceConfiguration",
    "advancedMachineFeatures",
];
const DISK_FIELDS: [&str; 11] = [
    "autoDelete",
    "boot",
    "sizeGb",
    "type",
    "interface",
    "image",
    "encryption",
    "labels",
    "provisionedIops",
    "provisionedThroughput",
    "storagePool",
];
const ENCRYPTION_FIELDS: [&str; 2] = ["kmsKeyName", "kmsKeyServiceAccount"];
const INTERFACE_FIELDS: [&str; 8] = [
    "disableExternalIP",
    "network",
    "subnetwork",
    "stackType",
    "ipv6accessType",
    "useAliasIPs",
    "ipCidrRange",
    "subnetworkRangeName",
];
const SCHEDULING_FIELDS: [&str; 3] = ["automaticRestart", "onHostMaintenance", "preemptible"];
const SHIELDED_FIELDS: [&str; 3] = ["integrityMonitoring", "secureBoot", "vtpm"];

const STACK_TYPES: [&str; 2] = [DUAL_STACK, "IPV4_ONLY"];
const IPV6_ACCESS_TYPES: [&str; 2] = ["EXTERNAL", "INTERNAL"];
const MAINTENANCE: [&str; 2] = ["MIGRATE", "TERMINATE"];

pub(super) fn spec(value: &Value, problems: &mut ClassProblems) -> Spec {
    if value.is_null() {
        problems.expected("providerSpec", "an object", "nothing");
    }
    let mut fields = FieldReader::of_spec(value, &FIELDS, problems);
    fields.optional("apiVersion", &text());
    Spec {
        region: fields.required("region", &string()).unwrap_or_default(),
        zone: fields.required("zone", &string()).unwrap_or_default(),
        machine_type: fields.required("machineType", &string()).unwrap_or_default(),
        can_ip_forward: flag(&mut fields, "canIpForward"),
        deletion_protection: flag(&mut fields, "deletionProtection"),
        description: filled(&mut fields, "description"),
        disks: fields.objects("disks", &DISK_FIELDS, |one| Some(disk(one))),
        gpu: fields.object("gpu", &["acceleratorType", "count"], |gpu| {
            Some(Gpu {
                accelerator_type: gpu.required("acceleratorType", &string()).unwrap_or_default(),
                count: gpu.required("count", &number(1, i32::MAX)).unwrap_or_default(),
            })
        }),
        labels: fields.map("labels", &text()),
        metadata: fields.objects("metadata", &["key", "value"], |item| {
            Some((item.optional("key", &text()).unwrap_or_default(), item.optional("value", &text())))
        }),
        min_cpu_platform: filled(&mut fields, "minCpuPlatform"),
        network_interfaces: fields.objects("networkInterfaces", &INTERFACE_FIELDS, |one| Some(interface(one))),
        scheduling: fields
            .required_object("scheduling", &SCHEDULING_FIELDS, |one| Some(scheduling(one)))
            .unwrap_or_default(),
        service_accounts: fields.objects("serviceAccounts", &["email", "scopes"], |one| {
            Some(ServiceAccount { email: filled(one, "email"), scopes: one.list("scopes", &text()) })
        }),
        tags: fields.list("tags", &text()),
        shielded: fields.object("shieldedInstanceConfiguration", &SHIELDED_FIELDS, |one| {
            Some(Shielded {
                integrity_monitoring: one.optional("integrityMonitoring", &boolean()),
                secure_boot: one.optional("secureBoot", &boolean()),
                vtpm: one.optional("vtpm", &boolean()),
            })
        }),
        nested_virtualization: fields.object("advancedMachineFeatures", &["enableNestedVirtualization"], |one| {
            Some(flag(one, "enableNestedVirtualization"))
        }),
    }
}

fn disk(fields: &mut FieldReader<'_>) -> Disk {
    Disk {
        auto_delete: fields.optional("autoDelete", &boolean()).unwrap_or(true),
        boot: flag(fields, "boot"),
        size: amount(fields, "sizeGb"),
        kind: fields.required("type", &string()).unwrap_or_default(),
        // Any text: only that of a local SSD is sent, and checked.
        interface: filled(fields, "interface"),
        image: filled(fields, "image"),
        encryption: fields.object("encryption", &ENCRYPTION_FIELDS, |one| {
            Some(Encryption {
                key: one.required("kmsKeyName", &word()).unwrap_or_default(),
                service_account: one.optional("kmsKeyServiceAccount", &word_or_nothing()).filter(|it| !it.is_empty()),
            })
        }),
        labels: fields.map("labels", &text()),
        iops: amount(fields, "provisionedIops"),
        throughput: amount(fields, "provisionedThroughput"),
        storage_pool: filled(fields, "storagePool"),
    }
}

fn interface(fields: &mut FieldReader<'_>) -> NetworkInterface {
    NetworkInterface {
        disable_external_ip: flag(fields, "disableExternalIP"),
        network: filled(fields, "network"),
        subnetwork: filled(fields, "subnetwork"),
        stack_type: choice(fields, "stackType", &STACK_TYPES),
        ipv6_access_type: choice(fields, "ipv6accessType", &IPV6_ACCESS_TYPES),
        use_alias_ips: flag(fields, "useAliasIPs"),
        ip_cidr_range: fields.optional("ipCidrRange", &prefix_length()).filter(|text| !text.is_empty()),
        range_name: filled(fields, "subnetworkRangeName"),
    }
}

fn scheduling(fields: &mut FieldReader<'_>) -> Scheduling {
    Scheduling {
        automatic_restart: flag(fields, "automaticRestart"),
        on_host_maintenance: fields.required("onHostMaintenance", &one_of(&MAINTENANCE)).unwrap_or_default().to_owned(),
        preemptible: flag(fields, "preemptible"),
    }
}

fn flag(fields: &mut FieldReader<'_>, name: &'static str) -> bool {
    fields.optional(name, &boolean()).unwrap_or_default()
}

/// A number of which zero counts as absent.
fn amount(fields: &mut FieldReader<'_>, name: &'static str) -> i64 {
    fields.optional(name, &number(0, i64::MAX)).unwrap_or_default()
}

/// A text that is not blank, trimmed.
fn word() -> ScalarType<String> {
    let parse = |value: &Value| value.as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    ScalarType::new("a string that is not blank", parse)
}

/// The same, or an empty one.
fn word_or_nothing() -> ScalarType<String> {
    let parse = |value: &Value| {
        value.as_str().filter(|text| text.is_empty() || !text.trim().is_empty()).map(|text| text.trim().to_owned())
    };
    ScalarType::new("an empty string or one that is not blank", parse)
}

/// `/0` to `/32`, or an empty text.
fn prefix_length() -> ScalarType<String> {
    let is_valid = |text: &&str| {
        let length = text.strip_prefix('/').and_then(|length| length.parse::<u8>().ok());
        text.is_empty() || length.is_some_and(|length| length <= 32)
    };
    ScalarType::new("a prefix length from /0 to /32", move |value| value.as_str().filter(is_valid).map(str::to_owned))
}
