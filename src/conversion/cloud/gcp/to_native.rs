use serde_json::{Map, Value, json};

use super::shared::{LOCAL_SSD, SCRATCH};
use crate::{
    answers::TemplateQuestion,
    cloud::{
        fields::{UnreadFields, filled, object, text},
        provider::ProviderTemplate,
    },
    report::ConversionReport,
};

const CLUSTER_TAG: &str = "kubernetes-io-cluster-";
const ROLE_TAG: &str = "kubernetes-io-role-";
const DISK_TYPE: &str = "pd-standard";
/// Sizes of disks in GB: of a local one, and of one without a size.
const LOCAL_SSD_SIZE: i64 = 375;
const DISK_SIZE: i64 = 30;
const ON_OFF: [(&str, &str); 2] = [("Enabled", ON), ("Disabled", OFF)];
const ON: &str = "on";
const OFF: &str = "off";

/// The `providerSpec` of a template.
pub fn to_native(template: &ProviderTemplate<'_>, report: &mut ConversionReport) -> Value {
    let &ProviderTemplate { machine_spec, cluster_name, cluster, zones, path, .. } = template;
    if zones.len() > 1 {
        let reason = format!("it is used in the zones {}, and an MCM class has one", zones.join(", "));
        report.refuse("", reason, "create a template for each zone");
    }
    let zone = zone_of(template);
    let mut given = UnreadFields::from_value(path, machine_spec.clone(), report);
    given.refuse("providerID", report, "a template is for many VMs", "remove it");
    given.refuse("resourceManagerTags", report, "MCM does not support resource manager tags", "remove them");
    let region = cluster.pointer("/spec/region").and_then(Value::as_str).unwrap_or_default();
    if region.is_empty() {
        report.refuse("", "the region is not known", template.advice_for("GCPCluster"));
    }
    if zone.is_empty() && zones.len() < 2 {
        let reason = "the deployment has no failureDomain: the provider takes the first zone of the region";
        report.ask("", TemplateQuestion::Zone, reason);
    }
    if given.choice("confidentialCompute", &ON_OFF, report) == Some(ON) {
        let reason = "MCM does not support confidential computing";
        report.refuse(given.path("confidentialCompute"), reason, "remove it");
    }
    let labels = labels(&mut given, cluster, report);
    let gpu = gpu(&mut given, report);
    let account = given
        .take("serviceAccounts")
        .unwrap_or_else(|| json!({ "email": "default", "scopes": ["https://www.googleapis.com/auth/cloud-platform"] }));
    let forwards = given.choice("ipForwarding", &ON_OFF, report) != Some(OFF);
    let made = object([
        ("region", text(region)),
        ("zone", text(zone)),
        ("machineType", text(given.required("instanceType", report, "is required", "name the type of the VM"))),
        ("canIpForward", Some(forwards.into())),
        ("deletionProtection", Some(false.into())),
        ("disks", Some(disks(&mut given, template, labels.as_ref(), report).into())),
        ("scheduling", Some(scheduling(&mut given, gpu.is_some(), report))),
        ("gpu", gpu),
        ("labels", labels),
        ("metadata", metadata(&mut given, report)),
        ("networkInterfaces", Some(json!([interface(&mut given, cluster, report)]))),
        ("serviceAccounts", Some(json!([account]))),
        ("tags", Some(tags(&mut given, cluster_name, report).into())),
        ("shieldedInstanceConfiguration", shielded(&mut given, report)),
    ]);
    given.finish(report);
    made.into()
}

/// The zone of the deployment, or else the answer of the user, or else the first zone of the cluster.
fn zone_of<'a>(template: &'a ProviderTemplate<'_>) -> &'a str {
    let of_cluster = || {
        let shown = template.cluster.pointer("/status/failureDomains").and_then(Value::as_object);
        let listed = template.cluster.pointer("/spec/failureDomains").and_then(Value::as_array);
        let listed = || listed.into_iter().flatten().filter_map(Value::as_str).min();
        shown.and_then(|shown| shown.keys().min()).map(String::as_str).or_else(listed)
    };
    let is_open = template.zones.len() < 2;
    let found = template.zone().or_else(|| template.answer(TemplateQuestion::Zone)).or_else(of_cluster);
    found.filter(|_| is_open).unwrap_or_default()
}

/// Labels of cluster and machine.
fn labels(given: &mut UnreadFields, cluster: &Value, report: &mut ConversionReport) -> Option<Value> {
    let of_cluster = cluster.pointer("/spec/additionalLabels").and_then(Value::as_object).cloned();
    let mut labels = of_cluster.unwrap_or_default();
    labels.extend(given.map("additionalLabels", report));
    filled(labels)
}

fn disks(
    given: &mut UnreadFields,
    template: &ProviderTemplate<'_>,
    labels: Option<&Value>,
    report: &mut ConversionReport,
) -> Vec<Value> {
    let family = given.text("imageFamily", report);
    let image = given.text("image", report);
    let named = [image, family].into_iter().find(|image| !image.is_empty());
    let image = named.or_else(|| template.answer(TemplateQuestion::Image).map(str::to_owned)).unwrap_or_default();
    if image.is_empty() {
        let reason = "the provider takes an image by the version of Kubernetes, and MCM does not";
        report.ask(given.path("image"), TemplateQuestion::Image, reason);
    }
    let root = object([
        ("autoDelete", Some(true.into())),
        ("boot", Some(true.into())),
        ("image", text(image)),
        ("sizeGb", given.filled("rootDeviceSize")),
        ("type", Some(disk_type(given.text("rootDeviceType", report)).into())),
        ("labels", labels.cloned()),
        ("encryption", encryption(given.object("rootDiskEncryptionKey", report), report)),
    ]);
    let others = given.objects("additionalDisks", report).into_iter().map(|other| disk(other, report));
    std::iter::once(root).chain(others).map(Value::Object).collect()
}

fn disk(mut disk: UnreadFields, report: &mut ConversionReport) -> Map<String, Value> {
    let type_ = disk_type(disk.text("deviceType", report));
    let size = disk.filled("size").unwrap_or_else(|| DISK_SIZE.into());
    let is_local = type_ == LOCAL_SSD;
    let made = object([
        ("autoDelete", Some(true.into())),
        ("boot", Some(false.into())),
        ("sizeGb", Some(if is_local { LOCAL_SSD_SIZE.into() } else { size })),
        ("type", Some(if is_local { SCRATCH.into() } else { type_.into() })),
        ("interface", is_local.then(|| "NVME".into())),
        ("encryption", encryption(disk.object("encryptionKey", report), report)),
    ]);
    disk.finish(report);
    made
}

fn disk_type(given: String) -> String {
    if given.is_empty() { DISK_TYPE.to_owned() } else { given }
}

fn encryption(mut key: UnreadFields, report: &mut ConversionReport) -> Option<Value> {
    if key.is_empty() {
        return None;
    }
    // A supplied key is confidential, so it is refused and never noted.
    let reason = "MCM supports only keys of the key management service";
    key.refuse("suppliedKey", report, reason, "use a managed key");
    if key.text("keyType", report) != "Managed" {
        report.refuse(key.path("keyType"), reason, "use Managed");
    }
    let mut managed = key.object("managedKey", report);
    let name = managed.text("kmsKeyName", report);
    managed.finish(report);
    let account = key.text("kmsKeyServiceAccount", report);
    key.finish(report);
    filled(object([("kmsKeyName", text(name)), ("kmsKeyServiceAccount", text(account))]))
}

/// The tags that the provider gives a worker, and the two by which the native driver finds its VMs.
fn tags(given: &mut UnreadFields, cluster_name: &str, report: &mut ConversionReport) -> Vec<Value> {
    let mut tags = given.list("additionalNetworkTags", report);
    for tag in [format!("{cluster_name}-node"), cluster_name.to_owned()] {
        if !tags.contains(&Value::String(tag.clone())) {
            tags.push(tag.into());
        }
    }
    for (part, tag) in [(CLUSTER_TAG, cluster_name), (ROLE_TAG, "node")] {
        if !tags.iter().filter_map(Value::as_str).any(|other| other.contains(part)) {
            tags.push(format!("{part}{tag}").into());
        }
    }
    tags
}

fn metadata(given: &mut UnreadFields, report: &mut ConversionReport) -> Option<Value> {
    let items = given.list("additionalMetadata", report);
    for (index, _) in items.iter().enumerate().filter(|(_, item)| item["key"] == "user-data") {
        let path = format!("{}[{index}].key", given.path("additionalMetadata"));
        report.refuse(path, "MCM uses user-data for the bootstrap data", "use another key");
    }
    filled(items)
}

fn interface(given: &mut UnreadFields, cluster: &Value, report: &mut ConversionReport) -> Value {
    let network = cluster.pointer("/spec/network/name").and_then(Value::as_str).unwrap_or("default");
    let region = cluster.pointer("/spec/region").and_then(Value::as_str).unwrap_or_default();
    // In a Shared VPC both are those of its host.
    let host = cluster.pointer("/spec/network/hostProject").and_then(Value::as_str).filter(|host| !host.is_empty());
    let in_host = |name: &str, folder: &str| match host.filter(|_| !name.is_empty()) {
        Some(host) => format!("projects/{host}/{folder}/{name}"),
        None => name.to_owned(),
    };
    let subnetwork = in_host(&given.text("subnet", report), &format!("regions/{region}/subnetworks"));
    let mut range = given.only("aliasIPRanges", report, "MCM supports one range");
    let is_public = given.flag("publicIP", report) == Some(true);
    let mut of_range = |name: &str| range.as_mut().and_then(|range| range.take(name));
    let made = object([
        ("network", text(in_host(network, "global/networks"))),
        ("subnetwork", text(subnetwork)),
        ("disableExternalIP", Some((!is_public).into())),
        ("ipCidrRange", of_range("ipCidrRange")),
        ("subnetworkRangeName", of_range("subnetworkRangeName")),
        ("useAliasIPs", range.is_some().then_some(true.into())),
    ]);
    if let Some(range) = range {
        range.finish(report);
    }
    made.into()
}

fn gpu(given: &mut UnreadFields, report: &mut ConversionReport) -> Option<Value> {
    let mut gpu = given.only("guestAccelerators", report, "MCM supports GPUs of one type per VM")?;
    // Natively the last part of the URL is enough.
    let type_ = gpu.text("type", report);
    let type_ = type_.rsplit('/').next().unwrap_or_default();
    let made = object([("acceleratorType", text(type_)), ("count", gpu.take("count"))]);
    gpu.finish(report);
    Some(made.into())
}

fn scheduling(given: &mut UnreadFields, has_gpu: bool, report: &mut ConversionReport) -> Value {
    let preemptible = given.flag("preemptible", report) == Some(true);
    if given.choice("provisioningModel", &[("Standard", "Standard"), ("Spot", "Spot")], report) == Some("Spot") {
        let reason = "MCM supports preemptible VMs, not spot VMs";
        report.refuse(given.path("provisioningModel"), reason, "use preemptible");
    }
    let maintenance = given.choice("onHostMaintenance", &[("Migrate", "MIGRATE"), ("Terminate", "TERMINATE")], report);
    // These VMs cannot migrate.
    let maintenance = if has_gpu || preemptible { "TERMINATE" } else { maintenance.unwrap_or("MIGRATE") };
    json!({ "automaticRestart": !preemptible, "onHostMaintenance": maintenance, "preemptible": preemptible })
}

fn shielded(given: &mut UnreadFields, report: &mut ConversionReport) -> Option<Value> {
    if !given.has("shieldedInstanceConfig") {
        return None;
    }
    let mut config = given.object("shieldedInstanceConfig", report);
    let mut is_on = |name: &str, default: &str| config.choice(name, &ON_OFF, report).unwrap_or(default) == ON;
    let made = json!({
        "secureBoot": is_on("secureBoot", OFF),
        "vtpm": is_on("virtualizedTrustedPlatformModule", ON),
        "integrityMonitoring": is_on("integrityMonitoring", ON),
    });
    config.finish(report);
    Some(made)
}
