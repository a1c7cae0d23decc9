//! Serde helpers for Go's JSON: `null` and absent are the zero value, and zero values are not written.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

/// Deserializes `null` as the zero value.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Deserializes a map of strings. A `null` map is empty, a `null` value (YAML `key:`) is an empty string.
pub fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let map = Option::<BTreeMap<String, Option<String>>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(map.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect())
}

/// Deserializes a label selector; a `null` value of a label is an empty string.
pub fn selector<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<LabelSelector>, D::Error> {
    let Some(mut value) = Option::<Value>::deserialize(deserializer)? else { return Ok(None) };
    for text in value.get_mut("matchLabels").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        if text.is_null() {
            *text = Value::String(String::new());
        }
    }
    serde_json::from_value(value).map(Some).map_err(D::Error::custom)
}

/// Go's `omitempty` omits the value.
pub fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_label_without_a_value_is_empty_as_in_go() {
        assert_eq!(
            texts(json!({"a": null, "b": "c"})).unwrap(),
            [("a".into(), "".into()), ("b".into(), "c".into())].into()
        );
        assert_eq!(texts(json!(null)).unwrap(), BTreeMap::new());
        let read =
            selector(json!({"matchLabels": {"a": null}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}));
        let read = read.unwrap().unwrap();
        assert_eq!(read.match_labels, Some([("a".into(), "".into())].into()));
        assert_eq!(read.match_expressions.unwrap()[0].key, "x");
        assert_eq!(selector(json!(null)).unwrap(), None);
        assert!(selector(json!({"matchLabels": {"a": 1}})).is_err());
    }
}
