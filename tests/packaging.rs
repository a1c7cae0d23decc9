//! The files that `hack/release/clusterctl` makes for clusterctl, the Helm chart, the manifests of `config` with alerts and
//! dashboards, and the pages of the docs, tested without a cluster.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use rstest::rstest;
use serde::Deserialize;
use serde_json::Value;

#[path = "packaging/console.rs"]
mod console;
#[path = "packaging/dashboards.rs"]
mod dashboards;
#[path = "packaging/flavours.rs"]
mod flavours;
#[path = "packaging/kube_state_metrics.rs"]
mod kube_state_metrics;
#[path = "packaging/links.rs"]
mod links;
#[path = "packaging/metrics.rs"]
mod metrics;
#[path = "packaging/monitoring.rs"]
mod monitoring;
#[path = "packaging/notices.rs"]
mod notices;
#[path = "packaging/reference.rs"]
mod reference;
#[path = "packaging/sdk.rs"]
mod sdk;
#[path = "support/console.rs"]
mod steps;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Compares a generated file, relative to the root, with the file on disk; `UPDATE_DOCS=1` writes it.
fn generated(path: &str, text: &str) {
    let file = Path::new(ROOT).join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(found == text, "{path} is out of date: run UPDATE_DOCS=1 cargo test --test packaging");
}

/// Runs `hack/release/clusterctl`; its folder lasts as long as the answer.
fn release(arguments: &[&str]) -> (tempfile::TempDir, std::process::Output) {
    let base = tempfile::tempdir().unwrap();
    let mut command = Command::new(format!("{ROOT}/hack/release/clusterctl"));
    let output = command.args(&arguments[..1]).arg(base.path()).args(&arguments[1..]).output().unwrap();
    (base, output)
}

fn components() -> String {
    file_of_release("infrastructure-components.yaml")
}

fn file_of_release(name: &str) -> String {
    let (base, output) = release(&["v0.1.0"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(base.path().join("infrastructure-mcm/v0.1.0").join(name)).unwrap()
}

fn objects(text: &str) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap()).collect()
}

fn is_a(object: &Value, kinds: &[&str]) -> bool {
    kinds.contains(&object["kind"].as_str().unwrap())
}

/// The only object of a kind.
fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found: Vec<&Value> = objects.iter().filter(|object| is_a(object, &[kind])).collect();
    assert_eq!(found.len(), 1, "{kind}");
    found[0]
}

/// K2, K3: the files that clusterctl needs in the folder of a version.
#[test]
fn a_release_has_components_metadata_and_templates() {
    let (base, output) = release(&["v0.2.7", "registry.example/mcm:v0.2.7"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let folder = base.path().join("infrastructure-mcm/v0.2.7");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(Path::new(said.trim()), folder.join("infrastructure-components.yaml"));
    let mut files: Vec<String> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort_unstable();
    let expected = [
        "aws-cloud-controller-manager.yaml",
        "cluster-template-aws-hybrid.yaml",
        "cluster-template-aws-topology.yaml",
        "cluster-template-aws.yaml",
        "cluster-template-gcp-hybrid.yaml",
        "cluster-template-gcp-topology.yaml",
        "cluster-template-gcp.yaml",
        "cluster-template-machine-pool.yaml",
        "cluster-template-openstack-topology.yaml",
        "cluster-template-openstack.yaml",
        "cluster-template-simulated.yaml",
        "cluster-template-topology.yaml",
        "cluster-template.yaml",
        "clusterclass-aws.yaml",
        "clusterclass-gcp.yaml",
        "clusterclass-openstack.yaml",
        "clusterclass-simulated.yaml",
        "gcp-cloud-controller-manager.yaml",
        "in-place-components.yaml",
        "infrastructure-components.yaml",
        "metadata.yaml",
        "openstack-cloud-controller-manager.yaml",
        "stand-in-components.yaml",
    ];
    assert_eq!(files, expected);
    let text = fs::read_to_string(folder.join("infrastructure-components.yaml")).unwrap();
    assert!(text.contains("image: registry.example/mcm:v0.2.7\n"));
}

/// K4: with a later series clusterctl finds no latest release.
#[test]
fn the_last_series_of_the_metadata_is_that_of_the_release() {
    for (version, expected) in [("v0.1.3", "1"), ("v0.2.0", "1 2")] {
        let (base, _) = release(&[version]);
        let file = base.path().join("infrastructure-mcm").join(version).join("metadata.yaml");
        let metadata: Value = serde_yaml_ng::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let series = metadata["releaseSeries"].as_array().unwrap().iter();
        let minors: Vec<String> = series.map(|one| one["minor"].to_string()).collect();
        assert_eq!(minors.join(" "), expected);
        assert!(metadata["releaseSeries"].as_array().unwrap().iter().all(|one| one["contract"] == "v1beta2"));
    }
}

/// K4, B5.
#[rstest]
#[case::no_series(&["v9.9.0"], "no series 9.9")]
#[case::no_version(&["0.1.0"], "is no version")]
#[case::latest(&["v0.1.0", "registry.example/mcm:latest"], "a tag other than latest")]
#[case::no_tag(&["v0.1.0", "registry.example:5000/mcm"], "has no tag")]
fn a_release_that_clusterctl_would_refuse_is_not_made(#[case] arguments: &[&str], #[case] reason: &str) {
    let (base, output) = release(arguments);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(reason), "{said}");
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

/// B6, T12: an upgrade removes only those.
#[test]
fn cluster_wide_objects_of_the_components_begin_with_the_namespace() {
    let objects = objects(&components());
    let namespace = only(&objects, "Namespace");
    let prefix = format!("{}-", namespace["metadata"]["name"].as_str().unwrap());
    let mut checked = 0;
    for object in &objects {
        if object["metadata"]["namespace"].is_null() && !is_a(object, &["Namespace", "CustomResourceDefinition"]) {
            checked += 1;
            assert!(object["metadata"]["name"].as_str().unwrap().starts_with(&prefix), "{object}");
        }
    }
    assert!(checked >= 6, "{checked}");
}

/// B9, T22: clusterctl overwrites the installed ones with them.
#[test]
fn the_definitions_in_the_components_are_those_of_the_drop_in() {
    let text = components();
    let mut seen = 0;
    for entry in fs::read_dir(format!("{ROOT}/crds")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            seen += 1;
            assert!(text.contains(&fs::read_to_string(&path).unwrap()), "{}", path.display());
        }
    }
    assert_eq!(seen, 4);
}

/// B7: CEL and policies need no certificates.
#[test]
fn there_is_no_webhook() {
    let webhooks = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Certificate", "Issuer"];
    let text = components();
    let objects = objects(&text);
    assert!(!objects.iter().any(|object| is_a(object, &webhooks)));
    assert_eq!(only(&objects, "Service")["spec"]["ports"], serde_json::json!([{"name": "metrics", "port": 8443}]));
    assert!(!text.contains("strategy: Webhook"));
}

/// B1, B5.
#[test]
fn there_is_one_deployment_with_a_container_named_manager() {
    let objects = objects(&components());
    let deployment = only(&objects, "Deployment");
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    let container = &containers[0];
    assert_eq!((&container["name"], &container["image"]), (&"manager".into(), &"localhost/mcm:v0.1.0".into()));
    let arguments: Vec<&str> = container["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert_eq!(arguments[0], "capi-manager");
    // Names in arguments are not rewritten for another namespace, so there are none.
    assert!(!arguments.iter().any(|argument| argument.contains("capmcm")), "{arguments:?}");
    let defaults = arguments.iter().filter(|argument| argument.contains(":="));
    assert!(defaults.clone().count() >= 3 && defaults.into_iter().all(|argument| !argument.contains(":=}")), "K5");
}

/// Names of Nodes that the cloud controller managers expect.
const OF_AWS: &str = "{{ ds.meta_data.local_hostname }}";
const OF_GCP: &str = "{{ ds.meta_data.local_hostname.split('.')[0] }}";
const OF_OPENSTACK: &str = "{{ local_hostname }}";

/// MV5, T9: nothing in the provider may list VMs and delete those without an object.
/// Without it a kubelet gives its Node no provider ID and no cloud controller manager does, so no Machine gets its Node.
#[rstest]
#[case::default("cluster-template.yaml", OF_AWS)]
#[case::aws("cluster-template-aws.yaml", OF_AWS)]
#[case::aws_hybrid("cluster-template-aws-hybrid.yaml", OF_AWS)]
#[case::aws_class("clusterclass-aws.yaml", OF_AWS)]
#[case::gcp("cluster-template-gcp.yaml", OF_GCP)]
#[case::gcp_hybrid("cluster-template-gcp-hybrid.yaml", OF_GCP)]
#[case::gcp_class("clusterclass-gcp.yaml", OF_GCP)]
#[case::openstack("cluster-template-openstack.yaml", OF_OPENSTACK)]
#[case::openstack_class("clusterclass-openstack.yaml", OF_OPENSTACK)]
#[case::class("clusterclass-simulated.yaml", OF_AWS)]
fn every_kubeadm_template_leaves_provider_ids_to_a_cloud_controller_manager(#[case] file: &str, #[case] name: &str) {
    let external = serde_json::json!([{ "name": "cloud-provider", "value": "external" }]);
    let all = serde_json::to_value(objects(&file_of_release(file))).unwrap();
    let registrations = found(&all, "nodeRegistration");
    assert_eq!(registrations.len(), 3, "two of the control plane, one of workers");
    for registration in registrations {
        assert_eq!((&registration["name"], &registration["kubeletExtraArgs"][0]), (&Value::from(name), &external[0]));
    }
    let specs = found(&all, "kubeadmConfigSpec");
    assert_eq!(specs.len(), 1);
    assert_eq!(specs[0]["clusterConfiguration"]["controllerManager"]["extraArgs"], external);
}

/// No template of the release is missing above.
#[test]
fn all_templates_with_kubeadm_are_known() {
    let files = fs::read_dir(format!("{ROOT}/templates/cluster-api")).unwrap().map(|entry| entry.unwrap().path());
    let mut with: Vec<String> = files
        .filter(|file| file.is_file())
        .filter(|file| fs::read_to_string(file).unwrap().contains("nodeRegistration"))
        .map(|file| file.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    with.sort_unstable();
    let expected = [
        "cluster-template-aws-hybrid.yaml",
        "cluster-template-aws.yaml",
        "cluster-template-gcp-hybrid.yaml",
        "cluster-template-gcp.yaml",
        "cluster-template-openstack.yaml",
        "cluster-template.yaml",
        "clusterclass-aws.yaml",
        "clusterclass-gcp.yaml",
        "clusterclass-openstack.yaml",
        "clusterclass-simulated.yaml",
    ];
    assert_eq!(with, expected);
}

/// The values of a field, at any depth.
fn found<'a>(value: &'a Value, field: &str) -> Vec<&'a Value> {
    let below: Vec<&Value> = match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    value.get(field).into_iter().chain(below.into_iter().flat_map(|one| found(one, field))).collect()
}

#[test]
fn the_provider_collects_no_orphan_vms() {
    let kinds = fs::read_to_string(format!("{ROOT}/src/capi/provider/register.rs")).unwrap();
    assert!(kinds.contains("machine::KIND") && !kinds.contains("orphans"));
}

/// S1, S3: clusterctl neither installs nor removes the stand-in for core. Its file contains its policies, and none of
/// its objects is labelled as an object of core or of a provider.
#[test]
fn the_stand_in_is_in_a_file_of_its_own() {
    let of_core = |objects: &[Value]| {
        let crds = objects.iter().filter(|object| is_a(object, &["CustomResourceDefinition"]));
        crds.filter(|crd| crd["spec"]["group"] == "cluster.x-k8s.io").count()
    };
    assert_eq!(of_core(&objects(&components())), 0);
    let stand_in = objects(&file_of_release("stand-in-components.yaml"));
    assert_eq!(of_core(&stand_in), 5);
    let policies = stand_in.iter().filter(|object| is_a(object, &["ValidatingAdmissionPolicyBinding"]));
    assert!(policies.clone().count() == 4);
    // That of its own Secrets holds everywhere.
    for binding in policies.filter(|binding| binding["spec"]["policyName"] != "mcm-stand-in-copies-bootstrap-data") {
        let selector = &binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"];
        assert_eq!(selector, &serde_json::json!({ "machine.mcm/stand-in": "enabled" }));
    }
    for object in &stand_in {
        assert!(object["metadata"]["labels"]["cluster.x-k8s.io/provider"].is_null(), "{object}");
    }
    let arguments = &only(&stand_in, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"];
    assert!(arguments.as_array().unwrap().contains(&"--stand-in".into()));
    assert!(!file_of_release("stand-in-components.yaml").contains("MCM_IMAGE"));
}

/// It needs feature gates of core and cert-manager, so clusterctl does not install it with the provider. It may only read.
#[test]
fn the_update_extension_is_in_a_separate_file_and_reads_only() {
    assert!(!components().contains("ExtensionConfig"));
    let text = file_of_release("in-place-components.yaml");
    assert!(text.contains("image: localhost/mcm:v0.1.0\n"));
    let all = objects(&text);
    let rules = only(&all, "ClusterRole")["rules"].as_array().unwrap();
    assert!(rules.iter().all(|rule| rule["verbs"] == serde_json::json!(["get"])), "{rules:?}");
    let service = only(&all, "Service");
    let (name, namespace) =
        (service["metadata"]["name"].as_str().unwrap(), service["metadata"]["namespace"].as_str().unwrap());
    let config = only(&all, "ExtensionConfig");
    let called = &config["spec"]["clientConfig"]["service"];
    assert_eq!(
        called,
        &serde_json::json!({ "name": name, "namespace": namespace, "port": service["spec"]["ports"][0]["port"] })
    );
    let certificate = only(&all, "Certificate");
    let names = certificate["spec"]["dnsNames"].as_array().unwrap();
    assert!(names.contains(&format!("{name}.{namespace}.svc").into()), "{names:?}");
    let secret = certificate["spec"]["secretName"].as_str().unwrap();
    let authority = &config["metadata"]["annotations"]["runtime.cluster.x-k8s.io/inject-ca-from-secret"];
    assert_eq!(authority, &format!("{namespace}/{secret}"));
    let pod = &only(&all, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], secret);
    assert_eq!(pod["containers"][0]["args"][0], "capi-extension");
}

fn read(path: &str) -> String {
    fs::read_to_string(format!("{ROOT}/{path}")).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_yaml_ng::from_str(&read(path)).unwrap()
}

/// CRDs and permissions are written once: the chart reads them by links.
#[test]
fn the_chart_has_no_copies() {
    for folder in ["crds", "config"] {
        let link = fs::read_link(format!("{ROOT}/charts/mcm/files/{folder}")).unwrap();
        assert_eq!(link, Path::new("../../..").join(folder));
    }
    let templates = fs::read_dir(format!("{ROOT}/charts/mcm/templates")).unwrap().map(|entry| entry.unwrap().path());
    for template in templates.filter(|path| path.is_file()) {
        let text = fs::read_to_string(&template).unwrap();
        assert!(!text.contains("verbs:") && !text.contains("openAPIV3Schema"), "{}", template.display());
    }
}

#[test]
fn the_chart_has_the_version_of_the_product() {
    let chart = yaml("charts/mcm/Chart.yaml");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((&chart["version"], &chart["appVersion"]), (&version.into(), &format!("v{version}").into()));
    for base in ["standalone", "drop-in", "cluster-api"] {
        assert_eq!(yaml(&format!("config/{base}/kustomization.yaml"))["images"][0]["newTag"], format!("v{version}"));
    }
}

/// Helm refuses a value that is not in the schema, and a value in the schema without a default is undocumented.
#[test]
fn the_schema_has_exactly_the_values_of_the_chart() {
    fn fields_of(schema: &Value, path: &str, all: &mut BTreeSet<String>) {
        let Some(fields) = schema["properties"].as_object() else { return };
        assert_eq!(schema["additionalProperties"], false, "{path}");
        for (name, below) in fields {
            all.insert(format!("{path}.{name}"));
            fields_of(below, &format!("{path}.{name}"), all);
        }
    }
    fn values_of(values: &Value, schema: &Value, path: &str, all: &mut BTreeSet<String>) {
        for (name, value) in values.as_object().into_iter().flatten() {
            all.insert(format!("{path}.{name}"));
            let below = &schema["properties"][name];
            if below["properties"].is_object() {
                values_of(value, below, &format!("{path}.{name}"), all);
            }
        }
    }
    let schema: Value = serde_json::from_str(&read("charts/mcm/values.schema.json")).unwrap();
    let (mut in_schema, mut in_values) = (BTreeSet::new(), BTreeSet::new());
    fields_of(&schema, "", &mut in_schema);
    values_of(&yaml("charts/mcm/values.yaml"), &schema, "", &mut in_values);
    // Helm passes it to dependencies.
    assert!(in_schema.remove(".global"));
    // Of any content.
    in_schema.retain(|path| !path.starts_with(".resources."));
    in_values.retain(|path| !path.starts_with(".resources."));
    assert_eq!(in_values, in_schema);
}

/// No default is a credential.
#[test]
fn the_values_of_the_chart_have_no_credentials() {
    let values = read("charts/mcm/values.yaml").to_lowercase();
    assert!(
        !["password", "secretkey:", "accesskey", "token:"]
            .iter()
            .any(|word| values.replace("secretkey: kubeconfig", "").contains(word))
    );
}

/// Gardener reads each `imageVectorOverwrite` as a list of images with the names in its own image vectors, and refuses one
/// with neither `ref` nor `repository`. It passes a command to the first container, and to the second only flags.
#[rstest]
#[case::gardenlet("gardenlet-values.yaml", "machine-controller-manager", "")]
#[case::extension("extension-values.yaml", "machine-controller-manager-provider-aws", "-machine-controller")]
fn image_vectors_for_gardener_name_the_images_of_gardener(
    #[case] file: &str,
    #[case] name: &str,
    #[case] entry_point: &str,
) {
    let values = yaml(&format!("config/gardener/{file}"));
    let vector: Value = serde_yaml_ng::from_str(values["imageVectorOverwrite"].as_str().unwrap()).unwrap();
    let images = vector["images"].as_array().unwrap();
    assert_eq!((images.len(), &images[0]["name"]), (1, &name.into()));
    let tag = format!("v{}{entry_point}", env!("CARGO_PKG_VERSION"));
    assert!(images[0]["repository"].is_string() && images[0]["tag"] == tag && images[0]["ref"].is_null());
}

/// `tests/charts/gardener.rs` tries it on an API server.
#[test]
fn the_policy_for_one_shoot_names_one_namespace() {
    let policies = objects(&read("config/gardener/one-shoot.yaml"));
    let binding = only(&policies, "MutatingAdmissionPolicyBinding");
    let selected = &binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"];
    assert_eq!(selected, &serde_json::json!({ "kubernetes.io/metadata.name": "shoot--project--name" }));
    assert_eq!(binding["spec"]["policyName"], only(&policies, "MutatingAdmissionPolicy")["metadata"]["name"]);
}

/// `tests/charts/gardener.rs` tries it on an API server.
#[test]
fn the_policy_for_a_fleet_starts_a_command_with_flags_that_it_takes() {
    let policies = objects(&read("config/gardener/fleet.yaml"));
    let (policy, binding) =
        (only(&policies, "MutatingAdmissionPolicy"), only(&policies, "MutatingAdmissionPolicyBinding"));
    let selected = &binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"];
    let labels = serde_json::json!({ "gardener.cloud/role": "shoot", (mcm::api::labels::FLEET): "default" });
    assert_eq!((selected, &binding["spec"]["policyName"]), (&labels, &policy["metadata"]["name"]));
    let one_shoot = objects(&read("config/gardener/one-shoot.yaml"));
    assert_eq!(
        policy["spec"]["matchConstraints"],
        only(&one_shoot, "MutatingAdmissionPolicy")["spec"]["matchConstraints"]
    );

    let expression = policy["spec"]["mutations"][0]["jsonPatch"]["expression"].as_str().unwrap();
    let list = regex::Regex::new(r"\['([^\]]*)'\]").unwrap();
    let lists: Vec<Vec<&str>> =
        list.captures_iter(expression).map(|found| found.get(1).unwrap().as_str().split("', '").collect()).collect();
    let [command, of_sets, of_machines] = &lists[..] else { panic!("{lists:?}") };
    assert_eq!(
        (&command[..], &of_sets[..], &of_machines[..]),
        (&["/mcm", "presence"][..], &["--port=10258"][..], &["--port=10259"][..])
    );
    for arguments in [of_sets, of_machines] {
        let mut mcm = assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("mcm"));
        mcm.args(&command[1..]).args(arguments).arg("--help").assert().success();
    }
}
