//! The inputs of a conformance test.

use k8s_openapi::api::core::v1::PersistentVolumeSpec;

use crate::interface::{Driver, SecretData};
use mcm_api::machine::MachineClass;

/// A driver and the inputs of its checks.
pub struct ConformanceSubject<'a> {
    /// The driver under test.
    pub driver: &'a dyn Driver,
    /// A class from which VMs can be created.
    pub class: MachineClass,
    /// A class that the driver must reject.
    pub invalid_class: Option<MachineClass>,
    /// A class of another cluster, whose VMs must stay invisible.
    pub foreign_class: Option<MachineClass>,
    /// Credentials and user data. No part of it may appear in any text.
    pub secret: SecretData,
    /// Volumes with their expected IDs; those without an ID are of an unknown type.
    pub volumes: Vec<(PersistentVolumeSpec, Option<String>)>,
    /// Prefix of Machine names; unique per run.
    pub prefix: String,
}
