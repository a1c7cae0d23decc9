//! Holds classes that Machines use, and the Secrets that classes name.
//!
//! Two planners: [`plan`] for a class, which also takes hold of the Secrets it names, and [`plan_secret`] for a Secret, which
//! lets it go when no class names it any more. The latter is to be asked after each change or end of a class, for every Secret
//! that carries [`crate::api::labels::SECRET_FINALIZER`].

mod plan;
mod reconcile;
mod secret;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

pub use plan::plan;
pub use reconcile::{reconcile, reconcile_secret};
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
