//! One object that cannot be decoded must not stop the watch of all others.

use std::{borrow::Cow, fmt::Debug};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// An object whose metadata is known and whose content may be unreadable.
#[derive(Clone, Debug)]
pub struct Guard<K> {
    metadata: ObjectMeta,
    /// The object, or what is wrong with it.
    pub content: Result<K, String>,
}

impl<K> Guard<K> {
    /// An object that could be read.
    pub const fn readable(metadata: ObjectMeta, content: K) -> Self {
        Self { metadata, content: Ok(content) }
    }

    /// An object that could not be read.
    pub fn unreadable(metadata: ObjectMeta, error: impl Into<String>) -> Self {
        Self { metadata, content: Err(error.into()) }
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct OnlyMetadata {
            metadata: ObjectMeta,
        }
        let value = Value::deserialize(deserializer)?;
        let OnlyMetadata { metadata } = OnlyMetadata::deserialize(&value).map_err(serde::de::Error::custom)?;
        let content = serde_json::from_value(value).map_err(|error| error.to_string());
        Ok(Self { metadata, content })
    }
}

impl<K: Resource> Resource for Guard<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::machine::Machine;

    #[test]
    fn a_bad_duration_leaves_the_metadata_readable() {
        let text = r#"{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"Machine","metadata":{"name":"m","uid":"u"},
                       "spec":{"drainTimeout":"2 hours"}}"#;
        let guard: Guard<Machine> = serde_json::from_str(text).unwrap();
        assert_eq!(guard.meta().uid.as_deref(), Some("u"));
        assert!(guard.content.unwrap_err().contains("\"2 hours\" is not a duration"));
    }
}
