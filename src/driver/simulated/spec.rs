//! `providerSpec` of a simulated VM.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::api::resource::Quantity};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api::GoDuration;

/// Every field, in the order of the documentation.
const FIELDS: [&str; 12] = [
    "region",
    "zone",
    "instanceType",
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
/// No machine has that many; what is more is a slip of the pen.
const MOST_VOLUMES: u64 = 1000;

/// What a VM is to be. Read with [`ProviderSpec::parse`] only, so what exists is valid and complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "Value")]
pub struct ProviderSpec {
    /// Region; `simulated` if not given.
    pub region: String,
    /// Zone; `<region>-a` if not given.
    pub zone: String,
    /// Type of the VM; `standard` if not given.
    pub instance_type: String,
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
    pub volumes: Volumes,
    /// Further labels of the Node.
    pub node_labels: BTreeMap<String, String>,
    /// Taints with which the Node registers.
    pub taints: Vec<Taint>,
    /// Capacity of the Node.
    pub capacity: BTreeMap<String, Quantity>,
}

/// Volumes of a VM at its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Volumes {
    /// So many, with names made from the VM's ID.
    Count(u64),
    /// These.
    Names(Vec<String>),
}

/// A `providerSpec` that is not one: everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.join("; "))]
pub struct InvalidSpec {
    /// One text for each wrong field, with its path.
    pub problems: Vec<String>,
}

impl ProviderSpec {
    /// Reads a `providerSpec`. Keys match whatever their case; `null` and absent are the same.
    ///
    /// # Errors
    /// For each field that is unknown, given twice, or not what it should be: what was found and what is expected.
    pub fn parse(value: &Value) -> Result<Self, InvalidSpec> {
        let mut problems = Problems::default();
        let none = Map::new();
        let object = match value {
            Value::Null => &none,
            Value::Object(object) => object,
            other => {
                problems.expected("providerSpec", "an object", &found(other));
                &none
            }
        };
        let mut fields = Fields::of("providerSpec", object, &FIELDS, &mut problems);
        let region = fields.take("region", string).unwrap_or_else(|| "simulated".to_owned());
        let spec = Self {
            zone: fields.take("zone", string).unwrap_or_else(|| format!("{region}-a")),
            region,
            instance_type: fields.take("instanceType", string).unwrap_or_else(|| "standard".to_owned()),
            create_latency: fields.take("createLatency", duration),
            boot_latency: fields.take("bootLatency", duration),
            delete_latency: fields.take("deleteLatency", duration),
            initialize: fields.take("initialize", boolean).unwrap_or_default(),
            never_join: fields.take("neverJoin", boolean).unwrap_or_default(),
            volumes: fields.take("volumes", volumes).unwrap_or(Volumes::Count(0)),
            node_labels: fields.map("nodeLabels", text),
            taints: fields.list("taints", taint),
            capacity: capacity(fields.map("capacity", quantity)),
        };
        problems.or(spec)
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
            create_latency: None,
            boot_latency: None,
            delete_latency: None,
            initialize: false,
            never_join: false,
            volumes: Volumes::Count(0),
            node_labels: BTreeMap::new(),
            taints: Vec::new(),
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

#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn expected(&mut self, path: &str, expected: &str, found: &str) {
        self.0.push(format!("{path}: expected {expected}, found {found}"));
    }

    fn or<T>(self, value: T) -> Result<T, InvalidSpec> {
        if self.0.is_empty() { Ok(value) } else { Err(InvalidSpec { problems: self.0 }) }
    }
}

/// A reader answers the value, or reports what is wrong at the path.
type Reader<T> = fn(&str, &Value, &mut Problems) -> Option<T>;

/// The fields of one object by their proper names.
struct Fields<'a> {
    path: &'a str,
    values: BTreeMap<&'static str, &'a Value>,
    problems: &'a mut Problems,
}

impl<'a> Fields<'a> {
    fn of(path: &'a str, object: &'a Map<String, Value>, known: &[&'static str], problems: &'a mut Problems) -> Self {
        let mut values = BTreeMap::new();
        for (key, value) in object {
            let Some(name) = known.iter().find(|name| name.eq_ignore_ascii_case(key)) else {
                let known = known.join(", ");
                problems.0.push(format!("{path}.{}: unknown field, known are {known}", harmless(key)));
                continue;
            };
            if values.insert(*name, value).is_some() {
                problems.0.push(format!("{path}.{name}: given twice, in different spellings"));
            }
        }
        values.retain(|_, value| !value.is_null());
        Self { path, values, problems }
    }

    fn take<T>(&mut self, name: &str, read: Reader<T>) -> Option<T> {
        let value = self.values.get(name)?;
        read(&format!("{}.{name}", self.path), value, self.problems)
    }

    fn map<T>(&mut self, name: &str, read: Reader<T>) -> BTreeMap<String, T> {
        let path = format!("{}.{name}", self.path);
        match self.values.get(name) {
            None => BTreeMap::new(),
            Some(Value::Object(object)) => object
                .iter()
                .filter_map(|(key, value)| {
                    let path = format!("{path}.{}", harmless(key));
                    read(&path, value, self.problems).map(|value| (key.clone(), value))
                })
                .collect(),
            Some(other) => {
                self.problems.expected(&path, "an object", &found(other));
                BTreeMap::new()
            }
        }
    }

    fn list<T>(&mut self, name: &str, read: Reader<T>) -> Vec<T> {
        let path = format!("{}.{name}", self.path);
        match self.values.get(name) {
            None => Vec::new(),
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .filter_map(|(index, item)| read(&format!("{path}[{index}]"), item, self.problems))
                .collect(),
            Some(other) => {
                self.problems.expected(&path, "a list", &found(other));
                Vec::new()
            }
        }
    }
}

fn string(path: &str, value: &Value, problems: &mut Problems) -> Option<String> {
    let text = value.as_str().filter(|text| !text.is_empty());
    if text.is_none() {
        problems.expected(path, "a non-empty string", &found(value));
    }
    text.map(str::to_owned)
}

fn text(path: &str, value: &Value, problems: &mut Problems) -> Option<String> {
    if value.as_str().is_none() {
        problems.expected(path, "a string", &found(value));
    }
    value.as_str().map(str::to_owned)
}

fn boolean(path: &str, value: &Value, problems: &mut Problems) -> Option<bool> {
    if value.as_bool().is_none() {
        problems.expected(path, "true or false", &found(value));
    }
    value.as_bool()
}

fn duration(path: &str, value: &Value, problems: &mut Problems) -> Option<GoDuration> {
    let duration = value.as_str().and_then(|text| text.parse().ok()).filter(|given: &GoDuration| given.as_nanos() >= 0);
    if duration.is_none() {
        problems.expected(path, "a duration such as \"1m30s\"", &found(value));
    }
    duration
}

fn volumes(path: &str, value: &Value, problems: &mut Problems) -> Option<Volumes> {
    match value {
        Value::Number(number) if number.as_u64().is_some_and(|count| count <= MOST_VOLUMES) => {
            number.as_u64().map(Volumes::Count)
        }
        Value::Array(names) => Some(Volumes::Names(
            names
                .iter()
                .enumerate()
                .filter_map(|(index, name)| string(&format!("{path}[{index}]"), name, problems))
                .collect(),
        )),
        other => {
            let expected = format!("a whole number up to {MOST_VOLUMES} or a list of names");
            problems.expected(path, &expected, &found(other));
            None
        }
    }
}

fn taint(path: &str, value: &Value, problems: &mut Problems) -> Option<Taint> {
    let Value::Object(object) = value else {
        problems.expected(path, "an object", &found(value));
        return None;
    };
    let mut fields = Fields::of(path, object, &TAINT_FIELDS, problems);
    let (key, effect) = (fields.take("key", string), fields.take("effect", effect));
    let value = fields.take("value", text).filter(|value| !value.is_empty());
    for name in ["key", "effect"] {
        if !fields.values.contains_key(name) {
            fields.problems.expected(&format!("{path}.{name}"), "a non-empty string", "nothing");
        }
    }
    Some(Taint { key: key?, effect: effect?, value, time_added: None })
}

fn effect(path: &str, value: &Value, problems: &mut Problems) -> Option<String> {
    let effect = value.as_str().filter(|effect| EFFECTS.contains(effect));
    if effect.is_none() {
        problems.expected(path, &format!("one of {}", EFFECTS.join(", ")), &found(value));
    }
    effect.map(str::to_owned)
}

fn quantity(path: &str, value: &Value, problems: &mut Problems) -> Option<Quantity> {
    let text = match value {
        Value::String(text) => Some(text.clone()).filter(|text| is_quantity(text)),
        Value::Number(number) => number.as_u64().map(|number| number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    if text.is_none() {
        problems.expected(path, "a quantity such as \"4\", \"500m\" or \"16Gi\"", &found(value));
    }
    text.map(Quantity)
}

/// A decimal number that is not negative, with one of the API's suffixes.
fn is_quantity(text: &str) -> bool {
    const SUFFIXES: [&str; 15] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|exponent| exponent.parse::<i8>().is_ok());
    number.parse::<f64>().is_ok() && (SUFFIXES.contains(&suffix) || suffix == "Ei" || exponent)
}

/// What a value is, for a person; short strings as they are.
fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "a boolean".to_owned(),
        Value::Number(number) if number.is_f64() => "a fractional number".to_owned(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) if text.is_empty() => "an empty string".to_owned(),
        Value::String(text) => format!("the string \"{}\"", harmless(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Foreign text made fit for a machine code message, in which brackets and line ends have a meaning.
fn harmless(text: &str) -> impl fmt::Display {
    let plain = |c: char| match c {
        '[' => '(',
        ']' => ')',
        c if c.is_control() => ' ',
        c => c,
    };
    let short: String = text.chars().take(40).map(plain).collect();
    if text.chars().nth(40).is_some() { format!("{short}…") } else { short }
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

    #[test]
    fn every_field_is_read_whatever_the_case_of_its_key() {
        let spec = ProviderSpec::parse(&json!({
            "REGION": "moon", "Zone": "moon-b", "instancetype": "large",
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
            create_latency: Some(GoDuration::from_secs(1)),
            boot_latency: Some(GoDuration::from_secs(90)),
            delete_latency: Some("500ms".parse().unwrap()),
            initialize: true,
            never_join: true,
            volumes: Volumes::Names(vec!["a".into()]),
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
    #[case(json!({"sise": 1}), "providerSpec.sise: unknown field, known are region, zone, instanceType, createLatency, bootLatency, deleteLatency, initialize, neverJoin, volumes, nodeLabels, taints, capacity")]
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
    #[case(json!({"taints": [{"key": "a", "effect": "NoExecute", "operator": "x"}]}), "providerSpec.taints[0].operator: unknown field, known are key, value, effect")]
    #[case(json!({"capacity": {"cpu": "many"}}), r#"providerSpec.capacity.cpu: expected a quantity such as "4", "500m" or "16Gi", found the string "many""#)]
    #[case(json!({"zone": 7, "neverJoin": 1}), "providerSpec.zone: expected a non-empty string, found the number 7; providerSpec.neverJoin: expected true or false, found the number 1")]
    #[case(json!({"a]b[": 1, "region": "x"}), "providerSpec.a)b(: unknown field, known are region, zone, instanceType, createLatency, bootLatency, deleteLatency, initialize, neverJoin, volumes, nodeLabels, taints, capacity")]
    fn a_refusal_names_path_finding_and_expectation(#[case] value: Value, #[case] expected: &str) {
        assert_eq!(ProviderSpec::parse(&value).unwrap_err().to_string(), expected);
    }

    #[rstest]
    #[case("1", true)]
    #[case("1.5Gi", true)]
    #[case("100m", true)]
    #[case("1e3", true)]
    #[case("2Ei", true)]
    #[case("", false)]
    #[case("-1", false)]
    #[case("Gi", false)]
    #[case("1.2.3", false)]
    #[case("1gi", false)]
    #[case("1 Gi", false)]
    fn quantities_are_those_of_the_api(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(is_quantity(text), valid);
    }
}
