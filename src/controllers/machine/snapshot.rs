use std::sync::Arc;

use jiff::Timestamp;

use super::{
    memory::{Call, Memory, NodeWrite},
    policy::created_at,
    token,
};
use crate::{
    api::{
        labels,
        machine::{Machine, MachineClass},
        node::Node,
    },
    drain::{Answer, Attempt, Method, PodFacts, PodRef},
    driver::{Capabilities, Code, DriverError, SecretData, Vm},
    safety::meltdown::Permit,
};

/// Everything a plan for a Machine is made from.
///
/// A pass starts with [`Snapshot::new`] and what the caches have; the rest is filled in as the plan asks for it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The Machine.
    pub machine: Arc<Machine>,
    /// The Node that [`Snapshot::node_key`] names; to be looked up again after every action.
    pub node: NodeView,
    /// The class that the Machine names.
    pub class: ClassView,
    /// What its Secrets say.
    pub secret: SecretView,
    /// The bootstrap token.
    pub token: TokenView,
    /// The VM, as the driver described it in this pass.
    pub vm: VmView,
    /// The pods of the Node, as listed in this pass.
    pub pods: PodsView,
    /// The right to give the Machine up for bad health.
    pub permit: Permit,
    /// The API server of the target cluster was unreachable, so what is seen of Nodes is not trusted.
    pub is_frozen: bool,
    /// What earlier passes left behind.
    pub memory: Memory,
    /// The time; to be set again after every action.
    pub now: Timestamp,
}

/// A Node in the target cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeView {
    /// There is no target cluster.
    NoTarget,
    /// Nothing is known, for the cache was never filled.
    Unknown,
    /// It certainly does not exist.
    Absent,
    /// It exists.
    Present(Arc<Node>),
}

/// How to find the Node of a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKey {
    /// By its name.
    Name(String),
    /// By its label [`labels::MACHINE_NAME`], because the Machine does not know its Node.
    OfMachine(String),
}

/// The class of a Machine.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassView {
    /// Nothing is known, for the cache was never filled.
    Unknown,
    /// It certainly does not exist.
    Missing,
    /// It exists, and no driver in this process serves it.
    Unserved(Arc<MachineClass>),
    /// It exists.
    Present {
        /// The class.
        class: Arc<MachineClass>,
        /// What its driver can do.
        driver: Capabilities,
    },
}

/// The merged Secrets of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretView {
    /// Not read in this pass.
    NotRead,
    /// Reading failed; the text says why.
    Failed(String),
    /// Read; the shell keeps the data.
    Read(SecretFacts),
}

/// What a plan needs to know of Secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecretFacts {
    /// Names of Secrets that the class refers to and that certainly do not exist.
    pub missing: Vec<String>,
    /// There is a key `userData`.
    pub has_user_data: bool,
    /// The user data asks for a bootstrap token.
    pub wants_token: bool,
}

/// The bootstrap token of a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenView {
    /// Not looked at in this pass.
    NotEnsured,
    /// Having it failed; the text says why.
    Failed(String),
    /// It is there, and the shell can fill it in.
    Ensured,
}

/// A VM, as the driver described it in this pass. Failures are in the [`Memory`].
#[derive(Clone, Debug, PartialEq)]
pub enum VmView {
    /// Nothing was asked yet.
    NotAsked,
    /// It certainly does not exist.
    NotFound,
    /// It exists and is finished.
    Found(Vm),
    /// It exists and has to be initialised.
    Uninitialized(Vm),
    /// It was made in this pass and may have to be initialised.
    Created(Vm),
    /// It was initialised in this pass.
    Initialized(Vm),
    /// It was deleted in this pass, or was not there to be deleted.
    Deleted,
}

/// The pods of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodsView {
    /// Not listed in this pass.
    NotListed,
    /// Listing failed; the text says why.
    Failed(String),
    /// All of them.
    Listed(Vec<PodFacts>),
}

/// The answer to a call about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodCall {
    /// The pod was not there any more, or another one of its name.
    Gone,
    /// Anything else.
    Answered(Answer),
}

impl Snapshot {
    /// The beginning of a pass.
    pub fn new(machine: Arc<Machine>, node: NodeView, class: ClassView, memory: Memory, now: Timestamp) -> Self {
        Self {
            machine,
            node,
            class,
            secret: SecretView::NotRead,
            token: TokenView::NotEnsured,
            vm: VmView::NotAsked,
            pods: PodsView::NotListed,
            permit: Permit::NotAsked,
            is_frozen: false,
            memory,
            now,
        }
    }

    /// Which Node belongs into `node`.
    pub fn node_key(&self) -> NodeKey {
        let of_vm = self.vm.vm().map(|vm| vm.node_name.as_str()).filter(|name| !name.is_empty());
        match self.machine.node_name().or(of_vm) {
            Some(name) => NodeKey::Name(name.to_owned()),
            None => NodeKey::OfMachine(self.name().to_owned()),
        }
    }

    /// The Secrets were read, or could not be.
    pub fn secret_read(&mut self, answer: Result<SecretFacts, String>) {
        self.secret = match answer {
            Ok(facts) => {
                self.memory.wants_token = Some(facts.wants_token);
                SecretView::Read(facts)
            }
            Err(message) => SecretView::Failed(message),
        };
    }

    /// The driver answered to `status`.
    pub fn vm_asked(&mut self, answer: Result<Vm, DriverError>) {
        let view = match answer {
            Ok(vm) => self.identified(vm, Call::Ask).map(VmView::Found),
            Err(error) => match error.code {
                Code::NotFound | Code::Unimplemented => Some(VmView::NotFound),
                Code::Uninitialized => {
                    let vm = error.vm.map(|vm| *vm).unwrap_or_default();
                    self.identified(vm, Call::Ask).map(VmView::Uninitialized)
                }
                _ => {
                    self.memory.call_failed(Call::Ask, error, self.now);
                    None
                }
            },
        };
        if let Some(view) = view {
            self.memory.call_succeeded(Call::Ask);
            self.vm = view;
        }
    }

    /// The driver answered to `create`.
    pub fn vm_created(&mut self, answer: Result<Vm, DriverError>) {
        match answer {
            Ok(vm) => {
                if let Some(vm) = self.identified(vm, Call::Create) {
                    self.memory.call_succeeded(Call::Create);
                    self.vm = VmView::Created(vm);
                }
            }
            Err(error) => {
                // The VM may be there all the same: it is looked for before the next try.
                self.vm = VmView::NotAsked;
                self.memory.call_failed(Call::Create, error, self.now);
            }
        }
    }

    /// The driver answered to `initialize`. The VM keeps the identity it was created with.
    pub fn vm_initialized(&mut self, answer: Result<Vm, DriverError>) {
        let known = self.vm.vm().cloned().unwrap_or_default();
        let vm = match answer {
            Ok(mut vm) => {
                vm.addresses.extend(known.addresses);
                let last_known_state = vm.last_known_state.or(known.last_known_state);
                Vm { provider_id: known.provider_id, node_name: known.node_name, last_known_state, ..vm }
            }
            Err(error) if error.code == Code::Unimplemented => known,
            Err(error) => return self.memory.call_failed(Call::Initialize, error, self.now),
        };
        self.memory.call_succeeded(Call::Initialize);
        self.vm = VmView::Initialized(vm);
    }

    /// The driver answered to `delete`.
    pub fn vm_deleted(&mut self, answer: Result<Option<String>, DriverError>) {
        match answer {
            Err(error) if error.code != Code::NotFound => self.memory.call_failed(Call::Delete, error, self.now),
            Ok(_) | Err(_) => {
                self.memory.call_succeeded(Call::Delete);
                self.vm = VmView::Deleted;
            }
        }
    }

    /// A write to the Node succeeded; `node` is what it answered.
    pub fn node_written(&mut self, purpose: NodeWrite, node: NodeView) {
        self.memory.node_written(purpose);
        self.node = node;
    }

    /// A write to the Node failed, and neither because of a conflict nor because it is gone.
    pub fn node_failed(&mut self, purpose: NodeWrite, message: impl Into<String>) {
        self.memory.node_failed(purpose, message.into(), self.now);
    }

    /// The pods of the Node were listed, or could not be.
    pub fn pods_listed(&mut self, answer: Result<Vec<PodFacts>, String>) {
        self.pods = match answer {
            Ok(pods) => {
                self.memory.pods.retain(|uid, _| pods.iter().any(|pod| pod.pod.uid == *uid));
                PodsView::Listed(pods)
            }
            Err(message) => PodsView::Failed(message),
        };
    }

    /// The API server answered to an eviction or a delete.
    pub fn pod_called(&mut self, method: Method, pod: &PodRef, answer: PodCall) {
        match answer {
            PodCall::Gone => {
                self.memory.pods.remove(&pod.uid);
                if let PodsView::Listed(pods) = &mut self.pods {
                    pods.retain(|other| other.pod.uid != pod.uid);
                }
            }
            PodCall::Answered(answer) => {
                let before = self.memory.pods.get(&pod.uid).filter(|attempt| attempt.method == method);
                let count = before.map_or(0, |attempt| attempt.count).saturating_add(1);
                self.memory.pods.insert(pod.uid.clone(), Attempt { method, at: self.now, count, answer });
            }
        }
    }

    /// Completes a VM with what the Machine knows; a VM without identity is an error of the driver.
    fn identified(&mut self, mut vm: Vm, call: Call) -> Option<Vm> {
        if vm.provider_id.is_empty() {
            vm.provider_id = self.machine.spec.provider_id.clone();
        }
        if vm.node_name.is_empty() {
            vm.node_name = self.machine.node_name().unwrap_or_default().to_owned();
        }
        if vm.provider_id.is_empty() {
            let error = DriverError::new(Code::Internal, "the driver answered with a VM that has no provider ID");
            self.memory.call_failed(call, error, self.now);
            return None;
        }
        Some(vm)
    }

    pub(super) fn name(&self) -> &str {
        self.machine.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn has_target(&self) -> bool {
        self.node != NodeView::NoTarget
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.machine.metadata.deletion_timestamp.is_some()
    }

    /// The Node, unless it says that it belongs to another Machine.
    pub(super) fn own_node(&self) -> NodeView {
        match &self.node {
            NodeView::Present(node) if self.is_foreign(node) => NodeView::Absent,
            view => view.clone(),
        }
    }

    /// The VM has the name of a Node that another VM left behind, and would be taken for that one.
    pub(super) fn is_node_of_another_vm(&self, vm: &Vm) -> bool {
        let NodeView::Present(node) = &self.node else { return false };
        if node.metadata.name == self.machine.metadata.name {
            return false;
        }
        match node.spec.provider_id.as_str() {
            "" => {
                let born = node.metadata.creation_timestamp.as_ref();
                born.is_some_and(|time| time.0 < created_at(&self.machine))
            }
            id => last_segment(id) != last_segment(&vm.provider_id),
        }
    }

    fn is_foreign(&self, node: &Node) -> bool {
        let owner = node.metadata.labels.as_ref().and_then(|map| map.get(labels::MACHINE_NAME));
        owner.is_some_and(|owner| !owner.is_empty() && owner != self.name())
    }
}

/// IDs of one VM may differ in what stands before the last slash.
fn last_segment(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

impl VmView {
    /// The VM, if there is one for all that is known.
    pub fn vm(&self) -> Option<&Vm> {
        match self {
            Self::Found(vm) | Self::Uninitialized(vm) | Self::Created(vm) | Self::Initialized(vm) => Some(vm),
            Self::NotAsked | Self::NotFound | Self::Deleted => None,
        }
    }
}

impl SecretFacts {
    /// Reads merged Secret data.
    pub fn of(data: &SecretData, missing: Vec<String>) -> Self {
        let user_data = data.0.get("userData");
        Self {
            missing,
            has_user_data: user_data.is_some(),
            wants_token: user_data.is_some_and(|user_data| token::is_wanted(user_data)),
        }
    }
}
