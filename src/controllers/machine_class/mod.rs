//! Holds classes that Machines use, and the Secrets that classes name.

mod plan;
mod secret;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

pub use plan::plan;
pub use secret::{SecretSnapshot, plan_secret};

use crate::api::machine::MachineClass;

/// Everything a plan for a class is made from.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The class.
    pub class: Arc<MachineClass>,
    /// Names of the Machines of the namespace that use it ([`crate::api::machine::ClassSpec`] of kind `MachineClass` and
    /// its name), those being deleted included: the driver needs the class to delete their VMs.
    pub machines_using: Vec<String>,
    /// Names of the Machines of the namespace whose content could not be read; they may use the class.
    pub unreadable_machines: Vec<String>,
    /// What is known of the Secrets that [`secret_names`] tells, by name. One that is missing here is unknown.
    pub secrets: BTreeMap<String, SecretState>,
    /// The other classes of the namespace.
    pub other_classes: Vec<Arc<MachineClass>>,
    /// Names of the classes of the namespace whose content could not be read; they may name the Secrets.
    pub unreadable_classes: Vec<String>,
}

/// What is known of a Secret.
#[derive(Clone, Debug, PartialEq)]
pub enum SecretState {
    /// It exists; its metadata.
    Present(Box<ObjectMeta>),
    /// It does not exist.
    Absent,
    /// It could not be read.
    Unknown,
}

/// What can be done for a class. Patches are JSON merge patches; the shell adds `metadata.resourceVersion` as a
/// precondition.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Patch of the class (finalizers).
    PatchClass(Value),
    /// Patch of a Secret in the namespace of the class (finalizers).
    PatchSecret {
        /// Metadata of the Secret, as the plan saw it.
        secret: Box<ObjectMeta>,
        /// The patch.
        patch: Value,
    },
}

/// The Secrets that a class names. They are looked for in the namespace of the class, whatever the reference says.
pub fn secret_names(class: &MachineClass) -> BTreeSet<&str> {
    [&class.secret_ref, &class.credentials_secret_ref]
        .into_iter()
        .flatten()
        .map(|reference| reference.name.as_str())
        .filter(|name| !name.is_empty())
        .collect()
}
