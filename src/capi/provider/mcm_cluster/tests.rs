use std::sync::Arc;

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Action, Snapshot, plan::plan};
use crate::object::view::ObjectView;
use mcm_api::patch;
use mcm_conversion::types::MCMCluster;

struct World {
    object: Option<Value>,
    cluster: Option<Value>,
    has_secret: bool,
    has_class: bool,
    writes: usize,
    story: String,
}

impl World {
    fn new() -> Self {
        let owner =
            json!([{ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c", "uid": "cluster" }]);
        Self {
            object: Some(json!({
                "metadata": { "name": "c", "namespace": "ns", "uid": "object", "generation": 1, "ownerReferences": owner },
                "spec": { "controlPlaneEndpoint": { "host": "api.example", "port": 6443 } },
            })),
            cluster: Some(json!({ "metadata": { "name": "c", "namespace": "ns", "uid": "cluster" }, "spec": {} })),
            has_secret: true,
            has_class: true,
            writes: 0,
            story: String::new(),
        }
    }

    fn set(&mut self, change: &Value) {
        patch::apply(self.object.as_mut().unwrap(), change);
    }

    fn set_cluster(&mut self, change: &Value) {
        patch::apply(self.cluster.as_mut().unwrap(), change);
    }

    fn snapshot(&self) -> Snapshot {
        let object: Arc<MCMCluster> = Arc::new(serde_json::from_value(self.object.clone().unwrap()).unwrap());
        let existence = |is_there: bool| if is_there { ObjectView::Present(().into()) } else { ObjectView::Missing };
        let cluster = self.cluster.clone().map(|cluster| Arc::new(serde_json::from_value(cluster).unwrap()));
        let is_owned = object.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
        let classes = object.spec.failure_domains.iter().flat_map(|domain| domain.machine_class_overrides.values());
        Snapshot {
            cluster: is_owned.then(|| cluster.map_or(ObjectView::Missing, ObjectView::Present)),
            credentials: object.spec.credentials_secret_ref.as_ref().map(|_| existence(self.has_secret)),
            classes: classes.map(|name| (name.clone(), existence(self.has_class))).collect(),
            watch_filter: None,
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            object,
        }
    }

    fn pass(&mut self) {
        for _ in 0..10 {
            if self.object.is_none() {
                return;
            }
            let plan = plan(&self.snapshot());
            self.story.push_str(&plan.to_string());
            assert!(plan.steps.len() <= 1);
            let Some(step) = plan.steps.into_iter().next() else { return };
            self.writes += 1;
            match step.action {
                Action::PatchSelf(change) => {
                    self.set(&change);
                    let meta = &self.object.as_ref().unwrap()["metadata"];
                    if meta["finalizers"].as_array().is_none_or(Vec::is_empty) && meta["deletionTimestamp"].is_string()
                    {
                        self.object = None;
                    }
                }
                Action::WriteStatus(status) => {
                    self.object.as_mut().unwrap()["status"] = serde_json::to_value(*status).unwrap();
                }
            }
        }
        panic!("it does not come to an end:\n{}", self.story);
    }

    fn status(&self) -> &Value {
        &self.object.as_ref().unwrap()["status"]
    }

    fn condition(&self, type_: &str) -> String {
        let all = self.status()["conditions"].as_array().cloned().unwrap_or_default();
        let found = all.into_iter().find(|condition| condition["type"] == type_);
        let text =
            |found: Value| format!("{} {}", found["status"].as_str().unwrap(), found["reason"].as_str().unwrap());
        found.map(text).unwrap_or_default()
    }
}

/// C2, C4, C6, C13.
#[test]
fn a_cluster_with_an_endpoint_is_provisioned_after_it_got_the_finalizer() {
    let mut world = World::new();
    world.pass();
    let object = world.object.as_ref().unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!(["mcmcluster.infrastructure.cluster.x-k8s.io"]));
    assert_eq!(world.status()["initialization"]["provisioned"], true);
    assert_eq!(world.condition("Ready"), "True Provisioned");
    assert_eq!(world.condition("Paused"), "False NotPaused");
    let writes = world.writes;
    world.pass();
    assert_eq!(world.writes, writes, "and then nothing is written");
}

/// C3, C9: an endpoint that the topology leaves empty, or that the user gives to the Cluster.
#[rstest]
fn without_an_endpoint_the_one_of_the_cluster_is_waited_for(
    #[values(json!(null), json!({ "host": "", "port": 0 }))] endpoint: Value,
) {
    let mut world = World::new();
    world.set(&json!({ "spec": { "controlPlaneEndpoint": endpoint } }));
    world.pass();
    assert_eq!(world.condition("Ready"), "False WaitingForControlPlaneEndpoint");
    assert!(world.status()["initialization"].is_null());
    let spec = world.object.as_ref().unwrap()["spec"].clone();
    world.set_cluster(&json!({ "spec": { "controlPlaneEndpoint": { "host": "api.example", "port": 6443 } } }));
    world.pass();
    assert_eq!(world.condition("Ready"), "True Provisioned");
    assert_eq!(world.object.as_ref().unwrap()["spec"], spec, "the spec is the user's");
}

/// C4: provisioned is never taken back; Ready shows the loss.
#[test]
fn provisioned_stays_when_something_is_lost_later() {
    let mut world = World::new();
    world.set(&json!({ "spec": { "credentialsSecretRef": { "name": "s" } } }));
    world.has_secret = false;
    world.pass();
    assert_eq!(
        (world.condition("Ready").as_str(), &world.status()["initialization"]),
        ("False SecretMissing", &Value::Null)
    );
    world.has_secret = true;
    world.pass();
    world.has_secret = false;
    world.pass();
    assert_eq!(
        (world.condition("Ready").as_str(), &world.status()["initialization"]["provisioned"]),
        ("False SecretMissing", &json!(true))
    );
}

/// C5.
#[test]
fn failure_domains_are_published_once_their_classes_exist() {
    let mut world = World::new();
    let domains = json!([
        { "name": "a", "controlPlane": true, "attributes": { "tier": "1" }, "machineClassOverrides": { "small": "small-a" } },
        { "name": "b" },
    ]);
    world.set(&json!({ "spec": { "failureDomains": domains } }));
    world.has_class = false;
    world.pass();
    assert_eq!(world.condition("Ready"), "False ClassMissing");
    world.has_class = true;
    world.pass();
    let expected = json!([
        { "name": "a", "controlPlane": true, "attributes": { "tier": "1" } },
        { "name": "b", "controlPlane": false },
    ]);
    assert_eq!((world.condition("Ready").as_str(), &world.status()["failureDomains"]), ("True Provisioned", &expected));
}

/// C10: not even the condition Paused or the finalizer.
#[rstest]
fn an_externally_managed_cluster_is_not_touched(#[values("", "them")] value: &str) {
    let mut world = World::new();
    world.set(&json!({ "metadata": { "annotations": { "cluster.x-k8s.io/managed-by": value } } }));
    world.set_cluster(&json!({ "spec": { "paused": true } }));
    world.pass();
    world.set(&json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } }));
    world.pass();
    assert_eq!(world.writes, 0);
}

/// It had the finalizer before another manager got it.
#[test]
fn a_cluster_that_became_externally_managed_loses_its_finalizer_when_it_is_deleted() {
    let mut world = World::new();
    world.pass();
    world.set(&json!({ "metadata": { "annotations": { "cluster.x-k8s.io/managed-by": "" } } }));
    world.pass();
    assert!(world.object.as_ref().unwrap()["metadata"]["finalizers"][0].is_string());
    world.set(&json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } }));
    world.pass();
    let left = world.object.as_ref().map(|object| object["metadata"]["finalizers"].clone());
    assert!(left.is_none_or(|finalizers| finalizers.as_array().is_none_or(Vec::is_empty)));
}

/// C12.
#[test]
fn a_cluster_without_an_owner_is_not_touched() {
    let mut world = World::new();
    let alone = |created: &str| json!({ "metadata": { "ownerReferences": null, "creationTimestamp": created } });
    world.set(&alone("2027-01-15T08:00:00Z"));
    world.pass();
    assert_eq!(world.writes, 0);
    world.set(&alone("2027-01-15T07:59:50Z"));
    world.pass();
    assert_eq!((world.condition("Ready").as_str(), world.writes), ("Unknown WaitingForOwner", 1));
}

/// C11: owner and label are core's; nothing that is written names them.
#[test]
fn owner_and_label_of_core_are_not_written() {
    let mut world = World::new();
    world.set(&json!({ "metadata": { "labels": { "cluster.x-k8s.io/cluster-name": "c" } } }));
    let owners = world.object.as_ref().unwrap()["metadata"]["ownerReferences"].clone();
    world.pass();
    let meta = &world.object.as_ref().unwrap()["metadata"];
    assert_eq!(
        (&meta["ownerReferences"], &meta["labels"]),
        (&owners, &json!({ "cluster.x-k8s.io/cluster-name": "c" }))
    );
    assert!(!world.story.contains("ownerReferences") && !world.story.contains("labels"));
}

/// Z1, Z2, Z3.
#[test]
fn a_paused_cluster_gets_the_condition_and_keeps_its_finalizer() {
    let mut world = World::new();
    world.pass();
    world.set_cluster(&json!({ "spec": { "paused": true } }));
    world.set(&json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } }));
    world.pass();
    assert_eq!(
        (world.condition("Paused").as_str(), world.condition("Ready").as_str()),
        ("True Paused", "True Provisioned")
    );
    world.set_cluster(&json!({ "spec": { "paused": false } }));
    world.pass();
    assert!(world.object.is_none());
}

/// C14: it needs neither the Cluster nor its API server.
#[rstest]
#[case::all_there(|_: &mut World| {})]
#[case::cluster_gone(|world: &mut World| world.cluster = None)]
#[case::owner_gone(|world: &mut World| world.set(&json!({ "metadata": { "ownerReferences": null } })))]
fn a_deletion_ends_at_once(#[case] loss: fn(&mut World)) {
    let mut world = World::new();
    world.pass();
    world.set(&json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } }));
    loss(&mut world);
    world.pass();
    assert!(world.object.is_none(), "{}", world.story);
}

#[test]
fn transcript() {
    let mut world = World::new();
    world.set(&json!({ "spec": { "controlPlaneEndpoint": null } }));
    world.pass();
    world.story.push_str("-- the Cluster gets its endpoint\n");
    world.set_cluster(&json!({ "spec": { "controlPlaneEndpoint": { "host": "api.example", "port": 6443 } } }));
    world.pass();
    world.story.push_str("-- the Cluster is deleted\n");
    world.set(&json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } }));
    world.pass();
    insta::assert_snapshot!(world.story);
}
