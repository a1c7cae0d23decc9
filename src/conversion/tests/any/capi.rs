use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};
use proptest::{arbitrary::any, collection, option, prelude::Just, prop_compose, sample::select, strategy::Strategy};
use serde_json::{Value, json};

use super::{
    OBJECT_KEYS, TEMPLATE_ANNOTATIONS, TEMPLATE_LABELS, class, keys, metadata, number_or_percent, selector, taint, time,
};
use crate::{
    defaults,
    keys::MetadataMap,
    types::{
        self, Bootstrap, Checks, ClassRef, Deletion, MCMMachineSpec, MachineDeletion, MachineMeta, MachineNaming,
        MachineTaint, MaxInFlight, NodeMeta, NodeTaint, ObjectRef, Rollout, RolloutStrategy, UnhealthyCondition,
    },
};
use mcm_api::machine;

prop_compose! {
    fn node_meta()(
        labels in keys(&["size", "disk"]),
        annotations in keys(&["owner"]),
        taints in collection::vec(taint(), 0..2),
    ) -> NodeMeta {
        NodeMeta { labels, annotations, taints }
    }
}

fn checks() -> impl Strategy<Value = Checks> {
    let others = collection::vec(select(vec!["DiskPressure", "KernelDeadlock"]).prop_map(str::to_owned), 0..3);
    (option::of(select(vec![0, 1, 600, i32::MAX])), any::<[bool; 2]>(), select(vec![0, 1, 300]), others).prop_map(
        |(node_startup_timeout_seconds, [has_conditions, is_reversed], timeout_seconds, others)| {
            let condition = |type_: &str, status: &str| UnhealthyCondition {
                type_: type_.into(),
                status: status.into(),
                timeout_seconds,
            };
            let mut conditions = vec![condition("Ready", "False"), condition("Ready", "Unknown")];
            conditions.extend(others.iter().map(|type_| condition(type_, "True")));
            if is_reversed {
                conditions.reverse();
            }
            let unhealthy_node_conditions = if has_conditions { conditions } else { Vec::new() };
            Checks { node_startup_timeout_seconds, unhealthy_node_conditions, ..Checks::default() }
        },
    )
}

prop_compose! {
    fn capi_machine_spec()(
        version in select(vec!["", "v1.34.1", "1.33.0"]),
        provider_id in Just(String::new()),
        min_ready_seconds in option::of(0..100i32),
        limits in [(); 3].map(|()| option::of(select(vec![0, 1, 7200, i32::MAX]))),
        taints in collection::vec(taint(), 0..3),
    ) -> types::MachineSpec {
        let [node_drain_timeout_seconds, node_volume_detach_timeout_seconds, node_deletion_timeout_seconds] = limits;
        let taints = taints
            .into_iter()
            .map(|NodeTaint { key, value, effect }| MachineTaint { key, value, effect, propagation: "Always".into() })
            .collect();
        types::MachineSpec {
            cluster_name: "c1".into(),
            bootstrap: Bootstrap::default(),
            infrastructure_ref: ObjectRef::default(),
            version: version.into(),
            provider_id,
            failure_domain: String::new(),
            min_ready_seconds,
            readiness_gates: Vec::new(),
            deletion: MachineDeletion {
                node_drain_timeout_seconds, node_volume_detach_timeout_seconds, node_deletion_timeout_seconds,
            },
            taints,
        }
    }
}

/// An infrastructure spec, its bootstrap Secret, and whether the class is among the objects.
#[derive(Clone, Debug)]
struct Vm {
    spec: MCMMachineSpec,
    data_secret_name: &'static str,
    has_secret: bool,
    failure_domain: &'static str,
    template_meta: MachineMeta,
    labels: MetadataMap,
}

prop_compose! {
    fn vm()(
        form in 0..3,
        [has_secret, has_zone, has_other_zone, has_credentials] in any::<[bool; 4]>(),
        creation_timeout_seconds in option::of(1..1000),
        node_template in node_meta(),
        labels in keys(&["team"]),
        annotations in keys(&["team"]),
        object_labels in keys(&["team", "cluster.x-k8s.io/cluster-name"]),
    ) -> Vm {
        let content = machine::ClassContent {
            provider: "simulated".into(),
            provider_spec: json!({ "region": "eu", "null": null }),
            node_template: Some(serde_json::from_value(json!({ "capacity": {}, "zone": "eu-a", "instanceType": "x", "region": "eu" })).unwrap()),
            credentials_secret_ref: has_credentials.then(|| machine::SecretRef { name: "cloud".into(), namespace: "demo".into() }),
        };
        let (machine_class, name) = if form == 0 { (Some(content), "") } else { (None, "small") };
        let is_elsewhere = has_other_zone && machine_class.is_some();
        let zones = is_elsewhere.then(|| ("eu-b".to_owned(), json!({ "subnet": "b" })));
        Vm {
            spec: MCMMachineSpec {
                provider_id: String::new(),
                machine_class_ref: ClassRef { name: name.into() },
                machine_class,
                zones: zones.into_iter().collect(),
                creation_timeout_seconds,
                node_template,
            },
            data_secret_name: if form == 1 { "small-bootstrap" } else { "join" },
            has_secret: has_secret && form != 1,
            failure_domain: match (has_zone, is_elsewhere) {
                (true, true) => "eu-b",
                (true, false) => "eu-a",
                (false, _) => "",
            },
            template_meta: MachineMeta { labels, annotations },
            labels: object_labels,
        }
    }
}

fn reference(kind: &str, name: &str) -> ObjectRef {
    ObjectRef { api_group: types::INFRASTRUCTURE_GROUP.into(), kind: kind.into(), name: name.into() }
}

fn vm_objects(vm: &Vm, kind: &str, name: &str) -> Vec<Value> {
    let meta = metadata(name, vm.labels.clone(), MetadataMap::new());
    let object = if kind == "MCMMachine" {
        serde_json::to_value(types::MCMMachine { metadata: meta, spec: vm.spec.clone(), status: None })
    } else {
        let template = types::TemplateResource { metadata: vm.template_meta.clone(), spec: vm.spec.clone() };
        let spec = types::MCMMachineTemplateSpec { template };
        serde_json::to_value(types::MCMMachineTemplate { metadata: meta, spec, status: None })
    };
    let mut objects = vec![object.unwrap()];
    objects.extend(class());
    if vm.has_secret {
        objects.push(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "join", "namespace": "demo", "labels": { "cluster.x-k8s.io/cluster-name": "c1" } },
            "type": "cluster.x-k8s.io/secret",
            "data": { "value": "am9pbg==", "format": "aWduaXRpb24=" },
        }));
    }
    objects
}

fn health_check(check: Checks, labels: MetadataMap) -> Value {
    let spec = types::MachineHealthCheckSpec {
        cluster_name: "c1".into(),
        selector: LabelSelector { match_labels: Some([("pool".into(), "a".into())].into()), match_expressions: None },
        checks: check,
        ..types::MachineHealthCheckSpec::default()
    };
    let mut check =
        types::MachineHealthCheck { metadata: metadata("check", labels, MetadataMap::new()), spec, status: None };
    defaults::health_check(&mut check);
    serde_json::to_value(check).unwrap()
}

prop_compose! {
    /// A deployment of Cluster API with defaults, and all that belongs to it.
    pub fn capi_deployment()(
        labels in keys(OBJECT_KEYS),
        annotations in keys(OBJECT_KEYS),
        replicas in option::of(0..5i32),
        after in option::of(time()),
        bounds in [(); 2].map(|()| option::of(number_or_percent())),
        selector in selector(),
        own_labels in keys(TEMPLATE_LABELS),
        own_annotations in keys(TEMPLATE_ANNOTATIONS),
        mut machine_spec in capi_machine_spec(),
        vm in vm(),
        names in (select(vec!["", "{{ .machineSet.name }}-{{ .random }}"]), select(vec!["", "Random", "Oldest"])),
        in_flight in option::of(Just(IntOrString::Int(1))),
        paused in option::of(any::<bool>()),
        check in option::of((checks(), keys(&["team"]))),
    ) -> Vec<Value> {
        let [max_surge, max_unavailable] = bounds;
        machine_spec.bootstrap.data_secret_name = Some(vm.data_secret_name.into());
        machine_spec.infrastructure_ref = reference("MCMMachineTemplate", "template");
        machine_spec.failure_domain = vm.failure_domain.into();
        let mut labels_ = own_labels;
        labels_.insert("pool".into(), "a".into());
        let spec = types::MachineDeploymentSpec {
            cluster_name: "c1".into(),
            replicas,
            rollout: Rollout {
                after,
                strategy: RolloutStrategy {
                    type_: String::new(),
                    rolling_update: types::RollingUpdate { max_unavailable, max_surge },
                },
            },
            selector,
            template: types::MachineTemplate {
                metadata: MachineMeta { labels: labels_, annotations: own_annotations },
                spec: machine_spec,
            },
            machine_naming: MachineNaming { template: names.0.into() },
            remediation: MaxInFlight { max_in_flight: in_flight },
            deletion: Deletion { order: names.1.into() },
            paused,
        };
        let mut deployment = types::MachineDeployment { metadata: metadata("pool", labels, annotations), spec, status: None };
        defaults::deployment(&mut deployment);
        let mut objects = vec![serde_json::to_value(deployment).unwrap()];
        objects.extend(vm_objects(&vm, "MCMMachineTemplate", "template"));
        objects.extend(check.map(|(check, labels)| health_check(check, labels)));
        objects
    }
}

prop_compose! {
    /// A Machine of Cluster API with defaults, and all that belongs to it.
    pub fn capi_machine()(
        mut labels in keys(TEMPLATE_LABELS),
        annotations in keys(TEMPLATE_ANNOTATIONS),
        deployment in option::of(Just("pool".to_owned())),
        mut spec in capi_machine_spec(),
        mut vm in vm(),
        id in select(vec!["", "aws:///eu-west-1a/i-1", "gce://p/eu-a/vm", "simulated:///x"]),
        node in option::of(Just("node-1".to_owned())),
    ) -> Vec<Value> {
        spec.bootstrap.data_secret_name = Some(vm.data_secret_name.into());
        spec.infrastructure_ref = reference("MCMMachine", "vm");
        spec.failure_domain = vm.failure_domain.into();
        spec.provider_id = id.into();
        vm.spec.provider_id = id.into();
        vm.template_meta = MachineMeta::default();
        labels.insert("pool".into(), "a".into());
        labels.extend(deployment.map(|name| ("cluster.x-k8s.io/deployment-name".to_owned(), name)));
        let status = node.map(|name| types::MachineStatus { node_ref: Some(types::NodeRef { name }), ..Default::default() });
        let mut machine = types::Machine { metadata: metadata("vm-1", labels, annotations), spec, status };
        defaults::machine(&mut machine);
        let mut objects = vec![serde_json::to_value(machine).unwrap()];
        objects.extend(vm_objects(&vm, "MCMMachine", "vm"));
        objects
    }
}
