//! Objects as a user writes them.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

/// In the user data and the credentials of every pool, and to be found nowhere else: see `secrets`.
pub const PLANTED: &str = "planted-5d1f0c9a73e84b26";

/// The API of the kind of an object, in its namespace if it has one.
pub fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
    match text("/metadata/namespace") {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// Server-side apply, as `kubectl apply --server-side` does it.
pub async fn try_apply(client: &Client, object: &Value) -> Result<DynamicObject, kube::Error> {
    let name = object["metadata"]["name"].as_str().unwrap();
    api_of(client, object).patch(name, &PatchParams::apply("tests").force(), &Patch::Apply(object)).await
}

/// Server-side apply of an object that must be accepted.
pub async fn apply(client: &Client, object: &Value) -> DynamicObject {
    try_apply(client, object).await.unwrap_or_else(|error| panic!("apply {object}: {error}"))
}

/// Merges a JSON merge patch (RFC 7386).
pub fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        let fields = target.as_object_mut().unwrap();
        if value.is_null() {
            fields.remove(&key);
        } else {
            merge(fields.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Credentials and user data of the class `name`.
pub fn secret(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": {
            "userData": format!("#cloud-config\n# <<BOOTSTRAP_TOKEN>> <<MACHINE_NAME>>\npassword: {PLANTED}\n"),
            "password": PLANTED,
        },
    })
}

/// A class of quick machines that boots with the Secret `pool`.
pub fn class(name: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineClass",
        "metadata": {"name": name},
        "provider": "simulated",
        "providerSpec": {
            "instanceType": name,
            "createLatency": "50ms",
            "bootLatency": "100ms",
            "deleteLatency": "50ms",
        },
        "secretRef": {"name": "pool"},
        "nodeTemplate": {
            "capacity": {"cpu": "4", "gpu": "0", "memory": "16Gi"},
            "instanceType": name,
            "region": "simulated",
            "zone": "simulated-a",
        },
    })
}

/// A machine of the class `small` that no set owns.
pub fn machine(name: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "Machine",
        "metadata": {"name": name},
        "spec": {"class": {"kind": "MachineClass", "name": "small"}},
    })
}

/// A deployment of machines of the class `small`.
pub fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineDeployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"name": name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"name": name}},
                "spec": {
                    "class": {"kind": "MachineClass", "name": "small"},
                    "nodeTemplate": {
                        "metadata": {
                            "labels": {"example.com/pool": name},
                            "annotations": {"example.com/note": "from the template"},
                        },
                        "spec": {"taints": [{"key": "example.com/dedicated", "value": name, "effect": "NoSchedule"}]},
                    },
                },
            },
        },
    })
}
