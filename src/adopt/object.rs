//! Objects of any kind, as the API servers store them. A migration copies unknown fields.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use mcm_api::{
    kinds::{self, ResourceKind},
    labels, patch,
};
use mcm_conversion::{PROVIDERS, ProviderKinds, ProviderRole, types::names};

/// A kind that a migration reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `cluster.x-k8s.io`
    Cluster,
    /// `cluster.x-k8s.io`
    CapiDeployment,
    /// `cluster.x-k8s.io`
    CapiSet,
    /// `cluster.x-k8s.io`
    CapiMachine,
    /// `cluster.x-k8s.io`
    HealthCheck,
    /// `infrastructure.cluster.x-k8s.io`
    InfraMachine,
    /// `infrastructure.cluster.x-k8s.io`
    InfraTemplate,
    /// `infrastructure.cluster.x-k8s.io`, of another infrastructure provider.
    Other(&'static ProviderKinds, ProviderRole),
    /// `infrastructure.cluster.x-k8s.io`
    Migration,
    /// `machine.sapcloud.io`
    Deployment,
    /// `machine.sapcloud.io`
    Set,
    /// `machine.sapcloud.io`
    Machine,
    /// `machine.sapcloud.io`
    Class,
    /// A core/v1 Secret; only referenced ones are read.
    Secret,
    /// Of the workload cluster.
    Node,
    /// A core/v1 Namespace; only that of the objects is read.
    Namespace,
    /// `cluster.x-k8s.io`
    MachinePool,
}

impl Kind {
    /// Kinds that may be listed in the namespace, without those of other infrastructure providers.
    const OWN: [Self; 13] = [
        Self::Cluster,
        Self::CapiDeployment,
        Self::CapiSet,
        Self::CapiMachine,
        Self::HealthCheck,
        Self::InfraMachine,
        Self::InfraTemplate,
        Self::Migration,
        Self::Deployment,
        Self::Set,
        Self::Machine,
        Self::Class,
        Self::MachinePool,
    ];

    /// All kinds that may be listed in the namespace.
    pub fn listed() -> impl Iterator<Item = Self> {
        Self::OWN.into_iter().chain(ProviderRole::ALL.into_iter().flat_map(Self::of_others))
    }

    /// The kinds with this role of all other infrastructure providers.
    pub fn of_others(role: ProviderRole) -> impl Iterator<Item = Self> {
        PROVIDERS.into_iter().map(move |provider| Self::Other(&provider.kinds, role))
    }

    /// Its entry in the catalogue.
    pub const fn resource(self) -> ResourceKind {
        match self {
            Self::Cluster => kinds::CLUSTERS,
            Self::CapiDeployment => kinds::CAPI_MACHINE_DEPLOYMENTS,
            Self::CapiSet => kinds::CAPI_MACHINE_SETS,
            Self::CapiMachine => kinds::CAPI_MACHINES,
            Self::HealthCheck => kinds::MACHINE_HEALTH_CHECKS,
            Self::InfraMachine => kinds::MCM_MACHINES,
            Self::InfraTemplate => kinds::MCM_MACHINE_TEMPLATES,
            Self::Other(provider, role) => provider.with_role(role),
            Self::Migration => kinds::MCM_MIGRATIONS,
            Self::Deployment => kinds::MACHINE_DEPLOYMENTS,
            Self::Set => kinds::MACHINE_SETS,
            Self::Machine => kinds::MACHINES,
            Self::Class => kinds::MACHINE_CLASSES,
            Self::Secret => kinds::SECRETS,
            Self::Node => kinds::NODES,
            Self::Namespace => kinds::NAMESPACES,
            Self::MachinePool => kinds::MACHINE_POOLS,
        }
    }

    /// A kind of another infrastructure provider, which need not be installed.
    pub const fn is_of_other(self) -> bool {
        matches!(self, Self::Other(..))
    }

    /// A hand-over from the stand-in for core reads it; core need not be installed.
    pub const fn is_of_stand_in(self) -> bool {
        matches!(
            self,
            Self::Cluster
                | Self::CapiDeployment
                | Self::CapiSet
                | Self::CapiMachine
                | Self::Migration
                | Self::Deployment
        )
    }

    /// Its controllers read the pause annotation of Cluster API.
    pub const fn has_pause_annotation(self) -> bool {
        matches!(
            self,
            Self::CapiDeployment
                | Self::CapiSet
                | Self::CapiMachine
                | Self::HealthCheck
                | Self::InfraMachine
                | Self::MachinePool
                | Self::Other(_, ProviderRole::Machine | ProviderRole::Pool)
        )
    }

    /// The native controllers reconcile it.
    pub const fn is_native(self) -> bool {
        matches!(self, Self::Deployment | Self::Set | Self::Machine)
    }

    /// Its controllers confirm the pause of an object.
    pub const fn is_paused_by_annotation(self) -> bool {
        self.has_pause_annotation() || self.is_native()
    }

    /// `apiVersion` of its objects.
    pub fn api_version(self) -> String {
        self.resource().api_version()
    }

    /// The kind of a converted object.
    pub fn from_value(value: &Value) -> Option<Self> {
        let (version, kind) = (value["apiVersion"].as_str()?, value["kind"].as_str()?);
        let is_it = |one: &Self| one.api_version() == version && one.resource().name == kind;
        Self::listed().chain([Self::Secret]).find(is_it)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_native() { "MCM " } else { "" }, self.resource().name)
    }
}

/// The identity of an object in the namespace, or of a Node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

impl ObjectId {
    /// Names an object.
    pub fn new(kind: Kind, name: &str) -> Self {
        Self { kind, name: name.to_owned() }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// An object as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct UnstructuredObject {
    /// Its kind.
    pub kind: Kind,
    /// Its fields.
    pub value: Value,
}

impl UnstructuredObject {
    /// Its kind and name.
    pub fn id(&self) -> ObjectId {
        ObjectId::new(self.kind, self.name())
    }

    /// The text at a JSON pointer; empty if it is absent.
    pub fn text(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The number at a JSON pointer.
    pub fn number(&self, pointer: &str) -> Option<i64> {
        self.value.pointer(pointer).and_then(Value::as_i64)
    }

    /// The value at a JSON pointer; null if it is absent.
    pub fn at(&self, pointer: &str) -> Value {
        self.value.pointer(pointer).cloned().unwrap_or_default()
    }

    /// The object as its type. `None` if it cannot be decoded.
    pub fn decoded<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_value(self.value.clone()).ok()
    }

    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.value["metadata"]["labels"].get(key)?.as_str()
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.value["metadata"]["annotations"].get(key)?.as_str()
    }

    pub fn is_deleting(&self) -> bool {
        !self.value["metadata"]["deletionTimestamp"].is_null()
    }

    /// A migration of this name created it or holds it.
    pub fn is_of_migration(&self, name: &str) -> bool {
        self.annotation(labels::MIGRATION) == Some(name)
    }

    /// UID of its controller.
    pub fn controller(&self) -> Option<&str> {
        let owners = self.value["metadata"]["ownerReferences"].as_array()?;
        owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
    }

    /// Status of a condition: `True`, `False`, `Unknown`; empty if it is absent.
    pub fn condition(&self, type_: &str) -> &str {
        // Native sets have another name for them.
        let all = ["conditions", "machineSetCondition"].map(|key| self.value["status"][key].as_array());
        let found = all.into_iter().flatten().flatten().find(|condition| condition["type"] == type_);
        found.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
    }

    /// Its controller confirms a pause. Some other infrastructure providers never do: they read only the owner
    /// and the pause annotation of an object.
    pub fn tells_pause(&self) -> bool {
        !self.kind.is_of_other() || !self.condition("Paused").is_empty()
    }

    /// Its controller confirmed the pause.
    pub fn is_paused(&self) -> bool {
        self.condition("Paused") == "True"
    }

    /// Its controller has observed the last change of its spec.
    pub fn is_observed(&self) -> bool {
        let observed = self.number("/status/observedGeneration");
        observed.is_some() && observed >= self.number("/metadata/generation")
    }

    /// The owner reference to this object as a controller.
    pub fn as_controller(&self) -> Value {
        json!([{
            "apiVersion": self.kind.api_version(), "kind": self.kind.resource().name, "name": self.name(), "uid": self.uid(),
            "controller": true, "blockOwnerDeletion": true,
        }])
    }

    /// The object as a user wrote it: without status and without pause annotations.
    pub fn as_written(&self) -> Value {
        let mut value = self.value.clone();
        value.as_object_mut().map(|fields| fields.remove("status"));
        let annotations = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
        if let Some(annotations) = annotations {
            for key in [names::PAUSED, labels::MIGRATION] {
                annotations.remove(key);
            }
        }
        value
    }
}

/// The merge patch that adds all missing wanted fields to `live`; `None` if nothing is missing. A wanted null removes a
/// field.
pub fn lacking(live: &Value, wanted: &Value) -> Option<Value> {
    match wanted {
        Value::Null => (!live.is_null()).then_some(Value::Null),
        Value::Object(wanted) if wanted.is_empty() => None,
        Value::Object(wanted) => {
            let below = |key: &str| live.get(key).unwrap_or(&Value::Null);
            let differing = wanted.iter().filter_map(|(key, value)| Some((key.clone(), lacking(below(key), value)?)));
            let patch: Map<String, Value> = differing.collect();
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        Value::Array(items) if items.is_empty() && live.is_null() => None,
        other => (live != other).then(|| other.clone()),
    }
}

/// The merge patch that replaces the fields of `from` by those of `to`.
pub fn replacing(from: &Value, to: &Value) -> Value {
    patch::diff(from, to).unwrap_or_else(|| json!({}))
}

/// Without empty texts, which Go leaves out.
pub fn without_empty(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| value.as_str() != Some(""));
            kept.map(|(key, value)| (key.clone(), without_empty(value))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::has_it(json!({"a": 1, "b": 2}), json!({"a": 1}), None)]
    #[case::lacks_it(json!({"a": 1}), json!({"a": 2, "b": {"c": 3}}), Some(json!({"a": 2, "b": {"c": 3}})))]
    #[case::gone_already(json!({"a": 1}), json!({"b": null, "c": {}, "d": []}), None)]
    #[case::to_remove(json!({"a": {"b": 1}}), json!({"a": {"b": null}}), Some(json!({"a": {"b": null}})))]
    #[case::lists_are_whole(json!({"a": [1, 2]}), json!({"a": [1]}), Some(json!({"a": [1]})))]
    fn a_patch_has_only_what_is_lacking(#[case] live: Value, #[case] wanted: Value, #[case] expected: Option<Value>) {
        let patch = lacking(&live, &wanted);
        assert_eq!(patch, expected);
        let mut after = live;
        patch::apply(&mut after, &patch.unwrap_or_else(|| json!({})));
        assert_eq!(lacking(&after, &wanted), None);
    }
}
