use serde_json::{Map, Value, json};

use super::shared::{ROOT, SECRETS_MANAGER, SNP, USER_DATA_STORE, metadata_options};
use crate::{
    cloud::fields::{UnreadFields, filled, object, text},
    report::ConversionReport,
};

const NOT_HONOURED: &str = "is not honoured by the MCM driver either";

/// The spec of a machine with this `providerSpec`.
pub fn to_capi(spec: &Value, report: &mut ConversionReport) -> Value {
    let mut given = UnreadFields::from_value("providerSpec", spec.clone(), report);
    // The region is that of the cluster.
    for name in ["apiVersion", "region"] {
        given.take(name);
    }
    for name in ["ebsOptimized", "monitoring"] {
        given.lose(name, report, NOT_HONOURED, "");
    }
    if given.flag("srcAndDstChecksEnabled", report) == Some(false) {
        let reason = "Cluster API does not switch the check off";
        report.refuse(given.path("srcAndDstChecksEnabled"), reason, "remove it");
    }
    let mut made = object([
        ("ami", Some(json!({ "id": given.text("ami", report) }))),
        ("instanceType", text(given.text("machineType", report))),
        ("iamInstanceProfile", text(profile(&mut given, report))),
        // Absent means the key of the cluster.
        ("sshKeyName", Some(given.text("keyName", report).into())),
        ("additionalTags", given.take("tags")),
        ("instanceMetadataOptions", metadata_options(&mut given, report)),
        ("cpuOptions", cpu_options(&mut given, report)),
        ("cloudInit", cloud_init(&mut given, report)),
    ]);
    if let Some(interface) = given.only("networkInterfaces", report, "Cluster API makes one interface") {
        made.extend(network(interface, report));
    }
    made.extend(volumes(&mut given, report));
    made.extend(placement(&mut given, report));
    made.extend(market(&mut given, report));
    given.finish(report);
    made.into()
}

fn profile(given: &mut UnreadFields, report: &mut ConversionReport) -> String {
    let mut iam = given.object("iam", report);
    let profile = iam.text("name", report);
    iam.refuse("arn", report, "Cluster API refers to a profile by name, not by ARN", "set iam.name");
    iam.finish(report);
    profile
}

fn cpu_options(given: &mut UnreadFields, report: &mut ConversionReport) -> Option<Value> {
    let mut cpu = given.object("cpuOptions", report);
    let policy = cpu.choice("amdSevSnp", &[("enabled", SNP), ("disabled", "Disabled")], report);
    cpu.finish(report);
    policy.map(|policy| json!({ "confidentialCompute": policy }))
}

/// The store of user data. Without one, the provider takes its default.
fn cloud_init(given: &mut UnreadFields, report: &mut ConversionReport) -> Option<Value> {
    let store = given.choice("userDataStore", &[(USER_DATA_STORE, SECRETS_MANAGER)], report);
    store.map(|store| json!({ "secureSecretsBackend": store }))
}

fn network(mut interface: UnreadFields, report: &mut ConversionReport) -> Map<String, Value> {
    let mut groups = interface.list("securityGroupIDs", report).into_iter();
    // The provider's own groups for these roles are replaced, so that the VM gets no group more.
    let overrides = groups.next().map(|node| {
        let lb = groups.next().unwrap_or_else(|| node.clone());
        json!({ "node": node, "lb": lb })
    });
    let additional: Vec<Value> = groups.map(|id| json!({ "id": id })).collect();
    let type_ = interface.choice("interfaceType", &[("interface", "interface"), ("efa", "efa")], report);
    if interface.flag("deleteOnTermination", report) == Some(false) {
        let reason = "Cluster API deletes the interface with the VM";
        report.refuse(interface.path("deleteOnTermination"), reason, "remove it");
    }
    interface.lose("description", report, "is not known to Cluster API", "");
    let made = object([
        ("securityGroupOverrides", overrides),
        ("additionalSecurityGroups", filled(additional)),
        ("subnet", interface.take("subnetID").map(|id| json!({ "id": id }))),
        ("publicIP", interface.take("associatePublicIPAddress")),
        ("networkInterfaceType", type_.map(Value::from)),
    ]);
    interface.finish(report);
    made
}

fn volumes(given: &mut UnreadFields, report: &mut ConversionReport) -> Map<String, Value> {
    let devices = given.objects("blockDevices", report);
    let is_only_one = devices.len() == 1;
    let (roots, others): (Vec<_>, Vec<_>) =
        devices.into_iter().map(|device| volume(device, report)).partition(|(_, is_root)| *is_root || is_only_one);
    if roots.len() > 1 {
        report.refuse(given.path("blockDevices"), format!("{} of them are {ROOT}", roots.len()), "keep one of them");
    }
    let others: Vec<Value> = others.into_iter().map(|(volume, _)| volume).collect();
    let root = roots.into_iter().next().map(|(volume, _)| volume);
    object([("rootVolume", root), ("nonRootVolumes", filled(others))])
}

fn volume(mut device: UnreadFields, report: &mut ConversionReport) -> (Value, bool) {
    let name = device.text("deviceName", report);
    let is_root = name == ROOT;
    for field in ["noDevice", "virtualName"] {
        device.lose(field, report, NOT_HONOURED, "");
    }
    let mut ebs = device.object("ebs", report);
    device.finish(report);
    ebs.lose("kmsKeyID", report, NOT_HONOURED, "");
    if ebs.flag("deleteOnTermination", report) == Some(false) {
        report.refuse(ebs.path("deleteOnTermination"), "Cluster API deletes volumes with the VM", "remove it");
    }
    let volume = object([
        ("deviceName", text(name).filter(|_| !is_root)),
        ("size", ebs.take("volumeSize")),
        ("type", ebs.take("volumeType")),
        ("iops", ebs.filled("iops")),
        ("throughput", ebs.take("throughput")),
        // Natively an absent value is sent as false.
        ("encrypted", Some(ebs.take("encrypted").unwrap_or(false.into()))),
    ]);
    ebs.finish(report);
    (volume.into(), is_root)
}

fn placement(given: &mut UnreadFields, report: &mut ConversionReport) -> Map<String, Value> {
    let mut placement = given.object("placement", report);
    let mut capacity = given.object("capacityReservation", report);
    let known = [("open", "Open"), ("none", "None")];
    let made = object([
        ("tenancy", placement.filled("tenancy")),
        ("hostID", placement.filled("hostId")),
        ("hostAffinity", placement.filled("affinity")),
        ("capacityReservationId", capacity.filled("capacityReservationId")),
        (
            "capacityReservationPreference",
            capacity.choice("capacityReservationPreference", &known, report).map(Value::from),
        ),
    ]);
    placement.finish(report);
    capacity.finish(report);
    made
}

fn market(given: &mut UnreadFields, report: &mut ConversionReport) -> Map<String, Value> {
    let mut market = given.object("instanceMarketOptions", report);
    let known = [("spot", "Spot"), ("capacity-block", "CapacityBlock")];
    let market_type = market.choice("marketType", &known, report);
    market.finish(report);
    let has_price = given.has("spotPrice");
    let spot = match (given.text("spotPrice", report), market_type) {
        (price, None) if has_price => Some(object([("maxPrice", text(price))]).into()),
        (price, Some("CapacityBlock")) if !price.is_empty() => {
            report.refuse(given.path("spotPrice"), "cannot be combined with a capacity block", "remove it");
            None
        }
        (price, Some("Spot")) if !price.is_empty() => Some(json!({ "maxPrice": price })),
        _ => None,
    };
    object([("marketType", market_type.map(Value::from)), ("spotMarketOptions", spot)])
}
