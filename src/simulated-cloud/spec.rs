//! `providerSpec` of a simulated VM.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::api::resource::Quantity};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use mcm_api::GoDuration;
use mcm_driver::spec::{ClassProblems, FieldReader, boolean, duration, found, one_of, quantity, string, text};

/// Every field, in the order of the documentation.
const FIELDS: [&str; 13] = [
    "region",
    "zone",
    "instanceType",
    "image",
    "createLatency",
    "bootLatency",
    "deleteLatency",
    "initialize",
    "neverJoin",
    "volumes",
    "nodeLabels",
    "taints",
    "capacity",
];
const TAINT_FIELDS: [&str; 3] = ["key", "value", "effect"];
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const CAPACITY: [(&str, &str); 3] = [("cpu", "4"), ("memory", "16Gi"), ("pods", "110")];
/// Taint of a simulated Node, because no kubelet runs the pods that a scheduler would place on it.
pub const FAKE: &str = "simulated.mcm/fake";
/// No machine has that many; a larger number is a typing error.
const MOST_VOLUMES: u64 = 1000;

/// The description of a VM. Read with [`ProviderSpec::parse`] only, so each value is valid and complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "Value")]
pub struct ProviderSpec {
    /// Region; `simulated` if not given.
    pub region: String,
    /// Zone; `<region>-a` if not given.
    pub zone: String,
    /// Type of the VM; `standard` if not given.
    pub instance_type: String,
    /// Image of the VM, from which its kubelet has its version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// How long creation takes; the cloud's default if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_latency: Option<GoDuration>,
    /// How long the VM takes from there until its Node registers; the cloud's default if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_latency: Option<GoDuration>,
    /// How long deletion takes; the cloud's default if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_latency: Option<GoDuration>,
    /// The VM must be initialized before it boots.
    pub initialize: bool,
    /// The VM's Node never registers.
    pub never_join: bool,
    /// Volumes attached from the start.
    pub volumes: InitialVolumes,
    /// Further labels of the Node.
    pub node_labels: BTreeMap<String, String>,
    /// Taints with which the Node registers; [`FAKE`] if not given.
    pub taints: Vec<Taint>,
    /// Capacity of the Node.
    pub capacity: BTreeMap<String, Quantity>,
}

/// Volumes of a VM at its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum InitialVolumes {
    /// So many, with names made from the VM's ID.
    Count(u64),
    /// These.
    Names(Vec<String>),
}

/// A `providerSpec` that is not one: everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.error_text())]
pub struct InvalidSpec(ClassProblems);

impl ProviderSpec {
    /// Reads a `providerSpec`; unknown fields are ignored.
    ///
    /// # Errors
    /// The actual and the expected value of each invalid or duplicate field.
    pub fn parse(value: &Value) -> Result<Self, InvalidSpec> {
        let mut problems = ClassProblems::default();
        let spec = Self::read(value, &mut problems);
        if problems.errors.is_empty() { Ok(spec) } else { Err(InvalidSpec(problems)) }
    }

    /// Reads a `providerSpec` and reports its problems; invalid fields get their default.
    pub(crate) fn read(value: &Value, problems: &mut ClassProblems) -> Self {
        let mut fields = FieldReader::of_spec(value, &FIELDS, problems);
        let region = fields.optional("region", &string()).unwrap_or_else(|| "simulated".to_owned());
        Self {
            zone: fields.optional("zone", &string()).unwrap_or_else(|| format!("{region}-a")),
            region,
            instance_type: fields.optional("instanceType", &string()).unwrap_or_else(|| "standard".to_owned()),
            image: fields.optional("image", &string()).unwrap_or_default(),
            create_latency: fields.optional("createLatency", &duration()),
            boot_latency: fields.optional("bootLatency", &duration()),
            delete_latency: fields.optional("deleteLatency", &duration()),
            initialize: fields.optional("initialize", &boolean()).unwrap_or_default(),
            never_join: fields.optional("neverJoin", &boolean()).unwrap_or_default(),
            volumes: fields.with("volumes", volumes).unwrap_or(InitialVolumes::Count(0)),
            node_labels: fields.map("nodeLabels", &text()),
            taints: match fields.has("taints") {
                true => fields.objects("taints", &TAINT_FIELDS, taint),
                false => vec![fake()],
            },
            capacity: capacity(fields.map("capacity", &quantity())),
        }
    }
}

impl TryFrom<Value> for ProviderSpec {
    type Error = InvalidSpec;

    fn try_from(value: Value) -> Result<Self, InvalidSpec> {
        Self::parse(&value)
    }
}

impl Default for ProviderSpec {
    fn default() -> Self {
        Self {
            region: "simulated".to_owned(),
            zone: "simulated-a".to_owned(),
            instance_type: "standard".to_owned(),
            image: String::new(),
            create_latency: None,
            boot_latency: None,
            delete_latency: None,
            initialize: false,
            never_join: false,
            volumes: InitialVolumes::Count(0),
            node_labels: BTreeMap::new(),
            taints: vec![fake()],
            capacity: capacity(BTreeMap::new()),
        }
    }
}

fn capacity(given: BTreeMap<String, Quantity>) -> BTreeMap<String, Quantity> {
    let mut capacity: BTreeMap<_, _> =
        CAPACITY.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect();
    capacity.extend(given);
    capacity
}

fn fake() -> Taint {
    Taint { key: FAKE.to_owned(), effect: "NoSchedule".to_owned(), value: None, time_added: None }
}

fn taint(fields: &mut FieldReader<'_>) -> Option<Taint> {
    let (key, effect) = (fields.required("key", &string()), fields.required("effect", &one_of(&EFFECTS)));
    let value = fields.optional("value", &text()).filter(|value| !value.is_empty());
    Some(Taint { key: key?, effect: effect?.to_owned(), value, time_added: None })
}

/// So many volumes, or a list of names.
fn volumes(path: &str, value: &Value, problems: &mut ClassProblems) -> Option<InitialVolumes> {
    match value {
        Value::Number(number) if number.as_u64().is_some_and(|count| count <= MOST_VOLUMES) => {
            number.as_u64().map(InitialVolumes::Count)
        }
        Value::Array(names) => Some(InitialVolumes::Names(
            names
                .iter()
                .enumerate()
                .filter_map(|(index, name)| {
                    let text = name.as_str().filter(|text| !text.is_empty());
                    if text.is_none() {
                        problems.expected(format!("{path}[{index}]"), "a non-empty string", &found(name));
                    }
                    text.map(str::to_owned)
                })
                .collect(),
        )),
        other => {
            let expected = format!("a whole number up to {MOST_VOLUMES} or a list of names");
            problems.expected(path, &expected, &found(other));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case(json!(null))]
    #[case(json!({}))]
    #[case(json!({"region": null, "taints": null, "capacity": null}))]
    fn nothing_given_is_the_default(#[case] value: Value) {
        assert_eq!(ProviderSpec::parse(&value).unwrap(), ProviderSpec::default());
    }

    #[rstest]
    #[case::absent(json!({}), &[FAKE])]
    #[case::none(json!({"taints": []}), &[])]
    #[case::of_the_class(json!({"taints": [{"key": "k", "effect": "NoExecute"}]}), &["k"])]
    fn nodes_are_tainted_unless_the_class_names_its_taints(#[case] value: Value, #[case] expected: &[&str]) {
        let spec = ProviderSpec::parse(&value).unwrap();
        assert_eq!(spec.taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn keys_of_fields_are_case_insensitive() {
        let spec = ProviderSpec::parse(&json!({
            "REGION": "moon", "Zone": "moon-b", "instancetype": "large", "IMAGE": "kubelet-v1.36.0",
            "createLatency": "1s", "BootLatency": "1m30s", "deleteLatency": "500ms",
            "initialize": true, "NeverJoin": true, "volumes": ["a"],
            "nodelabels": {"Pool": "x"},
            "Taints": [{"Key": "k", "VALUE": "v", "effect": "NoSchedule"}],
            "capacity": {"cpu": 8, "example.com/gpu": "2"},
        }))
        .unwrap();
        let expected = ProviderSpec {
            region: "moon".into(),
            zone: "moon-b".into(),
            instance_type: "large".into(),
            image: "kubelet-v1.36.0".into(),
            create_latency: Some(GoDuration::from_secs(1)),
            boot_latency: Some(GoDuration::from_secs(90)),
            delete_latency: Some("500ms".parse().unwrap()),
            initialize: true,
            never_join: true,
            volumes: InitialVolumes::Names(vec!["a".into()]),
            node_labels: [("Pool".into(), "x".into())].into(),
            taints: vec![Taint {
                key: "k".into(),
                value: Some("v".into()),
                effect: "NoSchedule".into(),
                time_added: None,
            }],
            capacity: [("cpu", "8"), ("example.com/gpu", "2"), ("memory", "16Gi"), ("pods", "110")]
                .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
                .into(),
        };
        assert_eq!(spec, expected);
    }

    #[test]
    fn the_zone_follows_the_region() {
        assert_eq!(ProviderSpec::parse(&json!({"region": "moon"})).unwrap().zone, "moon-a");
    }

    #[test]
    fn the_written_form_reads_back() {
        let given = json!({"createLatency": "1s", "volumes": 3, "initialize": true, "taints": [{"key": "k", "effect": "NoExecute"}]});
        let spec = ProviderSpec::parse(&given).unwrap();
        let written = serde_json::to_value(&spec).unwrap();
        assert_eq!(serde_json::from_value::<ProviderSpec>(written).unwrap(), spec);
    }

    #[rstest]
    #[case(json!("small"), r#"providerSpec: expected an object, found the string "small""#)]
    #[case(json!({"zone": "a", "Zone": "b"}), "providerSpec.zone: given twice, in different spellings")]
    #[case(json!({"zone": 7}), "providerSpec.zone: expected a non-empty string, found the number 7")]
    #[case(json!({"region": ""}), "providerSpec.region: expected a non-empty string, found an empty string")]
    #[case(json!({"bootLatency": 30}), r#"providerSpec.bootLatency: expected a duration such as "1m30s", found the number 30"#)]
    #[case(json!({"bootLatency": "soon"}), r#"providerSpec.bootLatency: expected a duration such as "1m30s", found the string "soon""#)]
    #[case(json!({"deleteLatency": "-1s"}), r#"providerSpec.deleteLatency: expected a duration such as "1m30s", found the string "-1s""#)]
    #[case(json!({"neverJoin": "yes"}), r#"providerSpec.neverJoin: expected true or false, found the string "yes""#)]
    #[case(json!({"volumes": -1}), "providerSpec.volumes: expected a whole number up to 1000 or a list of names, found the number -1")]
    #[case(json!({"volumes": 1.5}), "providerSpec.volumes: expected a whole number up to 1000 or a list of names, found a fractional number")]
    #[case(json!({"volumes": ["a", 2]}), "providerSpec.volumes[1]: expected a non-empty string, found the number 2")]
    #[case(json!({"nodeLabels": ["a"]}), "providerSpec.nodeLabels: expected an object, found a list")]
    #[case(json!({"nodeLabels": {"a": true}}), "providerSpec.nodeLabels.a: expected a string, found a boolean")]
    #[case(json!({"taints": {"key": "a"}}), "providerSpec.taints: expected a list, found an object")]
    #[case(json!({"taints": [null]}), "providerSpec.taints[0]: expected an object, found null")]
    #[case(json!({"taints": [{"key": "a", "effect": "Never"}]}), r#"providerSpec.taints[0].effect: expected one of NoSchedule, PreferNoSchedule, NoExecute, found the string "Never""#)]
    #[case(json!({"taints": [{"effect": "NoExecute"}]}), "providerSpec.taints[0].key: expected a non-empty string, found nothing")]
    #[case(json!({"capacity": {"cpu": "many"}}), r#"providerSpec.capacity.cpu: expected a quantity such as "4", "500m" or "16Gi", found the string "many""#)]
    #[case(json!({"zone": 7, "neverJoin": 1}), "providerSpec.zone: expected a non-empty string, found the number 7; providerSpec.neverJoin: expected true or false, found the number 1")]
    fn a_refusal_names_path_finding_and_expectation(#[case] value: Value, #[case] expected: &str) {
        assert_eq!(ProviderSpec::parse(&value).unwrap_err().to_string(), expected);
    }

    #[rstest]
    #[case(json!({"sise": 1}), "providerSpec.sise: unknown field, ignored: known are region, zone, instanceType, image, createLatency, bootLatency, deleteLatency, initialize, neverJoin, volumes, nodeLabels, taints, capacity")]
    #[case(json!({"neverJion": true}), "providerSpec.neverJion: unknown field, ignored: did you mean neverJoin?")]
    #[case(json!({"taints": [{"key": "a", "effect": "NoExecute", "operator": "x"}]}), "providerSpec.taints[0].operator: unknown field, ignored: known are key, value, effect")]
    fn an_unknown_field_is_ignored_with_a_warning(#[case] value: Value, #[case] expected: &str) {
        let mut problems = ClassProblems::default();
        ProviderSpec::read(&value, &mut problems);
        assert_eq!(problems.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        ProviderSpec::parse(&value).unwrap();
    }
}
