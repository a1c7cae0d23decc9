//! Values of a template that the sides write in different forms.

use k8s_openapi::api::core::v1::{NodeSpec, Taint};
use serde::{Deserialize, Serialize};

use crate::types::{MachineTaint, NodeTaint};
use mcm_api::machine::{self, ClassSpec};

/// The annotations by which a Machine is deleted first, on both sides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeletedFirst {
    pub mark: Option<String>,
    pub priority: Option<String>,
}

impl DeletedFirst {
    pub fn to_native(&self) -> Option<String> {
        if self.mark.is_some() { Some("1".to_owned()) } else { self.priority.clone() }
    }

    pub fn of_native(priority: &Option<String>) -> Self {
        match priority.as_deref() {
            Some("1") => Self { mark: Some(String::new()), priority: None },
            _ => Self { mark: None, priority: priority.clone() },
        }
    }
}

/// The only propagation that the native side has.
pub const ALWAYS: &str = "Always";

/// Taints on the side of Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateTaints {
    pub machine: Vec<MachineTaint>,
    pub infrastructure: Vec<NodeTaint>,
}

impl TemplateTaints {
    pub fn to_native(&self) -> Option<Box<NodeSpec>> {
        let taint = |key: &String, value: &String, effect: &String| Taint {
            key: key.clone(),
            value: Some(value.clone()).filter(|value| !value.is_empty()),
            effect: effect.clone(),
            time_added: None,
        };
        let machine = self.machine.iter().map(|one| taint(&one.key, &one.value, &one.effect));
        let infrastructure = self.infrastructure.iter().map(|one| taint(&one.key, &one.value, &one.effect));
        let taints: Vec<Taint> = machine.chain(infrastructure).collect();
        (!taints.is_empty()).then(|| Box::new(NodeSpec { taints: Some(taints), ..NodeSpec::default() }))
    }

    pub fn of_native(spec: &Option<Box<NodeSpec>>) -> Self {
        let taints = spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let machine = taints.map(|taint| MachineTaint {
            key: taint.key.clone(),
            value: taint.value.clone().unwrap_or_default(),
            effect: taint.effect.clone(),
            propagation: ALWAYS.to_owned(),
        });
        Self { machine: machine.collect(), infrastructure: Vec::new() }
    }
}

/// A reference to a class as native objects have it.
pub fn class_spec(name: &str) -> ClassSpec {
    ClassSpec { api_group: machine::GROUP.to_owned(), kind: "MachineClass".to_owned(), name: name.to_owned() }
}
