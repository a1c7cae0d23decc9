//! Decodes the objects of a watch individually, so that one undecodable object does not stop the watch.

use std::{borrow::Cow, fmt::Debug};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

/// A decoded object, or the metadata of one whose content cannot be decoded.
#[derive(Clone, Debug)]
pub enum Guard<K> {
    /// Decoded.
    Readable(K),
    /// Not decodable.
    Unreadable {
        /// Its metadata.
        metadata: Box<ObjectMeta>,
        /// The decoding error.
        error: String,
    },
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct OnlyMetadata {
            metadata: Box<ObjectMeta>,
        }
        let text = Box::<RawValue>::deserialize(deserializer)?;
        match serde_json::from_str(text.get()) {
            Ok(object) => Ok(Self::Readable(object)),
            Err(error) => {
                let OnlyMetadata { metadata } = serde_json::from_str(text.get()).map_err(serde::de::Error::custom)?;
                Ok(Self::Unreadable { metadata, error: error.to_string() })
            }
        }
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

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Readable(object) => object.meta(),
            Self::Unreadable { metadata, .. } => metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Readable(object) => object.meta_mut(),
            Self::Unreadable { metadata, .. } => metadata,
        }
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
        let Guard::Unreadable { error, .. } = guard else { panic!("{guard:?}") };
        assert!(error.contains("\"2 hours\" is not a duration"), "{error}");
    }
}
