use std::{
    future::Future,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use super::subject::ConformanceSubject;
use crate::{
    code::Code,
    error::DriverError,
    interface::MachineRequest,
    vm::{ListedVm, Vm, VmsByProviderId},
};
use mcm_api::machine::{Machine, MachineClass};

/// The owner of all VMs that the suite creates.
pub(super) const OWNER: &str = "conformance";

/// How often a call with a transient error is retried, and the first pause, which doubles.
const ATTEMPTS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(50);

/// Why a check failed or was skipped.
#[derive(Debug)]
pub(super) enum CheckStopReason {
    Failed(String),
    Skipped(String),
}

pub(super) fn fail<T>(text: impl Into<String>) -> Result<T, CheckStopReason> {
    Err(CheckStopReason::Failed(text.into()))
}

pub(super) fn skip<T>(text: impl Into<String>) -> Result<T, CheckStopReason> {
    Err(CheckStopReason::Skipped(text.into()))
}

/// The environment of one check: separate Machines, and a record of every text that the driver returns.
pub(super) struct CheckEnvironment<'a> {
    pub subject: &'a ConformanceSubject<'a>,
    number: usize,
    requests: Mutex<Vec<MachineRequest>>,
    texts: Mutex<Vec<String>>,
}

impl<'a> CheckEnvironment<'a> {
    pub(super) fn new(subject: &'a ConformanceSubject<'a>, number: usize) -> Self {
        Self { subject, number, requests: Mutex::default(), texts: Mutex::default() }
    }

    /// A Machine without a VM.
    pub(super) fn machine(&self, name: &str) -> MachineRequest {
        self.machine_of(name, &self.subject.class)
    }

    pub(super) fn machine_of(&self, name: &str, class: &MachineClass) -> MachineRequest {
        let name = format!("{}-{}-{name}", self.subject.prefix, self.number);
        let metadata = ObjectMeta {
            uid: Some(uid_of(&name)),
            name: Some(name),
            namespace: class.metadata.namespace.clone(),
            ..ObjectMeta::default()
        };
        let machine = Machine { metadata, ..Machine::default() };
        let secret = self.subject.secret.clone();
        let (machine, class) = (Arc::new(machine), Arc::new(class.clone()));
        let request = MachineRequest { machine, class, secret, owner: OWNER.to_owned(), may_pause: false };
        self.requests.lock().push(request.clone());
        request
    }

    pub(super) async fn create(&self, request: &MachineRequest) -> Result<Vm, CheckStopReason> {
        let result = self.repeat(|| self.subject.driver.create(request)).await;
        expect("create", request, result)
    }

    pub(super) async fn delete(&self, request: &MachineRequest) -> Result<(), CheckStopReason> {
        let result = self.repeat(|| self.subject.driver.delete(request)).await;
        expect("delete", request, result).map(drop)
    }

    /// The VM, initialized or not; `None` if it certainly does not exist.
    pub(super) async fn find(&self, request: &MachineRequest) -> Result<Option<Vm>, CheckStopReason> {
        match self.repeat(|| self.subject.driver.status(request)).await {
            Ok(vm) => Ok(Some(vm)),
            Err(error) if error.code == Code::NotFound => Ok(None),
            Err(DriverError { code: Code::Uninitialized, vm, .. }) => match vm {
                Some(vm) => Ok(Some(*vm)),
                None => fail("status returned Uninitialized without the VM"),
            },
            Err(error) => expect("status", request, Err(error)),
        }
    }

    /// All VMs in the list of `class`, or a reason to skip.
    pub(super) async fn list(&self, class: &MachineClass) -> Result<VmsByProviderId, CheckStopReason> {
        if !self.subject.driver.capabilities().list {
            return skip("the driver does not have the capability list");
        }
        let listed = self.repeat(|| self.subject.driver.list(class, &self.subject.secret)).await;
        listed.or_else(|error| fail(format!("list failed: {error}")))
    }

    /// How many VMs of a Machine there are; `None` if the driver does not have the capability list.
    pub(super) async fn count(&self, request: &MachineRequest) -> Result<Option<usize>, CheckStopReason> {
        match self.list(&request.class).await {
            Ok(all) => {
                let is_of_machine = |vm: &&ListedVm| Some(&vm.machine) == request.machine.metadata.name.as_ref();
                Ok(Some(all.values().filter(is_of_machine).count()))
            }
            Err(CheckStopReason::Skipped(_)) => Ok(None),
            Err(failed) => Err(failed),
        }
    }

    /// Retries a call while its error is transient, and records its texts.
    pub(super) async fn repeat<T, F>(&self, call: impl Fn() -> F) -> Result<T, DriverError>
    where
        F: Future<Output = Result<T, DriverError>>,
    {
        let mut attempt = 1;
        loop {
            let result = self.record(call().await);
            match &result {
                Err(error) if error.code.is_transient() && attempt < ATTEMPTS => {
                    tokio::time::sleep(PAUSE * 2_u32.pow(attempt - 1)).await;
                    attempt += 1;
                }
                _ => return result,
            }
        }
    }

    /// Records the texts of a result.
    pub(super) fn record<T>(&self, result: Result<T, DriverError>) -> Result<T, DriverError> {
        if let Err(error) = &result {
            self.texts.lock().extend([error.message.clone(), error.last_known_state.clone().unwrap_or_default()]);
        }
        result
    }

    /// Deletes the VMs that the check left.
    pub(super) async fn clean_up(&self) {
        let requests = self.requests.lock().clone();
        for request in requests {
            // Another check reports that deletion fails.
            let _ = self.repeat(|| self.subject.driver.delete(&request)).await;
        }
    }

    pub(super) fn into_texts(self) -> Vec<String> {
        self.texts.into_inner()
    }
}

/// The request once the provider ID is stored.
pub(super) fn with_id(request: &MachineRequest, provider_id: &str) -> MachineRequest {
    let mut request = request.clone();
    Arc::make_mut(&mut request.machine).spec.provider_id = provider_id.to_owned();
    request
}

fn expect<T>(call: &str, request: &MachineRequest, result: Result<T, DriverError>) -> Result<T, CheckStopReason> {
    let machine = request.machine.metadata.name.as_deref().unwrap_or_default();
    result.or_else(|error| fail(format!("{call} of machine {machine} failed: {error}")))
}

/// A UID like the API server's, but always the same for the same name.
fn uid_of(name: &str) -> String {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let hash = hasher.finish();
    format!("{:08x}-0000-4000-8000-{:012x}", hash >> 32, hash & 0xffff_ffff)
}
