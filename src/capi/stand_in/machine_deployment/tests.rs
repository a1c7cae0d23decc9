//! The rules of the stand-in for deployments. A world is the objects of both sides; each step of a plan is carried out on it.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Action, Snapshot, StandInDeploymentSession, plan::plan};
use crate::{object::view::ObjectView, stand_in::standing::StandInStatus};
use mcm_api::{labels, machine as native, patch};
use mcm_conversion::types::{MCMMigration, MachineAuthority, MachineDeployment, MachineHealthCheck};

fn present<K: serde::de::DeserializeOwned>(value: Value) -> ObjectView<K> {
    ObjectView::Present(Arc::new(serde_json::from_value(value).unwrap()))
}

fn known<K>(view: &ObjectView<K>) -> &Arc<K> {
    view.known().unwrap()
}

/// A deployment as a user creates it, with the objects it names.
fn fresh() -> Snapshot {
    Snapshot {
        standing: StandInStatus::Serving,
        object: present(json!({
            "metadata": { "name": "md", "namespace": "ns", "uid": "md-uid", "generation": 1 },
            "spec": {
                "clusterName": "c", "replicas": 3, "selector": {},
                "template": { "spec": {
                    "clusterName": "c", "version": "v1.33.0", "bootstrap": { "dataSecretName": "join" },
                    "infrastructureRef": {
                        "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMMachineTemplate", "name": "t",
                    },
                }},
            },
        })),
        migration: ObjectView::Missing,
        cluster: present(json!({ "metadata": { "name": "c", "namespace": "ns" }, "spec": {} })),
        template: present(json!({
            "metadata": { "name": "t", "namespace": "ns" },
            "spec": { "template": { "spec": { "machineClassRef": { "name": "worker" } } } },
        })),
        health_checks: Ok(Vec::new()),
        classes: BTreeMap::from([("worker".to_owned(), Arc::new(serde_json::from_value(json!({
            "metadata": { "name": "worker", "namespace": "ns" }, "provider": "simulated", "providerSpec": { "a": 1 },
            "secretRef": { "name": "worker", "namespace": "ns" },
        })).unwrap()))]),
        used_classes: ["worker".to_owned()].into(),
        native: ObjectView::Missing,
        children: 0,
        machines: Vec::new(),
        bootstrap: ObjectView::Present(Arc::new("7".to_owned())),
        copy: ObjectView::Missing,
        stale_copies: Default::default(),
        memory: Default::default(),
        session: StandInDeploymentSession::default(),
        watch_filter: None,
        now: Timestamp::from_second(1_000).unwrap(),
    }
}

fn patched<K: serde::Serialize + serde::de::DeserializeOwned>(object: &K, change: &Value) -> ObjectView<K> {
    let mut value = serde_json::to_value(object).unwrap();
    patch::apply(&mut value, change);
    present(value)
}

/// Carries out one step.
fn apply(world: &mut Snapshot, action: Action) {
    match action {
        Action::PatchSelf(change) => world.object = patched(known(&world.object).as_ref(), &change),
        Action::WriteStatus(status) => {
            let mut object = MachineDeployment::clone(known(&world.object));
            object.status = Some(*status);
            world.object = ObjectView::Present(Arc::new(object));
        }
        Action::CreateMigration(migration) => world.migration = ObjectView::Present(Arc::from(migration)),
        Action::WriteAuthority(status) => {
            let mut migration = MCMMigration::clone(known(&world.migration));
            migration.status = Some(*status);
            world.migration = ObjectView::Present(Arc::new(migration));
        }
        Action::DeleteMigration => world.migration = ObjectView::Missing,
        Action::CreateClass(class) => {
            drop(world.classes.insert(class.metadata.name.clone().unwrap(), Arc::from(class)));
        }
        Action::DeleteClass(class) => drop(world.classes.remove(class.metadata.name.as_deref().unwrap())),
        Action::CopyBootstrap { .. } => {
            let ObjectView::Present(version) = &world.bootstrap else { panic!("nothing to copy") };
            world.copy = ObjectView::Present(Arc::clone(version));
        }
        Action::DeleteCopy(name) => drop(world.stale_copies.remove(&name)),
        Action::CreateNative(native) => {
            world.used_classes.insert(native.spec.template.spec.class.name.clone());
            world.native = ObjectView::Present(Arc::from(native));
        }
        Action::PatchNative { native, patch } => world.native = patched(native.as_ref(), &patch),
        Action::DeleteNative(_) => world.native = ObjectView::Missing,
        Action::PatchMachine { machine, patch } => {
            let ObjectView::Present(changed) = patched(machine.as_ref(), &patch) else { panic!("patched") };
            let name = machine.metadata.name.clone();
            world
                .machines
                .iter_mut()
                .filter(|(_, one)| one.metadata.name == name)
                .for_each(|(_, one)| *one = changed.clone());
        }
        Action::ReadMachines => world.session.has_read_machines = true,
        Action::ReadNative => world.session.is_gone = true,
        Action::ReadSets => world.session.are_sets_released = Some(false),
        Action::Confirm => world.session.is_confirmed = true,
    }
}

/// Plans and executes until nothing is left; returns the steps in order.
fn settle(world: &mut Snapshot) -> Vec<String> {
    let mut done = Vec::new();
    world.session = StandInDeploymentSession::default();
    for _ in 0..32 {
        let steps = plan(world).steps;
        if steps.is_empty() {
            return done;
        }
        for step in steps {
            done.push(step.action.to_string().lines().next().unwrap().to_owned());
            apply(world, step.action);
        }
    }
    panic!("it does not settle: {done:#?}");
}

fn served() -> Snapshot {
    let mut world = fresh();
    settle(&mut world);
    world
}

fn edit(world: &mut Snapshot, change: &Value) {
    world.object = patched(known(&world.object).as_ref(), change);
}

fn condition(world: &Snapshot, type_: &str) -> (String, String, String) {
    let status = known(&world.object).status.clone().unwrap();
    let found = status.conditions.into_iter().find(|one| one.type_ == type_).unwrap();
    (found.status, found.reason, found.message)
}

fn native_of(world: &Snapshot) -> &native::MachineDeployment {
    known(&world.native)
}

#[test]
fn s5_a_deployment_becomes_a_native_one_with_a_class_and_the_bootstrap_data() {
    let mut world = fresh();
    let done = settle(&mut world);
    let derived = native_of(&world).spec.template.spec.class.name.clone();
    let expected = [
        "patch metadata.finalizers, metadata.labels.cluster.x-k8s.io/cluster-name, spec.rollout.strategy.rollingUpdate.maxSurge, \
         spec.rollout.strategy.rollingUpdate.maxUnavailable, spec.rollout.strategy.type, \
         spec.selector.matchLabels.cluster.x-k8s.io/cluster-name, spec.selector.matchLabels.cluster.x-k8s.io/deployment-name, \
         spec.template.metadata.labels.cluster.x-k8s.io/cluster-name, \
         spec.template.metadata.labels.cluster.x-k8s.io/deployment-name"
            .to_owned(),
        "create MCMMigration md".to_owned(),
        "write status of the MCMMigration, authority Some(ClusterApi)".to_owned(),
        "copy Secret join to join-userdata".to_owned(),
        format!("create MachineClass {derived}"),
        format!("create MCM MachineDeployment md of class {derived} with 3 replicas"),
        "write status, 0 replicas".to_owned(),
    ];
    assert_eq!(done, expected);
    let native = native_of(&world);
    assert!(native.metadata.owner_references.is_none(), "S2: nothing of Cluster API owns it");
    assert_eq!(native.metadata.labels.as_ref().unwrap()["machine.mcm/stand-in"], "md");
    assert_eq!(condition(&world, "Synchronized").1, "ResourceSynchronized");
    assert_eq!(world.classes[&derived].secret_ref.as_ref().unwrap().name, "join-userdata");
}

/// A health check of these machines, with changes.
fn health_check(change: &Value) -> Arc<MachineHealthCheck> {
    let mut value = json!({
        "metadata": { "name": "check", "namespace": "ns" },
        "spec": {
            "clusterName": "c", "selector": { "matchLabels": { "cluster.x-k8s.io/deployment-name": "md" } },
            "checks": { "unhealthyNodeConditions": [
                { "type": "Ready", "status": "False", "timeoutSeconds": 300 },
                { "type": "Ready", "status": "Unknown", "timeoutSeconds": 300 },
            ] },
        },
    });
    patch::apply(&mut value, change);
    Arc::new(serde_json::from_value(value).unwrap())
}

/// Start-up timeout, health timeout in seconds, and whether unhealthy machines stay.
fn health_of(world: &Snapshot) -> (Option<i64>, Option<i64>, Option<bool>) {
    let settings = &native_of(world).spec.template.spec.configuration;
    let seconds = |duration: Option<mcm_api::GoDuration>| duration.map(|one| one.as_nanos() / 1_000_000_000);
    (seconds(settings.creation_timeout), seconds(settings.health_timeout), settings.disable_health_timeout)
}

const NEVER_REPLACED: (Option<i64>, Option<i64>, Option<bool>) = (Some(876_000 * 3_600), None, Some(true));

/// S9: neither its creation nor its deletion replaces a machine: these fields of a template are no rollout.
#[test]
fn s9_a_health_check_is_part_of_the_native_deployment_for_as_long_as_it_exists() {
    let mut world = served();
    assert_eq!(health_of(&world), NEVER_REPLACED);
    world.health_checks = Ok(vec![health_check(&json!({}))]);
    let before = world.clone();
    let done = settle(&mut world);
    assert!(done[0].starts_with("patch MCM MachineDeployment md: "), "{done:?}");
    assert_eq!(health_of(&world), (Some(600), Some(300), None));
    let templates = [&before, &world].map(|one| native_of(one).spec.template.clone());
    assert!(native::same_template(&templates[0], &templates[1]), "it would be rolled");

    world.health_checks = Ok(Vec::new());
    settle(&mut world);
    assert_eq!(health_of(&world), NEVER_REPLACED);
    assert_eq!(native_of(&world), native_of(&before));
}

#[rstest]
#[case::of_other_machines(json!({ "spec": { "selector": { "matchLabels": { "cluster.x-k8s.io/deployment-name": "other" } } } }))]
#[case::of_another_cluster(json!({ "spec": { "clusterName": "other" } }))]
#[case::paused(json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } }))]
#[case::deleted(json!({ "metadata": { "deletionTimestamp": DELETED } }))]
fn s9_a_health_check_without_effect_changes_nothing(#[case] change: Value) {
    let mut world = served();
    world.health_checks = Ok(vec![health_check(&change)]);
    assert_eq!(settle(&mut world), [""; 0]);
}

#[rstest]
#[case::refused(
    Ok(vec![health_check(&json!({ "spec": { "remediation": { "triggerIf": { "unhealthyLessThanOrEqualTo": "40%" } } } }))]),
    "FailedToConvertToNative", "MachineHealthCheck check"
)]
#[case::some_of_its_machines(
    Ok(vec![health_check(&json!({ "spec": { "selector": { "matchLabels": { "machine-template-hash": "a" } } } }))]),
    "FailedToConvertToNative", "MachineHealthCheck check may select some of its machines and not others"
)]
#[case::two(
    Ok(vec![health_check(&json!({})), health_check(&json!({ "metadata": { "name": "other" } }))]),
    "FailedToConvertToNative", "two health checks select its machines"
)]
#[case::unknown(Err("MachineHealthCheck x cannot be read".to_owned()), "FailedToReadInfrastructure", "MachineHealthCheck x")]
fn s9_a_health_check_that_cannot_be_served_changes_nothing_natively_and_says_so(
    #[case] checks: Result<Vec<Arc<MachineHealthCheck>>, String>,
    #[case] reason: &str,
    #[case] text: &str,
) {
    let mut world = served();
    let before = world.clone();
    world.health_checks = checks;
    settle(&mut world);
    assert_eq!(native_of(&world), native_of(&before));
    let (status, said, message) = condition(&world, "Synchronized");
    assert_eq!((status.as_str(), said.as_str()), ("False", reason));
    assert!(message.contains(text), "{message}");
}

/// S1, S2: no kind of Cluster API is written, and nothing native; an object of ours has the reason.
#[rstest]
#[case::not_asked(StandInStatus::NotAsked, None)]
#[case::core(StandInStatus::Core("Lease a/b".into()), Some("CoreProviderPresent"))]
#[case::unknown(StandInStatus::Unknown("x".into()), Some("CoreProviderUnknown"))]
fn s1_s2_nothing_but_an_object_of_ours_is_written_where_the_stand_in_may_not_act(
    #[case] standing: StandInStatus,
    #[case] reason: Option<&str>,
    #[values(json!({}), json!({ "spec": { "replicas": 9 } }), json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }))]
    change: Value,
    #[values(false, true)] is_missing: bool,
) {
    let mut world = served();
    edit(&mut world, &change);
    world.standing = standing;
    if is_missing {
        world.object = ObjectView::Missing;
    }
    let before = world.clone();
    let done = settle(&mut world);
    assert_eq!(done.len(), usize::from(reason.is_some()), "{done:?}");
    assert_eq!(native_of(&world), native_of(&before));
    assert_eq!(format!("{:?}", world.object), format!("{:?}", before.object));
    if let Some(reason) = reason {
        let status = known(&world.migration).status.clone().unwrap();
        let verdict = status.conditions.iter().find(|one| one.type_ == "StandIn").unwrap();
        assert_eq!((verdict.status.as_str(), verdict.reason.as_str()), ("False", reason));
    }
    assert_eq!(plan(&world).waits.len(), 1, "what waits says why");
}

/// S2, S6: a MachineDeployment that is simply not there any more deletes nothing.
#[test]
fn s2_s6_a_vanished_deployment_deletes_nothing_and_says_so() {
    let mut world = served();
    world.object = ObjectView::Missing;
    settle(&mut world);
    assert!(world.native.known().is_some());
    let status = known(&world.migration).status.clone().unwrap();
    assert_eq!(status.conditions[0].reason, "MachineDeploymentMissing");
}

const DELETED: &str = "2026-01-01T00:00:00Z";

/// S6: by our finalizer, after a live check for core.
#[test]
fn s6_a_deleted_deployment_that_has_the_authority_takes_the_native_one_along() {
    let mut world = served();
    let derived = native_of(&world).spec.template.spec.class.name.clone();
    edit(&mut world, &json!({ "metadata": { "deletionTimestamp": DELETED } }));
    world.used_classes.remove(&derived);
    world.stale_copies.insert("join-userdata".to_owned());
    let expected = [
        "read its MachineSets live".to_owned(),
        "look for Cluster API core live".to_owned(),
        "delete MCM MachineDeployment md".to_owned(),
        "read the MCM MachineDeployment live".to_owned(),
        format!("delete MachineClass {derived}"),
        "delete Secret join-userdata".to_owned(),
        "delete the MCMMigration".to_owned(),
        "patch metadata.finalizers".to_owned(),
    ];
    assert_eq!(settle(&mut world)[..8], expected);
    assert_eq!(known(&world.object).metadata.finalizers.clone().unwrap_or_default(), [""; 0]);
    assert!(world.classes.contains_key("worker"), "the class of the user stays");
}

/// S6: the native controllers may be slow to remove their finalizers, and caches to learn of deletions.
#[test]
fn s6_a_deleted_deployment_stays_until_its_class_is_gone_and_the_copy_can_be_deleted() {
    let mut world = served();
    let derived = native_of(&world).spec.template.spec.class.name.clone();
    edit(&mut world, &json!({ "metadata": { "deletionTimestamp": DELETED } }));
    (world.children, world.native) = (1, ObjectView::Missing);
    let waits = |world: &Snapshot| plan(world).waits.iter().map(|wait| wait.text.clone()).collect::<Vec<_>>();
    assert_eq!(settle(&mut world), ["read the MCM MachineDeployment live"]);
    assert_eq!(waits(&world), ["the MCM machines to be deleted"]);

    world.children = 0;
    world.used_classes.remove(&derived);
    let class = Arc::make_mut(world.classes.get_mut(&derived).unwrap());
    class.metadata.deletion_timestamp = serde_json::from_value(json!(DELETED)).unwrap();
    assert_eq!(settle(&mut world), ["read the MCM MachineDeployment live"]);
    assert_eq!(waits(&world), [format!("MachineClass {derived} to be deleted")]);

    world.classes.remove(&derived);
    world.stale_copies.insert("join-userdata".to_owned());
    let ends = ["delete Secret join-userdata", "delete the MCMMigration", "patch metadata.finalizers"];
    assert_eq!(settle(&mut world)[1..4], ends);
}

/// S6: while the garbage collector works, and after it has removed its finalizer.
#[rstest]
#[case::its_finalizer_is_there(&["orphan"], None)]
#[case::it_released_the_sets_before(&[], Some(true))]
fn s6_a_deployment_that_is_deleted_with_the_policy_orphan_leaves_the_native_one(
    #[case] more: &[&str],
    #[case] are_sets_released: Option<bool>,
) {
    let mut world = served();
    let finalizers: Vec<&str> = [labels::STAND_IN_FINALIZER].iter().chain(more).copied().collect();
    edit(&mut world, &json!({ "metadata": { "deletionTimestamp": DELETED, "finalizers": finalizers } }));
    let mut done = Vec::new();
    loop {
        world.session.are_sets_released = are_sets_released;
        let Some(step) = plan(&world).steps.into_iter().next() else { break };
        done.push(step.action.to_string());
        apply(&mut world, step.action);
    }
    assert_eq!(done, ["delete the MCMMigration", "patch metadata.finalizers"]);
    assert_eq!(native_of(&world).metadata.deletion_timestamp, None);
}

/// S2: between the request and the deletion, core came.
#[test]
fn s2_a_deletion_is_dropped_if_the_live_look_finds_core() {
    let mut world = served();
    edit(&mut world, &json!({ "metadata": { "deletionTimestamp": DELETED } }));
    world.session.are_sets_released = Some(false);
    let steps = plan(&world).steps;
    assert_eq!(steps.iter().map(|step| &step.action).collect::<Vec<_>>(), [&Action::Confirm]);
    world.session.is_confirmed = true;
    world.standing = StandInStatus::Core("CustomResourceDefinition clusters.cluster.x-k8s.io".into());
    assert!(!plan(&world).steps.iter().any(|step| matches!(step.action, Action::DeleteNative(_))));
}

/// S6, the other direction; S4: the authority changes only while both sides are synchronized.
#[test]
fn s4_s6_a_deployment_without_the_authority_shows_the_native_one_and_goes_without_it() {
    let mut world = served();
    let change = json!({ "spec": { "authority": "MachineController", "clusterName": "c" } });
    world.migration = patched(known(&world.migration).as_ref(), &change);
    settle(&mut world);
    assert_eq!(world.authority(), Some(MachineAuthority::MachineController));

    world.native = patched(native_of(&world), &json!({ "spec": { "replicas": 5 } }));
    edit(&mut world, &json!({ "spec": { "paused": true } }));
    settle(&mut world);
    let spec = &known(&world.object).spec;
    assert_eq!((spec.replicas, spec.paused), (Some(5), None), "the MCM one leads, and the edit is undone");
    assert!(!native_of(&world).spec.paused);

    edit(&mut world, &json!({ "metadata": { "deletionTimestamp": DELETED } }));
    assert_eq!(settle(&mut world), ["delete the MCMMigration", "patch metadata.finalizers"]);
    assert!(world.native.known().is_some());
}

#[test]
fn s4_the_authority_does_not_change_while_the_sides_differ() {
    let mut world = served();
    let wrong = json!({ "spec": { "machineNaming": { "template": "x" } }, "metadata": { "generation": 2 } });
    edit(&mut world, &wrong);
    let change = json!({ "spec": { "authority": "MachineController", "clusterName": "c" } });
    world.migration = patched(known(&world.migration).as_ref(), &change);
    settle(&mut world);
    assert_eq!(world.authority(), Some(MachineAuthority::ClusterApi));
}

/// S4: objects of another client are not taken over.
#[test]
fn s4_a_native_deployment_of_somebody_else_is_not_touched() {
    let mut world = fresh();
    world.native = present(json!({
        "metadata": { "name": "md", "namespace": "ns" }, "spec": { "replicas": 1, "template": { "spec": {} } },
    }));
    let before = native_of(&world).clone();
    settle(&mut world);
    assert_eq!(native_of(&world), &before);
    assert_eq!(condition(&world, "Synchronized").1, "NameTaken");
    assert!(world.migration.known().is_none());
}

/// 3.3: all paths at once, and nothing is changed on the other side.
#[test]
fn s5_what_is_refused_changes_nothing_natively_and_names_all_paths() {
    let mut world = served();
    let before = native_of(&world).clone();
    edit(
        &mut world,
        &json!({ "spec": {
            "replicas": 7, "deletion": { "order": "Newest" },
            "template": { "spec": { "bootstrap": { "dataSecretName": null, "configRef": {
                "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfigTemplate", "name": "k",
            }}}},
        }}),
    );
    settle(&mut world);
    assert_eq!(native_of(&world), &before);
    let (status, reason, message) = condition(&world, "Synchronized");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "FailedToConvertToNative"));
    for text in ["spec.deletion.order", "spec.template.spec.bootstrap.configRef", "BootstrapConfigRefUnsupported"] {
        assert!(message.contains(text), "{message}");
    }
}

#[rstest]
#[case::template(|world: &mut Snapshot| world.template = ObjectView::Missing, "MCMMachineTemplate t does not exist")]
#[case::cluster(|world: &mut Snapshot| world.cluster = ObjectView::Missing, "its Cluster does not exist")]
#[case::secret(|world: &mut Snapshot| world.bootstrap = ObjectView::Missing, "Secret join does not exist")]
#[case::unusable(
    |world: &mut Snapshot| world.memory.unusable = Some(("7".into(), "the data have <<MACHINE_NAME>>".into())),
    "the data have <<MACHINE_NAME>>"
)]
fn missing_infrastructure_is_named(#[case] lose: fn(&mut Snapshot), #[case] text: &str) {
    let mut world = fresh();
    lose(&mut world);
    settle(&mut world);
    let (status, reason, message) = condition(&world, "Synchronized");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "FailedToReadInfrastructure"));
    assert!(message.contains(text), "{message}");
    assert!(world.native.known().is_none());
}

/// T6: labels and annotations of the template do not roll machines; version, template and Secret do.
#[rstest]
#[case::label(json!({ "spec": { "template": { "metadata": { "labels": { "a": "b" } } } } }), false)]
#[case::annotation(json!({ "spec": { "template": { "metadata": { "annotations": { "a": "b" } } } } }), false)]
#[case::drain(json!({ "spec": { "template": { "spec": { "deletion": { "nodeDrainTimeoutSeconds": 60 } } } } }), false)]
#[case::version(json!({ "spec": { "template": { "spec": { "version": "v1.34.0" } } } }), true)]
#[case::secret(json!({ "spec": { "template": { "spec": { "bootstrap": { "dataSecretName": "other" } } } } }), true)]
fn t6_only_what_rolls_in_cluster_api_rolls_natively(#[case] change: Value, #[case] rolls: bool) {
    let mut world = served();
    let before = native_of(&world).spec.template.clone();
    edit(&mut world, &change);
    settle(&mut world);
    let after = &native_of(&world).spec.template;
    let is_same = before.metadata == after.metadata && before.spec.class == after.spec.class;
    assert_eq!(!is_same, rolls);
}

fn machine(name: &str, annotations: Value) -> (Value, Value) {
    let meta = json!({ "name": name, "namespace": "ns" });
    let mut mirror = json!({ "metadata": meta, "spec": {
        "clusterName": "c", "bootstrap": {}, "infrastructureRef": { "apiGroup": "", "kind": "", "name": "" },
    }});
    mirror["metadata"]["annotations"] = annotations;
    (mirror, json!({ "metadata": meta, "spec": {} }))
}

/// Section 6: the annotation reaches the native machine before the number does, even if the cache has not seen it yet.
#[test]
fn s7_machines_are_read_and_chosen_before_there_are_fewer() {
    let mut world = served();
    for (mirror, native) in [machine("a", json!({})), machine("b", json!({ "cluster.x-k8s.io/delete-machine": "yes" }))]
    {
        let (ObjectView::Present(mirror), ObjectView::Present(native)) = (present(mirror), present(native)) else {
            panic!()
        };
        world.machines.push((mirror, native));
    }
    edit(&mut world, &json!({ "spec": { "replicas": 2 } }));
    let done = settle(&mut world);
    let expected = [
        "read its Machines live",
        "patch MCM Machine b: metadata.annotations.machinepriority.machine.sapcloud.io",
        "patch MCM MachineDeployment md: spec.replicas",
    ];
    assert_eq!(done[..3], expected, "{done:#?}");
    edit(&mut world, &json!({ "spec": { "replicas": 4 } }));
    assert!(settle(&mut world)[0].starts_with("patch MCM MachineDeployment"), "more machines need no look");
}

/// Z1, Z2: a pause stops all writes of the stand-in, except for the condition.
#[rstest]
#[case::cluster(false)]
#[case::annotation(true)]
fn s8_a_paused_deployment_is_left_alone_and_says_so(#[case] by_annotation: bool) {
    let mut world = served();
    match by_annotation {
        true => edit(&mut world, &json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } })),
        false => world.cluster = patched(known(&world.cluster).as_ref(), &json!({ "spec": { "paused": true } })),
    }
    edit(&mut world, &json!({ "spec": { "replicas": 9 } }));
    settle(&mut world);
    assert_eq!(native_of(&world).spec.replicas, 3);
    assert_eq!(condition(&world, "Paused").0, "True");
}

/// T14, AU3: nothing is written while `mcm adopt` has the objects.
#[test]
fn s4_a_deployment_that_is_moved_is_left_alone() {
    let mut world = served();
    let change = json!({ "status": { "authority": "Migrating" } });
    world.migration = patched(known(&world.migration).as_ref(), &change);
    edit(&mut world, &json!({ "spec": { "replicas": 9 } }));
    assert_eq!(settle(&mut world), [""; 0]);
}

proptest! {
    /// AU8: objects in step are not written, whatever a user wrote, and the same facts are never written twice.
    #[test]
    fn au8_a_deployment_in_step_is_written_no_more(
        replicas in 0..9_i32,
        surge in prop::option::of(0..3_i32),
        drain in prop::option::of(0..100_i32),
        labels in prop::collection::btree_map("[a-c]", "[x-z]", 0..3),
        paused in prop::option::of(any::<bool>()),
        later in 1_001..9_000_i64,
    ) {
        let mut world = fresh();
        let rolling = surge.map(|surge| json!({ "maxSurge": surge, "maxUnavailable": 1 }));
        let strategy = rolling.map(|rolling| json!({ "strategy": { "type": "RollingUpdate", "rollingUpdate": rolling } }));
        let change = json!({
            "metadata": { "labels": labels },
            "spec": {
                "replicas": replicas, "paused": paused, "rollout": strategy,
                "template": {
                    "metadata": { "labels": labels, "annotations": labels },
                    "spec": { "deletion": { "nodeDrainTimeoutSeconds": drain } },
                },
            },
        });
        edit(&mut world, &change);
        settle(&mut world);
        prop_assert_eq!(native_of(&world).spec.replicas, replicas);
        world.now = Timestamp::from_second(later).unwrap();
        prop_assert_eq!(settle(&mut world), Vec::<String>::new());
    }
}
