//! Any value of each kind, as far as it can stand in an API server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{NodeAddress, NodeSpec, Taint},
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta, Time},
        util::intstr::IntOrString,
    },
    jiff::Timestamp,
};
use proptest::{arbitrary::any, collection, option, prop_compose, prop_oneof, sample::select, strategy::Strategy};
use serde_json::{Map, Value, json};

use crate::{
    GoDuration,
    machine::{
        self, ClassNodeTemplate, ClassSpec, CurrentStatus, InPlaceUpdate, LastOperation, Machine, MachineClass,
        MachineConfiguration, MachineDeployment, MachineDeploymentCondition, MachineDeploymentSpec,
        MachineDeploymentStatus, MachinePhase, MachineSet, MachineSetCondition, MachineSetSpec, MachineSetStatus,
        MachineSpec, MachineStatus, MachineSummary, MachineTemplate, NodeTemplate, OperationState, OperationType,
        RollbackConfig, RollingUpdate, SecretRef, TemplateMeta,
    },
    node::NodeCondition,
};

fn text() -> impl Strategy<Value = String> + Clone {
    select(vec!["", "a", "MachineClass", "7µs \"quoted\""]).prop_map(str::to_owned)
}

fn word() -> impl Strategy<Value = String> + Clone {
    select(vec!["a", "b", "pool"]).prop_map(str::to_owned)
}

fn time() -> impl Strategy<Value = Option<Time>> {
    option::of((0..4_000_000_000i64).prop_map(|second| Time(Timestamp::from_second(second).unwrap())))
}

fn words() -> impl Strategy<Value = BTreeMap<String, String>> {
    collection::btree_map(word(), word(), 0..3)
}

fn unknown() -> impl Strategy<Value = Map<String, Value>> {
    let values = select(vec![json!(null), json!({ "a": [null, 0, ""] }), json!("text")]);
    collection::btree_map(select(vec!["unknown".to_owned(), "creationTimestamp".to_owned()]), values, 0..3)
        .prop_map(|fields| fields.into_iter().collect())
}

fn int_or_text() -> impl Strategy<Value = Option<IntOrString>> {
    option::of(prop_oneof![
        any::<i32>().prop_map(IntOrString::Int),
        (0..300).prop_map(|percent| IntOrString::String(format!("{percent}%"))),
    ])
}

fn object_meta() -> impl Strategy<Value = ObjectMeta> {
    (option::of(word()), option::of(words().prop_filter("Go omits it", |labels| !labels.is_empty())))
        .prop_map(|(name, labels)| ObjectMeta { name, labels, ..ObjectMeta::default() })
}

prop_compose! {
    fn template_meta()(
        labels in words(),
        annotations in words(),
        finalizers in collection::vec(word(), 0..2),
        other in unknown(),
    ) -> TemplateMeta {
        TemplateMeta { labels, annotations, finalizers, other }
    }
}

prop_compose! {
    fn class_spec()(api_group in text(), kind in text(), name in text()) -> ClassSpec {
        ClassSpec { api_group, kind, name }
    }
}

prop_compose! {
    fn node_template()(
        metadata in template_meta(),
        spec in option::of(option::of(word()).prop_map(|key| NodeSpec {
            taints: key.map(|key| vec![Taint { key, effect: "NoSchedule".into(), ..Taint::default() }]),
            ..NodeSpec::default()
        })),
    ) -> NodeTemplate {
        NodeTemplate { metadata, spec: spec.map(Box::new) }
    }
}

prop_compose! {
    fn configuration()(
        timeouts in [(); 5].map(|()| option::of(any::<i64>().prop_map(|nanos| format!("{}ns", nanos / 2).parse().unwrap()))),
        disable_health_timeout in option::of(any::<bool>()),
        max_evict_retries in option::of(-1..2i32),
        node_conditions in option::of(text()),
    ) -> MachineConfiguration {
        let [drain_timeout, health_timeout, creation_timeout, in_place_update_timeout, machine_preserve_timeout]:
            [Option<GoDuration>; 5] = timeouts;
        MachineConfiguration {
            drain_timeout, health_timeout, creation_timeout, in_place_update_timeout, machine_preserve_timeout,
            disable_health_timeout, max_evict_retries, node_conditions,
        }
    }
}

prop_compose! {
    fn machine_spec()(
        class in class_spec(),
        provider_id in text(),
        node_template in node_template(),
        configuration in configuration(),
    ) -> MachineSpec {
        MachineSpec { class, provider_id, node_template: node_template.into(), configuration }
    }
}

prop_compose! {
    fn machine_template()(metadata in template_meta(), spec in machine_spec()) -> MachineTemplate {
        MachineTemplate { metadata, spec }
    }
}

prop_compose! {
    fn last_operation()(
        description in text(),
        error_code in text(),
        last_update_time in time(),
        state in option::of(select(vec![OperationState::Processing, OperationState::Failed, OperationState::Successful])),
        type_ in option::of(select(vec![
            OperationType::Create, OperationType::Update, OperationType::InPlaceUpdate, OperationType::DrainNode,
            OperationType::HealthCheck, OperationType::Delete,
        ])),
    ) -> LastOperation {
        LastOperation { description, error_code, last_update_time, state, type_ }
    }
}

prop_compose! {
    fn current_status()(
        phase in select(vec![
            MachinePhase::New, MachinePhase::Pending, MachinePhase::Available, MachinePhase::Running,
            MachinePhase::Terminating, MachinePhase::Unknown, MachinePhase::Failed, MachinePhase::CrashLoopBackOff,
            MachinePhase::InPlaceUpdating, MachinePhase::InPlaceUpdateSuccessful, MachinePhase::InPlaceUpdateFailed,
        ]),
        timeout_active in any::<bool>(),
        last_update_time in time(),
        preserve_expiry_time in time(),
    ) -> CurrentStatus {
        CurrentStatus { phase, timeout_active, last_update_time, preserve_expiry_time }
    }
}

prop_compose! {
    /// Any Machine.
    pub fn machine()(
        metadata in object_meta(),
        spec in machine_spec(),
        status in option::of((
            collection::vec(word(), 0..2), collection::vec((word(), time()), 0..2), last_operation(), current_status(), text(),
        )),
    ) -> Machine {
        let status = status.map(|(addresses, conditions, last_operation, current_status, last_known_state)| MachineStatus {
            addresses: addresses
                .into_iter()
                .map(|address| NodeAddress { address, type_: "InternalIP".into() })
                .collect(),
            conditions: conditions
                .into_iter()
                .map(|(type_, heartbeat)| NodeCondition {
                    type_: type_.into(),
                    status: "True".into(),
                    last_heartbeat_time: heartbeat.map(Into::into),
                    ..NodeCondition::default()
                })
                .collect(),
            last_operation,
            current_status,
            last_known_state,
        });
        Machine { metadata, spec, status }
    }
}

prop_compose! {
    fn summaries()(
        summaries in collection::vec((text(), text(), last_operation(), text()), 0..2),
    ) -> Vec<MachineSummary> {
        summaries
            .into_iter()
            .map(|(name, provider_id, last_operation, owner_ref)| {
                MachineSummary { name, provider_id, last_operation, owner_ref }
            })
            .collect()
    }
}

fn selector() -> impl Strategy<Value = Option<LabelSelector>> {
    let labels = words().prop_filter("Go omits it", |labels| !labels.is_empty());
    option::of(option::of(labels).prop_map(|match_labels| LabelSelector { match_labels, match_expressions: None }))
}

prop_compose! {
    /// Any MachineSet.
    pub fn machine_set()(
        metadata in object_meta(),
        selector in selector(),
        numbers in any::<[i32; 3]>(),
        machine_class in class_spec(),
        template in machine_template(),
        status in option::of((
            any::<[i32; 6]>(), any::<i64>(), collection::vec((word(), time(), text(), text()), 0..2), last_operation(), summaries(),
        )),
    ) -> MachineSet {
        let [replicas, min_ready_seconds, auto_preserve_failed_machine_max] = numbers;
        let spec = MachineSetSpec {
            replicas, selector, machine_class, template, min_ready_seconds, auto_preserve_failed_machine_max,
        };
        let status = status.map(|(numbers, observed_generation, conditions, last_operation, failed_machines)| {
            let [
                replicas, fully_labeled_replicas, ready_replicas, available_replicas, preserved_failed_replicas,
                auto_preserve_failed_machine_count,
            ] = numbers;
            let conditions = conditions
                .into_iter()
                .map(|(type_, last_transition_time, reason, message)| MachineSetCondition {
                    type_, status: "True".into(), last_transition_time, reason, message,
                })
                .collect();
            MachineSetStatus {
                replicas, fully_labeled_replicas, ready_replicas, available_replicas, preserved_failed_replicas,
                auto_preserve_failed_machine_count, observed_generation, conditions, last_operation, failed_machines,
            }
        });
        MachineSet { metadata, spec, status }
    }
}

prop_compose! {
    fn strategy()(
        type_ in text(),
        rolling_update in option::of((int_or_text(), int_or_text())),
        in_place_update in option::of((int_or_text(), int_or_text(), text())),
    ) -> machine::Strategy {
        machine::Strategy {
            type_,
            rolling_update: rolling_update.map(|(max_unavailable, max_surge)| RollingUpdate { max_unavailable, max_surge }),
            in_place_update: in_place_update.map(|(max_unavailable, max_surge, orchestration_type)| InPlaceUpdate {
                max_unavailable, max_surge, orchestration_type,
            }),
        }
    }
}

prop_compose! {
    fn deployment_status()(
        observed_generation in any::<i64>(),
        numbers in any::<[i32; 6]>(),
        collision_count in option::of(any::<i32>()),
        conditions in collection::vec((word(), time(), time(), text()), 0..2),
        failed_machines in summaries(),
    ) -> MachineDeploymentStatus {
        let [
            replicas, updated_replicas, ready_replicas, available_replicas, unavailable_replicas, preserved_failed_replicas,
        ] = numbers;
        let conditions = conditions
            .into_iter()
            .map(|(type_, last_update_time, last_transition_time, reason)| MachineDeploymentCondition {
                type_, status: "True".into(), last_update_time, last_transition_time, message: reason.clone(), reason,
            })
            .collect();
        MachineDeploymentStatus {
            observed_generation, replicas, updated_replicas, ready_replicas, available_replicas, unavailable_replicas,
            preserved_failed_replicas, collision_count, conditions, failed_machines,
        }
    }
}

prop_compose! {
    /// Any MachineDeployment.
    pub fn machine_deployment()(
        metadata in object_meta(),
        selector in selector(),
        template in machine_template(),
        strategy in strategy(),
        numbers in any::<[i32; 3]>(),
        limits in any::<[Option<i32>; 2]>(),
        paused in any::<bool>(),
        rollback_to in option::of(any::<i64>().prop_map(|revision| RollbackConfig { revision })),
        status in option::of(deployment_status()),
    ) -> MachineDeployment {
        let [replicas, min_ready_seconds, auto_preserve_failed_machine_max] = numbers;
        let [revision_history_limit, progress_deadline_seconds] = limits;
        let spec = MachineDeploymentSpec {
            replicas, selector, template, strategy, min_ready_seconds, revision_history_limit, paused, rollback_to,
            progress_deadline_seconds, auto_preserve_failed_machine_max,
        };
        MachineDeployment { metadata, spec, status }
    }
}

prop_compose! {
    fn class_node_template()(
        quantities in any::<[Option<u16>; 2]>(),
        names in [text(), text(), text()],
        architecture in option::of(text()),
        other in unknown(),
    ) -> ClassNodeTemplate {
        let [capacity, virtual_capacity] = quantities
            .map(|quantity| quantity.into_iter().map(|quantity| ("cpu".to_owned(), Quantity(quantity.to_string()))).collect());
        let [instance_type, region, zone] = names;
        ClassNodeTemplate { capacity, virtual_capacity, instance_type, region, zone, architecture, other }
    }
}

prop_compose! {
    /// Any MachineClass.
    pub fn machine_class()(
        metadata in object_meta(),
        provider_spec in select(vec![json!(null), json!({}), json!({ "a": [null, 0, ""] })]),
        provider in text(),
        secrets in [(); 2].map(|()| option::of((text(), text()).prop_map(|(name, namespace)| SecretRef { name, namespace }))),
        node_template in option::of(class_node_template()),
    ) -> MachineClass {
        let [secret_ref, credentials_secret_ref] = secrets;
        MachineClass { metadata, provider_spec, provider, secret_ref, credentials_secret_ref, node_template }
    }
}
