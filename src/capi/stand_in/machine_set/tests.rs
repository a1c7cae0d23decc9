use std::sync::Arc;

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Action, Snapshot, plan::plan};
use crate::{
    object::view::ObjectView,
    stand_in::{mirror::MirrorAncestors, standing::StandInStatus},
};
use mcm_api::patch;
use mcm_conversion::types::MachineSet;

fn decoded<K: serde::de::DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn world() -> Snapshot {
    Snapshot {
        standing: StandInStatus::Serving,
        mirror: ObjectView::Missing,
        native: ObjectView::Present(decoded(json!({
            "metadata": {
                "name": "md-1", "namespace": "ns", "labels": { "machine-template-hash": "1" },
                "annotations": { "deployment.kubernetes.io/revision": "1" },
            },
            "spec": { "replicas": 3, "template": { "metadata": { "annotations": { "conversion.mcm/version": "v1.32.0" } }, "spec": {} } },
            "status": { "replicas": 3, "readyReplicas": 2, "availableReplicas": 1 },
        }))),
        above: MirrorAncestors {
            paused: None,
            native: Some(decoded(json!({
                "metadata": { "name": "md", "annotations": { "deployment.kubernetes.io/revision": "1" } },
                "spec": { "template": { "spec": {} } },
            }))),
            deployment: Some(decoded(json!({
                "metadata": { "name": "md", "namespace": "ns", "uid": "u" },
                "spec": {
                    "clusterName": "c", "selector": { "matchLabels": { "a": "b" } },
                    "template": { "metadata": { "labels": { "a": "b" } }, "spec": {
                        "clusterName": "c", "version": "v1.33.0", "bootstrap": { "dataSecretName": "s" },
                        "infrastructureRef": { "apiGroup": "g", "kind": "MCMMachineTemplate", "name": "t" },
                    }},
                },
            }))),
        },
        is_gone: false,
        now: Timestamp::from_second(1_000).unwrap(),
    }
}

fn settle(world: &mut Snapshot) -> Vec<String> {
    let mut done = Vec::new();
    for _ in 0..16 {
        let steps = plan(world).steps;
        if steps.is_empty() {
            return done;
        }
        for step in steps {
            done.push(step.action.to_string().lines().next().unwrap().to_owned());
            match step.action {
                Action::Create(mirror) => world.mirror = ObjectView::Present(Arc::from(mirror)),
                Action::Patch { mirror, patch } => {
                    let mut value = serde_json::to_value(mirror.as_ref()).unwrap();
                    patch::apply(&mut value, &patch);
                    world.mirror = ObjectView::Present(decoded(value));
                }
                Action::WriteStatus { mirror, status } => {
                    let mirror = MachineSet { status: Some(*status), ..MachineSet::clone(&mirror) };
                    world.mirror = ObjectView::Present(Arc::new(mirror));
                }
                Action::Delete(_) => world.mirror = ObjectView::Missing,
                Action::ReadNative => world.is_gone = true,
            }
        }
    }
    panic!("it does not settle: {done:#?}");
}

fn mirror(world: &Snapshot) -> &MachineSet {
    world.mirror.known().unwrap()
}

#[test]
fn s5_a_native_set_is_shown_paused_with_its_owner_and_its_machines() {
    let mut world = world();
    assert_eq!(settle(&mut world), ["create MachineSet md-1", "write status, 3 replicas"]);
    let shown = mirror(&world);
    assert_eq!(shown.metadata.owner_references.as_ref().unwrap()[0].uid, "u");
    assert!(shown.metadata.annotations.as_ref().unwrap().contains_key("cluster.x-k8s.io/paused"));
    let labels = shown.spec.selector.match_labels.as_ref().unwrap();
    assert_eq!((labels["machine-template-hash"].as_str(), labels["a"].as_str()), ("1", "b"));
    assert_eq!(shown.spec.template.spec.version, "v1.32.0", "that of its own machines");
    assert_eq!(shown.status.as_ref().unwrap().up_to_date_replicas, Some(3));
}

/// S4.
#[rstest]
#[case(json!({ "spec": { "replicas": 9 } }))]
#[case(json!({ "spec": { "selector": { "matchLabels": { "a": "c" } } } }))]
#[case(json!({ "metadata": { "ownerReferences": null } }))]
#[case(json!({ "metadata": { "labels": null } }))]
fn s4_an_edit_of_a_shown_set_is_undone(#[case] change: Value) {
    let mut world = world();
    settle(&mut world);
    let before = mirror(&world).clone();
    let mut value = serde_json::to_value(&before).unwrap();
    patch::apply(&mut value, &change);
    world.mirror = ObjectView::Present(decoded(value));
    settle(&mut world);
    assert_eq!(serde_json::to_value(mirror(&world)).unwrap(), serde_json::to_value(&before).unwrap());
    assert_eq!(settle(&mut world), [""; 0], "AU8: and is written no more");
}

#[test]
fn s5_an_old_set_without_machines_is_not_shown() {
    let mut world = world();
    settle(&mut world);
    let change = |view: &mut ObjectView<mcm_api::machine::MachineSet>, change: Value| {
        let mut value = serde_json::to_value(view.known().unwrap().as_ref()).unwrap();
        patch::apply(&mut value, &change);
        *view = ObjectView::Present(decoded(value));
    };
    change(&mut world.native, json!({ "spec": { "replicas": 0 }, "status": { "replicas": 0 } }));
    settle(&mut world);
    assert!(world.mirror.known().is_some(), "the current one is shown without machines, too");
    change(&mut world.native, json!({ "metadata": { "annotations": { "deployment.kubernetes.io/revision": "0" } } }));
    assert_eq!(settle(&mut world), ["delete MachineSet md-1"]);
}

/// S2: nothing is deleted for a set that is missing on one side only in a cache.
#[test]
fn s2_a_shown_set_goes_after_a_live_read_of_the_native_one() {
    let mut world = world();
    settle(&mut world);
    world.native = ObjectView::Missing;
    assert_eq!(settle(&mut world), ["read the MCM MachineSet live", "delete MachineSet md-1"]);
}

/// S5.
#[test]
fn s5_a_set_of_a_user_is_refused_with_a_condition() {
    let mut world = world();
    world.native = ObjectView::Missing;
    world.mirror = ObjectView::Present(decoded(json!({ "metadata": { "name": "own" }, "spec": {
        "clusterName": "c", "selector": {}, "template": { "spec": {
            "clusterName": "c", "bootstrap": {}, "infrastructureRef": { "apiGroup": "g", "kind": "k", "name": "n" },
        }},
    }})));
    assert_eq!(settle(&mut world), ["write status, 0 replicas"]);
    assert_eq!(mirror(&world).status.as_ref().unwrap().conditions[0].reason, "UnownedUnsupported");
}

/// S1, S2.
#[rstest]
fn s1_s2_no_set_is_written_where_the_stand_in_may_not_act(
    #[values(StandInStatus::NotAsked, StandInStatus::Core("x".into()), StandInStatus::Unknown("x".into()))]
    standing: StandInStatus,
) {
    let mut world = world();
    world.standing = standing;
    assert_eq!(settle(&mut world), [""; 0]);
    assert_eq!(plan(&world).waits.len(), 1);
}

/// The garbage collector removes the deployment from its owners if the machines have to stay, and the deletion depends on that.
#[test]
fn s6_a_set_of_a_terminating_deployment_gets_no_owner_and_no_successor() {
    let mut world = world();
    settle(&mut world);
    let mut deployment = world.above.deployment.take().unwrap();
    Arc::make_mut(&mut deployment).metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    world.above.deployment = Some(deployment);
    let mut released = mirror(&world).clone();
    released.metadata.owner_references = None;
    world.mirror = ObjectView::Present(Arc::new(released));
    settle(&mut world);
    assert_eq!(mirror(&world).metadata.owner_references, None);
    world.mirror = ObjectView::Missing;
    assert_eq!(settle(&mut world), [""; 0]);
}
