//! Mistakes in a MachineClass that its CRD refuses at admission. CRDs of the Go program accept some of them.

use std::fmt;

use super::MachineClass;

/// A mistake in a class, of any provider. No machine is created from the class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Path of the field.
    pub path: String,
    /// The mistake; completes "the field".
    pub text: String,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.text)
    }
}

/// Resources that the autoscaler expects of every Node.
const RESOURCES: [&str; 3] = ["cpu", "gpu", "memory"];

impl MachineClass {
    /// All mistakes in the fields that do not depend on the provider.
    pub fn flaws(&self) -> Vec<Flaw> {
        let Some(template) = &self.node_template else { return Vec::new() };
        let missing = RESOURCES.into_iter().filter(|key| !template.capacity.contains_key(*key));
        let missing = missing.map(|key| Flaw { path: "nodeTemplate.capacity".into(), text: format!("has no {key}") });
        let names = [("instanceType", &template.instance_type), ("region", &template.region), ("zone", &template.zone)];
        let empty = names.into_iter().filter(|(_, value)| value.is_empty());
        let empty = empty.map(|(field, _)| Flaw { path: format!("nodeTemplate.{field}"), text: "is empty".into() });
        let resources = [("capacity", &template.capacity), ("virtualCapacity", &template.virtual_capacity)];
        let quantities =
            resources.iter().flat_map(|(field, of)| of.iter().map(move |(key, value)| (field, key, value)));
        let malformed = quantities.filter(|(_, _, value)| !is_quantity(&value.0)).map(|(field, key, value)| Flaw {
            path: format!("nodeTemplate.{field}.{key}"),
            text: format!(
                "is {:?}, which is not a quantity: write a number with a suffix such as Gi or m, or none",
                value.0
            ),
        });
        missing.chain(empty).chain(malformed).collect()
    }
}

/// A text has the form of a quantity of Kubernetes, as the pattern of the CRD describes it.
pub fn is_quantity(text: &str) -> bool {
    const SUFFIXES: [&str; 16] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let unsigned = |text: &'_ str| text.strip_prefix(['+', '-']).unwrap_or(text).to_owned();
    let text = unsigned(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    is_number(number)
        && (SUFFIXES.contains(&suffix)
            || suffix.strip_prefix(['e', 'E']).is_some_and(|exponent| is_number(&unsigned(exponent))))
}

/// Digits with at most one point among them.
fn is_number(text: &str) -> bool {
    text.chars().any(|c| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || c == '.')
        && text.matches('.').count() <= 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::machine::schema::QUANTITY;

    fn flaws(node_template: &Value) -> Vec<String> {
        let class = json!({ "metadata": {}, "providerSpec": {}, "nodeTemplate": node_template });
        let class: MachineClass = serde_json::from_value(class).unwrap();
        class.flaws().iter().map(ToString::to_string).collect()
    }

    #[rstest]
    #[case::complete(json!({"cpu": "2", "gpu": 0, "memory": "8Gi"}), &[])]
    #[case::incomplete(json!({"cpu": "2"}), &["nodeTemplate.capacity has no gpu", "nodeTemplate.capacity has no memory"])]
    #[case::malformed(
        json!({"cpu": "2 cores", "gpu": 0, "memory": "8GB"}),
        &["nodeTemplate.capacity.cpu is \"2 cores\", which is not a quantity", "nodeTemplate.capacity.memory is \"8GB\""]
    )]
    fn mistakes_of_a_capacity_are_found(#[case] capacity: Value, #[case] expected: &[&str]) {
        let found = flaws(&json!({ "capacity": capacity, "instanceType": "t", "region": "r", "zone": "z" }));
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(found.iter().zip(expected).all(|(found, expected)| found.starts_with(expected)), "{found:?}");
    }

    #[test]
    fn names_must_not_be_empty() {
        let capacity = json!({"cpu": 1, "gpu": 0, "memory": 1});
        let found = flaws(&json!({ "capacity": capacity, "instanceType": "t", "region": "", "zone": null }));
        assert_eq!(found, ["nodeTemplate.region is empty", "nodeTemplate.zone is empty"]);
    }

    #[rstest]
    #[case("1", true)]
    #[case("-1", true)]
    #[case("1.5Gi", true)]
    #[case("100m", true)]
    #[case("1e3", true)]
    #[case("2Ei", true)]
    #[case("", false)]
    #[case("Gi", false)]
    #[case("1.2.3", false)]
    #[case("1gi", false)]
    #[case("1 Gi", false)]
    fn quantities_are_those_of_the_api(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(is_quantity(text), valid);
    }

    proptest! {
        /// The API server decides by the pattern of the CRD.
        #[test]
        fn a_quantity_is_what_the_crd_accepts(text in r"[+-]?[0-9.]{0,4}([KMGTPEnumke]i?|[eE][+-]?[0-9.]{0,3}|GB| )?") {
            let pattern = Regex::new(QUANTITY).unwrap();
            prop_assert_eq!(is_quantity(&text), pattern.is_match(&text), "{}", text);
        }
    }
}
