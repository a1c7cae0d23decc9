use serde_json::{Map, Value, json};

use super::shared::{LOCAL_SSD, SCRATCH};
use crate::{
    cloud::fields::{UnreadFields, filled, object, text},
    report::ConversionReport,
};

/// The spec of a machine with this `providerSpec`.
pub fn to_capi(spec: &Value, report: &mut ConversionReport) -> Value {
    let mut given = UnreadFields::from_value("providerSpec", spec.clone(), report);
    // Region and zone are those of the cluster and the deployment; the driver also ignores a secretRef.
    for name in ["apiVersion", "region", "zone", "secretRef"] {
        given.take(name);
    }
    given.refuse("deletionProtection", report, "Cluster API deletes its VMs", "remove it");
    given.lose("description", report, "is not known to Cluster API", "");
    given.refuse("minCpuPlatform", report, "is not known to Cluster API: VMs would get other CPUs", "remove it");
    given.refuse("advancedMachineFeatures", report, "is not known to Cluster API", "remove it");
    let forwards = given.flag("canIpForward", report) == Some(true);
    let labels = given.filled("labels");
    let mut made = disks(&mut given, labels.as_ref(), report);
    if let Some(interface) = given.only("networkInterfaces", report, "Cluster API makes one interface") {
        made.extend(network(interface, report));
    }
    made.extend(scheduling(&mut given, report));
    made.extend(object([
        ("instanceType", text(given.text("machineType", report))),
        ("additionalLabels", labels),
        ("additionalMetadata", given.filled("metadata")),
        ("additionalNetworkTags", given.filled("tags")),
        ("serviceAccounts", account(&mut given, report)),
        ("ipForwarding", Some(policy(forwards))),
        ("shieldedInstanceConfig", shielded(&mut given, report)),
        ("guestAccelerators", accelerators(&mut given, report)),
    ]));
    given.finish(report);
    made.into()
}

fn policy(is_on: bool) -> Value {
    Value::from(if is_on { "Enabled" } else { "Disabled" })
}

fn account(given: &mut UnreadFields, report: &mut ConversionReport) -> Option<Value> {
    let mut accounts = given.list("serviceAccounts", report);
    if accounts.len() != 1 {
        let reason = "Cluster API gives a VM exactly one service account";
        report.refuse(given.path("serviceAccounts"), reason, "name one");
    }
    accounts.pop()
}

fn accelerators(given: &mut UnreadFields, report: &mut ConversionReport) -> Option<Value> {
    let mut gpu = given.object("gpu", report);
    let type_ = gpu.filled("acceleratorType");
    let count = gpu.filled("count");
    gpu.finish(report);
    type_.map(|type_| json!([{ "type": type_, "count": count }]))
}

fn scheduling(given: &mut UnreadFields, report: &mut ConversionReport) -> Map<String, Value> {
    let mut scheduling = given.object("scheduling", report);
    let preemptible = scheduling.flag("preemptible", report) == Some(true);
    let restarts = scheduling.flag("automaticRestart", report) == Some(true);
    if restarts == preemptible {
        let reason = "Cluster API restarts VMs unless they are preemptible";
        report.refuse(scheduling.path("automaticRestart"), reason, format!("set {}", !preemptible));
    }
    let known = [("MIGRATE", "Migrate"), ("TERMINATE", "Terminate")];
    let maintenance = scheduling.choice("onHostMaintenance", &known, report);
    scheduling.finish(report);
    object([("preemptible", preemptible.then_some(true.into())), ("onHostMaintenance", maintenance.map(Value::from))])
}

/// The name of the subnetwork. One of a Shared VPC is in the host project of the GCPCluster.
fn subnet(interface: &mut UnreadFields, report: &mut ConversionReport) -> String {
    let subnetwork = interface.text("subnetwork", report);
    match subnetwork.rsplit_once('/') {
        Some((_, name)) => {
            let reason = format!("a template has the name of a subnetwork, and {subnetwork} is a path");
            report.lose(interface.path("subnetwork"), reason, "set network.hostProject in the GCPCluster");
            name.to_owned()
        }
        None => subnetwork,
    }
}

fn network(mut interface: UnreadFields, report: &mut ConversionReport) -> Map<String, Value> {
    // The network is that of the cluster.
    interface.take("network");
    let is_private = interface.flag("disableExternalIP", report) == Some(true);
    let uses_ranges = interface.flag("useAliasIPs", report) == Some(true);
    let range = object([
        ("ipCidrRange", interface.filled("ipCidrRange")),
        ("subnetworkRangeName", interface.filled("subnetworkRangeName")),
    ]);
    if interface.choice("stackType", &[("IPV4_ONLY", "4"), ("IPV4_IPV6", "6")], report) == Some("6") {
        report.refuse(interface.path("stackType"), "Cluster API gives a VM no IPv6 address", "use IPV4_ONLY");
    }
    let made = object([
        ("subnet", text(subnet(&mut interface, report))),
        ("publicIP", Some((!is_private).into())),
        ("aliasIPRanges", uses_ranges.then(|| json!([range]))),
    ]);
    interface.finish(report);
    made
}

fn disks(given: &mut UnreadFields, labels: Option<&Value>, report: &mut ConversionReport) -> Map<String, Value> {
    let mut made = Map::new();
    let mut roots = 0;
    let mut others = Vec::new();
    for mut disk in given.objects("disks", report) {
        let is_boot = disk.flag("boot", report) == Some(true);
        check_disk(&mut disk, is_boot, labels, report);
        let size = disk.filled("sizeGb");
        let type_ = disk.filled("type");
        let encryption = disk.has("encryption").then(|| encryption(disk.object("encryption", report), report));
        if is_boot {
            roots += 1;
            made.extend(object([
                ("image", disk.take("image")),
                ("rootDeviceSize", size),
                ("rootDeviceType", type_),
                ("rootDiskEncryptionKey", encryption),
            ]));
        } else {
            let is_local = type_.as_ref().is_some_and(|type_| type_ == SCRATCH);
            if is_local && disk.text("interface", report) != "NVME" {
                report.refuse(disk.path("interface"), "Cluster API attaches local disks by NVMe", "use NVME");
            }
            let type_ = if is_local { Some(LOCAL_SSD.into()) } else { type_ };
            let size = size.filter(|_| !is_local);
            others.push(object([("deviceType", type_), ("size", size), ("encryptionKey", encryption)]).into());
        }
        // It has an effect on local disks only.
        disk.take("interface");
        disk.finish(report);
    }
    if roots != 1 {
        let reason = "Cluster API gives a VM exactly one disk to boot from";
        report.refuse(given.path("disks"), reason, "mark one with boot");
    }
    made.extend(object([("additionalDisks", filled(Value::Array(others)))]));
    made
}

fn check_disk(disk: &mut UnreadFields, is_boot: bool, labels: Option<&Value>, report: &mut ConversionReport) {
    if disk.flag("autoDelete", report) == Some(false) {
        report.refuse(disk.path("autoDelete"), "Cluster API deletes disks with the VM", "remove it");
    }
    for name in ["provisionedIops", "provisionedThroughput", "storagePool"] {
        disk.refuse(name, report, "is not known to Cluster API: the disk would differ", "remove it");
    }
    let given = disk.filled("labels");
    let is_expected = if is_boot { given.as_ref() == labels } else { given.is_none() };
    if !is_expected {
        let reason = "Cluster API gives the root disk the labels of the VM, and others none";
        report.lose(disk.path("labels"), reason, "");
    }
}

fn encryption(mut key: UnreadFields, report: &mut ConversionReport) -> Value {
    let name = key.text("kmsKeyName", report);
    let account = key.text("kmsKeyServiceAccount", report);
    key.finish(report);
    let made = object([
        ("keyType", Some("Managed".into())),
        ("managedKey", Some(json!({ "kmsKeyName": name }))),
        ("kmsKeyServiceAccount", text(account)),
    ]);
    made.into()
}

fn shielded(given: &mut UnreadFields, report: &mut ConversionReport) -> Option<Value> {
    if !given.has("shieldedInstanceConfiguration") {
        return None;
    }
    let mut config = given.object("shieldedInstanceConfiguration", report);
    let mut of = |name: &str| config.flag(name, report).map(policy);
    let made = object([
        ("secureBoot", of("secureBoot")),
        ("virtualizedTrustedPlatformModule", of("vtpm")),
        ("integrityMonitoring", of("integrityMonitoring")),
    ]);
    config.finish(report);
    Some(made.into())
}
