use serde_json::{Map, Value, json};

use super::shared::{ROOT, SNP, metadata_options};
use crate::capi::conversion::{
    cloud::{
        fields::{Fields, filled, object, text},
        provider::Template,
    },
    report::Report,
};

const CLUSTER_TAG: &str = "kubernetes.io/cluster/";
const ROLE_TAG: &str = "kubernetes.io/role/";
const VOLUME_TYPES: [&str; 6] = ["gp2", "gp3", "io1", "st1", "sc1", "standard"];

/// The `providerSpec` of a template.
pub fn to_native(template: &Template<'_>, report: &mut Report) -> Value {
    let &Template { machine_spec, cluster_name, cluster, zones: _ } = template;
    let mut given = Fields::of("spec.template.spec", machine_spec.clone(), report);
    refuse_unsupported(&mut given, report);
    let region = cluster.pointer("/spec/region").and_then(Value::as_str).unwrap_or_default();
    if region.is_empty() {
        report.refuse("", "the region is not known", "add the AWSCluster to the objects");
    }
    let machine_type = given.required("instanceType", report, "is required", "name the type of the VM");
    let profile = given.required("iamInstanceProfile", report, "MCM requires one", "name it");
    let (spot_price, market) = market(&mut given, report);
    let made = object([
        ("ami", text(image(&mut given, report))),
        ("region", text(region)),
        ("machineType", text(machine_type)),
        ("iam", Some(json!({ "name": profile }))),
        ("keyName", text(key_name(&mut given, cluster, report))),
        ("blockDevices", Some(block_devices(&mut given, report).into())),
        ("networkInterfaces", Some(json!([interface(&mut given, cluster, report)]))),
        ("tags", Some(tags(&mut given, cluster_name, cluster, report).into())),
        ("instanceMetadataOptions", metadata_options(&mut given, report)),
        ("cpuOptions", cpu_options(&mut given, report)),
        ("placement", placement(&mut given)),
        ("capacityReservation", capacity_reservation(&mut given, report)),
        ("spotPrice", spot_price),
        ("instanceMarketOptions", market),
    ]);
    given.finish(report);
    made.into()
}

fn refuse_unsupported(given: &mut Fields, report: &mut Report) {
    let group = "MCM refers to a placement group by ID, not by name";
    let group_advice = "put the group into placement.groupId of the providerSpec";
    for (name, reason, advice) in [
        ("providerID", "a template is for many VMs", "remove it"),
        ("instanceID", "a template is for many VMs", "remove it"),
        ("ignition", "MCM does not rewrite user data for Ignition", "use cloud-init, or remove it"),
        ("elasticIpPool", "MCM does not support Elastic IPs", "remove it"),
        ("networkInterfaces", "MCM creates interfaces with the VM", "remove it"),
        ("privateDnsName", "MCM expects the default private DNS name as the name of a Node", "remove it"),
        ("placementGroupName", group, group_advice),
        ("placementGroupPartition", group, group_advice),
        ("dynamicHostAllocation", "MCM allocates no hosts", "name a host in hostID"),
    ] {
        given.refuse(name, report, reason, advice);
    }
    if given.text("assignPrimaryIPv6", report) == "enabled" {
        let reason = "MCM assigns an IPv6 address only with ipv6AddressCount";
        report.refuse(given.path("assignPrimaryIPv6"), reason, "remove it, and set it in the providerSpec");
    }
    given.lose("uncompressedUserData", report, "MCM passes user data unchanged", "");
    let reason = "MCM stores user data in the VM, not in a secret of the cloud";
    given.lose("cloudInit", report, reason, "keep credentials out of it");
    for name in ["imageLookupFormat", "imageLookupOrg", "imageLookupBaseOS"] {
        given.lose(name, report, "has no effect beside ami.id", "");
    }
}

fn image(given: &mut Fields, report: &mut Report) -> String {
    let mut ami = given.object("ami", report);
    ami.refuse("eksLookupType", report, "MCM does not look up images", "set ami.id");
    let image = ami.required("id", report, "MCM does not look up images", "name the image");
    ami.finish(report);
    image
}

fn key_name(given: &mut Fields, cluster: &Value, report: &mut Report) -> String {
    // An empty name is no key, an absent one the key of the cluster.
    if given.has("sshKeyName") {
        return given.text("sshKeyName", report);
    }
    cluster.pointer("/spec/sshKeyName").and_then(Value::as_str).unwrap_or("default").to_owned()
}

/// Tags of cluster and machine, and two by which the native driver finds its VMs.
fn tags(given: &mut Fields, cluster_name: &str, cluster: &Value, report: &mut Report) -> Map<String, Value> {
    let mut tags = cluster.pointer("/spec/additionalTags").and_then(Value::as_object).cloned().unwrap_or_default();
    tags.extend(given.map("additionalTags", report));
    if !tags.keys().any(|key| key.contains(CLUSTER_TAG)) {
        tags.insert(format!("{CLUSTER_TAG}{cluster_name}"), "owned".into());
    }
    if !tags.keys().any(|key| key.contains(ROLE_TAG)) {
        tags.insert(format!("{ROLE_TAG}node"), "1".into());
    }
    tags
}

/// One interface with the security groups that the provider would give it: those for nodes and for the load balancer, and
/// the additional ones.
fn interface(given: &mut Fields, cluster: &Value, report: &mut Report) -> Value {
    let mut overrides = given.object("securityGroupOverrides", report);
    let mut groups: Vec<Value> = Vec::new();
    for role in ["node", "lb"] {
        let own = overrides.take(role);
        let of_cluster = cluster.pointer(&format!("/status/networkStatus/securityGroups/{role}/id")).cloned();
        match own.or(of_cluster) {
            Some(id) => groups.push(id),
            None => report.refuse(
                overrides.path(role),
                "the security group of the cluster for this role is not known",
                "name it here, or add the AWSCluster with its status",
            ),
        }
    }
    overrides.finish(report);
    for mut group in given.objects("additionalSecurityGroups", report) {
        groups.extend(group.take("id"));
        group.refuse("filters", report, "MCM does not look up security groups", "set id");
        group.finish(report);
    }
    groups.dedup();
    let mut subnet = given.object("subnet", report);
    subnet.refuse("filters", report, "MCM does not look up subnets", "set id");
    let id = subnet.required("id", report, "MCM requires a subnet", "name it");
    subnet.finish(report);
    let made = object([
        ("subnetID", text(id)),
        ("securityGroupIDs", Some(groups.into())),
        ("associatePublicIPAddress", given.take("publicIP")),
        ("interfaceType", given.filled("networkInterfaceType")),
    ]);
    made.into()
}

fn block_devices(given: &mut Fields, report: &mut Report) -> Vec<Value> {
    let mut devices = Vec::new();
    if given.has("rootVolume") {
        let root = given.object("rootVolume", report);
        devices.push(volume(root, true, report));
    } else {
        report.refuse(given.path("rootVolume"), "MCM requires size and type of the root volume", "set them");
    }
    let others = given.objects("nonRootVolumes", report);
    devices.extend(others.into_iter().map(|other| volume(other, false, report)));
    devices
}

fn volume(mut volume: Fields, is_root: bool, report: &mut Report) -> Value {
    let type_ = volume.required("type", report, "MCM requires the type of a volume", "set it");
    if !type_.is_empty() && !VOLUME_TYPES.contains(&type_.as_str()) {
        let advice = format!("use one of {}", VOLUME_TYPES.join(", "));
        report.refuse(volume.path("type"), format!("MCM does not support {type_}"), advice);
    }
    let name = if is_root {
        volume.lose("deviceName", report, "MCM does not name the root device", "");
        ROOT.to_owned()
    } else {
        volume.required("deviceName", report, "MCM requires the name of a device", "set it, such as /dev/sdf")
    };
    let reason = "the MCM driver does not send it: another key would encrypt the volume";
    volume.refuse("encryptionKey", report, reason, "remove it");
    let ebs = object([
        ("volumeType", text(type_)),
        ("volumeSize", volume.take("size")),
        ("iops", volume.filled("iops")),
        ("throughput", volume.filled("throughput")),
        ("encrypted", volume.take("encrypted")),
        ("deleteOnTermination", Some(true.into())),
    ]);
    volume.finish(report);
    json!({ "deviceName": name, "ebs": ebs })
}

fn cpu_options(given: &mut Fields, report: &mut Report) -> Option<Value> {
    let mut options = given.object("cpuOptions", report);
    let policy = options.choice("confidentialCompute", &[("Disabled", "disabled"), (SNP, "enabled")], report);
    options.finish(report);
    policy.map(|policy| json!({ "amdSevSnp": policy }))
}

fn placement(given: &mut Fields) -> Option<Value> {
    let host = given.filled("hostID");
    // The default of the API; it means something only with a host.
    let affinity = given.take("hostAffinity").filter(|affinity| host.is_some() || affinity != "default");
    filled(object([("tenancy", given.filled("tenancy")), ("hostId", host), ("affinity", affinity)]))
}

fn capacity_reservation(given: &mut Fields, report: &mut Report) -> Option<Value> {
    let preference = given.choice("capacityReservationPreference", &[("Open", "open"), ("None", "none")], report);
    filled(object([
        ("capacityReservationPreference", preference.map(Value::from)),
        ("capacityReservationId", given.filled("capacityReservationId")),
    ]))
}

/// `spotPrice` and `instanceMarketOptions`.
fn market(given: &mut Fields, report: &mut Report) -> (Option<Value>, Option<Value>) {
    let has_spot = given.has("spotMarketOptions");
    let mut spot = given.object("spotMarketOptions", report);
    let price = Value::String(spot.text("maxPrice", report));
    spot.finish(report);
    match (given.text("marketType", report).as_str(), has_spot) {
        ("", true) | ("Spot", _) => (Some(price), None),
        ("" | "OnDemand", false) => (None, None),
        ("CapacityBlock", false) => (None, Some(json!({ "marketType": "capacity-block" }))),
        (other, _) => {
            let reason = format!("{other} cannot be combined with spotMarketOptions or is unknown");
            report.refuse(given.path("marketType"), reason, "correct it");
            (None, None)
        }
    }
}
