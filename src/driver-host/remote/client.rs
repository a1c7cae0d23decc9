//! A driver in another process.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status, transport::Channel};

use super::{
    address::DriverEndpoint,
    check,
    line::{DriverConnections, DriverFeatures, KeeperTiming},
    proto,
    verdicts::{ClassHash, PAUSE, VerdictCache},
    wire::{self, VmListReader},
};
use mcm_api::machine::MachineClass;
use mcm_driver::{
    capacity::VmCapacity,
    code::Code,
    error::DriverError,
    guard::{DriverObserver, TimeLimits},
    inspection::ResourceFinding,
    interface::{Driver, DriverCapabilities, MachineRequest, ProblemsHook, SecretData},
    operation::DriverOperation,
    spec::ClassProblems,
    vm::{Vm, VmsByProviderId},
};
use mcm_runtime::panics;

/// The treatment of the driver's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextTreatment {
    /// They are made fit to be stored and shown.
    Cleaned,
    /// They stay, for a test of the driver.
    AsTheyAre,
}

/// A driver in another process. Its calls fail as `Unavailable` while that process does not respond.
pub struct RemoteDriver {
    name: &'static str,
    texts: TextTreatment,
    line: Arc<DriverConnections>,
    verdicts: Arc<VerdictCache>,
    hooks: Arc<Mutex<Vec<ProblemsHook>>>,
    _keeper: AbortOnDropHandle<()>,
}

impl RemoteDriver {
    /// Connects in the background.
    pub fn open(endpoint: &DriverEndpoint, texts: TextTreatment, observer: &Arc<dyn DriverObserver>) -> Self {
        Self::open_with(endpoint, texts, observer, KeeperTiming::default())
    }

    pub(super) fn open_with(
        endpoint: &DriverEndpoint,
        texts: TextTreatment,
        observer: &Arc<dyn DriverObserver>,
        timing: KeeperTiming,
    ) -> Self {
        let line = Arc::new(DriverConnections::new(endpoint.clone(), Arc::clone(observer), timing));
        let keeper = AbortOnDropHandle::new(tokio::spawn(panics::of_current_cell(Arc::clone(&line).keep())));
        let (verdicts, hooks) = (Arc::default(), Arc::default());
        Self { name: interned(&endpoint.name), texts, line, verdicts, hooks, _keeper: keeper }
    }

    /// Waits until the driver responded for the first time.
    ///
    /// # Errors
    /// It did not, or does not serve this provider.
    pub async fn reached(&self) -> Result<(), DriverError> {
        self.line.wait_until_known().await
    }

    fn request<T>(operation: DriverOperation, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(TimeLimits::default().limit_for(operation));
        request
    }

    /// The driver has a feature, according to its last poll.
    async fn can(&self, can: impl FnOnce(DriverFeatures) -> bool, cannot: &str) -> Result<(), DriverError> {
        self.line.wait_until_known().await?;
        if can(self.line.served()) {
            return Ok(());
        }
        Err(DriverError::new(Code::Unimplemented, format!("driver {} {cannot}", self.name)))
    }

    fn without_flaws(&self, all: VmsByProviderId) -> VmsByProviderId {
        let (all, flaws) = check::list(all);
        if !flaws.is_empty() {
            let (driver, count, first) = (self.name, flaws.len(), check::first_of(&flaws));
            tracing::warn!(driver, count, first, "the driver listed VMs without a valid provider ID and machine name");
        }
        all
    }

    fn clean<T>(&self, result: Result<T, DriverError>, secret: &SecretData) -> Result<T, DriverError> {
        match self.texts {
            TextTreatment::Cleaned => result.map_err(|error| check::error(error, secret)),
            TextTreatment::AsTheyAre => result,
        }
    }

    /// Create, initialize or status.
    async fn vm<F>(
        &self,
        operation: DriverOperation,
        request: &MachineRequest,
        call: impl FnOnce(RpcClient, Request<proto::MachineRequest>) -> F,
    ) -> Result<Vm, DriverError>
    where
        F: Future<Output = Result<Response<proto::VmResponse>, Status>>,
    {
        let message = Self::request(operation, wire::machine_request(self.name, request)?);
        let call =
            |client| async move { Ok::<_, Status>(wire::read_vm_result(call(client, message).await?.into_inner())) };
        let result = self.line.call(call).await.map_err(|error| check::pause(error, request.may_pause));
        let result = result.and_then(|vm| check::vm(&vm).map(|()| vm));
        self.clean(result, &request.secret)
    }
}

type RpcClient = proto::driver_client::DriverClient<Channel>;

#[async_trait]
impl Driver for RemoteDriver {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capabilities(&self) -> DriverCapabilities {
        self.line.served().capabilities
    }

    fn validate(&self, class: &MachineClass) -> ClassProblems {
        self.known_problems(class).unwrap_or_default()
    }

    fn known_problems(&self, class: &MachineClass) -> Option<ClassProblems> {
        let subject = ClassHash::from_class(class);
        let (known, is_due) = self.verdicts.look_up(subject);
        if is_due {
            let (line, verdicts, hooks) = (Arc::clone(&self.line), Arc::clone(&self.verdicts), Arc::clone(&self.hooks));
            let (class, name) = (class.clone(), self.name);
            tokio::spawn(panics::of_current_cell(async move {
                let asked = problems_of(&line, name, &class).await;
                let broke = asked.is_err();
                if let Err(error) = &asked {
                    tracing::debug!(driver = name, %error, "class not validated");
                }
                verdicts.put(subject, asked.ok());
                if broke {
                    // The next reader calls it again.
                    tokio::time::sleep(PAUSE).await;
                }
                let hooks = hooks.lock().clone();
                hooks.iter().for_each(|hook| hook(&class));
            }));
        }
        known
    }

    fn on_problems(&self, hook: ProblemsHook) {
        self.hooks.lock().push(hook);
    }

    async fn problems(&self, class: &MachineClass) -> Result<ClassProblems, DriverError> {
        let result = problems_of(&self.line, self.name, class).await;
        self.clean(result, &SecretData::default())
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.vm(DriverOperation::Create, request, |mut client, message| async move { client.create(message).await })
            .await
    }

    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.vm(
            DriverOperation::Initialize,
            request,
            |mut client, message| async move { client.initialize(message).await },
        )
        .await
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let message = Self::request(DriverOperation::Delete, wire::machine_request(self.name, request)?);
        let call = |mut client: RpcClient| async move {
            Ok::<_, Status>(wire::read_deletion(client.delete(message).await?.into_inner()))
        };
        let result = self.line.call(call).await.map_err(|error| check::pause(error, request.may_pause));
        let result = result.and_then(|state| check::state(state.as_deref()).map(|()| state));
        self.clean(result, &request.secret)
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.vm(DriverOperation::Status, request, |mut client, message| async move { client.status(message).await })
            .await
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<VmsByProviderId, DriverError> {
        let message = proto::ListRequest {
            provider: self.name.to_owned(),
            class_json: wire::class(class)?,
            secret: wire::secret(secret),
        };
        let message = Self::request(DriverOperation::List, message);
        let call = |mut client: RpcClient| async move {
            let mut messages = client.list(message).await?.into_inner();
            let mut listing = VmListReader::default();
            while let Some(message) = messages.message().await? {
                if let Some(result) = listing.take(message) {
                    return Ok(result);
                }
            }
            Ok::<_, Status>(VmListReader::broken_off())
        };
        let result = self.line.call(call).await;
        let result = match self.texts {
            TextTreatment::Cleaned => result.map(|all| self.without_flaws(all)),
            TextTreatment::AsTheyAre => result.and_then(check::flawless_list),
        };
        self.clean(result, secret)
    }

    async fn inspect(&self, class: &MachineClass, secret: &SecretData) -> Result<Vec<ResourceFinding>, DriverError> {
        self.can(|served| served.capabilities.inspect, "cannot inspect its cloud").await?;
        let message = proto::InspectRequest {
            provider: self.name.to_owned(),
            class_json: wire::class(class)?,
            secret: wire::secret(secret),
        };
        // The deadline is that of the caller.
        let call = |mut client: RpcClient| async move {
            Ok::<_, Status>(wire::read_inspection(client.inspect(message).await?.into_inner()))
        };
        let result = self.line.call(call).await;
        let result = result.and_then(|findings| check::findings(findings, secret));
        self.clean(result, secret)
    }

    /// The whole class: the other process does not say on what the capacity depends.
    fn capacity_key(&self, class: &MachineClass) -> Option<String> {
        self.line.served().capacity.then(|| format!("{:?}", ClassHash::from_class(class)))
    }

    async fn capacity(&self, class: &MachineClass, secret: &SecretData) -> Result<VmCapacity, DriverError> {
        self.can(|served| served.capacity, "cannot read the capacity of VMs: write nodeTemplate.capacity of the class")
            .await?;
        let message = proto::CapacityRequest {
            provider: self.name.to_owned(),
            class_json: wire::class(class)?,
            secret: wire::secret(secret),
        };
        let message = Self::request(DriverOperation::Capacity, message);
        let call = |mut client: RpcClient| async move {
            Ok::<_, Status>(wire::read_capacity(client.capacity(message).await?.into_inner()))
        };
        let result = self.line.call(call).await;
        let result = result.and_then(|capacity| check::capacity(&capacity).map(|()| capacity));
        self.clean(result, secret)
    }

    async fn tag(&self, request: &MachineRequest, is_listed: bool) -> Result<(), DriverError> {
        self.can(|served| served.capabilities.tag, "cannot change tags: change them by hand, as the class specifies")
            .await?;
        let machine = Some(wire::machine_request(self.name, request)?);
        let message = Self::request(DriverOperation::Status, proto::TagRequest { machine, is_listed });
        let call = |mut client: RpcClient| async move {
            Ok::<_, Status>(wire::read_tagging(client.tag(message).await?.into_inner()))
        };
        let result = self.line.call(call).await;
        self.clean(result, &request.secret)
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        if !self.line.served().volume_ids {
            return Ok(Vec::new());
        }
        let message = proto::VolumeIdsRequest { provider: self.name.to_owned(), specs_json: wire::volumes(specs)? };
        let message = Self::request(DriverOperation::VolumeIds, message);
        let call = |mut client: RpcClient| async move {
            Ok::<_, Status>(wire::read_volume_ids(client.volume_ids(message).await?.into_inner()))
        };
        let result = self.line.call(call).await;
        let result = result.and_then(|ids| check::volume_ids(&ids, specs.len()).map(|()| ids));
        self.clean(result, &SecretData::default())
    }
}

async fn problems_of(line: &DriverConnections, name: &str, class: &MachineClass) -> Result<ClassProblems, DriverError> {
    let message = proto::ValidateRequest { provider: name.to_owned(), class_json: wire::class(class)? };
    // It makes no cloud call.
    let message = RemoteDriver::request(DriverOperation::Status, message);
    let call = |mut client: RpcClient| async move {
        Ok::<_, Status>(wire::read_problems(client.validate(message).await?.into_inner()))
    };
    let mut problems = line.call(call).await?;
    check::problems(&mut problems);
    Ok(problems)
}

/// Names of drivers live as long as the process. There are only as many as its flags name.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock();
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(name);
    name
}
