//! What controllers ask of a cloud, and the terms in which it answers.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;

#[cfg(doc)]
use super::code::Code;
use super::{error::DriverError, spec::Problems, vm::Vm};
use crate::api::machine::{Machine, MachineClass};

/// Secret data for one call: credentials and user data. Its content never appears in `Debug` output.
#[derive(Clone, Default)]
pub struct SecretData(pub BTreeMap<String, Vec<u8>>);

impl std::fmt::Debug for SecretData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// What create, initialize, delete and status are about.
#[derive(Clone, Debug)]
pub struct MachineRequest {
    /// The Machine. Its UID is the token that makes creation repeatable; an orphan's has only name, namespace and provider ID.
    pub machine: Arc<Machine>,
    /// Its class.
    pub class: Arc<MachineClass>,
    /// Merged Secret data; user data has its placeholders replaced in calls of the creation flow.
    pub secret: SecretData,
}

/// What a driver can do beyond the six methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// `initialize` does something; otherwise it is not called.
    pub initialize: bool,
    /// `list` finds every VM of a class; otherwise orphans are not looked for.
    pub list: bool,
}

/// A cloud.
///
/// All methods may be called concurrently and again after any failure. A result that is not known
/// (a lost reply, a timeout) is an error with a transient code, never a wrong answer.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
    /// Name in `MachineClass.provider`.
    fn name(&self) -> &'static str;

    /// What it can do beyond the six methods.
    fn capabilities(&self) -> Capabilities;

    /// What is wrong with a class, all at once and field by field. Asks no cloud. [`crate::driver::spec`] helps.
    fn validate(&self, class: &MachineClass) -> Problems;

    /// Makes the VM of a Machine, or finds the one that an earlier call made: never a second one.
    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError>;

    /// Finishes a VM after its creation. [`Code::Uninitialized`] asks to be called again.
    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError>;

    /// Deletes the VM with the Machine's provider ID or, without one, every VM of the Machine. Nothing there is success.
    /// Answers the state to keep, if any.
    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError>;

    /// Looks for the VM of a Machine. [`Code::NotFound`] means that there certainly is none;
    /// [`Code::Uninitialized`] carries the VM in [`DriverError::vm`].
    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError>;

    /// Every VM of a class that is not gone: provider ID to Machine name. A partial list is an error.
    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<BTreeMap<String, String>, DriverError>;

    /// IDs of volumes as they appear in `Node.status.volumesAttached`. Unknown volume types are left out.
    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError>;
}
