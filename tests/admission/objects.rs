//! The objects that the cases change.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;

/// A kind, and a valid object of it.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    plural: &'static str,
    sample: &'static str,
}

pub const DEPLOYMENT: Kind = Kind {
    name: "MachineDeployment",
    plural: "machinedeployments",
    sample: "
        spec:
          replicas: 3
          selector: {matchLabels: {pool: workers}}
          strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
          template:
            metadata: {labels: {pool: workers, zone: a}}
            spec: {class: {kind: MachineClass, name: small}}",
};

/// A deployment that updates its machines in place.
pub const IN_PLACE: Kind = Kind {
    sample: "
        spec:
          replicas: 3
          selector: {matchLabels: {pool: workers}}
          strategy: {type: InPlaceUpdate, inPlaceUpdate: {maxSurge: 1, maxUnavailable: 1, orchestrationType: Auto}}
          template:
            metadata: {labels: {pool: workers}}
            spec: {class: {kind: MachineClass, name: small}}",
    ..DEPLOYMENT
};

pub const SET: Kind = Kind {
    name: "MachineSet",
    plural: "machinesets",
    sample: "
        spec:
          replicas: 3
          selector: {matchLabels: {pool: workers}}
          template:
            metadata: {labels: {pool: workers, zone: a}}
            spec: {class: {kind: MachineClass, name: small}}",
};

pub const MACHINE: Kind =
    Kind { name: "Machine", plural: "machines", sample: "spec: {class: {kind: MachineClass, name: small}}" };

pub const CLASS: Kind =
    Kind { name: "MachineClass", plural: "machineclasses", sample: "providerSpec: {flavour: small}" };

impl Kind {
    /// The sample, changed by a merge patch written in YAML: `null` removes.
    pub fn with(self, change: &str) -> DynamicObject {
        let mut object = yaml(self.sample);
        merge(&mut object, yaml(change));
        let mut object: DynamicObject = serde_json::from_value(with_identity(object)).unwrap();
        object.types =
            Some(kube::api::TypeMeta { api_version: "machine.sapcloud.io/v1alpha1".into(), kind: self.name.into() });
        object
    }

    /// The objects of the kind in a namespace; the group may be a copy of ours.
    pub fn api(self, client: &Client, group: &str, namespace: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(group, "v1alpha1", self.name);
        let resource = ApiResource::from_gvk_with_plural(&gvk, self.plural);
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

pub fn yaml(text: &str) -> Value {
    serde_yaml_ng::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn with_identity(mut object: Value) -> Value {
    merge(&mut object, yaml("{metadata: {}}"));
    if object["metadata"].get("name").is_none() {
        object["metadata"]["name"] = "sample".into();
    }
    object
}

/// A JSON merge patch.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
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
