//! Objects around an infrastructure object, as an API server has them.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::object::view::ObjectView;

pub fn parsed<K: DeserializeOwned>(value: &Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value.clone()).unwrap())
}

pub fn view<K: DeserializeOwned>(value: Option<&Value>) -> ObjectView<K> {
    value.map_or(ObjectView::Missing, |value| ObjectView::Present(parsed(value)))
}

/// A class of VMs in a zone.
pub fn class(name: &str, zone: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "ns", "uid": name },
        "provider": "simulated",
        "providerSpec": { "zone": zone },
        "nodeTemplate": {
            "capacity": { "cpu": "1", "gpu": "0", "memory": "1Gi" }, "instanceType": "small", "region": "r", "zone": zone,
        },
    })
}

/// The owner references by which Cluster API core takes an object.
pub fn owned_by(kind: &str, name: &str, uid: &str) -> Value {
    json!([{ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "uid": uid, "controller": true }])
}

/// A reference to an object of the provider.
pub fn infrastructure_ref(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name })
}

/// A Cluster whose infrastructure is provisioned.
pub fn cluster(infrastructure: &str) -> Value {
    json!({
        "metadata": { "name": "c", "namespace": "ns", "uid": "cluster" },
        "spec": { "infrastructureRef": infrastructure_ref("MCMCluster", infrastructure) },
        "status": { "initialization": { "infrastructureProvisioned": true } },
    })
}

/// The change of an object that is being deleted.
pub fn deleted() -> Value {
    json!({ "metadata": { "deletionTimestamp": "2027-01-01T00:00:00Z" } })
}

/// `False Creating`, for a condition.
pub fn condition(conditions: &[Condition], type_: &str) -> String {
    let found = conditions.iter().find(|condition| condition.type_ == type_);
    found.map(|condition| format!("{} {}", condition.status, condition.reason)).unwrap_or_default()
}
