//! Decodes the objects of a watch individually, so that one undecodable object does not stop the watch.

use std::{borrow::Cow, collections::BTreeMap, fmt::Debug};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;

use mcm_api::decode;

/// A decoded object, or the metadata of one whose content cannot be decoded.
#[derive(Clone, Debug)]
pub enum GuardedObject<K> {
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

impl<'de, K: DeserializeOwned> Deserialize<'de> for GuardedObject<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        match decode::json(text.get()) {
            Ok(object) => Ok(Self::Readable(object)),
            Err(error) => {
                let metadata = Box::new(metadata_of(text.get()).map_err(D::Error::custom)?);
                Ok(Self::Unreadable { metadata, error: error.to_string() })
            }
        }
    }
}

/// The metadata of an object that cannot be decoded as a whole. Managed fields repeat the structure of the object, so they may
/// be nested as deep. The API server checks the types of all other fields.
fn metadata_of(object: &str) -> serde_json::Result<ObjectMeta> {
    #[derive(Deserialize)]
    struct RawObject<'a> {
        #[serde(borrow, default)]
        metadata: BTreeMap<String, &'a RawValue>,
    }
    let RawObject { mut metadata } = serde_json::from_str(object)?;
    metadata.remove("managedFields");
    let text = serde_json::to_string(&metadata)?;
    decode::json(&text).map_err(|error| {
        let text_of = |field: &str| metadata.get(field).map_or("", |value| value.get());
        let (namespace, name) = (text_of("namespace"), text_of("name"));
        serde_json::Error::custom(format!("metadata of object {name} in namespace {namespace}: {error}"))
    })
}

impl<K: Resource> Resource for GuardedObject<K> {
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
    use kube::core::{ObjectList, WatchEvent};
    use rstest::rstest;

    use super::*;
    use mcm_api::{
        machine::{Machine, MachineClass},
        node::Node,
    };

    fn nested(depth: usize) -> String {
        format!("{}{}", r#"{"a":"#.repeat(depth) + "1", "}".repeat(depth))
    }

    /// A class as the API server stores it: managed fields repeat the structure of `providerSpec`.
    fn class(name: &str, depth: usize) -> String {
        let (spec, managed) = (nested(depth), nested(depth));
        format!(
            r#"{{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"MachineClass","metadata":{{"name":"{name}","uid":"u-{name}",
                "resourceVersion":"1","managedFields":[{{"manager":"kubectl","fieldsV1":{{"f:providerSpec":{managed}}}}}]}},
                "providerSpec":{spec}}}"#
        )
    }
    #[test]
    fn a_bad_duration_leaves_the_metadata_readable() {
        let text = r#"{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"Machine","metadata":{"name":"m","uid":"u"},
                       "spec":{"drainTimeout":"2 hours"}}"#;
        let guard: GuardedObject<Machine> = serde_json::from_str(text).unwrap();
        assert_eq!(guard.meta().uid.as_deref(), Some("u"));
        let GuardedObject::Unreadable { error, .. } = guard else { panic!("{guard:?}") };
        assert!(error.starts_with("spec.drainTimeout: \"2 hours\" is not a duration"), "{error}");
    }

    #[rstest]
    #[case::handed_over(200)]
    #[case::the_most_that_an_api_server_accepts(5_000)]
    #[case::half_a_megabyte(100_000)]
    fn a_class_that_is_nested_too_deep_does_not_stop_the_list(#[case] depth: usize) {
        let items = format!("{},{},{}", class("before", 2), class("deep", depth), class("after", 3));
        let list =
            format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#);
        let list: ObjectList<GuardedObject<MachineClass>> = serde_json::from_str(&list).unwrap();
        let [
            GuardedObject::Readable(before),
            GuardedObject::Unreadable { metadata, error },
            GuardedObject::Readable(after),
        ] = &*list.items
        else {
            panic!("{list:?}")
        };
        assert_eq!(
            [&before.metadata, metadata, &after.metadata].map(|meta| meta.uid.as_deref()),
            [Some("u-before"), Some("u-deep"), Some("u-after")]
        );
        assert!(error.contains("recursion limit exceeded"), "{error}");
    }

    #[test]
    fn a_class_that_is_nested_too_deep_does_not_end_the_watch() {
        let event = format!(r#"{{"type":"MODIFIED","object":{}}}"#, class("deep", 5_000));
        let event: WatchEvent<GuardedObject<MachineClass>> = serde_json::from_str(&event).unwrap();
        assert!(matches!(event, WatchEvent::Modified(GuardedObject::Unreadable { .. })), "{event:?}");
    }

    #[test]
    fn metadata_that_cannot_be_decoded_are_named() {
        let text = r#"{"metadata":{"name":"m","namespace":"n","labels":7},"spec":{}}"#;
        let error = serde_json::from_str::<GuardedObject<Machine>>(text).unwrap_err().to_string();
        assert!(
            error.starts_with(r#"metadata of object "m" in namespace "n": labels: invalid type: integer `7`"#),
            "{error}"
        );
    }

    #[test]
    fn a_date_that_cannot_be_represented_does_not_make_a_node_unreadable() {
        let text = r#"{"metadata":{"name":"n","managedFields":[{"time":"9999-12-31T23:59:59Z"}]},"status":{"conditions":
                       [{"type":"Ready","status":"Unknown","lastTransitionTime":"9999-12-31T23:59:59Z"}]}}"#;
        let GuardedObject::Readable(node) = serde_json::from_str::<GuardedObject<Node>>(text).unwrap() else {
            panic!("{text}")
        };
        assert_eq!(node.status.conditions[0].status, "Unknown");
    }
}
