use k8s_openapi::api::core::v1::{NodeSpec, Taint};
use proptest::{
    arbitrary::any, collection, option, prelude::Just, prop_compose, prop_oneof, sample::select, strategy::Strategy,
};
use serde_json::{Value, json};

use super::{OBJECT_KEYS, TEMPLATE_LABELS, class, keys, metadata, number_or_percent, selector, taint, time};
use crate::{keys::MetadataMap, seconds::NEVER};
use mcm_api::{
    GoDuration,
    machine::{self, ClassSpec, MachineConfiguration, NodeTemplate, TemplateMeta},
};

fn duration() -> impl Strategy<Value = GoDuration> {
    prop_oneof![
        select(vec!["0s", "-3s", "90s", "1500ms", "2h", "10m", "20m", "596523h"])
            .prop_map(|text| text.parse().unwrap()),
        Just(NEVER),
        Just("876001h".parse().unwrap()),
    ]
}

prop_compose! {
    fn configuration()(
        durations in [(); 5].map(|()| option::of(duration())),
        disable_health_timeout in option::of(any::<bool>()),
        max_evict_retries in option::of(-1..3i32),
        node_conditions in option::of(select(vec!["", "KernelDeadlock", "A,B,,A"]).prop_map(str::to_owned)),
    ) -> MachineConfiguration {
        let [drain_timeout, health_timeout, creation_timeout, in_place_update_timeout, machine_preserve_timeout] = durations;
        MachineConfiguration {
            drain_timeout, health_timeout, creation_timeout, in_place_update_timeout, machine_preserve_timeout,
            disable_health_timeout, max_evict_retries, node_conditions,
        }
    }
}

prop_compose! {
    fn template_meta(labels: &'static [&'static str], annotations: &'static [&'static str])(
        labels in keys(labels),
        annotations in keys(annotations),
        finalizers in collection::vec(Just("example.com/f".to_owned()), 0..2),
        other in select(vec![json!({}), json!({ "generateName": "x" })]),
    ) -> TemplateMeta {
        TemplateMeta { labels, annotations, finalizers, other: other.as_object().unwrap().clone() }
    }
}

prop_compose! {
    fn node_spec()(
        taints in collection::vec((taint(), option::of(time())), 0..3),
        has_taints in any::<bool>(),
        unschedulable in option::of(any::<bool>()),
    ) -> NodeSpec {
        let taints = taints.into_iter().map(|(taint, time_added)| Taint {
            key: taint.key, effect: taint.effect, value: Some(taint.value).filter(|value| !value.is_empty()), time_added,
        });
        NodeSpec { taints: has_taints.then(|| taints.collect()), unschedulable, ..NodeSpec::default() }
    }
}

const NODE_KEYS: &[&str] = &["size", "node-role.kubernetes.io/worker", "node.cluster.x-k8s.io/size"];
const MARKS: &[&str] =
    &["team", "node.cluster.x-k8s.io/owner", "node.machine.sapcloud.io/preserve", "cluster.x-k8s.io/paused"];

prop_compose! {
    fn native_spec()(
        class in (select(vec!["", "machine.sapcloud.io"]), select(vec!["", "MachineClass"])),
        metadata in template_meta(NODE_KEYS, &["owner", "node.cluster.x-k8s.io/owner"]),
        spec in option::of(node_spec()),
        configuration in configuration(),
    ) -> machine::MachineSpec {
        machine::MachineSpec {
            class: ClassSpec { api_group: class.0.into(), kind: class.1.into(), name: "small".into() },
            provider_id: String::new(),
            node_template: NodeTemplate { metadata, spec: spec.map(Box::new) }.into(),
            configuration,
        }
    }
}

prop_compose! {
    fn own_marks()(
        priority in option::of(select(vec!["1", "5", "x"])),
        version in option::of(Just("v1.34.0")),
        after in option::of(time()),
    ) -> MetadataMap {
        let mut marks = MetadataMap::new();
        marks.extend(priority.map(|text| ("machinepriority.machine.sapcloud.io".to_owned(), text.to_owned())));
        marks.extend(version.map(|text| ("conversion.mcm/version".to_owned(), text.to_owned())));
        marks.extend(after.map(|time| ("conversion.mcm/rollout-after".to_owned(), time.0.to_string())));
        marks
    }
}

fn native_strategy() -> impl Strategy<Value = machine::Strategy> {
    let bounds = (number_or_percent(), number_or_percent());
    (select(vec!["RollingUpdate", "Recreate", "InPlaceUpdate"]), bounds, select(vec!["", "Auto", "Manual"])).prop_map(
        |(type_, (max_surge, max_unavailable), orchestration)| {
            let (max_surge, max_unavailable) = (Some(max_surge), Some(max_unavailable));
            machine::Strategy {
                type_: type_.into(),
                rolling_update: (type_ == "RollingUpdate").then(|| machine::RollingUpdate {
                    max_surge: max_surge.clone(),
                    max_unavailable: max_unavailable.clone(),
                }),
                in_place_update: (type_ == "InPlaceUpdate").then(|| machine::InPlaceUpdate {
                    max_surge,
                    max_unavailable,
                    orchestration_type: orchestration.into(),
                }),
            }
        },
    )
}

prop_compose! {
    /// A native deployment and its class.
    pub fn native_deployment()(
        mut labels in keys(OBJECT_KEYS),
        cluster in option::of(Just("c1".to_owned())),
        annotations in keys(OBJECT_KEYS),
        replicas in 0..5i32,
        selector in selector(),
        selects_name in any::<bool>(),
        mut metadata_ in template_meta(TEMPLATE_LABELS, MARKS),
        marks in own_marks(),
        spec in native_spec(),
        strategy in native_strategy(),
        numbers in [0..3i32, 0..3i32],
        limits in any::<[Option<u8>; 2]>(),
        paused in any::<bool>(),
        has_class in any::<bool>(),
    ) -> Vec<Value> {
        labels.extend(cluster.map(|cluster| ("cluster.x-k8s.io/cluster-name".to_owned(), cluster)));
        metadata_.labels.insert("pool".into(), "a".into());
        metadata_.annotations.extend(marks);
        let mut selector = selector;
        if selects_name {
            metadata_.labels.insert("name".into(), "pool".into());
            selector.match_labels.get_or_insert_default().insert("name".into(), "pool".into());
        }
        let [min_ready_seconds, auto_preserve_failed_machine_max] = numbers;
        let [revision_history_limit, progress_deadline_seconds] = limits.map(|limit| limit.map(i32::from));
        let spec = machine::MachineDeploymentSpec {
            replicas,
            selector: Some(selector),
            template: machine::MachineTemplate { metadata: metadata_, spec },
            strategy,
            min_ready_seconds,
            revision_history_limit,
            paused,
            rollback_to: None,
            progress_deadline_seconds,
            auto_preserve_failed_machine_max,
        };
        let deployment = machine::MachineDeployment { metadata: metadata("pool", labels, annotations), spec, status: None };
        let mut objects = vec![serde_json::to_value(deployment).unwrap()];
        if has_class {
            objects.extend(class());
        }
        objects
    }
}

prop_compose! {
    /// A native Machine and its class.
    pub fn native_machine()(
        mut labels in keys(TEMPLATE_LABELS),
        deployment in option::of(Just("pool".to_owned())),
        node in option::of(Just("node-1".to_owned())),
        mut annotations in keys(MARKS),
        marks in own_marks(),
        mut spec in native_spec(),
        id in select(vec!["", "gce:///p/eu-a/vm", "simulated:///x"]),
    ) -> Vec<Value> {
        labels.insert("cluster.x-k8s.io/cluster-name".into(), "c1".into());
        labels.extend(deployment.map(|name| ("cluster.x-k8s.io/deployment-name".to_owned(), name)));
        labels.extend(node.map(|node| ("node".to_owned(), node)));
        annotations.extend(marks);
        spec.provider_id = id.into();
        let machine = machine::Machine { metadata: metadata("vm-1", labels, annotations), spec, status: None };
        let mut objects = vec![serde_json::to_value(machine).unwrap()];
        objects.extend(class());
        objects
    }
}
