//! The fields of a `nodeTemplate` that a class lacks, or that differ from its cloud. Pure.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;

use crate::api::quantity::is_same_quantity;
use mcm_driver::VmCapacity;

/// Fields that a `nodeTemplate` must have.
const REQUIRED: [&str; 3] = ["instanceType", "region", "zone"];
/// Resources that `capacity` must have.
const RESOURCES: [&str; 3] = ["cpu", "gpu", "memory"];

/// A value in the file that is not that of the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CapacityDifference {
    pub field: String,
    pub file: String,
    pub cloud: String,
}

/// The completion of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClassCompletion {
    /// Resources to add to `nodeTemplate.capacity`.
    pub resources: Vec<(String, String)>,
    /// Fields to add to `nodeTemplate`.
    pub fields: Vec<(String, String)>,
    pub differences: Vec<CapacityDifference>,
    /// Required fields that neither the file nor the cloud has.
    pub missing: Vec<String>,
}

impl ClassCompletion {
    /// The completion of a class by the capacity of its VMs. A class without `nodeTemplate` gets a whole one or none.
    pub fn new(class: &Value, capacity: &VmCapacity) -> Self {
        let template = &class["nodeTemplate"];
        let mut this = Self::default();
        let reported = capacity.class_resources();
        for (name, Quantity(cloud)) in &reported {
            match text_of(&template["capacity"][name]) {
                None => this.resources.push((name.clone(), cloud.clone())),
                Some(file) if is_same_quantity(&Quantity(file.clone()), &Quantity(cloud.clone())) => {}
                Some(file) => this.differ(format!("nodeTemplate.capacity.{name}"), file, cloud),
            }
        }
        let fields = [
            ("architecture", capacity.architecture.map(str::to_owned)),
            ("instanceType", Some(capacity.instance_type.clone())),
            ("region", Some(capacity.region.clone())),
            ("zone", capacity.zone.clone()),
        ];
        for (name, cloud) in fields {
            match (text_of(&template[name]), cloud.filter(|text| !text.is_empty())) {
                (None, Some(cloud)) => this.fields.push((name.to_owned(), cloud)),
                (None, None) if REQUIRED.contains(&name) => this.missing.push(format!("nodeTemplate.{name}")),
                (Some(file), Some(cloud)) if file != cloud => this.differ(format!("nodeTemplate.{name}"), file, &cloud),
                _ => {}
            }
        }
        let unknown = RESOURCES.iter().filter(|name| !reported.contains_key(**name));
        let unknown = unknown.filter(|name| text_of(&template["capacity"][**name]).is_none());
        this.missing.extend(unknown.map(|name| format!("nodeTemplate.capacity.{name}")));
        if template.is_null() && !this.missing.is_empty() {
            (this.resources, this.fields) = (Vec::new(), Vec::new());
        }
        this
    }

    /// Nothing is added.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.fields.is_empty()
    }

    /// The paths and values that are added.
    pub fn added(&self) -> impl Iterator<Item = (String, &str)> {
        let resources = self.resources.iter().map(|(name, value)| (format!("nodeTemplate.capacity.{name}"), value));
        let fields = self.fields.iter().map(|(name, value)| (format!("nodeTemplate.{name}"), value));
        resources.chain(fields).map(|(path, value)| (path, value.as_str()))
    }

    fn differ(&mut self, field: String, file: String, cloud: &str) {
        self.differences.push(CapacityDifference { field, file, cloud: cloud.to_owned() });
    }
}

/// A text, or a number as a text.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use mcm_driver::GpuCapacity;

    fn capacity(zone: Option<&str>, gpus: Option<GpuCapacity>) -> VmCapacity {
        VmCapacity {
            instance_type: "m".to_owned(),
            region: "r".to_owned(),
            zone: zone.map(str::to_owned),
            cpus: 2,
            memory_mib: 2048,
            gpus,
            ..VmCapacity::default()
        }
    }

    #[test]
    fn a_class_without_a_node_template_gets_a_whole_one_or_none() {
        let known = ClassCompletion::new(&json!({}), &capacity(Some("r-a"), Some(GpuCapacity::NONE)));
        assert_eq!((known.added().count(), known.missing.len()), (6, 0), "{known:?}");
        let unknown = ClassCompletion::new(&json!({}), &capacity(None, None));
        assert_eq!(unknown.missing, ["nodeTemplate.zone", "nodeTemplate.capacity.gpu"]);
        assert!(unknown.is_empty());
    }

    #[test]
    fn a_node_template_gets_what_is_known() {
        let class = json!({"nodeTemplate": {"capacity": {"cpu": 2, "gpu": 1}, "zone": "r-b", "region": "r"}});
        let completion = ClassCompletion::new(&class, &capacity(Some("r-a"), None));
        let added: Vec<_> = completion.added().collect();
        assert_eq!(
            added,
            [("nodeTemplate.capacity.memory".to_owned(), "2Gi"), ("nodeTemplate.instanceType".to_owned(), "m")]
        );
        let differs: Vec<_> = completion.differences.iter().map(|one| one.field.as_str()).collect();
        assert_eq!((differs, completion.missing.len()), (vec!["nodeTemplate.zone"], 0));
    }
}
