//! The secret controller: a Secret carries a finalizer while a class names it.

mod apply;
mod cache;
mod observe;
mod plan;
mod register;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use mcm_api::machine::MachineClass;

pub use cache::{CACHE, MetadataOfSecret};
pub(crate) use plan::plan;
pub use register::KIND;

/// The input of a plan for a Secret, without its data.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// Metadata of the Secret.
    pub secret: Box<ObjectMeta>,
    /// The classes of the namespace that may name it.
    pub classes: Vec<Arc<MachineClass>>,
    /// Names of the classes of the namespace that cannot be decoded; they may name the Secret.
    pub unreadable_classes: Vec<String>,
}
