//! Values whose types are of KubeVirt, CDI or Kubernetes. They are passed on as they are, but for the keys and amounts that the
//! driver reads.

use mcm_driver::spec::{ClassProblems, found};
use serde_json::{Map, Value};

/// An object, as it is.
pub(super) fn object(path: &str, value: &Value, problems: &mut ClassProblems) -> Option<Value> {
    if value.is_object() {
        return Some(value.clone());
    }
    problems.expected(path, "an object", &found(value));
    None
}

/// CDI's DataVolumeSpec.
pub(super) fn volume(path: &str, value: &Value, problems: &mut ClassProblems) -> Option<Value> {
    let mut volume = respelled(object(path, value, problems)?, &["pvc", "source"]);
    if let Some(pvc) = volume.get_mut("pvc").filter(|pvc| pvc.is_object()) {
        let mut read = respelled(pvc.take(), &["resources"]);
        if let Some(resources) = read.get_mut("resources") {
            *resources = amounts(resources.take(), &["requests", "limits"]);
        }
        *pvc = read;
    }
    Some(volume)
}

/// An object whose amounts are below `requests` and `limits`. Numbers become texts, as by the decoder of the reference, because
/// the API server takes no fractions.
pub(super) fn amounts(value: Value, known: &[&str]) -> Value {
    let mut value = respelled(value, known);
    for name in ["requests", "limits"] {
        for amount in value.get_mut(name).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
            if amount.is_number() {
                *amount = amount.to_string().into();
            }
        }
    }
    value
}

/// An object with the known spelling of some of its keys: the decoder of the reference takes any case, the API server does not.
pub(super) fn respelled(value: Value, known: &[&str]) -> Value {
    let Value::Object(object) = value else { return value };
    let spelling =
        |key: String| known.iter().find(|name| name.eq_ignore_ascii_case(&key)).map_or(key, ToString::to_string);
    let object: Map<String, Value> = object.into_iter().map(|(key, value)| (spelling(key), value)).collect();
    Value::Object(object.into_iter().filter(|(_, value)| !value.is_null()).collect())
}

/// The amount is present and above zero.
pub(super) fn is_positive(amount: Option<&Value>) -> bool {
    let Some(Value::String(text)) = amount else { return false };
    let digits = text.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
    mcm_api::machine::is_quantity(text) && digits.bytes().any(|digit| (b'1'..=b'9').contains(&digit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case(json!("1"), true)]
    #[case(json!("0.5"), true)]
    #[case(json!("500m"), true)]
    #[case(json!("8Gi"), true)]
    #[case(json!("1e3"), true)]
    #[case(json!("0"), false)]
    #[case(json!("0.0Gi"), false)]
    #[case(json!("-1"), false)]
    #[case(json!("a lot"), false)]
    #[case(json!(""), false)]
    #[case(json!({}), false)]
    fn an_amount_is_a_quantity_above_zero(#[case] amount: Value, #[case] expected: bool) {
        assert_eq!(is_positive(Some(&amount)), expected);
        assert!(!is_positive(None));
    }

    #[test]
    fn only_keys_and_amounts_that_are_read_are_rewritten() {
        let value = json!({
            "PVC": {"Resources": {"REQUESTS": {"storage": 8_000_000_000_u64}, "limits": {"storage": "1Gi"}}, "StorageClassName": "a"},
            "Source": {"HTTP": {"url": "a"}}, "new": {"a": 1.5},
        });
        let expected = json!({
            "pvc": {"resources": {"requests": {"storage": "8000000000"}, "limits": {"storage": "1Gi"}}, "StorageClassName": "a"},
            "source": {"HTTP": {"url": "a"}}, "new": {"a": 1.5},
        });
        assert_eq!(volume("p", &value, &mut ClassProblems::default()), Some(expected));
        let fraction = amounts(json!({"Requests": {"cpu": 1.5, "memory": 4096}}), &["requests"]);
        assert_eq!(fraction, json!({"requests": {"cpu": "1.5", "memory": "4096"}}));
    }
}
