use serde_json::{Map, Value, json};

use super::shared::{MANAGED, PARAMETER_STORE, ROOT, SECRETS_MANAGER, SNP, USER_DATA_STORE, metadata_options};
use crate::{
    answers::TemplateQuestion,
    cloud::{
        fields::{UnreadFields, filled, object, text},
        provider::{MACHINE_SPEC, ProviderTemplate},
    },
    report::ConversionReport,
};

const CLUSTER_TAG: &str = "kubernetes.io/cluster/";
const ROLE_TAG: &str = "kubernetes.io/role/";
const VOLUME_TYPES: [&str; 6] = ["gp2", "gp3", "io1", "st1", "sc1", "standard"];

/// Kubelets whose role is not mapped in EKS are unauthorized.
const EKS_ROLE: &str =
    "the provider lets the role of this profile join EKS only for its own templates, so no machine joins";
const EKS_MAPPING: &str = "create an access entry of type EC2_LINUX for the role, or map it in spec.iamAuthenticatorConfig.mapRoles of the \
     AWSManagedControlPlane to system:node:{{EC2PrivateDNSName}} with the groups system:bootstrappers and system:nodes";

/// The `providerSpec` of a template.
pub fn to_native(template: &ProviderTemplate<'_>, report: &mut ConversionReport) -> Value {
    let &ProviderTemplate { machine_spec, cluster_name, cluster, path, .. } = template;
    let mut given = UnreadFields::from_value(path, machine_spec.clone(), report);
    refuse_unsupported(&mut given, report);
    let region = region_of(cluster);
    if region.is_empty() {
        report.refuse("", "the region is not known", template.advice_for("AWSCluster"));
    }
    let machine_type = given.required("instanceType", report, "is required", "name the type of the VM");
    let profile_path = given.path("iamInstanceProfile");
    let profile = given.required("iamInstanceProfile", report, "MCM requires one", "name it");
    if cluster["kind"] == MANAGED {
        report.lose(profile_path, EKS_ROLE, EKS_MAPPING);
    }
    let (spot_price, market) = market(&mut given, report);
    let made = object([
        ("ami", text(image(&mut given, template, report))),
        ("region", text(region)),
        ("machineType", text(machine_type)),
        ("iam", Some(json!({ "name": profile }))),
        ("keyName", text(key_name(&mut given, cluster, report))),
        ("blockDevices", Some(block_devices(&mut given, template, report).into())),
        ("networkInterfaces", Some(json!([interface(&mut given, template, report)]))),
        ("tags", Some(tags(&mut given, &name_in_cloud(template, cluster_name, report), cluster, report).into())),
        ("instanceMetadataOptions", metadata_options(&mut given, report)),
        ("cpuOptions", cpu_options(&mut given, report)),
        ("placement", placement(&mut given)),
        ("capacityReservation", capacity_reservation(&mut given, report)),
        ("spotPrice", spot_price),
        ("instanceMarketOptions", market),
        ("userDataStore", user_data_store(&mut given, template, report)),
    ]);
    given.finish(report);
    made.into()
}

/// The name of the cluster in the tags of its VMs: that of EKS, which its control plane names or has by default.
fn name_in_cloud(template: &ProviderTemplate<'_>, cluster_name: &str, report: &mut ConversionReport) -> String {
    const LONGEST: usize = 100;
    let cluster = template.cluster;
    if cluster["kind"] != MANAGED {
        return cluster_name.to_owned();
    }
    let text = |pointer: &str| cluster.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let by_default = || {
        let name = format!("{}_{}", text("/metadata/namespace")?, text("/metadata/name")?.replace('.', "_"));
        Some(name).filter(|name| name.len() < LONGEST)
    };
    text("/spec/eksClusterName").map(str::to_owned).or_else(by_default).unwrap_or_else(|| {
        let (reason, field) = match template.is_of_class {
            true => (
                "the EKS cluster is named after its control plane, whose name differs for each Cluster",
                format!("spec.template.spec.eksClusterName of the {MANAGED}Template"),
            ),
            false => ("the name of the EKS cluster is not known", format!("spec.eksClusterName of the {MANAGED}")),
        };
        report.refuse("", reason, format!("set {field}"));
        String::new()
    })
}

fn refuse_unsupported(given: &mut UnreadFields, report: &mut ConversionReport) {
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
    for name in ["imageLookupFormat", "imageLookupOrg", "imageLookupBaseOS"] {
        given.lose(name, report, "has no effect beside an image that is named", "");
    }
    let reason = "the provider ignores it in a template";
    given.lose("failureDomain", report, reason, "set failureDomain in the deployment that uses the template");
}

/// The store of user data, if the template names it. The default of the provider needs permissions that a class without a store
/// does not, so it is only reported.
fn user_data_store(
    given: &mut UnreadFields,
    template: &ProviderTemplate<'_>,
    report: &mut ConversionReport,
) -> Option<Value> {
    let path = given.path("cloudInit");
    let mut init = given.object("cloudInit", report);
    let is_in_vm = init.flag("insecureSkipSecretsManager", report) == Some(true);
    let store = init.text("secureSecretsBackend", report);
    for name in ["secretPrefix", "secretCount"] {
        init.lose(name, report, "MCM names the secret after its machine", "");
    }
    let advice =
        format!("set cloudInit.secureSecretsBackend to {SECRETS_MANAGER}, and give the permissions for secrets");
    match store.as_str() {
        _ if is_in_vm => {}
        SECRETS_MANAGER => {
            let reason =
                "userDataStore of the class needs permissions for secrets, which are not those of the provider";
            report.lose(init.path("secureSecretsBackend"), reason, "give them to mcm and to the instance profile");
            init.finish(report);
            return text(USER_DATA_STORE);
        }
        PARAMETER_STORE => {
            let reason = "MCM has no store in Systems Manager: user data are in the metadata of the VM";
            report.lose(init.path("secureSecretsBackend"), reason, advice);
        }
        // A launch template has its user data in itself.
        "" if template.path != MACHINE_SPEC => {}
        "" => {
            let reason =
                "the provider keeps user data in Secrets Manager by default, and MCM in the metadata of the VM";
            report.lose(path, reason, advice);
        }
        other => {
            let reason = format!("{other:?} has no counterpart");
            report.refuse(init.path("secureSecretsBackend"), reason, format!("use {SECRETS_MANAGER}"));
        }
    }
    init.finish(report);
    None
}

fn region_of(cluster: &Value) -> &str {
    cluster.pointer("/spec/region").and_then(Value::as_str).unwrap_or_default()
}

fn image(given: &mut UnreadFields, template: &ProviderTemplate<'_>, report: &mut ConversionReport) -> String {
    let mut ami = given.object("ami", report);
    ami.lose("eksLookupType", report, "has no effect beside an image that is named", "");
    let named = ami.text("id", report);
    let image =
        Some(named.as_str()).filter(|named| !named.is_empty()).or_else(|| template.answer(TemplateQuestion::Image));
    if image.is_none() {
        let version = if template.version.is_empty() { "the version of the machines" } else { template.version };
        let reason = format!(
            "the provider looks up the image of {version} in {}, and MCM does not",
            region_of(template.cluster)
        );
        report.ask(ami.path("id"), TemplateQuestion::Image, &reason);
    }
    let image = image.unwrap_or_default().to_owned();
    ami.finish(report);
    image
}

fn key_name(given: &mut UnreadFields, cluster: &Value, report: &mut ConversionReport) -> String {
    // An empty name is no key, an absent one the key of the cluster.
    if given.has("sshKeyName") {
        return given.text("sshKeyName", report);
    }
    cluster.pointer("/spec/sshKeyName").and_then(Value::as_str).unwrap_or("default").to_owned()
}

/// Tags of cluster and machine, and two by which the native driver finds its VMs.
fn tags(
    given: &mut UnreadFields,
    cluster_name: &str,
    cluster: &Value,
    report: &mut ConversionReport,
) -> Map<String, Value> {
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
fn interface(given: &mut UnreadFields, template: &ProviderTemplate<'_>, report: &mut ConversionReport) -> Value {
    let groups = security_groups(given, template, report);
    let made = object([
        ("subnetID", text(subnet(given, template, report))),
        ("securityGroupIDs", filled(groups)),
        ("associatePublicIPAddress", given.take("publicIP")),
        ("interfaceType", given.filled("networkInterfaceType")),
    ]);
    made.into()
}

/// The groups for the roles of a node, and the additional groups. The answer of the user replaces groups that are not named.
fn security_groups(
    given: &mut UnreadFields,
    template: &ProviderTemplate<'_>,
    report: &mut ConversionReport,
) -> Vec<Value> {
    let (mut groups, mut is_complete, mut has_filters) = (Vec::new(), true, false);
    let mut overrides = given.object("securityGroupOverrides", report);
    let second = if template.cluster["kind"] == MANAGED { "node-eks-additional" } else { "lb" };
    for role in ["node", second] {
        let shown = format!("/status/networkStatus/securityGroups/{role}/id");
        let named = format!("/spec/network/securityGroupOverrides/{role}");
        let of_cluster = || template.cluster.pointer(&shown).or_else(|| template.cluster.pointer(&named)).cloned();
        let id = overrides.take(role).or_else(of_cluster);
        is_complete &= id.is_some();
        groups.extend(id);
    }
    overrides.finish(report);
    for mut group in given.objects("additionalSecurityGroups", report) {
        let id = group.take("id");
        is_complete &= id.is_some();
        has_filters |= group.take("filters").is_some();
        groups.extend(id);
        group.finish(report);
    }
    match template.answer(TemplateQuestion::SecurityGroups) {
        _ if is_complete => {}
        Some(answer) => groups.extend(answer.split(',').map(Value::from)),
        None if has_open_network(template) && groups.is_empty() && !has_filters => {}
        None => {
            let reason = "the provider finds security groups by role or filter, and not all of them are known; \
                          an AWSCluster with its status has those of the roles";
            report.ask(given.path("additionalSecurityGroups"), TemplateQuestion::SecurityGroups, reason);
        }
    }
    let mut seen = Vec::new();
    groups.retain(|group| {
        !seen.contains(group) && {
            seen.push(group.clone());
            true
        }
    });
    groups
}

/// The subnet of the template, else the choice of the provider, else the answer of the user.
fn subnet(given: &mut UnreadFields, template: &ProviderTemplate<'_>, report: &mut ConversionReport) -> String {
    let mut subnet = given.object("subnet", report);
    let named = subnet.text("id", report);
    let filters = subnet.take("filters");
    subnet.finish(report);
    if !named.is_empty() {
        return named;
    }
    if template.zones.len() > 1 {
        let reason = format!("it is used in the zones {}, and an MCM class has one subnet", template.zones.join(", "));
        report.refuse(subnet_path(given), reason, "create a template for each zone");
        return String::new();
    }
    let wants_public = given.peek("publicIP") == Some(&Value::Bool(true));
    let of_cluster = || subnet_of_cluster(template, wants_public).filter(|_| filters.is_none());
    let Some(found) = template.answer(TemplateQuestion::Subnet).or_else(of_cluster) else {
        if has_open_network(template) && filters.is_none() && template.zone().is_none() {
            return String::new();
        }
        let zone = template.zone().map(|zone| format!(" in {zone}")).unwrap_or_default();
        report.ask(
            subnet_path(given),
            TemplateQuestion::Subnet,
            &format!("the provider chooses a subnet{zone}, and MCM does not"),
        );
        return String::new();
    };
    found.to_owned()
}

fn subnet_path(given: &UnreadFields) -> String {
    format!("{}.id", given.path("subnet"))
}

/// Each VM may have subnet and security groups of its AWSCluster, which a class without them leaves to it.
fn has_open_network(template: &ProviderTemplate<'_>) -> bool {
    template.is_of_class && template.cluster["kind"] != MANAGED
}

/// The first subnet of the cluster that fits. A cluster that is not ready does not name all of its subnets, and the machines of
/// a pool are in several.
fn subnet_of_cluster<'a>(template: &ProviderTemplate<'a>, is_public: bool) -> Option<&'a str> {
    const ASSOCIATION: &str = "sigs.k8s.io/cluster-api-provider-aws/association";
    /// Of subnets in local and wavelength zones, where the provider places no machine by itself.
    const EDGE_ZONES: [&str; 2] = ["local-zone", "wavelength-zone"];
    if template.cluster["status"]["ready"] != true || template.path != MACHINE_SPEC {
        return None;
    }
    let subnets = template.cluster.pointer("/spec/network/subnets")?.as_array()?;
    let fits = |subnet: &&Value| {
        (subnet["isPublic"] == true) == is_public
            && subnet["tags"][ASSOCIATION] != "secondary"
            && !EDGE_ZONES.iter().any(|zone| subnet["zoneType"] == *zone)
            && template.zone().is_none_or(|zone| subnet["availabilityZone"] == zone)
    };
    let id_of = |subnet: &'a Value| {
        let found = |name: &str| subnet[name].as_str().filter(|id| id.starts_with("subnet-"));
        found("resourceID").or_else(|| found("id"))
    };
    subnets.iter().find(fits).and_then(id_of)
}

fn block_devices(
    given: &mut UnreadFields,
    template: &ProviderTemplate<'_>,
    report: &mut ConversionReport,
) -> Vec<Value> {
    let mut devices = Vec::new();
    let answer = root_volume(given, template, report);
    let mut root = given.map("rootVolume", report);
    match answer {
        Some((size, type_)) => {
            root.entry("size").or_insert(size);
            root.entry("type").or_insert(type_);
        }
        None if ["size", "type"].iter().any(|name| !root.contains_key(*name)) => {
            let reason = "the provider takes size and type of the root volume from the image, and MCM does not";
            report.ask(given.path("rootVolume"), TemplateQuestion::RootVolume, reason);
        }
        None => {}
    }
    if root.contains_key("type") {
        devices.push(volume(UnreadFields::from_value(given.path("rootVolume"), root.into(), report), true, report));
    }
    let others = given.objects("nonRootVolumes", report);
    devices.extend(others.into_iter().map(|other| volume(other, false, report)));
    devices
}

/// Size and type in the answer of the user.
fn root_volume(
    given: &UnreadFields,
    template: &ProviderTemplate<'_>,
    report: &mut ConversionReport,
) -> Option<(Value, Value)> {
    let answer = template.answer(TemplateQuestion::RootVolume)?;
    let parsed = answer.split_once(':').and_then(|(size, type_)| Some((size.parse::<u32>().ok()?, type_)));
    if parsed.is_none() {
        report.refuse(given.path("rootVolume"), format!("{answer:?} is not a size and a type"), "write them as 20:gp3");
    }
    parsed.map(|(size, type_)| (size.into(), type_.into()))
}

fn volume(mut volume: UnreadFields, is_root: bool, report: &mut ConversionReport) -> Value {
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

fn cpu_options(given: &mut UnreadFields, report: &mut ConversionReport) -> Option<Value> {
    let mut options = given.object("cpuOptions", report);
    let policy = options.choice("confidentialCompute", &[("Disabled", "disabled"), (SNP, "enabled")], report);
    options.finish(report);
    policy.map(|policy| json!({ "amdSevSnp": policy }))
}

fn placement(given: &mut UnreadFields) -> Option<Value> {
    let host = given.filled("hostID");
    // The default of the API; it means something only with a host.
    let affinity = given.take("hostAffinity").filter(|affinity| host.is_some() || affinity != "default");
    filled(object([("tenancy", given.filled("tenancy")), ("hostId", host), ("affinity", affinity)]))
}

fn capacity_reservation(given: &mut UnreadFields, report: &mut ConversionReport) -> Option<Value> {
    let preference = given.choice("capacityReservationPreference", &[("Open", "open"), ("None", "none")], report);
    filled(object([
        ("capacityReservationPreference", preference.map(Value::from)),
        ("capacityReservationId", given.filled("capacityReservationId")),
    ]))
}

/// `spotPrice` and `instanceMarketOptions`.
fn market(given: &mut UnreadFields, report: &mut ConversionReport) -> (Option<Value>, Option<Value>) {
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
