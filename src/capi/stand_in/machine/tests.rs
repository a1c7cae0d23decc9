use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Action, Snapshot, StandInMachineSession, plan::plan};
use crate::{
    object::view::ObjectView,
    stand_in::{mirror::MirrorAncestors, standing::StandInStatus},
};
use mcm_api::{machine as native, patch};
use mcm_conversion::types::Machine;

fn decoded<K: serde::de::DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn template() -> Value {
    json!({ "metadata": { "labels": { "a": "b" } }, "spec": {
        "clusterName": "c", "version": "v1.33.0", "bootstrap": { "dataSecretName": "s" },
        "infrastructureRef": { "apiGroup": "g", "kind": "MCMMachineTemplate", "name": "t" },
    }})
}

fn world() -> Snapshot {
    Snapshot {
        standing: StandInStatus::Serving,
        mirror: ObjectView::Missing,
        native: ObjectView::Present(decoded(json!({
            "metadata": { "name": "md-1-x", "namespace": "ns", "labels": {
                "a": "b", "name": "md", "node": "n-1", "machine-template-hash": "1",
            }},
            "spec": { "providerID": "aws:///eu-west-1/i-1", "class": { "name": "k" } },
            "status": { "currentStatus": { "phase": "Running" } },
        }))),
        set: Some(decoded(json!({
            "metadata": { "name": "md-1", "uid": "set" },
            "spec": { "clusterName": "c", "selector": {}, "template": template() },
        }))),
        above: MirrorAncestors {
            native: None,
            paused: None,
            deployment: Some(decoded(json!({
                "metadata": { "name": "md", "uid": "u" }, "spec": { "clusterName": "c", "selector": {}, "template": template() },
            }))),
        },
        class: Some(decoded(json!({ "metadata": { "name": "k" }, "providerSpec": {}, "nodeTemplate": {
            "capacity": {}, "instanceType": "i", "region": "eu-west-1", "zone": "eu-west-1a",
        }}))),
        is_up_to_date: true,
        session: StandInMachineSession::default(),
        now: Timestamp::from_second(1_000).unwrap(),
    }
}

fn changed<K: serde::Serialize + serde::de::DeserializeOwned>(view: &ObjectView<K>, change: &Value) -> ObjectView<K> {
    let mut value = serde_json::to_value(view.known().unwrap().as_ref()).unwrap();
    patch::apply(&mut value, change);
    ObjectView::Present(decoded(value))
}

fn settle(world: &mut Snapshot) -> Vec<String> {
    let mut done = Vec::new();
    world.session = StandInMachineSession::default();
    for _ in 0..16 {
        let steps = plan(world).steps;
        if steps.is_empty() {
            return done;
        }
        for step in steps {
            done.push(step.action.to_string().lines().next().unwrap().to_owned());
            match step.action {
                Action::Create(mirror) => world.mirror = ObjectView::Present(Arc::from(mirror)),
                Action::Patch { patch, .. } => world.mirror = changed(&world.mirror, &patch),
                Action::WriteStatus { mirror, status } => {
                    let mirror = Machine { status: Some(*status), ..Machine::clone(&mirror) };
                    world.mirror = ObjectView::Present(Arc::new(mirror));
                }
                Action::Delete(_) => world.mirror = ObjectView::Missing,
                Action::PatchNative { patch, .. } => world.native = changed(&world.native, &patch),
                Action::DeleteNative(_) => {
                    let change = json!({ "metadata": { "deletionTimestamp": DELETED } });
                    world.native = changed(&world.native, &change);
                }
                Action::ReadNative => world.session.is_gone = true,
                Action::Confirm => world.session.is_confirmed = true,
            }
        }
    }
    panic!("it does not settle: {done:#?}");
}

const DELETED: &str = "2026-01-01T00:00:00Z";

fn shown() -> Snapshot {
    let mut world = world();
    settle(&mut world);
    world
}

fn mirror(world: &Snapshot) -> &Machine {
    world.mirror.known().unwrap()
}

fn native_of(world: &Snapshot) -> &native::Machine {
    world.native.known().unwrap()
}

/// S5, T1: the Node, the ID in the form of the Node, and the fields that core would write.
#[test]
fn s5_a_native_machine_is_shown_with_its_node_and_the_id_that_its_node_has() {
    let mut world = world();
    assert_eq!(settle(&mut world), ["create Machine md-1-x", "write status, phase Running"]);
    let shown = mirror(&world);
    assert_eq!(shown.spec.provider_id, "aws:///eu-west-1a/i-1");
    assert_eq!(
        (shown.spec.infrastructure_ref.kind.as_str(), shown.spec.infrastructure_ref.name.as_str()),
        ("MCMMachine", "md-1-x")
    );
    assert_eq!(shown.spec.deletion.node_deletion_timeout_seconds, Some(10), "what a webhook of core would fill in");
    let labels = shown.metadata.labels.as_ref().unwrap();
    let expected = [("cluster-name", "c"), ("deployment-name", "md"), ("set-name", "md-1")];
    assert!(expected.iter().all(|(key, value)| labels[&format!("cluster.x-k8s.io/{key}")] == *value), "{labels:?}");
    assert!(!labels.contains_key("node") && !labels.contains_key("name"));
    assert_eq!(shown.metadata.owner_references.as_ref().unwrap()[0].uid, "set");
    assert!(
        shown.metadata.annotations.as_ref().unwrap().contains_key("cluster.x-k8s.io/paused"),
        "core leaves it alone"
    );
    let status = shown.status.as_ref().unwrap();
    assert_eq!(status.node_ref.as_ref().unwrap().name, "n-1");
    let is_true = |type_: &str| status.conditions.iter().any(|one| one.type_ == type_ && one.status == "True");
    assert!(
        ["Ready", "Available", "InfrastructureReady", "NodeHealthy", "UpToDate"].iter().all(|type_| is_true(type_))
    );
    assert!(!is_true("Deleting"));
}

/// S7: deletions by the autoscaler and users, after a live check for core.
#[rstest]
#[case::deleted(json!({ "metadata": { "deletionTimestamp": DELETED } }))]
#[case::remediated(json!({ "metadata": { "annotations": { "cluster.x-k8s.io/remediate-machine": "" } } }))]
fn s7_a_machine_that_is_asked_to_go_takes_its_native_machine_along(#[case] change: Value) {
    let mut world = shown();
    world.mirror = changed(&world.mirror, &change);
    let done = settle(&mut world);
    assert_eq!(done[..2], ["look for Cluster API core live", "delete MCM Machine md-1-x"]);
    assert!(world.mirror.known().is_some(), "it goes after the MCM one");
    assert_eq!(mirror(&world).status.as_ref().unwrap().phase, "Deleting");
    world.native = ObjectView::Missing;
    let done = settle(&mut world);
    assert_eq!(done[..2], ["read the MCM Machine live", "patch metadata.finalizers"]);
}

/// Z3: a pause also stops deletions.
#[test]
fn s8_nothing_is_done_for_a_machine_whose_deployment_is_paused() {
    let mut world = shown();
    world.above.paused = Some("Cluster c to be unpaused".to_owned());
    world.mirror = changed(&world.mirror, &json!({ "metadata": { "deletionTimestamp": DELETED } }));
    assert_eq!(settle(&mut world), [""; 0]);
    assert_eq!(plan(&world).waits[0].text, "Cluster c to be unpaused");
}

/// S2: between the request and the deletion, core came.
#[test]
fn s2_a_request_is_dropped_if_the_live_look_finds_core() {
    let mut world = shown();
    world.mirror = changed(&world.mirror, &json!({ "metadata": { "deletionTimestamp": DELETED } }));
    world.session.is_confirmed = true;
    world.standing = StandInStatus::Core("x".into());
    assert!(plan(&world).steps.is_empty());
}

/// S2, S6: a Machine whose deployment vanished, or was deleted without the authority, is deleted alone. Its deletion
/// must not look like a request, so the finalizer is removed first.
#[rstest]
fn s2_s6_a_machine_that_is_not_shown_any_more_goes_alone(#[values(false, true)] is_collected: bool) {
    let mut world = shown();
    world.above.deployment = None;
    if is_collected {
        world.mirror = changed(&world.mirror, &json!({ "metadata": { "deletionTimestamp": DELETED } }));
    }
    let first = plan(&world).steps.into_iter().next().unwrap().action;
    let Action::Patch { patch, .. } = first else { panic!("{first}") };
    assert_eq!(patch, json!({ "metadata": { "finalizers": [] } }));
    if !is_collected {
        settle(&mut world);
        assert!(world.mirror.known().is_none());
    }
    assert!(native_of(&world).metadata.deletion_timestamp.is_none());
}

/// S7, section 6.
#[test]
fn s7_the_annotation_delete_machine_is_a_native_priority_and_can_be_taken_back() {
    let mut world = shown();
    let annotate =
        |value: Value| json!({ "metadata": { "annotations": { "cluster.x-k8s.io/delete-machine": value } } });
    world.mirror = changed(&world.mirror, &annotate("yes".into()));
    settle(&mut world);
    let priority = |world: &Snapshot| {
        native_of(world)
            .metadata
            .annotations
            .clone()
            .unwrap_or_default()
            .get("machinepriority.machine.sapcloud.io")
            .cloned()
    };
    assert_eq!(priority(&world).as_deref(), Some("1"));
    world.mirror = changed(&world.mirror, &annotate(Value::Null));
    settle(&mut world);
    assert_eq!(priority(&world), None);
}

/// S4.
#[rstest]
#[case(json!({ "spec": { "version": "v9.9.9" } }))]
#[case(json!({ "spec": { "providerID": "x:///y" } }))]
#[case(json!({ "metadata": { "finalizers": null } }))]
#[case(json!({ "metadata": { "ownerReferences": null } }))]
#[case(json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": null } } }))]
fn s4_an_edit_of_a_shown_machine_is_undone(#[case] change: Value) {
    let mut world = shown();
    let before = serde_json::to_value(mirror(&world)).unwrap();
    world.mirror = changed(&world.mirror, &change);
    settle(&mut world);
    assert_eq!(serde_json::to_value(mirror(&world)).unwrap(), before);
}

/// S1, S2.
#[rstest]
fn s1_s2_no_machine_is_written_where_the_stand_in_may_not_act(
    #[values(StandInStatus::NotAsked, StandInStatus::Core("x".into()), StandInStatus::Unknown("x".into()))]
    standing: StandInStatus,
    #[values(false, true)] is_gone: bool,
) {
    let mut world = shown();
    world.mirror = changed(&world.mirror, &json!({ "metadata": { "deletionTimestamp": DELETED } }));
    if is_gone {
        world.native = ObjectView::Missing;
    }
    world.standing = standing;
    assert_eq!(settle(&mut world), [""; 0]);
    assert_eq!(plan(&world).waits.len(), 1);
}

#[test]
fn s5_a_machine_of_a_user_is_refused_and_a_native_machine_of_its_name_stays() {
    let mut world = world();
    world.mirror = ObjectView::Present(decoded(
        json!({ "metadata": { "name": "md-1-x", "deletionTimestamp": DELETED }, "spec": {} }),
    ));
    settle(&mut world);
    assert_eq!(mirror(&world).status.as_ref().unwrap().conditions[0].reason, "UnownedUnsupported");
    assert!(native_of(&world).metadata.deletion_timestamp.is_none());
}

#[test]
fn a_terminating_native_machine_is_not_shown_again() {
    let mut world = world();
    world.native = changed(&world.native, &json!({ "metadata": { "deletionTimestamp": DELETED } }));
    assert_eq!(settle(&mut world), [""; 0]);
}

proptest! {
    /// AU8: one write is enough to show any native machine.
    #[test]
    fn au8_a_machine_in_step_is_written_no_more(
        phase in prop::sample::select(vec!["", "Pending", "Running", "Unknown", "Failed", "Terminating", "CrashLoopBackOff", "Available"]),
        id in prop::option::of(prop::sample::select(vec!["aws:///eu-west-1/i-1", "gce:///p/z/n", "x:///y"])),
        node in prop::option::of("[a-z]{1,5}"),
        has_class in any::<bool>(),
        annotation in prop::option::of("[a-z]{0,3}"),
        later in 1_001..9_000_i64,
    ) {
        let mut world = world();
        world.native = changed(&world.native, &json!({
            "metadata": { "labels": { "node": node } },
            "spec": { "providerID": id },
            "status": { "currentStatus": { "phase": phase } },
        }));
        if !has_class {
            world.class = None;
        }
        settle(&mut world);
        if world.mirror.known().is_some() {
            world.mirror = changed(&world.mirror, &json!({ "metadata": { "annotations": { "cluster.x-k8s.io/delete-machine": annotation } } }));
        }
        settle(&mut world);
        world.now = Timestamp::from_second(later).unwrap();
        prop_assert_eq!(settle(&mut world), Vec::<String>::new());
    }
}
