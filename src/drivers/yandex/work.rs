//! Work that the cloud carries out after its answer: creations, deletions and updates, each followed to its end.
//!
//! Nothing is held meanwhile. A call may end while the cloud works, and the next one continues; what is remembered here may be lost.

use mcm_api::machine::Machine;
use mcm_driver::{
    Code, DriverError, MachineRequest,
    cloud::{LruCache, MachineIdentity, PollTiming, until_done},
};
use tokio::time::Instant;

use crate::{
    calls::Api,
    errors::Status,
    instance::Instance,
    operation::{Begun, Operation},
    request::{begun, spent, stored_creation},
};

/// Most operations that are followed at a time.
const MOST_BEGUN: usize = 10_000;

/// The end of work of the cloud. An error of this type is final; with one around it the end is not known yet.
type Ended<T> = Result<T, DriverError>;

/// The work that calls have begun.
pub(crate) struct Work {
    pace: PollTiming,
    /// Creations, by the UID of their Machine.
    creating: LruCache<String, Begun>,
    /// Deletions, by the ID of their instance.
    deleting: LruCache<String, Begun>,
}

impl Work {
    pub(crate) fn new(pace: PollTiming) -> Self {
        Self { pace, creating: LruCache::new(MOST_BEGUN), deleting: LruCache::new(MOST_BEGUN) }
    }

    /// The creation of a Machine's VM that an earlier call began.
    pub(crate) fn earlier_creation(&self, machine: &Machine) -> Option<Begun> {
        let uid = MachineIdentity::from_machine(machine).uid;
        if uid.is_empty() || !machine.spec.provider_id.is_empty() {
            return None;
        }
        self.creating.get(&uid.to_owned()).or_else(|| stored_creation(machine))
    }

    /// Follows a creation to its end; returns the ID of its instance.
    async fn follow(
        &self,
        api: &Api,
        request: &MachineRequest,
        creation: Begun,
        may_pause: bool,
    ) -> Result<Ended<String>, DriverError> {
        // This call may be dropped at any time.
        remember(&self.creating, MachineIdentity::from_machine(&request.machine).uid, &creation);
        let (what, state) = (&creation_of(request), begun(&creation));
        let Begun { id, mut answer, number, since } = creation;
        let look = || {
            let (answer, id) = (answer.take(), &id);
            async move { Ok(created_by(api, shown(api, answer, id).await?.as_ref(), number, what)) }
        };
        let ended = until_done(&self.pace, since, may_pause, what, look).await;
        ended.map_err(|error| with_state(error, state))
    }

    /// The instance of a creation that an earlier call, or this one, began.
    pub(crate) async fn created(
        &self,
        api: &Api,
        request: &MachineRequest,
        creation: Begun,
    ) -> Result<Instance, DriverError> {
        let number = creation.number;
        let ended = self.follow(api, request, creation, request.may_pause).await?;
        self.creating.forget(&MachineIdentity::from_machine(&request.machine).uid.to_owned());
        api.instance(&ended?).await?.ok_or_else(|| {
            let message = format!("{} succeeded, but its instance is not there any more", creation_of(request));
            with_state(DriverError::new(Code::Aborted, message), spent(number.saturating_add(1)))
        })
    }

    /// While a creation is carried out, it is unknown whether the Machine has a VM.
    pub(crate) async fn created_or_not(
        &self,
        api: &Api,
        request: &MachineRequest,
        may_pause: bool,
    ) -> Result<(), DriverError> {
        let machine = &*request.machine;
        let Some(creation) = self.earlier_creation(machine) else { return Ok(()) };
        let ended = self.follow(api, request, creation, may_pause).await.map_err(|error| for_call(error, request))?;
        // One that failed is told by the next creation.
        if ended.is_ok() {
            self.creating.forget(&MachineIdentity::from_machine(machine).uid.to_owned());
        }
        Ok(())
    }

    /// The instance once it has a host. Until then its creation may fail.
    pub(crate) async fn with_host(
        &self,
        api: &Api,
        request: &MachineRequest,
        instance: Instance,
        may_pause: bool,
    ) -> Result<Instance, DriverError> {
        let what = &format!("creation of instance {}", instance.id);
        let (id, mut answer) = (instance.id.clone(), Some(instance));
        let look = || {
            let (answer, id) = (answer.take(), &id);
            async move {
                let instance = match answer {
                    Some(instance) => Some(instance),
                    None => api.instance(id).await?,
                };
                match instance {
                    Some(instance) if instance.is_provisioning() || instance.is_deleting() => Ok(None),
                    Some(instance) => Ok(Some(instance)),
                    None => Err(DriverError::new(Code::Aborted, format!("{what} failed: it is not there any more"))),
                }
            }
        };
        let ended = until_done(&self.pace, Instant::now(), may_pause, what, look).await;
        ended.map_err(|error| for_call(error, request))
    }

    /// An earlier call began the deletion of an instance.
    pub(crate) fn is_deleting(&self, id: &str) -> bool {
        self.deleting.get(&id.to_owned()).is_some()
    }

    /// Deletes an instance, and waits until it is absent. `is_begun`: its deletion has begun.
    pub(crate) async fn delete(
        &self,
        api: &Api,
        request: &MachineRequest,
        id: &str,
        is_begun: bool,
    ) -> Result<(), DriverError> {
        let what = &format!("deletion of instance {id}");
        let deletion = match self.deleting.get(&id.to_owned()) {
            None if !is_begun => match api.delete(id).await? {
                Some(operation) => Some(Begun::now(operation, 0)),
                None => return Ok(()),
            },
            earlier => earlier,
        };
        if let Some(deletion) = &deletion {
            remember(&self.deleting, id, deletion);
        }
        let since = deletion.as_ref().map_or_else(Instant::now, |deletion| deletion.since);
        let operation = deletion.as_ref().map(|deletion| deletion.id.as_str());
        let mut answer = deletion.as_ref().and_then(|deletion| deletion.answer.clone());
        let look = || {
            let answer = answer.take();
            async move {
                let operation = match operation {
                    Some(operation) => shown(api, answer, operation).await?,
                    None => None,
                };
                match operation {
                    Some(operation) => Ok(deleted(api, &operation, what)),
                    None => Ok(gone(api.instance(id).await?.as_ref(), what)),
                }
            }
        };
        let ended = until_done(&self.pace, since, request.may_pause, what, look).await?;
        self.deleting.forget(&id.to_owned());
        ended
    }

    /// Replaces the labels of an instance, and waits until it has them.
    pub(crate) async fn relabel(&self, api: &Api, instance: &Instance) -> Result<(), DriverError> {
        let what = &format!("update of instance {}", instance.id);
        let Begun { id, mut answer, since, .. } = Begun::now(api.set_labels(instance).await?, 0);
        let look = || {
            let (answer, id) = (answer.take(), &id);
            async move {
                match shown(api, answer, id).await? {
                    Some(operation) => Ok(ended(api, &operation, what)),
                    None => {
                        Err(DriverError::new(Code::Aborted, format!("{what} failed: the cloud forgot its operation")))
                    }
                }
            }
        };
        until_done(&self.pace, since, false, what, look).await?
    }
}

/// An operation: as the answer to its request has it, or as it is now. `None` if the cloud has it no more.
async fn shown(api: &Api, answer: Option<Operation>, id: &str) -> Result<Option<Operation>, DriverError> {
    match answer {
        Some(operation) => Ok(Some(operation)),
        None => api.operation(id).await,
    }
}

/// How an operation ended; `None` if it has not.
fn ended(api: &Api, operation: &Operation, what: &str) -> Option<Ended<()>> {
    match operation.failure() {
        Some(status) => Some(Err(api.error(&status.of_operation(), what))),
        None => operation.done.then_some(Ok(())),
    }
}

/// The same for a creation by the request with this number. An error has the state for the next request.
fn created_by(api: &Api, operation: Option<&Operation>, number: u32, what: &str) -> Option<Ended<String>> {
    let failed =
        |code, text: &str| Some(Err(with_state(DriverError::new(code, format!("{what}: {text}")), spent(number))));
    let Some(operation) = operation else { return failed(Code::Aborted, "the cloud forgot its operation") };
    if let Some(status) = operation.failure() {
        let error = status.of_operation().error_of_creation(what, &api.secret);
        return Some(Err(with_state(error, spent(number.saturating_add(1)))));
    }
    match operation.instance().filter(|_| operation.done) {
        Some(id) => Some(Ok(id.to_owned())),
        None if !operation.done => None,
        None => failed(Code::Unknown, "its operation is done and names no instance"),
    }
}

/// The same for a deletion, which succeeds if there is nothing to delete.
fn deleted(api: &Api, operation: &Operation, what: &str) -> Option<Ended<()>> {
    let is_absent = operation.failure().is_some_and(Status::is_not_found);
    if is_absent { Some(Ok(())) } else { ended(api, operation, what) }
}

/// The same for a deletion without an operation, by its instance as it is now.
fn gone(instance: Option<&Instance>, what: &str) -> Option<Ended<()>> {
    match instance {
        None => Some(Ok(())),
        Some(instance) if instance.is_deleting() => None,
        Some(_) => Some(Err(DriverError::new(Code::Aborted, format!("{what} failed: it is still there")))),
    }
}

fn remember(all: &LruCache<String, Begun>, key: &str, begun: &Begun) {
    all.put(key.to_owned(), Begun { answer: None, ..begun.clone() });
}

fn with_state(error: DriverError, state: String) -> DriverError {
    DriverError { last_known_state: Some(state), ..error }
}

/// The error of a call that may pause or not.
fn for_call(error: DriverError, request: &MachineRequest) -> DriverError {
    DriverError { call_again_in: error.call_again_in.filter(|_| request.may_pause), ..error }
}

pub(crate) fn creation_of(request: &MachineRequest) -> String {
    format!("creation of VM {}", MachineIdentity::from_machine(&request.machine).name)
}
