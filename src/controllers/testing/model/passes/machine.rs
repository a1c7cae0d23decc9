//! As `machine::reconcile`.

use std::{collections::VecDeque, sync::Arc};

use kube::ResourceExt;

use super::super::{
    Model,
    cluster::Cluster,
    manager::{Controller, Manager, Next},
};
use crate::{
    api::{machine::MachineStatus, node::Node},
    controllers::{
        context::{machines_by, nodes_by},
        controller::{ROUNDS, Wake},
        machine::{Action, ClassView, NodeKey, NodeView, NodeWrite, PodCall, SecretFacts, Snapshot, TokenView, plan},
        plan::Step,
    },
    drain::{Answer, Method},
    driver::Capabilities,
    runtime::{cache::Key, objects::WriteFailure},
    safety::meltdown::{Census, Permit},
};

pub(in super::super) struct Pass {
    key: Key,
    pub snapshot: Snapshot,
    steps: VecDeque<Step<Action>>,
    rounds: usize,
    /// In this pass the driver said that there is no VM, and nothing was done about it since.
    pub knows_of_no_vm: bool,
}

impl Pass {
    /// `None` if there is nothing to look after.
    pub(in super::super) fn begin(key: Key, manager: &Manager) -> Option<Self> {
        let Some(machine) = manager.caches.machines.get(&key) else {
            manager.memory.machines.forget(&key);
            return None;
        };
        let memory = manager.memory.machines.get(&key);
        let class = observe_class(manager, &key, &machine.spec.class.name);
        let snapshot = Snapshot::new(machine, NodeView::Unknown, class, memory, jiff::Timestamp::UNIX_EPOCH);
        Some(Self { key, snapshot, steps: VecDeque::new(), rounds: 0, knows_of_no_vm: false })
    }

    pub(in super::super) fn advance(&mut self, model: &mut Model) -> Next {
        let next = self.go_on(model);
        if !matches!(next, Next::GoesOn) {
            model.manager.permits.retain(|_, holder| *holder != self.key.name);
            model.manager.memory.machines.set(&self.key, self.snapshot.memory.clone());
        }
        next
    }

    fn go_on(&mut self, model: &mut Model) -> Next {
        if self.snapshot.memory.is_in_doubt {
            return self.read_again(model);
        }
        if let Some(step) = self.steps.pop_front() {
            model.say_step(Controller::Machine, &self.key, &format!("{}: {}", verb(&step.action), step.reason));
            return match self.apply(model, step.action) {
                Ok(()) => Next::GoesOn,
                Err(failure) => {
                    self.snapshot.memory.is_in_doubt = failure == WriteFailure::Unknown;
                    Next::Failed(failure)
                }
            };
        }
        let meta = &self.snapshot.machine.metadata;
        if meta.deletion_timestamp.is_some() && meta.finalizers.as_ref().is_none_or(Vec::is_empty) {
            return Next::Done(Wake::OnChange);
        }
        self.rounds += 1;
        if self.rounds > 2 * ROUNDS {
            return model.restless(Controller::Machine, &self.key);
        }
        self.snapshot.now = model.now();
        if let ClassView::Present { driver, .. } = &mut self.snapshot.class {
            *driver = model.cloud.capabilities();
        }
        self.snapshot.node = observe_node(&model.manager, &self.snapshot);
        let plan = plan(&self.snapshot, &model.machine_policy);
        if plan.steps.is_empty() {
            model.judge_machine(&self.snapshot, &plan.waits);
            return Next::Done(plan.wake_at().into());
        }
        self.steps = plan.steps.into();
        Next::GoesOn
    }

    fn read_again(&mut self, model: &mut Model) -> Next {
        let cache = Arc::clone(&model.manager.caches.machines);
        let Ok(found) = model.read(|cluster| cluster.machines.get(&self.key.name).cloned()) else {
            return Next::Failed(WriteFailure::Unknown);
        };
        self.snapshot.memory.is_in_doubt = false;
        match found {
            Some(machine) => {
                self.snapshot.machine = cache.wrote(machine.as_ref().clone());
                Next::GoesOn
            }
            None => {
                cache.removed(&self.key, &self.snapshot.machine.uid().unwrap());
                Next::Done(Wake::OnChange)
            }
        }
    }

    fn apply(&mut self, model: &mut Model, action: Action) -> Result<(), WriteFailure> {
        match action {
            Action::PatchMachine(patch) => {
                let seen = Arc::clone(&self.snapshot.machine);
                let cache = Arc::clone(&model.manager.caches.machines);
                let written =
                    model.write(Cluster::machines, seen.as_ref(), |kind, clock| kind.patch(clock, &seen, &patch))?;
                self.snapshot.machine = cache.wrote(written.as_ref().clone());
            }
            Action::WriteStatus(status) => self.write_status(model, &status)?,
            Action::ReadSecret => {
                let facts = SecretFacts { missing: Vec::new(), has_user_data: true, wants_token: true };
                let answer = model.read(|_| facts).map_err(|_| "no answer".to_owned());
                self.snapshot.secret_read(answer);
            }
            Action::AskVm | Action::CreateVm | Action::InitializeVm | Action::DeleteVm => {
                self.call_driver(model, &action)
            }
            Action::PatchNode { node, patch, purpose } => {
                let answer = model.write(Cluster::nodes, node.as_ref(), |kind, clock| kind.patch(clock, &node, &patch));
                self.node_written(model, purpose, answer)?;
            }
            Action::AmendNode { node, patch, purpose } | Action::PatchNodeStatus { node, patch, purpose } => {
                let answer = model.write(Cluster::nodes, node.as_ref(), |kind, clock| kind.amend(clock, &node, &patch));
                self.node_written(model, purpose, answer)?;
            }
            Action::DeleteNode(node) => self.delete_node(model, &node)?,
            Action::EnsureBootstrapToken(_) => {
                self.snapshot.token = match model.read(|_| ()) {
                    Ok(()) => TokenView::Ensured,
                    Err(_) => TokenView::Failed("no answer".to_owned()),
                };
            }
            Action::DeleteBootstrapToken { .. } => drop(model.read(|_| ())),
            Action::ListPods { node } => {
                let pods = model.cloud.pods.get(&node).cloned().unwrap_or_default();
                let answer = model.read(|_| pods).map_err(|_| "no answer".to_owned());
                self.snapshot.pods_listed(answer);
            }
            Action::EvictPod(pod) => {
                let answer = model.evict(&pod);
                self.snapshot.pod_called(Method::Evict, &pod, answer);
            }
            Action::DeletePod(pod) => {
                let answer = match model.read(|_| ()) {
                    Ok(()) => {
                        model.cloud.remove_pod(&pod.uid);
                        PodCall::Answered(Answer::Accepted)
                    }
                    Err(_) => PodCall::Answered(Answer::Failed("no answer".to_owned())),
                };
                self.snapshot.pod_called(Method::Delete, &pod, answer);
            }
            Action::TakePermit { key } => self.take_permit(model, &key),
        }
        Ok(())
    }

    fn write_status(&mut self, model: &mut Model, status: &MachineStatus) -> Result<(), WriteFailure> {
        let seen = Arc::clone(&self.snapshot.machine);
        let cache = Arc::clone(&model.manager.caches.machines);
        let written =
            model.write(Cluster::machines, seen.as_ref(), |kind, clock| kind.patch_status(clock, &seen, status))?;
        self.snapshot.machine = cache.wrote(written.as_ref().clone());
        Ok(())
    }

    fn call_driver(&mut self, model: &mut Model, action: &Action) {
        let ClassView::Present { .. } = &self.snapshot.class else { return };
        let machine = Arc::clone(&self.snapshot.machine);
        match action {
            Action::AskVm => {
                let answer = model.ask_vm(&machine);
                self.knows_of_no_vm = answer.as_ref().is_err_and(|error| error.code == crate::driver::Code::NotFound);
                self.snapshot.vm_asked(answer);
            }
            Action::CreateVm => {
                model.must(self.knows_of_no_vm, || format!("a VM for {} is made without looking for it", self.key));
                self.knows_of_no_vm = false;
                let answer = model.create_vm(&machine);
                self.snapshot.vm_created(answer);
            }
            Action::InitializeVm => {
                let answer = model.initialize_vm(&machine);
                self.snapshot.vm_initialized(answer);
            }
            _ => {
                self.knows_of_no_vm = false;
                let answer = model.delete_vm(&machine);
                self.snapshot.vm_deleted(answer);
            }
        }
    }

    fn node_written(
        &mut self,
        model: &Model,
        purpose: NodeWrite,
        answer: Result<Arc<Node>, WriteFailure>,
    ) -> Result<(), WriteFailure> {
        match answer {
            Ok(node) => {
                let node = model.manager.caches.nodes.wrote(node.as_ref().clone());
                self.snapshot.node_written(purpose, NodeView::Present(node));
            }
            Err(WriteFailure::Conflict) => return Err(WriteFailure::Conflict),
            Err(WriteFailure::Gone) => self.snapshot.node = NodeView::Absent,
            Err(_) => self.snapshot.node_failed(purpose, "no answer"),
        }
        Ok(())
    }

    fn delete_node(&mut self, model: &mut Model, node: &Arc<Node>) -> Result<(), WriteFailure> {
        let cache = Arc::clone(&model.manager.caches.nodes);
        model.check_node_deletion(&self.snapshot.machine, node);
        match model.delete(Cluster::nodes, &cache, node) {
            Ok(()) => {
                let left = cache.get(&Key::of(&node.metadata)).filter(|left| left.uid() == node.uid());
                self.snapshot.node_written(NodeWrite::Delete, left.map_or(NodeView::Absent, NodeView::Present));
            }
            Err(WriteFailure::Gone | WriteFailure::Conflict) => {
                self.snapshot.node_written(NodeWrite::Delete, NodeView::Absent);
                cache.removed(&Key::of(&node.metadata), &node.uid().unwrap());
            }
            Err(_) => self.snapshot.node_failed(NodeWrite::Delete, "no answer"),
        }
        Ok(())
    }

    fn take_permit(&mut self, model: &mut Model, key: &str) {
        let holder = model.manager.permits.entry(key.to_owned()).or_insert_with(|| self.key.name.clone());
        self.snapshot.permit = if *holder == self.key.name {
            let siblings = model.manager.caches.machines.by(machines_by::DEPLOYMENT, key);
            Permit::Held(Census::of(siblings.iter().map(AsRef::as_ref)))
        } else {
            Permit::Refused { by: holder.clone() }
        };
    }
}

fn observe_class(manager: &Manager, key: &Key, name: &str) -> ClassView {
    match manager.caches.classes.get(&Key::new(&key.namespace, name)) {
        Some(class) => ClassView::Present { class, driver: Capabilities::default() },
        None => ClassView::Missing,
    }
}

fn observe_node(manager: &Manager, snapshot: &Snapshot) -> NodeView {
    let nodes = &manager.caches.nodes;
    let found = match snapshot.node_key() {
        NodeKey::Name(name) => nodes.get(&Key::new("", name)),
        NodeKey::OfMachine(name) => nodes.by(nodes_by::MACHINE, &name).into_iter().next(),
    };
    found.map_or(NodeView::Absent, NodeView::Present)
}

fn verb(action: &Action) -> String {
    match action {
        Action::WriteStatus(status) => {
            let phase = status.current_status.phase.as_str();
            format!("write status [{phase}] {:?}", status.last_operation.description)
        }
        Action::PatchMachine(patch) => format!("patch {patch}"),
        Action::PatchNode { patch, .. } | Action::AmendNode { patch, .. } => format!("patch node {patch}"),
        Action::EvictPod(pod) => format!("evict {pod}"),
        Action::DeletePod(pod) => format!("delete pod {pod}"),
        other => {
            let text = format!("{other:?}");
            text.split(['(', ' ', '{']).next().unwrap_or_default().to_owned()
        }
    }
}
