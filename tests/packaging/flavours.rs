//! The flavours of clouds with the cloud controller managers of the release: what a cluster needs to come up is there.

use std::{collections::BTreeSet, net::Ipv4Addr};

use rstest::rstest;
use serde_json::Value;

use super::{ROOT, file_of_release, found, objects, only, read};

/// The ranges of the default networks of clouds, and of the VPC that Cluster API Provider AWS creates.
const NETWORKS: [&str; 3] = ["10.128.0.0/9", "172.31.0.0/16", "10.0.0.0/16"];

/// Start and end of a range.
fn range(text: &str) -> (u32, u32) {
    let (address, bits) = text.split_once('/').unwrap_or_else(|| panic!("{text} is no range"));
    let start = u32::from(address.parse::<Ipv4Addr>().unwrap());
    let size = 1_u32.checked_shl(32 - bits.parse::<u32>().unwrap()).unwrap();
    (start, start + (size - 1))
}

fn meet(one: &str, other: &str) -> bool {
    let (one, other) = (range(one), range(other));
    one.0 <= other.1 && other.0 <= one.1
}

/// A value with the default of its variable.
fn with_default(text: &str) -> &str {
    text.split_once(":=").map_or(text, |(_, value)| value.trim_end_matches('}'))
}

#[test]
fn no_default_range_meets_another_or_the_default_network_of_a_cloud() {
    let folder = format!("{ROOT}/templates/cluster-api");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let flavours: Vec<String> = files.filter(|name| name.starts_with("cluster-template")).collect();
    assert!(flavours.len() > 10, "{flavours:?}");
    for flavour in flavours {
        let all = objects(&file_of_release(&flavour));
        let written = found(&only(&all, "Cluster")["spec"], "cidrBlocks");
        let blocks = written.into_iter().flat_map(|blocks| blocks.as_array().unwrap()).filter_map(Value::as_str);
        let own: Vec<&str> = blocks.map(with_default).collect();
        for (index, one) in own.iter().enumerate() {
            for other in own[index + 1..].iter().chain(&NETWORKS) {
                assert!(!meet(one, other), "{flavour}: {one} meets {other}");
            }
        }
    }
}

#[test]
fn ranges_that_meet_are_found() {
    assert!(meet("10.128.0.0/12", "10.128.0.0/9") && meet("10.0.0.0/8", "10.0.0.0/16"));
    assert!(!meet("10.96.0.0/12", "10.128.0.0/9"));
}

/// The paths of the files that the control plane of a flavour gets, and the texts of those files.
fn files_of_control_plane(flavour: &str, class: Option<&str>) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |files: &Value| {
        for file in files.as_array().unwrap() {
            let text = |field: &str| file[field].as_str().unwrap().to_owned();
            all.push((text("path"), text("content")));
        }
    };
    let template = serde_json::to_value(objects(&file_of_release(flavour))).unwrap();
    found(&template, "kubeadmConfigSpec").into_iter().filter_map(|spec| spec.get("files")).for_each(&mut add);
    let Some(class) = class else { return all };
    let template = serde_json::to_value(objects(&file_of_release(class))).unwrap();
    for patch in found(&template, "jsonPatches").into_iter().flat_map(|patches| patches.as_array().unwrap()) {
        if patch["path"] == "/spec/template/spec/kubeadmConfigSpec/files" {
            let written = patch["valueFrom"]["template"].as_str().unwrap();
            add(&serde_yaml_ng::from_str(written).unwrap());
        }
    }
    all
}

/// Names of the objects of a kind that the ClusterResourceSet of a flavour applies.
fn applied(flavour: &[Value], kind: &str) -> BTreeSet<String> {
    let resources = only(flavour, "ClusterResourceSet")["spec"]["resources"].as_array().unwrap();
    let of_kind = resources.iter().filter(|resource| resource["kind"] == kind);
    of_kind.map(|resource| with_default(resource["name"].as_str().unwrap()).to_owned()).collect()
}

#[rstest]
#[case::aws("aws", None)]
#[case::aws_hybrid("aws-hybrid", None)]
#[case::aws_topology("aws-topology", Some("clusterclass-aws.yaml"))]
#[case::gcp("gcp", None)]
#[case::gcp_hybrid("gcp-hybrid", None)]
#[case::gcp_topology("gcp-topology", Some("clusterclass-gcp.yaml"))]
#[case::openstack("openstack", None)]
#[case::openstack_topology("openstack-topology", Some("clusterclass-openstack.yaml"))]
fn the_cloud_controller_manager_of_a_flavour_starts(#[case] flavour: &str, #[case] class: Option<&str>) {
    let cloud = flavour.split('-').next().unwrap();
    let name = format!("{cloud}-cloud-controller-manager");
    let template = format!("cluster-template-{flavour}.yaml");
    let of_flavour = objects(&file_of_release(&template));
    assert!(applied(&of_flavour, "ConfigMap").contains(&name), "the flavour applies it");

    let manifest = objects(&file_of_release(&format!("{name}.yaml")));
    let pod = &only(&manifest, "DaemonSet")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let arguments: Vec<&str> = container["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let of = |flag: &str| arguments.iter().find_map(|one| one.strip_prefix(flag));
    let provider = match cloud {
        "gcp" => "gce",
        other => other,
    };
    assert_eq!(of("--cloud-provider="), Some(provider));
    assert_eq!(of("--configure-cloud-routes="), Some("false"), "the CNI plugin makes the routes");
    let (_, tag) = container["image"].as_str().unwrap().rsplit_once(':').unwrap();
    assert!(tag.starts_with('v') && tag.split('.').count() == 3, "{tag} is pinned");
    // kubeadm's API server has another port there than in a manifest for kOps.
    assert!(!serde_json::to_string(pod).unwrap().contains("KUBERNETES_SERVICE_HOST"));

    let files = files_of_control_plane(&template, class);
    let mut mounted = BTreeSet::new();
    for volume in pod["volumes"].as_array().into_iter().flatten() {
        match (&volume["hostPath"], volume["secret"]["secretName"].as_str()) {
            (Value::Object(path), _) if path["type"] == "File" => {
                let path = path["path"].as_str().unwrap();
                assert!(files.iter().any(|(written, _)| written == path), "the control plane has {path}: {files:?}");
                mounted.insert(path.to_owned());
            }
            (Value::Object(path), _) => assert_eq!(path["type"], "Directory", "nothing is created on the host"),
            (_, Some(secret)) => {
                assert!(applied(&of_flavour, "Secret").contains(&format!("{cloud}-{secret}")), "{secret}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(files.iter().all(|(path, _)| mounted.contains(path)), "each file is mounted: {files:?}");
    if let Some(config) = of("--cloud-config=") {
        let mounts = container["volumeMounts"].as_array().unwrap();
        let is_mounted = |mount: &Value| config.starts_with(mount["mountPath"].as_str().unwrap());
        assert!(mounts.iter().any(is_mounted), "{config}");
    }
    if cloud == "gcp" {
        assert!(files[0].1.contains("[Global]\nmultizone = true\n"), "Nodes of all zones are found: {files:?}");
    }
    for reference in found(pod, "configMapKeyRef") {
        let maps = found_texts(&of_flavour, "manifest.yaml");
        let made = maps.iter().flat_map(|text| objects(text)).find(|map| map["metadata"]["name"] == reference["name"]);
        assert!(made.unwrap()["data"][reference["key"].as_str().unwrap()].is_string());
    }
}

/// The tests with clusterctl run the program of the manifest.
#[test]
fn the_cloud_controller_manager_of_aws_is_the_tested_one() {
    let manifest = objects(&file_of_release("aws-cloud-controller-manager.yaml"));
    let image = &only(&manifest, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["image"];
    let (_, version) = image.as_str().unwrap().rsplit_once(':').unwrap();
    let module = read("hack/controlplane/cloud-controller-managers/go.mod");
    assert!(module.contains(&format!("\tk8s.io/cloud-provider-aws {version}\n")), "{version}");
}

fn found_texts(all: &[Value], field: &str) -> Vec<String> {
    let texts = all.iter().flat_map(|object| found(object, field));
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[rstest]
fn the_account_of_a_cloud_controller_manager_has_its_rights(#[values("aws", "gcp", "openstack")] cloud: &str) {
    let all = objects(&file_of_release(&format!("{cloud}-cloud-controller-manager.yaml")));
    let account = &only(&all, "ServiceAccount")["metadata"];
    assert_eq!(only(&all, "DaemonSet")["spec"]["template"]["spec"]["serviceAccountName"], account["name"]);
    let bindings = all.iter().filter(|one| one["kind"].as_str().unwrap().ends_with("Binding"));
    for binding in bindings.clone() {
        assert_eq!(
            (&binding["subjects"][0]["name"], &binding["subjects"][0]["namespace"]),
            (&account["name"], &account["namespace"])
        );
    }
    assert_eq!(bindings.count(), 3);
    let may = |kind: &str, resource: &str, verb: &str| {
        let rules = only(&all, kind)["rules"].as_array().unwrap();
        let has = |rule: &Value, field: &str, text: &str| rule[field].as_array().unwrap().iter().any(|one| one == text);
        rules.iter().any(|rule| has(rule, "resources", resource) && has(rule, "verbs", verb))
    };
    // It writes the provider ID, removes the taint, writes addresses, and removes Nodes whose VM is gone.
    for (resource, verb) in [("nodes", "patch"), ("nodes", "update"), ("nodes/status", "patch"), ("nodes", "delete")] {
        assert!(may("ClusterRole", resource, verb), "{verb} {resource}");
    }
    assert!(may("ClusterRole", "services/status", "patch") && may("Role", "leases", "create"));
    assert_eq!(may("Role", "configmaps", "create"), cloud == "gcp", "the ID of the cluster");
    let tolerated = found(only(&all, "DaemonSet"), "tolerations")[0].to_string();
    assert!(tolerated.contains("node.cloudprovider.kubernetes.io/uninitialized"), "{tolerated}");
}

/// Behind a passthrough load balancer a member reaches only itself.
#[rstest]
#[case::template("cluster-template-gcp.yaml")]
#[case::class("clusterclass-gcp.yaml")]
fn a_control_plane_of_google_cloud_joins_before_it_is_in_its_instance_group(#[case] file: &str) {
    let text = file_of_release(file);
    assert!(text.contains("gcpInstanceGroups:") && text.contains("controlPlaneRegistration: AfterNode"));
}

/// A machine boots the image of its version, also while core upgrades over several versions.
#[rstest]
#[case::aws("clusterclass-aws.yaml", "ami")]
#[case::gcp("clusterclass-gcp.yaml", "image")]
#[case::openstack("clusterclass-openstack.yaml", "imageName")]
fn a_class_has_an_image_for_each_version(#[case] file: &str, #[case] field: &str) {
    let all = serde_json::to_value(objects(&file_of_release(file))).unwrap();
    let templates: Vec<String> =
        found(&all, "template").into_iter().filter_map(Value::as_str).map(str::to_owned).collect();
    for version in
        [".builtin.controlPlane.version", ".builtin.machineDeployment.version", ".builtin.machinePool.version"]
    {
        let image = format!("{field}: \"{{{{ default .image (get .images {version}) }}}}\"");
        let of_version = templates.iter().find(|template| template.contains(&image));
        assert!(of_version.unwrap_or_else(|| panic!("{image}")).contains("fail (printf"), "a missing one is an error");
    }
}

/// The image of another version, which a user adds for an upgrade, then replaces no machine.
#[rstest]
fn a_topology_has_the_image_of_its_first_version(
    #[values("aws-topology", "gcp-topology", "openstack-topology", "topology")] flavour: &str,
) {
    let all = objects(&file_of_release(&format!("cluster-template-{flavour}.yaml")));
    let variables = only(&all, "Cluster")["spec"]["topology"]["variables"].as_array().unwrap();
    let images = variables.iter().find(|variable| variable["name"] == "images").unwrap();
    assert!(images["value"]["${KUBERNETES_VERSION}"].is_string(), "{images}");
}

/// A pool of a class has the VMs of its MachineDeployments.
#[rstest]
fn the_pools_of_a_class_have_the_patches_of_its_deployments(
    #[values("aws", "gcp", "openstack", "simulated")] cloud: &str,
) {
    let all = objects(&file_of_release(&format!("clusterclass-{cloud}.yaml")));
    let class = &only(&all, "ClusterClass")["spec"];
    let [deployment, pool] = ["machineDeployments", "machinePools"].map(|field| &class["workers"][field][0]);
    assert_eq!(pool["bootstrap"], deployment["bootstrap"]);
    let [of_deployment, of_pool] =
        ["MCMMachineTemplate", "MCMMachinePoolTemplate"].map(|kind| &only(&all, kind)["spec"]["template"]["spec"]);
    assert_eq!(of_pool, of_deployment);
    let name = &only(&all, "MCMMachinePoolTemplate")["metadata"]["name"];
    assert_eq!(&pool["infrastructure"]["templateRef"]["name"], name);

    let patches = |field: &str, class: &Value| -> Vec<Value> {
        let definitions = found(&all[0], "definitions").into_iter().flat_map(|all| all.as_array().unwrap());
        let of_class = definitions.filter(|one| {
            let names = one["selector"]["matchResources"][field]["names"].as_array();
            names.is_some_and(|names| names.contains(class))
        });
        let text = |one: &Value| {
            one["jsonPatches"].to_string().replace(".builtin.machinePool.", ".builtin.machineDeployment.")
        };
        of_class.map(|one| serde_json::from_str(&text(one)).unwrap()).collect()
    };
    let of_pool = patches("machinePoolClass", &pool["class"]);
    assert!(!of_pool.is_empty());
    assert_eq!(of_pool, patches("machineDeploymentClass", &deployment["class"]));
}

/// Cluster API Provider GCP makes Cloud NAT only in a network that it creates. The network `default` exists in each project.
#[test]
fn the_hybrid_cluster_on_google_cloud_has_a_network_with_nat() {
    let all = objects(&file_of_release("cluster-template-gcp-hybrid.yaml"));
    let created = only(&all, "GCPCluster")["spec"]["network"]["name"].as_str().unwrap();
    assert_eq!(created, "${GCP_NETWORK_NAME:=${CLUSTER_NAME}}");
    let workers = found(only(&all, "MCMMachineTemplate"), "networkInterfaces");
    assert_eq!(workers[0][0]["network"], created);
}

/// A machine without an external address pulls images through Cloud NAT only.
#[rstest]
#[case::alone("gcp")]
#[case::hybrid("gcp-hybrid")]
fn machines_on_google_cloud_without_an_address_need_the_nat_of_the_page(#[case] flavour: &str) {
    let all = serde_json::to_value(objects(&file_of_release(&format!("cluster-template-{flavour}.yaml")))).unwrap();
    let interfaces = found(&all, "networkInterfaces").into_iter().flat_map(|all| all.as_array().unwrap());
    assert!(interfaces.clone().count() > 0 && interfaces.clone().all(|one| one["disableExternalIP"] == true));
    let page = read("docs/cluster-api/gcp.md");
    assert!(page.contains("gcloud compute routers nats create"));
    assert!(file_of_release(&format!("cluster-template-{flavour}.yaml")).contains("Cloud NAT"));
}

/// The table of versions has those that the tests run.
#[rstest]
#[case("cluster-api", "sigs.k8s.io/cluster-api ", "Cluster API core, kubeadm's providers, clusterctl")]
#[case("other-providers", "sigs.k8s.io/cluster-api-provider-aws/v2 ", "Cluster API Provider AWS")]
#[case("other-providers", "sigs.k8s.io/cluster-api-provider-gcp ", "Cluster API Provider GCP")]
#[case("kube", "k8s.io/kubernetes ", "Kubernetes of the management cluster")]
fn the_table_of_versions_has_the_tested_ones(#[case] folder: &str, #[case] module: &str, #[case] row: &str) {
    let pinned = read(&format!("hack/controlplane/{folder}/go.mod"));
    let (_, rest) = pinned.split_once(module).unwrap();
    let version = rest.split_whitespace().next().unwrap();
    let page = read("docs/cluster-api/first-cluster.md");
    let row = page.lines().find(|line| line.starts_with(&format!("| {row} |"))).unwrap();
    assert!(row.rsplit('|').nth(1).unwrap().contains(version), "{version}: {row}");
}
