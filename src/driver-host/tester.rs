//! A driver for the tests in `tests/clouds`, which know no more of this crate than its users.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::PersistentVolumeSpec;

use super::{DriverCatalogue, ExtraDrivers};
use mcm_api::machine::{Machine, MachineClass};
use mcm_driver::{
    DriverEnvironment, DriverGuards, MachineRequest, SecretData, SecretPolicy,
    conformance::{ConformanceSubject, run},
    error::DriverError,
    interface::Driver,
};

/// The owner of the VMs.
pub const OWNER: &str = "tester";

/// A driver with its class and Secret.
pub struct DriverTester {
    driver: Arc<dyn Driver>,
    class: Arc<MachineClass>,
    secret: SecretData,
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// Name of its code.
    pub code: &'static str,
    /// The call may be repeated at once.
    pub is_transient: bool,
    /// The attempted operation and the reason of its failure.
    pub message: String,
}

impl DriverTester {
    /// The driver that a process would use for a class. `None` if none is built in.
    pub fn new(class: MachineClass, secret: BTreeMap<String, Vec<u8>>) -> Option<Self> {
        let guards = DriverGuards::unobserved();
        // Simulations of clouds are on this host.
        let endpoints = "http://127.0.0.1".parse().into_iter().collect();
        let secrets = SecretPolicy { endpoints, ..SecretPolicy::default() };
        let environment = DriverEnvironment { secrets: &secrets };
        let catalogue =
            DriverCatalogue::open(ExtraDrivers::default(), &environment, Some(&class.provider), &guards).ok()?;
        let driver = catalogue.get(&class).ok()?;
        Some(Self { driver, class: Arc::new(class), secret: SecretData(secret) })
    }

    /// Errors and warnings of the class.
    pub fn problems(&self) -> (Vec<String>, Vec<String>) {
        let problems = self.driver.validate(&self.class);
        let texts = |all: &[_]| all.iter().map(ToString::to_string).collect();
        (texts(&problems.errors), texts(&problems.warnings))
    }

    /// Creates the VM of a Machine; returns its provider ID and the name of its Node.
    ///
    /// # Errors
    /// The driver's.
    pub async fn create(&self, machine: &Machine) -> Result<(String, String), FailedCall> {
        let vm = self.driver.create(&self.request(machine)).await?;
        Ok((vm.provider_id, vm.node_name))
    }

    /// The provider ID and the Node name of the VM of a Machine.
    ///
    /// # Errors
    /// The driver's.
    pub async fn status(&self, machine: &Machine) -> Result<(String, String), FailedCall> {
        let vm = self.driver.status(&self.request(machine)).await?;
        Ok((vm.provider_id, vm.node_name))
    }

    /// Initializes the VM of a Machine.
    ///
    /// # Errors
    /// The driver's.
    pub async fn initialize(&self, machine: &Machine) -> Result<(), FailedCall> {
        Ok(self.driver.initialize(&self.request(machine)).await.map(drop)?)
    }

    /// Deletes the VM of a Machine.
    ///
    /// # Errors
    /// The driver's.
    pub async fn delete(&self, machine: &Machine) -> Result<(), FailedCall> {
        Ok(self.driver.delete(&self.request(machine)).await.map(drop)?)
    }

    /// All VMs of the class: provider ID to Machine name.
    ///
    /// # Errors
    /// The driver's.
    pub async fn list(&self) -> Result<BTreeMap<String, String>, FailedCall> {
        let listed = self.driver.list(&self.class, &self.secret).await?;
        Ok(listed.into_iter().map(|(id, vm)| (id, vm.machine)).collect())
    }

    /// Runs the conformance suite; returns the checks that failed and the whole report.
    pub async fn conformance(
        &self,
        invalid: MachineClass,
        foreign: MachineClass,
        volumes: Vec<(PersistentVolumeSpec, Option<String>)>,
    ) -> (Vec<&'static str>, String) {
        let subject = ConformanceSubject {
            driver: &*self.driver,
            class: (*self.class).clone(),
            invalid_class: Some(invalid),
            foreign_class: Some(foreign),
            secret: self.secret.clone(),
            volumes,
            prefix: "conformance".to_owned(),
        };
        let report = run(&subject).await;
        (report.failed(), report.to_string())
    }

    fn request(&self, machine: &Machine) -> MachineRequest {
        let (machine, class) = (Arc::new(machine.clone()), Arc::clone(&self.class));
        MachineRequest { machine, class, secret: self.secret.clone(), owner: OWNER.to_owned(), may_pause: false }
    }
}

impl From<DriverError> for FailedCall {
    fn from(error: DriverError) -> Self {
        let (code, is_transient) = (error.code.as_str(), error.code.is_transient());
        Self { code, is_transient, message: error.message }
    }
}
