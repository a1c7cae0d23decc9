//! Files with a whole cluster of another provider, as its generator writes them.

use rstest::rstest;
use serde_json::{Value, json};

use super::{objects, of_kind, options, refused, set};
use crate::{ConversionOptions, ConversionResult, InfrastructureChoice, TemplateQuestion, to_capi, to_native};

const CORE: &str = "cluster.x-k8s.io/v1beta1";
const INFRA: &str = "infrastructure.cluster.x-k8s.io/v1beta2";
const GCP: &str = "infrastructure.cluster.x-k8s.io/v1beta1";
const REFERENCE: &str = "/spec/template/spec/infrastructureRef";

pub(super) fn object(version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": "demo" }, "spec": spec })
}

pub(super) fn reference(version: &str, kind: &str, name: &str) -> Value {
    json!({ "apiVersion": version, "kind": kind, "name": name })
}

/// The workers: a deployment or pool, its infrastructure and its bootstrap configuration.
fn workers(owner: &str, infra: Value) -> Vec<Value> {
    let config = if owner == "MachinePool" { "KubeadmConfig" } else { "KubeadmConfigTemplate" };
    let bootstrap = "bootstrap.cluster.x-k8s.io/v1beta1";
    let (version, kind) = (infra["apiVersion"].as_str().unwrap(), infra["kind"].as_str().unwrap());
    let mut spec = json!({
        "clusterName": "c1", "replicas": 3,
        "template": { "spec": {
            "clusterName": "c1", "version": "v1.34.1",
            "bootstrap": { "configRef": reference(bootstrap, config, "workers") },
            "infrastructureRef": reference(version, kind, "workers"),
        } },
    });
    if owner != "MachinePool" {
        spec["selector"] = json!({ "matchLabels": null });
    }
    let config_spec = json!({ "joinConfiguration": { "nodeRegistration": { "name": "x" } } });
    vec![object(CORE, owner, "workers", spec), infra, object(bootstrap, config, "workers", config_spec)]
}

/// A cluster with a control plane of kubeadm, and add-ons.
fn cluster(provider: &str, version: &str) -> Vec<Value> {
    let control_plane = "controlplane.cluster.x-k8s.io/v1beta1";
    let template = format!("{provider}MachineTemplate");
    let infra = match provider {
        "AWS" => json!({ "region": "eu-west-1", "sshKeyName": "ops" }),
        _ => {
            json!({ "region": "europe-west1", "project": "p", "network": { "name": "net" }, "additionalLabels": { "team": "a" } })
        }
    };
    vec![
        object(
            CORE,
            "Cluster",
            "c1",
            json!({
                "clusterNetwork": { "pods": { "cidrBlocks": ["192.168.0.0/16"] } },
                "infrastructureRef": reference(version, &format!("{provider}Cluster"), "c1"),
                "controlPlaneRef": reference(control_plane, "KubeadmControlPlane", "control-plane"),
            }),
        ),
        object(version, &format!("{provider}Cluster"), "c1", infra),
        object(
            control_plane,
            "KubeadmControlPlane",
            "control-plane",
            json!({
                "machineTemplate": { "infrastructureRef": reference(version, &template, "control-plane") },
            }),
        ),
        object(version, &template, "control-plane", json!({ "template": { "spec": { "instanceType": "large" } } })),
        object(INFRA, "AWSClusterRoleIdentity", "role", json!({ "roleARN": "arn" })),
        object("addons.cluster.x-k8s.io/v1beta1", "ClusterResourceSet", "cni", json!({ "resources": [] })),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "cni", "namespace": "demo" }, "data": {} }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "ccm", "namespace": "demo" }, "data": {} }),
    ]
}

fn aws(owner: &str) -> Vec<Value> {
    let machine = json!({ "instanceType": "m5.large", "iamInstanceProfile": "nodes" });
    let infra = match owner {
        "MachinePool" => {
            let spec = json!({ "minSize": 1, "maxSize": 10, "availabilityZones": ["eu-west-1a"], "awsLaunchTemplate": machine });
            object(INFRA, "AWSMachinePool", "workers", spec)
        }
        _ => object(INFRA, "AWSMachineTemplate", "workers", json!({ "template": { "spec": machine } })),
    };
    cluster("AWS", INFRA).into_iter().chain(workers(owner, infra)).collect()
}

fn gcp(owner: &str) -> Vec<Value> {
    let machine = json!({ "instanceType": "n2-standard-4", "image": "projects/p/global/images/i" });
    let infra = match owner {
        "MachinePool" => object(GCP, "GCPMachinePool", "workers", machine),
        _ => object(GCP, "GCPMachineTemplate", "workers", json!({ "template": { "spec": machine } })),
    };
    cluster("GCP", GCP).into_iter().chain(workers(owner, infra)).collect()
}

pub(super) fn answered() -> ConversionOptions {
    let mut known = ConversionOptions { credentials: Some("cloud".into()), ..options() };
    for (question, answer) in [
        (TemplateQuestion::Image, "ami-1"),
        (TemplateQuestion::Subnet, "subnet-1"),
        (TemplateQuestion::SecurityGroups, "sg-1,sg-2"),
        (TemplateQuestion::RootVolume, "20:gp3"),
        (TemplateQuestion::Zone, "europe-west1-b"),
        (TemplateQuestion::BootstrapSecret, "join"),
    ] {
        known.answers.add(question, answer);
    }
    known
}

/// The objects that both conversions leave as they are.
fn kept(given: &[Value]) -> Vec<&Value> {
    let is_kept =
        |one: &&Value| one["metadata"]["name"] != "workers" || one["kind"].as_str().unwrap().starts_with("Kubeadm");
    given.iter().filter(is_kept).collect()
}

type Convert = fn(&[Value], &ConversionOptions) -> ConversionResult;

#[rstest]
#[case::aws_deployment(aws("MachineDeployment"), "AWSMachineTemplate", "spec.template.spec.", 4)]
#[case::aws_pool(aws("MachinePool"), "AWSMachinePool", "spec.awsLaunchTemplate.", 4)]
#[case::gcp_deployment(gcp("MachineDeployment"), "GCPMachineTemplate", "", 1)]
#[case::gcp_pool(gcp("MachinePool"), "GCPMachinePool", "", 1)]
fn each_open_value_is_one_question_that_names_its_flag(
    #[case] given: Vec<Value>,
    #[case] kind: &str,
    #[case] at: &str,
    #[case] count: usize,
    #[values(to_capi as Convert, to_native as Convert)] convert: Convert,
) {
    let mut known = options();
    known.answers.add(TemplateQuestion::BootstrapSecret, "join");
    let refusals = convert(&given, &known).refusals;
    let questions: Vec<_> = refusals.iter().filter(|one| one.object == format!("{kind} workers")).collect();
    assert_eq!(questions.len(), count, "{questions:#?}");
    assert!(
        questions.iter().all(|one| one.advice.starts_with("pass --") && one.path.starts_with(at)),
        "{questions:#?}"
    );
    assert_eq!(convert(&given, &answered()).refusals, []);
}

#[test]
fn a_question_is_asked_once_for_all_templates() {
    let mut given = aws("MachineDeployment");
    let mut second =
        workers("MachineDeployment", object(INFRA, "AWSMachineTemplate", "workers", given[9]["spec"].clone()));
    for one in &mut second {
        set(one, "/metadata/name", json!("others"));
    }
    set(&mut second[0], &format!("{REFERENCE}/name"), json!("others"));
    given.extend(second);
    let refusals = to_capi(&given, &options()).refusals;
    assert_eq!(refusals.len(), 4, "{refusals:#?}");
    assert!(refusals.iter().all(|one| one.object == "AWSMachineTemplate workers, others"));

    let mut known = answered();
    known.answers.add(TemplateQuestion::Image, "others=ami-2");
    let made = objects(to_capi(&given, &known));
    let images: Vec<&Value> =
        made.iter().filter(|one| one["kind"] == "MachineClass").map(|one| &one["providerSpec"]["ami"]).collect();
    assert_eq!(images, ["ami-1", "ami-2"]);
    known.answers.add(TemplateQuestion::Image, "typo=ami-3");
    let refusals = to_capi(&given, &known).refusals;
    assert_eq!(
        refusals.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["flag --image: no object has the name typo; use the name of a template, pool or deployment, or IMAGE alone"]
    );
}

#[rstest]
#[case::aws_deployment(aws("MachineDeployment"), "MCMMachineTemplate")]
#[case::aws_pool(aws("MachinePool"), "MCMMachinePool")]
#[case::gcp_deployment(gcp("MachineDeployment"), "MCMMachineTemplate")]
#[case::gcp_pool(gcp("MachinePool"), "MCMMachinePool")]
fn mcm_takes_the_workers_and_the_provider_keeps_the_rest(#[case] given: Vec<Value>, #[case] kind: &str) {
    let conversion = to_capi(&given, &answered());
    let notes: Vec<&str> = conversion
        .losses
        .iter()
        .filter(|loss| loss.reason.starts_with("stays as it is"))
        .map(|loss| loss.object.as_str())
        .collect();
    assert!(notes.contains(&"ConfigMap cni, ccm"), "one note for each kind: {notes:?}");
    let made = objects(conversion);
    for one in kept(&given) {
        assert!(made.contains(one), "{one:#}");
    }
    let owner = &given[8];
    let mut expected = owner.clone();
    set(&mut expected, REFERENCE, reference(INFRA, kind, "workers"));
    assert_eq!(of_kind(&made, owner["kind"].as_str().unwrap()), &expected);
    let infra = of_kind(&made, kind);
    assert_eq!(infra["metadata"]["name"], "workers");
    assert!(infra.to_string().contains(r#""machineClassRef":{"name":"workers"}"#));
    let class = of_kind(&made, "MachineClass");
    assert_eq!(class["credentialsSecretRef"], json!({ "name": "cloud", "namespace": "demo" }));
    assert_eq!(made.len(), given.len() + 1, "the template of the provider has become a class and a template of mcm");
    assert_eq!(
        to_capi(&given, &ConversionOptions { infrastructure: InfrastructureChoice::OfCloud, ..answered() }).objects,
        given
    );
}

#[test]
fn an_aws_class_has_the_answers() {
    let class = objects(to_capi(&aws("MachineDeployment"), &answered()));
    assert_eq!(
        of_kind(&class, "MachineClass")["providerSpec"],
        json!({
            "ami": "ami-1", "region": "eu-west-1", "machineType": "m5.large", "iam": { "name": "nodes" }, "keyName": "ops",
            "blockDevices": [{ "deviceName": "/root", "ebs": {
                "volumeSize": 20, "volumeType": "gp3", "deleteOnTermination": true,
            } }],
            "networkInterfaces": [{ "subnetID": "subnet-1", "securityGroupIDs": ["sg-1", "sg-2"] }],
            "tags": { "kubernetes.io/cluster/c1": "owned", "kubernetes.io/role/node": "1" },
        })
    );
    let class = objects(to_capi(&aws("MachinePool"), &answered()));
    let spec = &of_kind(&class, "MachineClass")["providerSpec"];
    assert_eq!(spec["keyName"], Value::Null, "a launch template has no key of the cluster");
}

/// The cloud manages the control plane, whose object describes the network.
#[rstest]
#[case::by_default(json!(null), "demo_c1-control-plane")]
#[case::named(json!("prod"), "prod")]
fn the_vms_of_an_eks_cluster_have_its_tag_and_groups(#[case] name: Value, #[case] tag: &str) {
    let version = "controlplane.cluster.x-k8s.io/v1beta2";
    let mut given = aws("MachineDeployment");
    let spec = json!({ "region": "eu-west-1", "eksClusterName": name });
    given[1] = object(version, "AWSManagedControlPlane", "c1-control-plane", spec);
    let groups = json!({ "node": { "id": "sg-a" }, "node-eks-additional": { "id": "sg-b" } });
    set(&mut given[1], "/status/networkStatus/securityGroups", groups);
    set(&mut given[0], "/spec/controlPlaneRef", reference(version, "AWSManagedControlPlane", "c1-control-plane"));
    let made = objects(to_capi(&given, &answered()));
    let spec = &of_kind(&made, "MachineClass")["providerSpec"];
    assert_eq!(spec["tags"][format!("kubernetes.io/cluster/{tag}")], "owned");
    assert_eq!(spec["networkInterfaces"][0]["securityGroupIDs"], json!(["sg-a", "sg-b"]));
}

/// Files for an upgrade have templates that nothing refers to yet.
#[test]
fn a_template_without_users_is_of_the_only_cluster() {
    let mut given = aws("MachineDeployment");
    let mut other = given[9].clone();
    set(&mut other, "/metadata/name", json!("next"));
    set(&mut other, "/apiVersion", json!("infrastructure.cluster.x-k8s.io/v1beta1"));
    given.push(other);
    let made = objects(to_native(&given, &answered()));
    let class = made.iter().find(|one| one["kind"] == "MachineClass" && one["metadata"]["name"] == "next").unwrap();
    assert_eq!(class["providerSpec"]["region"], "eu-west-1");
}

#[test]
fn a_gcp_class_has_the_labels_of_the_cluster() {
    let mut given = gcp("MachineDeployment");
    set(&mut given[9], "/spec/template/spec/additionalLabels", json!({ "cost": "1" }));
    let made = objects(to_capi(&given, &answered()));
    let spec = &of_kind(&made, "MachineClass")["providerSpec"];
    assert_eq!((&spec["zone"], &spec["labels"]), (&json!("europe-west1-b"), &json!({ "team": "a", "cost": "1" })));
    assert_eq!(spec["disks"][0]["labels"], spec["labels"]);
}

/// The provider takes the first one in the order of their names.
#[test]
fn the_first_zone_of_a_gcp_cluster_is_that_of_its_machines() {
    let mut given = gcp("MachineDeployment");
    set(&mut given[1], "/status", json!({ "failureDomains": { "europe-west1-d": {}, "europe-west1-c": {} } }));
    let made = objects(to_capi(&given, &options()));
    assert_eq!(of_kind(&made, "MachineClass")["providerSpec"]["zone"], "europe-west1-c");
}

#[rstest]
#[case::first_private(json!({}), json!(null), "subnet-b")]
#[case::of_the_zone(json!({}), json!("eu-west-1c"), "subnet-c")]
#[case::public(json!({ "publicIP": true }), json!(null), "subnet-a")]
#[case::answered(json!({ "subnet": { "filters": [{ "name": "a", "values": ["b"] }] } }), json!(null), "subnet-1")]
fn a_cluster_that_is_ready_has_the_subnet_that_its_provider_chooses(
    #[case] machine: Value,
    #[case] zone: Value,
    #[case] expected: &str,
) {
    let mut given = aws("MachineDeployment");
    set(&mut given[1], "/status", json!({ "ready": true }));
    set(
        &mut given[1],
        "/spec/network/subnets",
        json!([
            { "id": "subnet-a", "isPublic": true, "availabilityZone": "eu-west-1a" },
            { "id": "subnet-x", "availabilityZone": "eu-west-1a", "tags": {
                "sigs.k8s.io/cluster-api-provider-aws/association": "secondary",
            } },
            { "id": "private-b", "resourceID": "subnet-b", "availabilityZone": "eu-west-1b" },
            { "id": "subnet-c", "availabilityZone": "eu-west-1c" },
        ]),
    );
    set(&mut given[8], "/spec/template/spec/failureDomain", zone);
    for (name, value) in machine.as_object().unwrap() {
        set(&mut given[9], &format!("/spec/template/spec/{name}"), value.clone());
    }
    let known = match expected {
        "subnet-1" => answered(),
        _ => {
            let mut known = options();
            for (question, answer) in [
                (TemplateQuestion::Image, "a"),
                (TemplateQuestion::SecurityGroups, "sg"),
                (TemplateQuestion::RootVolume, "20:gp3"),
            ] {
                known.answers.add(question, answer);
            }
            known
        }
    };
    let made = objects(to_capi(&given, &known));
    assert_eq!(of_kind(&made, "MachineClass")["providerSpec"]["networkInterfaces"][0]["subnetID"], expected);
    let spec = &of_kind(&made, "MachineDeployment")["spec"]["template"]["spec"];
    assert_eq!(spec["failureDomain"], Value::Null, "the subnet determines the zone");
}

#[rstest]
#[case(json!({ "size": 50 }), json!({ "volumeSize": 50, "volumeType": "gp3", "deleteOnTermination": true }))]
#[case(json!({ "type": "io1", "iops": 100 }), json!({
    "volumeSize": 20, "volumeType": "io1", "iops": 100, "deleteOnTermination": true,
}))]
fn the_answer_completes_a_root_volume(#[case] volume: Value, #[case] expected: Value) {
    let mut given = aws("MachineDeployment");
    set(&mut given[9], "/spec/template/spec/rootVolume", volume);
    let made = objects(to_capi(&given, &answered()));
    assert_eq!(of_kind(&made, "MachineClass")["providerSpec"]["blockDevices"][0]["ebs"], expected);
}

#[rstest]
#[case::aws_deployment(aws("MachineDeployment"))]
#[case::aws_pool(aws("MachinePool"))]
#[case::gcp_deployment(gcp("MachineDeployment"))]
#[case::gcp_pool(gcp("MachinePool"))]
fn workers_become_native_and_come_back(#[case] given: Vec<Value>) {
    let native = objects(to_native(&given, &answered()));
    let class = of_kind(&native, "MachineClass");
    assert_eq!(class["secretRef"]["name"], "join-userdata");
    assert_eq!(class["credentialsSecretRef"]["name"], "cloud");
    for one in kept(&given) {
        assert!(native.contains(one), "{one:#}");
    }
    let moved: Vec<Value> = native.iter().filter(|one| one["metadata"]["name"] != "control-plane").cloned().collect();
    let back =
        objects(to_capi(&moved, &ConversionOptions { infrastructure: InfrastructureChoice::OfCloud, ..options() }));
    let infra = given[9].clone();
    assert_eq!(of_kind(&back, infra["kind"].as_str().unwrap()), &infra);
    let owner = of_kind(&back, given[8]["kind"].as_str().unwrap());
    let spec = &owner["spec"]["template"]["spec"];
    assert_eq!(spec["bootstrap"]["configRef"]["name"], "workers");
    assert_eq!(spec["bootstrap"]["dataSecretName"], Value::Null);
    assert_eq!(spec["infrastructureRef"]["kind"], infra["kind"]);
}

#[test]
fn native_workers_need_a_secret_with_join_data() {
    let conversion = to_native(&aws("MachineDeployment"), &options());
    let refusal = conversion.refusals.iter().find(|one| one.path == "spec.template.spec.bootstrap.configRef").unwrap();
    assert!(refusal.advice.contains("--bootstrap-secret"), "{refusal}");
}

#[rstest]
#[case("mixedInstancesPolicy", json!({ "overrides": [{ "instanceType": "a" }] }), "spec.mixedInstancesPolicy")]
#[case("lifecycleHooks", json!([{ "name": "a" }]), "spec.lifecycleHooks")]
#[case("availabilityZones", json!(["a", "b"]), "spec.subnets")]
#[case("subnets", json!([{ "id": "subnet-a" }, { "id": "subnet-b" }]), "spec.subnets")]
#[case("ignition", json!({ "version": "3.4" }), "spec.ignition")]
#[case("noSuchField", json!(1), "spec.noSuchField")]
fn an_aws_pool_that_means_other_vms_is_refused(#[case] field: &str, #[case] value: Value, #[case] path: &str) {
    let mut given = aws("MachinePool");
    given[9]["spec"][field] = value;
    assert_eq!(refused(&to_capi(&given, &answered())), [path]);
}

#[rstest]
#[case::control_plane(json!({ "cluster.x-k8s.io/control-plane": "" }), json!("40%"), &[])]
#[case::workers(json!({ "cluster.x-k8s.io/deployment-name": "workers" }), json!("100%"), &[])]
#[case::limited(
    json!({ "cluster.x-k8s.io/deployment-name": "workers" }), json!("40%"),
    &["", "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo"]
)]
fn a_health_check_of_a_generated_cluster_is_converted(
    #[case] labels: Value,
    #[case] most: Value,
    #[case] expected: &[&str],
) {
    let condition = |status: &str| json!({ "type": "Ready", "status": status, "timeout": "300s" });
    let mut given = aws("MachineDeployment");
    given.push(object(
        CORE,
        "MachineHealthCheck",
        "check",
        json!({
            "clusterName": "c1", "maxUnhealthy": most, "selector": { "matchLabels": labels },
            "unhealthyConditions": [condition("False"), condition("Unknown")],
        }),
    ));
    assert_eq!(refused(&to_native(&given, &answered())), expected);
    assert!(objects(to_capi(&given, &answered())).contains(&given[11]), "Cluster API keeps it");
}
