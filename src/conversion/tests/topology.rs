//! Clusters with a topology, and their ClusterClasses.

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    generated::{answered, object, reference},
    lost, objects, of_kind, options, refused, set,
};
use crate::{ConversionOptions, ConversionResult, InfrastructureChoice, TemplateQuestion, to_capi, to_native};

const AWS: &str = "infrastructure.cluster.x-k8s.io/v1beta2";
const GCP: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
const MCM: &str = "infrastructure.cluster.x-k8s.io/v1beta2";
const CLASS: &str = "/spec/template/spec/machineClass";
const WORKERS: &str = "/spec/workers/machineDeployments";
const VERSIONS: [&str; 2] = ["v1beta1", "v1beta2"];

/// A ClusterClass of a provider with the worker class `small`, in either version, with its templates and a Cluster.
fn all(version: &str, provider: &str, machine: Value, cluster: Value, patches: Value) -> Vec<Value> {
    let infra = if provider == "GCP" { GCP } else { AWS };
    let (core, control) = (format!("cluster.x-k8s.io/{version}"), "controlplane.cluster.x-k8s.io/v1beta1");
    let (cluster_kind, machine_kind) = (format!("{provider}ClusterTemplate"), format!("{provider}MachineTemplate"));
    let of = |kind: &str, name: &str| match version {
        "v1beta1" => json!({ "ref": reference(infra, kind, name) }),
        _ => json!({ "templateRef": reference(infra, kind, name) }),
    };
    let worker = match version {
        "v1beta1" => json!({ "class": "small", "template": { "infrastructure": of(&machine_kind, "workers") } }),
        _ => json!({ "class": "small", "infrastructure": of(&machine_kind, "workers") }),
    };
    let owners = json!({ "machineDeployments": [{ "class": "small", "name": "a", "replicas": 3 }] });
    let topology = match version {
        "v1beta1" => json!({ "class": "quick", "version": "v1.34.1", "workers": owners }),
        _ => json!({ "classRef": { "name": "quick" }, "version": "v1.34.1", "workers": owners }),
    };
    let template = |spec: Value| json!({ "template": { "spec": spec } });
    let mut of_control_plane = of("KubeadmControlPlaneTemplate", "control-plane");
    of_control_plane["machineInfrastructure"] = of(&machine_kind, "control-plane");
    vec![
        object(&core, "Cluster", "c1", json!({ "topology": topology })),
        object(
            &core,
            "ClusterClass",
            "quick",
            json!({
                "controlPlane": of_control_plane, "infrastructure": of(&cluster_kind, "net"),
                "workers": { "machineDeployments": [worker] }, "patches": patches,
            }),
        ),
        object(infra, &cluster_kind, "net", template(cluster)),
        object(control, "KubeadmControlPlaneTemplate", "control-plane", template(json!({}))),
        object(infra, &machine_kind, "control-plane", template(json!({ "instanceType": "large" }))),
        object(infra, &machine_kind, "workers", template(machine)),
    ]
}

/// On AWS, with the region as a constant.
fn aws(patches: Value) -> Vec<Value> {
    let machine = json!({ "instanceType": "small", "iamInstanceProfile": "nodes" });
    all("v1beta2", "AWS", machine, json!({ "region": "eu-west-1" }), patches)
}

fn gcp(patches: Value) -> Vec<Value> {
    let machine = json!({ "instanceType": "small", "image": "i", "additionalNetworkTags": ["extra"] });
    let cluster = json!({ "project": "p", "region": "europe-west1", "network": { "name": "net" } });
    all("v1beta2", "GCP", machine, cluster, patches)
}

fn patch(name: &str, definitions: Value) -> Value {
    json!({ "name": name, "definitions": definitions })
}

fn selector(version: &str, kind: &str, resources: Value) -> Value {
    json!({ "apiVersion": version, "kind": kind, "matchResources": resources })
}

fn workers() -> Value {
    json!({ "machineDeploymentClass": { "names": ["small"] } })
}

/// A definition for the workers of AWS with one JSON patch.
fn of_workers(field: &str, value: Value) -> Value {
    let mut change = json!({ "op": "add", "path": format!("/spec/template/spec{field}") });
    change.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
    json!({ "selector": selector(AWS, "AWSMachineTemplate", workers()), "jsonPatches": [change] })
}

fn of_network(kind: &str, field: &str, value: Value) -> Value {
    let mut made = of_workers(field, value);
    made["selector"] =
        selector(if kind.starts_with('G') { GCP } else { AWS }, kind, json!({ "infrastructureCluster": true }));
    made
}

/// The expected definition for an MCMMachineTemplate, from fields and their values.
fn of_mcm(changes: &[(&str, Value)]) -> Value {
    let changes: Vec<Value> = changes
        .iter()
        .map(|(field, value)| {
            let mut change = json!({ "op": "add", "path": format!("{CLASS}/providerSpec{field}") });
            change.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
            change
        })
        .collect();
    json!({ "selector": selector(MCM, "MCMMachineTemplate", workers()), "jsonPatches": changes })
}

fn variable(name: &str) -> Value {
    json!({ "valueFrom": { "variable": name } })
}

/// Without what each Cluster has in its subnet and groups.
fn simple() -> ConversionOptions {
    let mut known = ConversionOptions { credentials: Some("cloud".into()), ..options() };
    known.answers.add(TemplateQuestion::Image, "ami-1");
    known.answers.add(TemplateQuestion::RootVolume, "20:gp3");
    known.answers.add(TemplateQuestion::Zone, "europe-west1-b");
    known
}

/// The patches of the converted class but for those of the cluster's name, which are the first ones.
#[track_caller]
fn patches(conversion: ConversionResult) -> Vec<Value> {
    let made = objects(conversion);
    let all = of_kind(&made, "ClusterClass")["spec"]["patches"].as_array().unwrap().clone();
    assert_eq!(all[0]["name"], "mcm");
    all[1..].to_vec()
}

/// The class in the template of the workers.
fn class(made: &[Value]) -> &Value {
    of_kind(made, "MCMMachineTemplate").pointer(CLASS).unwrap()
}

#[rstest]
fn a_worker_class_of_aws_becomes_one_of_mcm(#[values("v1beta1", "v1beta2")] version: &str) {
    let machine = json!({ "instanceType": "small", "iamInstanceProfile": "nodes" });
    let given = all(
        version,
        "AWS",
        machine,
        json!({ "additionalTags": { "team": "a" } }),
        json!([
            patch("region", json!([of_network("AWSClusterTemplate", "/region", variable("region"))])),
            patch("type", json!([of_workers("/instanceType", variable("workerType"))])),
        ]),
    );
    let conversion = to_capi(&given, &simple());
    assert!(lost(&conversion).contains(&"spec.template.spec.cloudInit"), "{:?}", conversion.losses);
    let made = objects(conversion);
    assert_eq!(
        class(&made),
        &json!({
            "provider": "AWS",
            "providerSpec": {
                "ami": "ami-1", "machineType": "small", "iam": { "name": "nodes" }, "keyName": "default",
                "blockDevices": [{ "deviceName": "/root", "ebs": {
                    "volumeSize": 20, "volumeType": "gp3", "deleteOnTermination": true,
                } }],
                // Each VM has subnet and groups of its AWSCluster.
                "networkInterfaces": [{}],
                "tags": { "kubernetes.io/role/node": "1", "team": "a" },
            },
            "credentialsSecretRef": { "name": "cloud" },
        })
    );
    let tags = "{\n  \"kubernetes.io/cluster/{{ .builtin.cluster.name }}\": \"owned\",\n  \
                \"kubernetes.io/role/node\": \"1\",\n  \"team\": \"a\"\n}";
    let mut expected = given[1].clone();
    let at = if version == "v1beta1" { "template/infrastructure/ref" } else { "infrastructure/templateRef" };
    set(&mut expected, &format!("{WORKERS}/0/{at}"), reference(MCM, "MCMMachineTemplate", "workers"));
    expected["spec"]["patches"] = json!([
        patch("mcm", json!([of_mcm(&[("/tags", json!({ "valueFrom": { "template": tags } }))])])),
        patch(
            "region",
            json!([
                of_network("AWSClusterTemplate", "/region", variable("region")),
                of_mcm(&[("/region", variable("region"))]),
            ])
        ),
        patch("type", json!([of_mcm(&[("/machineType", variable("workerType"))])])),
    ]);
    assert_eq!(of_kind(&made, "ClusterClass"), &expected);
    for kept in [&given[0], &given[2], &given[3], &given[4]] {
        assert!(made.contains(kept), "{kept:#}");
    }
    assert_eq!(made.len(), given.len());
    assert_eq!(objects(to_capi(&made, &simple())), made, "a second conversion changes nothing");
    let cloud = ConversionOptions { infrastructure: InfrastructureChoice::OfCloud, ..simple() };
    assert_eq!(to_capi(&given, &cloud).objects, given);
}

#[rstest]
fn a_worker_class_of_gcp_becomes_one_of_mcm(#[values("v1beta1", "v1beta2")] version: &str) {
    let machine = json!({ "instanceType": "small", "image": "i", "additionalNetworkTags": ["extra"] });
    let network = |field: &str, name: &str| of_network("GCPClusterTemplate", field, variable(name));
    let mut of_type = of_workers("/instanceType", variable("workerType"));
    of_type["selector"] = selector(GCP, "GCPMachineTemplate", workers());
    let given = all(
        version,
        "GCP",
        machine,
        json!({ "project": "p", "region": "r", "network": { "name": "n" } }),
        json!([
            patch("network", json!([network("/region", "region"), network("/network/name", "network")])),
            patch("type", json!([of_type])),
        ]),
    );
    let conversion = to_capi(&given, &simple());
    let fixed = conversion.losses.iter().find(|one| one.reason.contains("--zone")).unwrap();
    assert_eq!(fixed.object, "GCPMachineTemplate workers");
    let made = objects(conversion.clone());
    let spec = &class(&made)["providerSpec"];
    assert_eq!((&spec["region"], &spec["zone"]), (&json!("r"), &json!("europe-west1-b")));
    assert_eq!(spec["tags"], json!(["extra", "kubernetes-io-role-node"]));
    let tags = of_kind(&made, "ClusterClass")["spec"]["patches"][0]["definitions"][0]["jsonPatches"].clone();
    let name = "{{ .builtin.cluster.name }}";
    let expected = json!([
        "extra",
        format!("{name}-node"),
        name,
        format!("kubernetes-io-cluster-{name}"),
        "kubernetes-io-role-node"
    ]);
    assert_eq!(tags[0]["path"], format!("{CLASS}/providerSpec/tags"));
    assert_eq!(serde_json::from_str::<Value>(tags[0]["valueFrom"]["template"].as_str().unwrap()).unwrap(), expected);
    assert_eq!(
        patches(conversion),
        [
            patch(
                "network",
                json!([
                    network("/region", "region"),
                    of_mcm(&[("/region", variable("region"))]),
                    network("/network/name", "network"),
                    of_mcm(&[("/networkInterfaces/0/network", variable("network"))]),
                ])
            ),
            patch("type", json!([of_mcm(&[("/machineType", variable("workerType"))])])),
        ]
    );
}

/// The control plane stays with its provider.
#[rstest]
#[case::named(json!(["small"]))]
#[case::beginning(json!(["sm*"]))]
#[case::end(json!(["*all"]))]
#[case::any(json!(["*"]))]
fn a_definition_that_also_selects_the_control_plane_is_split(#[case] names: Value) {
    let resources = json!({ "controlPlane": true, "machineDeploymentClass": { "names": names } });
    let mut given = of_workers("/sshKeyName", variable("key"));
    given["selector"]["matchResources"] = resources;
    let mut of_control_plane = given.clone();
    of_control_plane["selector"]["matchResources"] = json!({ "controlPlane": true });
    let made = patches(to_capi(&aws(json!([patch("key", json!([given]))])), &simple()));
    assert_eq!(made, [patch("key", json!([of_control_plane, of_mcm(&[("/keyName", variable("key"))])]))]);
}

#[rstest]
#[case::copied("/ami/id", variable("image"), &[("/ami", variable("image"))])]
#[case::in_a_list("/rootVolume/size", variable("size"), &[("/blockDevices/0/ebs/volumeSize", variable("size"))])]
#[case::a_template("/instanceType", json!({ "valueFrom": { "template": "{{ .size }}.large" } }),
    &[("/machineType", json!({ "valueFrom": { "template": "{{ .size }}.large" } }))])]
#[case::a_constant("/instanceType", json!({ "value": "big" }), &[("/machineType", json!({ "value": "big" }))])]
#[case::the_constant_of_the_template("/instanceType", json!({ "value": "small" }), &[("/machineType", json!({ "value": "small" }))])]
#[case::another_form("/capacityReservationPreference", json!({ "value": "Open" }),
    &[("/capacityReservation", json!({ "value": { "capacityReservationPreference": "open" } }))])]
#[case::a_tag("/additionalTags/a~1b", variable("team"), &[("/tags/a~1b", variable("team"))])]
#[case::a_store("/cloudInit", json!({ "value": { "secureSecretsBackend": "secrets-manager" } }),
    &[("/userDataStore", json!({ "value": "SecretsManager" }))])]
fn a_patch_of_the_workers_sets_the_fields_of_the_class(
    #[case] field: &str,
    #[case] value: Value,
    #[case] expected: &[(&str, Value)],
) {
    let given = aws(json!([patch("one", json!([of_workers(field, value)]))]));
    assert_eq!(patches(to_capi(&given, &simple())), [patch("one", json!([of_mcm(expected)]))]);
}

/// A conditional patch is not for each Cluster.
#[rstest]
#[case::always(json!(null), &[])]
#[case::sometimes(json!("{{ if .image }}true{{ end }}"), &["spec.template.spec.ami.id"])]
fn a_value_that_a_patch_sets_for_each_cluster_is_no_question(#[case] condition: Value, #[case] expected: &[&str]) {
    let mut one = patch("image", json!([of_workers("/ami/id", variable("image"))]));
    if condition.is_string() {
        one["enabledIf"] = condition.clone();
    }
    let mut known = options();
    known.answers.add(TemplateQuestion::RootVolume, "20:gp3");
    let conversion = to_capi(&aws(json!([one])), &known);
    assert_eq!(refused(&conversion), expected);
    let made = patches(to_capi(&aws(json!([one])), &simple()));
    assert_eq!(made[0]["enabledIf"], condition);
}

/// The key of the cluster is that of workers without a key.
#[rstest]
#[case::of_the_cluster(json!(null), &[("/keyName", variable("key"))])]
#[case::its_own(json!("ops"), &[])]
fn a_key_of_the_cluster_is_for_workers_without_one(#[case] key: Value, #[case] expected: &[(&str, Value)]) {
    let of_cluster = of_network("AWSClusterTemplate", "/sshKeyName", variable("key"));
    let mut given = aws(json!([patch("key", json!([of_cluster]))]));
    set(&mut given[5], "/spec/template/spec/sshKeyName", key);
    let mut definitions = vec![of_cluster];
    if !expected.is_empty() {
        definitions.push(of_mcm(expected));
    }
    assert_eq!(patches(to_capi(&given, &simple())), [patch("key", json!(definitions))]);
}

/// MCM has one of the two stores, so that a variable selects a patch.
#[rstest]
#[case::always(json!(null), r#"{{ if eq .store "secrets-manager" }}true{{ end }}"#)]
#[case::sometimes(json!("{{if .store }}true{{end}}"), r#"{{ if eq .store "secrets-manager" }}{{if .store }}true{{end}}{{ end }}"#)]
fn a_variable_for_one_of_a_few_texts_is_a_patch_for_each_counterpart(#[case] condition: Value, #[case] expected: &str) {
    let mut one = patch("store", json!([of_workers("/cloudInit/secureSecretsBackend", variable("store"))]));
    if condition.is_string() {
        one["enabledIf"] = condition;
    }
    let conversion = to_capi(&aws(json!([one])), &simple());
    let notes = conversion.losses.iter().filter(|one| one.path == "spec.patches[0].definitions[0]");
    let notes: Vec<&str> = notes.map(|one| one.reason.as_str()).collect();
    assert!(notes[0].contains("needs permissions") && notes[1].contains("no store in Systems Manager"), "{notes:?}");
    assert!(!lost(&conversion).contains(&"spec.template.spec.cloudInit"), "the store is known");
    let mut made =
        patch("store-secrets-manager", json!([of_mcm(&[("/userDataStore", json!({ "value": "SecretsManager" }))])]));
    made["enabledIf"] = json!(expected);
    assert_eq!(patches(conversion), [made]);
}

#[rstest]
#[case::refused_by_the_converter("/elasticIpPool", variable("pool"), "MCM does not support Elastic IPs")]
#[case::unknown("/noSuchField", variable("x"), "has no counterpart: the VM would differ")]
#[case::another_form("/spotMarketOptions", variable("x"), "is not an object")]
#[case::some_texts("/marketType", variable("x"), "cannot be combined with spotMarketOptions or is unknown")]
#[case::ignored(
    "/instanceMetadataOptions/instanceMetadataTags",
    variable("x"),
    "it has no counterpart in a MachineClass"
)]
#[case::a_value_of_an_object("/placementGroupName", json!({ "value": "g" }), "MCM refers to a placement group by ID")]
#[case::an_absent_object("/instanceMetadataOptions/httpTokens", variable("x"), "another form in a MachineClass")]
#[case::a_whole_machine("", json!({ "value": {} }), "it sets more than single fields of the machine")]
#[case::a_second_volume("/nonRootVolumes/0/size", variable("x"), "an element of a list")]
#[case::a_store_by_template("/cloudInit/secureSecretsBackend", json!({ "valueFrom": { "template": "{{ .x }}" } }), "only a variable")]
fn a_patch_without_a_counterpart_is_refused_by_its_name(
    #[case] field: &str,
    #[case] value: Value,
    #[case] reason: &str,
) {
    let mut given = aws(json!([patch("first", json!([])), patch("odd", json!([of_workers(field, value)]))]));
    set(
        &mut given[5],
        "/spec/template/spec/nonRootVolumes",
        json!([{ "deviceName": "/dev/sdf", "type": "gp3", "size": 1 }]),
    );
    let conversion = to_capi(&given, &simple());
    let [refusal] = conversion.refusals.as_slice() else { panic!("{:?}", conversion.refusals) };
    assert_eq!(
        (refusal.object.as_str(), refusal.path.as_str()),
        ("ClusterClass quick", "spec.patches[1].definitions[0].jsonPatches[0]")
    );
    let start = format!("patch odd sets /spec/template/spec{field} of AWSMachineTemplate: ");
    assert!(refusal.reason.starts_with(&start) && refusal.reason.contains(reason), "{refusal}");
}

#[rstest]
#[case::whole("", json!({ "valueFrom": { "template": "region: {{ .region }}" } }), true)]
#[case::all_tags("/additionalTags", variable("tags"), true)]
#[case::one_tag("/additionalTags/team", variable("team"), false)]
#[case::another_field("/bastion/enabled", variable("bastion"), false)]
fn a_patch_of_the_cluster_is_refused_if_it_reaches_the_machines_in_another_form(
    #[case] field: &str,
    #[case] value: Value,
    #[case] is_refused: bool,
) {
    let given = aws(json!([patch("net", json!([of_network("AWSClusterTemplate", field, value)]))]));
    let conversion = to_capi(&given, &simple());
    let expected: &[&str] = if is_refused { &["spec.patches[0].definitions[0].jsonPatches[0]"] } else { &[] };
    assert_eq!(refused(&conversion), expected);
}

#[test]
fn what_no_patch_can_say_is_refused() {
    let mut given = aws(json!([{ "name": "ext", "external": { "generatePatchesExtension": "x" } }]));
    let mut removal = of_workers("/sshKeyName", json!({}));
    removal["jsonPatches"][0]["op"] = json!("remove");
    given[1]["spec"]["patches"].as_array_mut().unwrap().push(patch("removal", json!([removal])));
    given[1]["spec"]["workers"]["machinePools"] = json!([{ "class": "pool", "infrastructure": { "templateRef": reference(AWS, "AWSMachinePoolTemplate", "p") } }]);
    let paths = ["spec.workers.machinePools[0]", "spec.patches[0]", "spec.patches[1].definitions[0].jsonPatches[0]"];
    assert_eq!(refused(&to_capi(&given, &simple())), paths);
    given.remove(5);
    assert_eq!(refused(&to_capi(&given, &simple()))[1], "spec.workers.machineDeployments[0]");
    let mut given = aws(json!([]));
    given.remove(2);
    let conversion = to_capi(&given, &simple());
    assert_eq!(conversion.refusals[0].reason, "the region is not known");
    assert!(conversion.refusals[0].advice.contains("AWSClusterTemplate"), "{:?}", conversion.refusals);
}

/// The name of an EKS cluster is part of the tags of its VMs.
#[rstest]
#[case::named(json!({ "region": "r", "eksClusterName": "prod" }), &[])]
#[case::by_default(json!({ "region": "r" }), &[""])]
fn workers_of_eks_need_the_name_of_their_cluster(#[case] spec: Value, #[case] expected: &[&str]) {
    let mut given = aws(json!([]));
    let control = "controlplane.cluster.x-k8s.io/v1beta2";
    let kind = "AWSManagedControlPlaneTemplate";
    given[3] = object(control, kind, "control-plane", json!({ "template": { "spec": spec } }));
    given[1]["spec"]["controlPlane"] = json!({ "templateRef": reference(control, kind, "control-plane") });
    given[1]["spec"]["infrastructure"] = json!({ "templateRef": reference(AWS, "AWSManagedClusterTemplate", "net") });
    given[2]["kind"] = json!("AWSManagedClusterTemplate");
    given.remove(4);
    let conversion = to_capi(&given, &answered());
    assert_eq!(refused(&conversion), expected);
    if expected.is_empty() {
        let fixed = conversion.losses.iter().find(|one| one.reason.contains("--subnet")).unwrap();
        assert!(fixed.reason.contains("--image, --subnet, --security-groups"), "{fixed}");
        let made = objects(conversion);
        let spec = &class(&made)["providerSpec"];
        assert_eq!(spec["tags"]["kubernetes.io/cluster/prod"], "owned");
        assert_eq!(spec["networkInterfaces"][0]["subnetID"], "subnet-1");
        assert_eq!(of_kind(&made, "ClusterClass")["spec"]["patches"], json!(null), "nothing differs for its Clusters");
    } else {
        assert!(conversion.refusals[0].advice.contains("eksClusterName of the AWSManagedControlPlaneTemplate"));
    }
}

/// Failure domains of the Cluster come before that of the worker class.
#[rstest]
#[case::of_the_class(json!("z"), json!(null), &["z"])]
#[case::of_the_cluster(json!("z"), json!("y"), &["y"])]
fn a_worker_class_of_gcp_has_the_zone_of_its_machines(
    #[case] of_class: Value,
    #[case] of_cluster: Value,
    #[case] expected: &[&str],
) {
    let mut given = gcp(json!([]));
    set(&mut given[1], &format!("{WORKERS}/0/failureDomain"), of_class);
    set(&mut given[0], "/spec/topology/workers/machineDeployments/0/failureDomain", of_cluster);
    let made = objects(to_capi(&given, &options()));
    assert_eq!([class(&made)["providerSpec"]["zone"].as_str().unwrap()], expected);
    assert!(made.contains(&given[0]), "the zone of the class is that of its machines");
    let owners = given[0]["spec"]["topology"]["workers"]["machineDeployments"].as_array_mut().unwrap();
    owners.push(json!({ "class": "small", "name": "b", "failureDomain": "x" }));
    let conversion = to_capi(&given, &options());
    assert!(conversion.refusals[0].reason.contains("it is used in the zones x, "), "{:?}", conversion.refusals);
}

#[test]
fn the_subnet_of_an_aws_class_determines_the_zone() {
    let mut given = aws(json!([]));
    let place = "/spec/topology/workers/machineDeployments/0/failureDomain";
    set(&mut given[0], place, json!("eu-west-1b"));
    set(&mut given[1], &format!("{WORKERS}/0/failureDomain"), json!("eu-west-1a"));
    let conversion = to_capi(&given, &simple());
    assert_eq!(refused(&conversion), ["spec.template.spec.subnet.id"]);
    assert!(conversion.refusals[0].reason.contains("eu-west-1b"), "{:?}", conversion.refusals);
    let conversion = to_capi(&given, &answered());
    assert!(lost(&conversion).contains(&"spec.topology.workers.machineDeployments[0].failureDomain"));
    assert!(lost(&conversion).contains(&"spec.workers.machineDeployments[0].failureDomain"));
    let made = objects(conversion);
    assert_eq!(of_kind(&made, "Cluster").pointer(place), None);
    assert_eq!(of_kind(&made, "ClusterClass").pointer(&format!("{WORKERS}/0/failureDomain")), None);
}

/// A template of the control plane is still needed.
#[test]
fn a_template_that_the_control_plane_also_has_stays() {
    let mut given = aws(json!([]));
    given[1]["spec"]["controlPlane"]["machineInfrastructure"]["templateRef"]["name"] = json!("workers");
    let made = objects(to_capi(&given, &simple()));
    assert!(made.contains(&given[5]));
    assert_eq!(of_kind(&made, "MCMMachineTemplate")["metadata"]["name"], "workers");
}

/// Core renders braces in templates, but not those of the provider's objects.
#[test]
fn braces_of_constants_are_not_rendered() {
    let mut given = aws(json!([]));
    set(&mut given[5], "/spec/template/spec/additionalTags", json!({ "a": "{{ b }}" }));
    let made = objects(to_capi(&given, &simple()));
    let tags = &of_kind(&made, "ClusterClass")["spec"]["patches"][0]["definitions"][0]["jsonPatches"][0];
    let text = tags["valueFrom"]["template"].as_str().unwrap();
    assert!(text.contains(r#""a": "{{ "{{" }} b }}""#), "{text}");
    assert_eq!(class(&made)["providerSpec"]["tags"]["a"], "{{ b }}");
}

#[rstest]
fn a_topology_without_its_class_is_refused_by_the_name_of_the_class(#[values("v1beta1", "v1beta2")] version: &str) {
    let given = all(version, "AWS", json!({}), json!({}), json!([]));
    let conversion = to_capi(&given[..1], &options());
    assert_eq!(refused(&conversion), ["spec.topology"]);
    let expected = "its workers are those of ClusterClass quick, which is not among the objects";
    assert_eq!(conversion.refusals[0].reason, expected);
}

/// The workers are of mcm, or of a cloud that manages the machines of its pools.
#[rstest]
fn a_topology_with_other_workers_is_unchanged(
    #[values("MCMMachineTemplate", "GCPManagedMachinePoolTemplate")] kind: &str,
    #[values("v1beta1", "v1beta2")] version: &str,
) {
    let patches = json!([patch("one", json!([of_workers("/instanceType", variable("x"))]))]);
    let mut given = all(version, "AWS", json!({}), json!({}), patches);
    let at = if version == "v1beta1" { "template/infrastructure/ref" } else { "infrastructure/templateRef" };
    set(&mut given[1], &format!("{WORKERS}/0/{at}/kind"), json!(kind));
    given.pop();
    assert_eq!(objects(to_capi(&given, &options())), given);
}

#[test]
fn mcm_has_no_topology() {
    for version in VERSIONS {
        let conversion = to_native(&all(version, "AWS", json!({}), json!({}), json!([]))[..2], &options());
        assert_eq!(refused(&conversion), ["spec.topology", "spec.workers"]);
    }
}
