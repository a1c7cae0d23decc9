//! The class controller: keeps finalizers on classes that Machines use and on the Secrets that classes name, and
//! reports what is wrong with a class.

mod apply;
mod cache;
pub mod login_data;
mod observe;
mod plan;
mod problems;
mod register;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use mcm_api::{
    machine::{MachineClass, SecretRef},
    patch,
};
use mcm_driver::spec::ClassProblems;
use mcm_rules::plan::SubjectRef;

pub use cache::{CACHE, is_missing, is_unusable, naming};
pub use login_data::{login_data, unused_keys};
#[cfg(test)]
pub(crate) use plan::plan;
pub use register::KIND;

/// The input of a plan for a class.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The class.
    pub class: Arc<MachineClass>,
    /// Names of the Machines of the namespace that name it, for any `class.kind`: their VMs are created from it.
    /// Terminating ones are included, because the driver needs the class to delete their VMs.
    pub machines_using: Vec<String>,
    /// Names of the Machines of the namespace that cannot be decoded; they may use the class.
    pub unreadable_machines: Vec<String>,
    /// The Secrets of [`secret_names`], by name. One that is missing here is unknown.
    pub secrets: BTreeMap<String, SecretState>,
    /// Result of `Driver::validate`; `None` if this process has no driver for it.
    pub problems: Option<ClassProblems>,
}

/// A Secret as one reconcile reads it.
#[derive(Clone, Debug, PartialEq)]
pub enum SecretState {
    /// It exists; its metadata.
    Present(Box<ObjectMeta>),
    /// It does not exist.
    Absent,
    /// It could not be read.
    Unknown,
}

/// One write that a plan for a class can contain. Patches are JSON merge patches with the `metadata.resourceVersion` of
/// the snapshot as precondition, so a plan has at most one for each object.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Patch of the class (finalizers, problems).
    PatchClass(Value),
    /// Patch of a Secret in the namespace of the class (finalizers).
    PatchSecret {
        /// Metadata of the Secret, as the plan saw it.
        secret: Box<ObjectMeta>,
        /// The patch.
        patch: Value,
    },
}

impl Action {
    /// The object that it changes or reads, if that is another one than the object of the plan.
    fn subject(&self) -> Option<SubjectRef> {
        match self {
            Self::PatchSecret { secret, .. } => Some(SubjectRef {
                kind: "Secret".to_owned(),
                namespace: secret.namespace.clone().unwrap_or_default(),
                name: secret.name.clone().unwrap_or_default(),
            }),
            Self::PatchClass(_) => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PatchClass(patch) => write!(f, "patch class: {}", patch::fields(patch)),
            Self::PatchSecret { secret, patch } => {
                write!(f, "patch secret {}: {}", secret.name.as_deref().unwrap_or_default(), patch::fields(patch))
            }
        }
    }
}

/// The Secrets that a class names. They are looked up in the namespace of the class, for any namespace of the reference.
pub fn secret_names(class: &MachineClass) -> BTreeSet<&str> {
    secret_refs(class).map(|reference| reference.name.as_str()).filter(|name| !name.is_empty()).collect()
}

/// The references of a class to Secrets, whose data [`login_data`] joins.
pub fn secret_refs(class: &MachineClass) -> impl Iterator<Item = &SecretRef> {
    [&class.secret_ref, &class.credentials_secret_ref].into_iter().flatten()
}
