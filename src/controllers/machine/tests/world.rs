//! An API server, a target cluster and a cloud in a few lines, with a simulated clock. The driver here creates a second
//! VM if it is called twice, so that the plan must not call twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use kube::core::ObjectMeta;
use serde_json::{Value, json};

use crate::{
    machine::{
        Action, ClassView, MachineCallResults, MachinePolicy, Memory, NodeLookup, NodeWrite, PodCall, RivalMachines,
        SecretFacts, Snapshot, TargetNodeView, VmCall, lint::lint, plan,
    },
    testing::{merge, merge_strategically},
};
use mcm_api::{
    labels,
    machine::{Machine, MachineClass, MachinePhase, MachineStatus},
    node::{AttachedVolume, Node},
    patch,
};
use mcm_driver::{Code, DriverCapabilities, DriverError, Vm};
use mcm_rules::{
    drain::{
        AttachmentState, ClaimFacts, ClaimRef, DrainAnswer, EvictionRefusal, PodFacts, PodRef, PodRemovalMethod,
        PodVolumeClaim, TrackedVolume,
    },
    plan::{Plan, Step},
    safety::{
        meltdown::{OutOfService, ReplacementPermit},
        node_claim::{self, NodeClaim},
        trust::TargetTrust,
    },
};

pub const UID: &str = "uid-1";

/// A fault at one action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process ends after it.
    Crash,
    /// It is done, and the answer is lost.
    LostReply,
    /// It is not done: a conflict, or the cloud is not available.
    Refused,
}

pub struct World {
    pub now: Timestamp,
    pub policy: MachinePolicy,
    pub machine: Option<Machine>,
    pub class: ClassView,
    pub nodes: BTreeMap<String, Node>,
    /// The cached Nodes, if the cache is behind.
    pub cached_nodes: Option<BTreeMap<String, Node>>,
    /// A live read of a Node fails.
    pub unreadable_nodes: Option<String>,
    pub trust: TargetTrust,
    pub rivals: Vec<Machine>,
    /// Of rivals that cannot be decoded.
    pub unreadable_rivals: Vec<ObjectMeta>,
    /// A rollout annotates the Nodes of its set.
    pub is_rolled_out: bool,
    /// False: there is no target cluster.
    pub has_target: bool,
    /// Provider ID to node name and time of birth.
    pub vms: BTreeMap<String, (String, Timestamp)>,
    /// The VM was initialised; until then the driver reports that, if it can initialise.
    pub is_initialized: bool,
    /// VMs ever made.
    pub births: usize,
    /// VMs become Nodes by themselves.
    pub boots: bool,
    pub pods: Vec<PodFacts>,
    /// The volumes of claims; the others do not exist.
    pub claims: BTreeMap<ClaimRef, ClaimFacts>,
    /// Volumes that are attached to other Nodes.
    pub elsewhere: BTreeSet<Arc<str>>,
    /// Volumes of the VolumeAttachments of the Node; `None` if these cannot be listed.
    pub volume_attachments: Option<BTreeSet<Arc<str>>>,
    /// How long the attach-detach controller takes to detach a volume, and to attach it elsewhere, in seconds.
    pub attach_detach: (i64, i64),
    /// Volumes that left the Node, with the time of the last change.
    leaving: BTreeMap<Arc<str>, Timestamp>,
    /// VolumeAttachments of the Node.
    pub attachments: usize,
    /// Pods that are never let go by the eviction API.
    pub stubborn: Option<EvictionRefusal>,
    pub secret: SecretFacts,
    pub memory: Memory,
    /// Faults, by the number of the action.
    pub faults: Vec<(usize, Fault)>,
    /// Driver calls that always fail.
    pub broken: BTreeMap<VmCall, DriverError>,
    /// Writes to Nodes that always fail.
    pub broken_nodes: Option<String>,
    /// Fields of the Machine that the API server refuses to write.
    pub refused: Vec<&'static str>,
    /// Name of the Node of a new VM.
    pub node_name: String,
    /// The API server refuses such patches of Nodes.
    pub refuses: Option<fn(&Value) -> bool>,
    /// Changes each Node after a write.
    pub webhook: Option<fn(&mut Node)>,
    /// No bootstrap token can be made.
    pub no_tokens: bool,
    /// IDs of the bootstrap tokens.
    pub tokens: BTreeSet<String>,
    pub census: Vec<Machine>,
    /// Machines whose permit was waived.
    pub waived: Vec<String>,
    /// Every action, by name, and the statuses written.
    pub log: Vec<String>,
    pub statuses: Vec<MachineStatus>,
    pub events: Vec<String>,
    pub machine_writes: usize,
    pub waits: Vec<String>,
    pub wake_at: Option<Timestamp>,
    /// Everything, for a reader.
    pub story: String,
    /// Its last lines of waits and state, which are not repeated.
    told: String,
    told_at: i64,
    /// A controller recreates the pods on the Node when they are deleted: they tolerate the cordon.
    pub comes_back: bool,
    pub returned: usize,
    actions: usize,
    version: usize,
}

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub fn ready() -> Value {
    json!([{ "type": "Ready", "status": "True" }, { "type": "DiskPressure", "status": "False" }])
}

pub fn unready() -> Value {
    json!([{ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown" }, { "type": "DiskPressure", "status": "False" }])
}

pub fn node(name: &str, conditions: Value) -> Node {
    serde_json::from_value(json!({
        "metadata": { "name": name, "uid": format!("node-{name}"), "creationTimestamp": at(5) },
        "status": { "conditions": conditions },
    }))
    .unwrap()
}

/// The Node, as it names the Machine of [`World::with_machine`].
pub fn own(mut node: Node) -> Node {
    let value = format!("ns/m/{UID}");
    node.annotations_mut().insert(labels::NODE_OF, value);
    node
}

pub fn pod(name: &str) -> PodFacts {
    PodFacts {
        pod: PodRef { namespace: "ns".to_owned(), name: name.to_owned(), uid: Arc::from(format!("pod-{name}")) },
        labels: BTreeMap::new(),
        is_mirror: false,
        is_daemon: false,
        is_finished: false,
        terminating_since: None,
        grace: SignedDuration::from_secs(30),
        priority: 0,
        claims: Vec::new(),
    }
}

impl World {
    /// A Machine as its set makes it, and nothing else.
    pub fn new() -> Self {
        Self::with_machine(json!({}), Value::Null)
    }

    /// A Machine with these changes to its metadata and spec (as a merge patch of the whole), and this status.
    pub fn with_machine(patch: Value, status: Value) -> Self {
        let mut value = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": "m", "namespace": "ns", "uid": UID, "resourceVersion": "1", "creationTimestamp": at(0),
                "labels": { "name": "pool" }, "finalizers": [labels::FINALIZER],
                "ownerReferences": [{ "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "pool-1",
                    "uid": "uid-of-set", "controller": true }],
            },
            "spec": { "class": { "kind": "MachineClass", "name": "c" } },
            "status": status,
        });
        merge(&mut value, &patch);
        let class: MachineClass = serde_json::from_value(json!({
            "metadata": { "name": "c", "namespace": "ns", "finalizers": [labels::FINALIZER] },
        }))
        .unwrap();
        let driver = DriverCapabilities { list: true, ..DriverCapabilities::default() };
        Self {
            now: at(10),
            policy: MachinePolicy::default(),
            machine: Some(serde_json::from_value(value).unwrap()),
            class: ClassView::Present { class: Arc::new(class), driver },
            nodes: BTreeMap::new(),
            cached_nodes: None,
            unreadable_nodes: None,
            trust: TargetTrust::default(),
            rivals: Vec::new(),
            unreadable_rivals: Vec::new(),
            is_rolled_out: false,
            has_target: true,
            vms: BTreeMap::new(),
            is_initialized: false,
            births: 0,
            boots: true,
            pods: Vec::new(),
            claims: BTreeMap::new(),
            elsewhere: BTreeSet::new(),
            volume_attachments: Some(BTreeSet::new()),
            attach_detach: (2, 2),
            leaving: BTreeMap::new(),
            attachments: 0,
            stubborn: None,
            secret: SecretFacts { has_user_data: true, ..SecretFacts::default() },
            memory: Memory::default(),
            faults: Vec::new(),
            broken: BTreeMap::new(),
            broken_nodes: None,
            refused: Vec::new(),
            node_name: "n".to_owned(),
            refuses: None,
            webhook: None,
            no_tokens: false,
            tokens: BTreeSet::new(),
            census: Vec::new(),
            waived: Vec::new(),
            log: Vec::new(),
            statuses: Vec::new(),
            events: Vec::new(),
            machine_writes: 0,
            waits: Vec::new(),
            wake_at: None,
            story: String::new(),
            told: String::new(),
            told_at: -1,
            comes_back: false,
            returned: 0,
            actions: 0,
            version: 1,
        }
    }

    /// A Machine that runs, with its VM and Node.
    pub fn running() -> Self {
        let mut world = Self::new();
        world.run_until(|world| world.phase() == MachinePhase::Running);
        world.settle();
        world.log.clear();
        world.statuses.clear();
        world.events.clear();
        world.machine_writes = 0;
        world
    }

    pub fn can_initialize(mut self) -> Self {
        if let ClassView::Present { driver, .. } = &mut self.class {
            driver.initialize = true;
        }
        self
    }

    pub fn machine(&self) -> &Machine {
        self.machine.as_ref().unwrap()
    }

    pub fn phase(&self) -> MachinePhase {
        self.machine.as_ref().map(Machine::phase).unwrap_or_default()
    }

    pub fn status(&self) -> MachineStatus {
        self.machine().status.clone().unwrap_or_default()
    }

    pub fn description(&self) -> String {
        self.status().last_operation.description
    }

    pub fn descriptions(&self) -> Vec<&str> {
        self.statuses.iter().map(|status| status.last_operation.description.as_str()).collect()
    }

    pub fn actions(&self) -> usize {
        self.actions
    }

    /// Changes the Machine as another client.
    pub fn edit(&mut self, change: impl FnOnce(&mut Machine)) {
        change(self.machine.as_mut().unwrap());
        self.touch();
    }

    pub fn edit_status(&mut self, change: impl FnOnce(&mut MachineStatus)) {
        self.edit(|machine| change(machine.status.get_or_insert_default()));
    }

    /// A user annotates the Machine.
    pub fn annotate(&mut self, key: &str, value: &str) {
        self.edit(|machine| {
            machine.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        });
    }

    /// A user annotates its Node.
    pub fn annotate_node(&mut self, key: &str, value: &str) {
        for node in self.nodes.values_mut() {
            node.annotations_mut().insert(key, value);
        }
    }

    pub fn delete(&mut self) {
        let now = self.now;
        self.edit(|machine| machine.metadata.deletion_timestamp = Some(now.into()));
    }

    pub fn set_conditions(&mut self, conditions: Value) {
        for node in self.nodes.values_mut() {
            node.status.conditions = serde_json::from_value(conditions.clone()).unwrap();
        }
    }

    pub fn sleep(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    /// Reconciles until a condition holds; time advances to the next wake-up of the plan, or by a second.
    pub fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..500 {
            if done(self) {
                return;
            }
            self.pass();
            self.pass_time();
        }
        panic!("did not get there; waiting for {:?}; did {:?}", self.waits, self.log);
    }

    /// Passes without time going on, until there is nothing to do.
    pub fn settle(&mut self) {
        for _ in 0..10 {
            let before = self.actions;
            self.pass();
            if self.actions == before {
                return;
            }
        }
        panic!("does not come to rest: {:?}", self.log);
    }

    fn pass_time(&mut self) {
        let second = self.now.checked_add(SignedDuration::from_secs(1)).unwrap();
        let is_world_busy = !self.leaving.is_empty()
            || self.pods.iter().any(|pod| pod.terminating_since.is_some())
            || (self.boots && self.vms.len() > self.nodes.len());
        self.now = match self.wake_at {
            Some(wake) if !is_world_busy => wake.max(second),
            _ => second,
        };
        self.tick();
    }

    /// The events of the world: VMs boot, pods end.
    fn tick(&mut self) {
        let now = self.now;
        if self.boots && self.has_target {
            for (id, (name, born)) in &self.vms {
                if now.duration_since(*born).as_secs() >= 2 && !self.nodes.contains_key(name) {
                    let mut node = node(name, ready());
                    node.spec.provider_id = id.clone();
                    self.nodes.insert(name.clone(), node);
                }
            }
        }
        let pods = self.pods.len();
        self.pods.retain(|pod| pod.terminating_since.is_none_or(|since| now.duration_since(since).as_secs() < 3));
        self.move_volumes();
        for _ in self.pods.len()..if self.comes_back { pods } else { 0 } {
            self.returned += 1;
            self.pods.push(pod(&format!("back-{}", self.returned)));
        }
    }

    /// A pod with claims, whose volumes are attached to the Node. The volume of a claim has its name.
    pub fn add_pod_with_volumes(&mut self, name: &str, priority: i32, claims: &[&str]) {
        let mut added = pod(name);
        added.priority = priority;
        for claim in claims {
            added.claims.push(PodVolumeClaim { name: (*claim).to_owned(), is_ephemeral: false });
            let volume = TrackedVolume { name: Arc::from(*claim), id: Arc::from(format!("id-{claim}")) };
            let claim = ClaimRef { namespace: added.pod.namespace.clone(), name: (*claim).to_owned() };
            let name = format!("kubernetes.io/csi/driver^{}", volume.id);
            let attached = &mut self.nodes.get_mut("n").unwrap().status.volumes_attached;
            if !attached.iter().any(|volume| volume.name == name) {
                attached.push(AttachedVolume { name });
            }
            self.claims.insert(claim, ClaimFacts::Volume(volume));
        }
        self.pods.push(added);
    }

    /// Volumes that no pod uses are detached, and attached where the next pod runs.
    fn move_volumes(&mut self) {
        let (now, (detach, attach)) = (self.now, self.attach_detach);
        let used: BTreeSet<&str> =
            self.pods.iter().flat_map(|pod| pod.claims.iter().map(|claim| claim.name.as_str())).collect();
        let Some(node) = self.nodes.get_mut("n") else { return };
        for facts in self.claims.values() {
            let ClaimFacts::Volume(volume) = facts else { continue };
            if used.contains(&*volume.name) || self.elsewhere.contains(&volume.name) {
                continue;
            }
            let since = *self.leaving.entry(Arc::clone(&volume.name)).or_insert(now);
            let elapsed = now.duration_since(since).as_secs();
            if elapsed >= detach {
                node.status.volumes_attached.retain(|attached| !attached.name.ends_with(&*volume.id));
            }
            if elapsed >= detach + attach {
                self.leaving.remove(&volume.name);
                self.elsewhere.insert(Arc::clone(&volume.name));
            }
        }
    }

    /// The snapshot of the next reconcile.
    pub fn snapshot(&self) -> Snapshot {
        let (machine, class, trust) = (Arc::new(self.machine().clone()), self.class.clone(), self.trust.clone());
        let mut snapshot =
            Snapshot::new(machine, class, trust, MachineCallResults::default(), self.memory.clone(), self.now);
        snapshot.other_node = self.other_node(&snapshot.machine);
        let node = self.look_up(&snapshot.node_key());
        snapshot.with_node(node, self.rivals())
    }

    fn rivals(&self) -> RivalMachines {
        RivalMachines {
            readable: self.rivals.iter().cloned().map(Arc::new).collect(),
            unreadable: self.unreadable_rivals.clone(),
        }
    }

    /// One pass: plan and act until there is nothing to do. Memory survives it unless the process crashes.
    pub fn pass(&mut self) {
        let Some(machine) = self.machine.clone() else { return };
        let memory = std::mem::take(&mut self.memory);
        let machine = Arc::new(machine);
        let mut snapshot = Snapshot::new(
            machine,
            self.class.clone(),
            self.trust.clone(),
            MachineCallResults::default(),
            memory,
            self.now,
        );
        for _ in 0..60 {
            let node = self.look_up(&snapshot.node_key());
            snapshot.other_node = self.other_node(&snapshot.machine);
            snapshot = snapshot.with_node(node, self.rivals());
            (snapshot.now, snapshot.is_rolled_out) = (self.now, self.is_rolled_out);
            let plan = plan(&snapshot, &self.policy);
            assert_eq!(lint(&snapshot, &self.policy, &plan.steps), [], "{plan}");
            self.tell(&plan);
            if plan.steps.is_empty() {
                self.waits = plan.waits.iter().map(|wait| wait.text.clone()).collect();
                self.wake_at = plan.requeue_at();
                assert!(self.wake_at.is_none_or(|at| at > self.now), "would spin: {:?}", self.waits);
                self.memory = snapshot.memory;
                return;
            }
            for step in plan.steps {
                self.actions += 1;
                let fault = self.faults.iter().find(|(nth, _)| *nth == self.actions).map(|(_, fault)| *fault);
                let goes_on = self.execute(&mut snapshot, step, fault);
                self.check();
                if fault == Some(Fault::Crash) {
                    self.wake_at = None;
                    return;
                }
                if !goes_on {
                    self.story.push_str("  (the answer does not come, or is a conflict)\n");
                    self.memory = snapshot.memory;
                    self.wake_at = None;
                    return;
                }
            }
        }
        panic!("a pass without end: {:?}", self.log);
    }

    /// Records the steps with their reasons, the waits, and the state of the world.
    fn tell(&mut self, plan: &Plan<Action>) {
        let time = self.now.duration_since(at(0)).as_secs();
        let head = if self.told_at == time { String::new() } else { format!("{time}s\n") };
        if plan.steps.is_empty() {
            let waits: String = plan.waits.iter().map(|wait| format!("  waiting for {}\n", wait.text)).collect();
            let told = format!("{waits}  = {}\n", self.state());
            if told != self.told {
                self.story.push_str(&format!("{head}{told}"));
                self.told_at = time;
                self.told = told;
            }
            return;
        }
        self.story.push_str(&head);
        self.told_at = time;
        for step in &plan.steps {
            self.story.push_str(&format!("  {}\n      because {}\n", step.action, step.reason));
            if let Some(event) = &step.event {
                let kind = if event.warning { "warning" } else { "event" };
                self.story.push_str(&format!("      {kind} {}: {}\n", event.reason, event.message));
            }
        }
    }

    fn state(&self) -> String {
        let machine =
            self.machine.as_ref().map_or_else(|| "gone".to_owned(), |machine| machine.phase().as_str().to_owned());
        let kept = self.machine.as_ref().and_then(Machine::preserve_expiry);
        let kept = kept.map(|until| format!(" (kept until {}s)", until.duration_since(at(0)).as_secs()));
        let machine = machine + &kept.unwrap_or_default();
        let vms: Vec<&str> = self.vms.keys().map(String::as_str).collect();
        let node = |node: &Node| {
            let ready = node.status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
            let cordoned = if node.spec.unschedulable { ", cordoned" } else { "" };
            let is_tainted = node.spec.taints.iter().any(|taint| taint.key == labels::PRESERVED_TAINT);
            let tainted = if is_tainted { ", tainted" } else { "" };
            let preserved = node.status.conditions.iter().find(|it| it.type_ == "Preserved");
            let preserved = preserved.and_then(|it| it.message.as_deref());
            let preserved = preserved.map(|message| format!(", Preserved: {message:?}")).unwrap_or_default();
            format!("{}{cordoned}{tainted}{preserved}", if ready { "ready" } else { "not ready" })
        };
        let pod = |pod: &PodFacts| {
            let going = if pod.terminating_since.is_some() { " (terminating)" } else { "" };
            format!("{}{going}", pod.pod.name)
        };
        let list = |texts: Vec<String>| if texts.is_empty() { "none".to_owned() } else { texts.join(", ") };
        format!(
            "machine {}; VM {}; node {}; pods {}",
            if machine.is_empty() { "new" } else { &machine },
            list(vms.into_iter().map(str::to_owned).collect()),
            list(self.nodes.values().map(node).collect()),
            list(self.pods.iter().map(pod).collect()),
        )
    }

    fn check(&self) {
        assert!(self.vms.len() <= 1, "two VMs for one Machine: {:?}", self.log);
        assert!(self.machine.is_some() || self.vms.is_empty(), "a VM was forgotten: {:?}", self.log);
    }

    fn look_up(&self, key: &NodeLookup) -> TargetNodeView {
        if !self.has_target {
            return TargetNodeView::NoTarget;
        }
        Self::found(self.cached_nodes.as_ref().unwrap_or(&self.nodes), key)
            .map_or(TargetNodeView::Missing, |node| TargetNodeView::Present(Arc::new(node)))
    }

    /// As the executor finds it.
    fn other_node(&self, machine: &Machine) -> Option<Arc<Node>> {
        let nodes = self.cached_nodes.as_ref().unwrap_or(&self.nodes);
        let is_ready = |node: &Node| node.status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
        let named = machine.node_name().filter(|_| self.has_target)?;
        let is_other = |node: &&Node| node.metadata.name.as_deref() != Some(named);
        let is_its = |node: &&Node| {
            let is_former = machine.metadata.deletion_timestamp.is_some() && NodeClaim::is_stored(node, machine);
            is_former || node_claim::has_named_vm(node, machine)
        };
        let is_fine = |node: &Node| is_ready(node) && NodeClaim::is_stored(node, machine);
        let others = nodes.values().filter(|_| !nodes.get(named).is_some_and(is_fine));
        others.filter(is_other).find(is_its).map(|node| Arc::new(node.clone()))
    }

    fn found(nodes: &BTreeMap<String, Node>, key: &NodeLookup) -> Option<Node> {
        let of_machine = |name: &str| {
            nodes.values().find(|node| node.labels().get(labels::MACHINE_NAME).is_some_and(|owner| owner == name))
        };
        let found = match key {
            NodeLookup::Name(name) => nodes.get(name),
            NodeLookup::OfMachine(name) => of_machine(name),
        };
        found.cloned()
    }

    /// False if the pass has to end.
    fn execute(&mut self, snapshot: &mut Snapshot, step: Step<Action>, fault: Option<Fault>) -> bool {
        let Step { action, event, .. } = step;
        let debug = format!("{action:?}");
        self.log.push(debug.split(['(', ' ', '{']).next().unwrap_or_default().to_owned());
        if let Action::PatchMachine(patch) = &action
            && let Some(field) = self.refused.iter().find(|field| patch::fields(patch).contains(**field))
        {
            snapshot.machine_refused(patch, format!("{field}: Invalid value"));
            return true;
        }
        self.events.extend(event.map(|note| note.reason.to_string()));
        let is_done = fault != Some(Fault::Refused);
        let is_lost = matches!(fault, Some(Fault::Refused | Fault::LostReply));
        let lost = || DriverError::new(Code::DeadlineExceeded, "no answer");
        match action {
            Action::ReadSecret if is_lost => snapshot.secret_read(Err("no answer".to_owned())),
            Action::ReadSecret => snapshot.secret_read(Ok(self.secret.clone())),
            Action::GetVmStatus => {
                let answer = self.ask();
                snapshot.vm_status(if is_lost { Err(lost()) } else { answer });
            }
            Action::CreateVm => {
                let answer = if is_done { self.create() } else { Err(lost()) };
                snapshot.vm_created(if is_lost { Err(lost()) } else { answer });
            }
            Action::InitializeVm => {
                self.is_initialized |= is_done && !self.broken.contains_key(&VmCall::Initialize);
                let answer = self.broken.get(&VmCall::Initialize).cloned().map_or_else(|| self.ask(), Err);
                snapshot.vm_initialized(if is_lost { Err(lost()) } else { answer });
            }
            Action::DeleteVm => {
                let answer = if is_done { self.delete_vms(&snapshot.machine) } else { Err(lost()) };
                snapshot.vm_deleted(if is_lost { Err(lost()) } else { answer });
            }
            Action::PatchMachine(patch) => {
                let base = snapshot.machine.clone();
                snapshot.machine_written(&patch);
                return self.write_machine(snapshot, is_done, is_lost, |stored| patched(stored, &base, &patch));
            }
            Action::WriteStatus(status) => {
                let base = snapshot.machine.clone();
                return self.write_machine(snapshot, is_done, is_lost, |stored| {
                    let is_current = stored.metadata.resource_version == base.metadata.resource_version;
                    is_current.then(|| Machine { status: Some(*status), ..stored.clone() })
                });
            }
            Action::PatchNode { node, patch, purpose }
            | Action::StrategicPatchNode { node, patch, purpose }
            | Action::PatchNodeStatus { node, patch, purpose } => {
                if self.refuses.is_some_and(|refuses| refuses(&patch)) {
                    snapshot.node_refused(purpose, "it is invalid");
                    return true;
                }
                if let Some(error) = &self.broken_nodes {
                    snapshot.node_failed(purpose, error.clone());
                    return true;
                }
                let name = node.metadata.name.clone().unwrap();
                if is_done && let Some(stored) = self.nodes.get_mut(&name) {
                    let mut value = json!(stored);
                    merge_strategically(&mut value, &patch);
                    *stored = serde_json::from_value(value).unwrap();
                    self.webhook.iter().for_each(|change| change(stored));
                }
                self.write_through(&name);
                snapshot.node_patched(purpose, &patch);
                return !is_lost;
            }
            Action::DeleteNode(node) => {
                if is_done {
                    assert_eq!(node.metadata.finalizers.as_deref().unwrap_or_default().len(), 0);
                    self.nodes.remove(node.metadata.name.as_deref().unwrap());
                    self.write_through(node.metadata.name.as_deref().unwrap());
                    snapshot.node_gone();
                }
                return !is_lost;
            }
            Action::EnsureBootstrapToken(token) => {
                let is_made = is_done && !self.no_tokens;
                self.tokens.extend(is_made.then_some(token.id));
                let is_told = is_made && !is_lost;
                snapshot.token_ensured(if is_told { Ok(()) } else { Err("no answer".to_owned()) });
            }
            Action::GetNode(key) => {
                let failure = is_lost.then(|| "no answer".to_owned()).or_else(|| self.unreadable_nodes.clone());
                let found = Self::found(&self.nodes, &key);
                if let (None, Some(node), Some(cached)) = (&failure, &found, &mut self.cached_nodes) {
                    cached.insert(node.metadata.name.clone().unwrap(), node.clone());
                }
                snapshot.node_was_read(key, failure.map_or(Ok(found.is_some()), Err));
            }
            Action::DeleteBootstrapToken { id } if is_done => {
                self.tokens.remove(&id);
                snapshot.token_deleted();
            }
            Action::DeleteBootstrapToken { .. } => {}
            Action::ListPods { .. } if is_lost => {
                snapshot.pods_listed(Err("no answer".to_owned()), AttachmentState::default());
            }
            Action::ListPods { .. } => {
                let (here, elsewhere) = (self.volume_attachments.clone(), self.elsewhere.clone());
                let attachments = AttachmentState { here, elsewhere, ..AttachmentState::default() };
                snapshot.pods_listed(Ok(self.pods.clone()), attachments);
            }
            Action::ReadVolumes(claims) if is_lost => {
                snapshot.volumes_read(claims.into_iter().map(|claim| (claim, Err("no answer".to_owned()))).collect());
            }
            Action::ReadVolumes(claims) => {
                let read = |claim: ClaimRef| {
                    let ignored =
                        || ClaimFacts::Ignored { reason: "the claim does not exist".to_owned(), volume: None };
                    (claim.clone(), Ok(self.claims.get(&claim).cloned().unwrap_or_else(ignored)))
                };
                snapshot.volumes_read(claims.into_iter().map(read).collect());
            }
            Action::DetachVolumes { .. } if is_lost => {
                snapshot.node_failed(NodeWrite::DetachVolumes, "no answer");
            }
            Action::DetachVolumes { node } => {
                let count = std::mem::take(&mut self.attachments);
                self.nodes.get_mut(&node).unwrap().status.volumes_attached.clear();
                snapshot.volumes_detached(count);
            }
            Action::EvictPod(pod) => self.evict(snapshot, &pod, is_done, is_lost),
            Action::DeletePod(pod) => {
                if is_done {
                    self.pods.retain(|other| other.pod != pod);
                }
                let answer = if is_lost { DrainAnswer::Failed("no answer".to_owned()) } else { DrainAnswer::Accepted };
                snapshot.pod_called(PodRemovalMethod::Delete, &pod, PodCall::Answered(answer));
            }
            Action::WaivePermit(machine) => self.waived.push(machine.metadata.name.clone().unwrap()),
            Action::LookAtPermit(keys) => {
                let groups = keys.iter().map(|key| OutOfService::for_key(key, &self.census));
                snapshot.learned.permit =
                    ReplacementPermit::Held(groups.collect()).seen(&self.policy.unhealthy_replacements);
            }
            Action::TakePermit(keys) => {
                let groups = keys.iter().map(|key| OutOfService::for_key(key, &self.census));
                snapshot.learned.permit = ReplacementPermit::Held(groups.collect());
            }
        }
        true
    }

    /// Stores the response of a write in the cache.
    fn write_through(&mut self, name: &str) {
        let node = self.nodes.get(name).cloned();
        if let Some(cached) = &mut self.cached_nodes {
            cached.remove(name);
            cached.extend(node.map(|node| (name.to_owned(), node)));
        }
    }

    fn evict(&mut self, snapshot: &mut Snapshot, pod: &PodRef, is_done: bool, is_lost: bool) {
        let answer = match &self.stubborn {
            Some(refusal) => DrainAnswer::Refused(refusal.clone()),
            None => {
                let now = self.now;
                for other in self.pods.iter_mut().filter(|other| is_done && other.pod == *pod) {
                    other.terminating_since = Some(now);
                }
                DrainAnswer::Accepted
            }
        };
        let answer = if is_lost { DrainAnswer::Failed("no answer".to_owned()) } else { answer };
        snapshot.pod_called(PodRemovalMethod::Evict, pod, PodCall::Answered(answer));
    }

    fn write_machine(
        &mut self,
        snapshot: &mut Snapshot,
        is_done: bool,
        is_lost: bool,
        change: impl FnOnce(&Machine) -> Option<Machine>,
    ) -> bool {
        self.machine_writes += 1;
        if !is_done {
            return false;
        }
        let Some(mut written) = self.machine.as_ref().and_then(change) else { return false };
        self.version += 1;
        written.metadata.resource_version = Some(self.version.to_string());
        if written.status != self.machine.as_ref().and_then(|machine| machine.status.clone()) {
            self.statuses.extend(written.status.clone());
        }
        let is_free = written.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        let is_gone = written.metadata.deletion_timestamp.is_some() && is_free;
        self.machine = (!is_gone).then(|| written.clone());
        snapshot.status_written(Arc::new(written));
        !is_lost
    }

    fn touch(&mut self) {
        self.version += 1;
        let version = self.version.to_string();
        self.machine.as_mut().unwrap().metadata.resource_version = Some(version);
    }

    fn initializes(&self) -> bool {
        matches!(&self.class, ClassView::Present { driver, .. } if driver.initialize)
    }

    fn ask(&self) -> Result<Vm, DriverError> {
        if let Some(error) = self.broken.get(&VmCall::Status) {
            return Err(error.clone());
        }
        match self.vms.first_key_value() {
            Some((id, (name, _))) if self.initializes() && !self.is_initialized => {
                let vm = Some(Box::new(vm(id, name)));
                Err(DriverError { vm, ..DriverError::new(Code::Uninitialized, "half a VM") })
            }
            Some((id, (name, _))) => Ok(vm(id, name)),
            None => Err(DriverError::new(Code::NotFound, "no such VM")),
        }
    }

    fn create(&mut self) -> Result<Vm, DriverError> {
        if let Some(error) = self.broken.get(&VmCall::Create) {
            return Err(error.clone());
        }
        self.births += 1;
        let id = format!("cloud:///{}", self.births);
        self.vms.insert(id.clone(), (self.node_name.clone(), self.now));
        Ok(vm(&id, &self.node_name))
    }

    fn delete_vms(&mut self, machine: &Machine) -> Result<Option<String>, DriverError> {
        if let Some(error) = self.broken.get(&VmCall::Delete) {
            return Err(error.clone());
        }
        let before = self.vms.len();
        let id = &machine.spec.provider_id;
        self.vms.retain(|other, _| !id.is_empty() && other != id);
        match before == self.vms.len() {
            true => Err(DriverError::new(Code::NotFound, "no such VM")),
            false => Ok(None),
        }
    }
}

fn vm(id: &str, name: &str) -> Vm {
    Vm { provider_id: id.to_owned(), node_name: name.to_owned(), ..Vm::default() }
}

fn patched(stored: &Machine, base: &Machine, patch: &Value) -> Option<Machine> {
    if stored.metadata.resource_version != base.metadata.resource_version {
        return None;
    }
    let mut value = json!(stored);
    merge(&mut value, patch);
    serde_json::from_value(value).ok()
}
