use kube::{Resource, ResourceExt};
use schemars::JsonSchema;
use serde::Serialize;

/// A reference to an object, for programs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct SubjectRef {
    /// Kind.
    pub kind: String,
    /// Namespace; empty for cluster-scoped kinds.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl SubjectRef {
    /// The reference to an object.
    pub fn from_object<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        let namespace = object.namespace().unwrap_or_default();
        Self { kind: K::kind(&()).into_owned(), namespace, name: object.name_any() }
    }

    /// The reference to a cluster-scoped object by its name.
    pub fn named<K: Resource<DynamicType = ()>>(name: &str) -> Self {
        Self { kind: K::kind(&()).into_owned(), namespace: String::new(), name: name.to_owned() }
    }
}
