//! Why objects do or do not progress: from the objects and the plans for them to the answer. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::OnceLock,
};

use jiff::Timestamp;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    budget::BudgetState,
    memory::{Memory, RememberedWait},
    place::CallTarget,
    terminal::short,
    wording::{NEVER, cleaned},
};
use mcm_api::{
    kinds::{self, MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, MCM_MACHINES, NODES, ResourceKind},
    labels,
    machine::{GROUP, Machine, MachineClass, MachineDeployment, MachinePhase, MachineSet},
};
use mcm_controllers::object::authority;
use mcm_rules::plan::{
    PlanPreview, PreviewStep, SubjectRef, Wait, WaitKind,
    guide::{WaitEnd, WaitRemedy},
    shell::{CallFlags, resource_name},
};

pub use super::manager::ManagerLease;

/// Controllers, by the kind of their objects, as in logs and metrics.
pub const CONTROLLERS: [(&str, &str); 4] =
    [(DEPLOYMENT, "machinedeployment"), (SET, "machineset"), (MACHINE, "machine"), (CLASS, "machineclass")];
pub const DEPLOYMENT: &str = MACHINE_DEPLOYMENTS.name;
pub const SET: &str = MACHINE_SETS.name;
pub const MACHINE: &str = MACHINES.name;
pub const CLASS: &str = MACHINE_CLASSES.name;

/// Objects by their names.
pub type ByName<T> = BTreeMap<String, T>;

/// The facts: objects of one namespace, the plans for them, and the managers.
pub struct NamespaceFacts {
    pub now: Timestamp,
    pub namespace: String,
    /// The cluster of the objects.
    pub place: CallTarget,
    pub deployments: ByName<MachineDeployment>,
    pub sets: ByName<MachineSet>,
    pub machines: ByName<Machine>,
    pub classes: ByName<MachineClass>,
    /// Objects that cannot be decoded, so that they are in none of the above.
    pub unreadable: Vec<UndecodableObject>,
    /// By kind.
    pub previews: BTreeMap<&'static str, ByName<PlanPreview>>,
    pub managers: Vec<ManagerLease>,
    /// Kinds that could not be read, in the plural.
    pub unread: Vec<String>,
    /// Classes for whose providers this build has no driver.
    pub unserved: BTreeSet<String>,
    /// The memory of the managers.
    pub memory: Memory,
    /// The budgets for which drains wait, by namespace and name.
    pub budgets: ByName<BudgetState>,
    /// Zones of Nodes by their names, as far as Nodes were read and have one.
    pub zones: ByName<String>,
    /// Machines by their controllers.
    pub owned: OwnedMachines,
}

/// Names of the machines that each object controls. They are found once: facts do not change after the first answer.
#[derive(Default)]
pub struct OwnedMachines(OnceLock<HashMap<String, Vec<String>>>);

impl OwnedMachines {
    /// In the order of their names.
    pub fn of_owner(&self, machines: &ByName<Machine>, owner: &str) -> &[String] {
        let index = self.0.get_or_init(|| {
            let mut index: HashMap<String, Vec<String>> = HashMap::new();
            for (name, machine) in machines {
                let controllers = machine.owner_references().iter().filter(|one| one.controller == Some(true));
                controllers.for_each(|one| index.entry(one.name.clone()).or_default().push(name.clone()));
            }
            index
        });
        index.get(owner).map_or(&[], Vec::as_slice)
    }
}

/// A stored object that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UndecodableObject {
    pub kind: String,
    pub name: String,
    /// Name of its controller.
    #[serde(skip)]
    pub owner: Option<String>,
    pub error: String,
}

impl std::fmt::Display for UndecodableObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} cannot be read: {}", self.kind, self.name, short(&self.error))
    }
}

/// How an object is, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
pub enum ObjectVerdict {
    /// As it should be.
    Settled,
    /// A controller acts.
    Progressing,
    /// It waits, and goes on without a user.
    Waiting,
    /// It could not be planned.
    Unknown,
    /// It waits until a user acts.
    Blocked,
}

/// A wait with its entry in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedWait {
    /// Kind of the wait.
    #[schemars(with = "String")]
    pub kind: WaitKind,
    /// Completes "waits for".
    pub text: String,
    /// The meaning of this kind of wait.
    pub meaning: &'static str,
    /// How it ends.
    pub end: WaitEnd,
    /// When the controllers try or look again, even if nothing changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub next_attempt: Option<Timestamp>,
    /// When the controllers end it by force: a drain deletes the pods that are left then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub forced_at: Option<Timestamp>,
    /// Since when, as the manager remembers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: Option<Timestamp>,
    /// Plans of the manager that ended with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plans: Option<u32>,
    /// What a user can do.
    pub remedies: Vec<ObjectRemedy>,
}

/// A possible cause that does not apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RuledOut {
    /// Name of the check, for programs.
    pub check: &'static str,
    /// Its result.
    pub text: String,
}

/// Why anything happens to an object at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OwnerChain {
    /// From the deployment down to the object.
    pub up: Vec<String>,
}

/// An object of the chain from a Cluster to the Node of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChainLink {
    /// Kind.
    pub kind: String,
    /// API group, for kinds of Cluster API and of its provider mcm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<&'static str>,
    /// Name.
    pub name: String,
    /// How it is.
    pub verdict: ObjectVerdict,
    /// Its state in words.
    pub state: String,
    /// Completes "waits for".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

impl ChainLink {
    pub fn new(kind: &str, api_group: Option<&'static str>, name: &str, verdict: ObjectVerdict, state: &str) -> Self {
        let (kind, name, state) = (kind.to_owned(), name.to_owned(), state.to_owned());
        Self { kind, api_group, name, verdict, state, waits: None }
    }

    /// Kind and name, as users read them.
    pub fn title(&self) -> String {
        let is_node = self.kind == NODE;
        let mcm = if self.api_group.is_none() && !is_node && kind_of(&self.kind).is_some() { "MCM " } else { "" };
        format!("{mcm}{} {}", titled(self.api_group, &self.kind), self.name)
    }
}

/// A condition that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailingCondition {
    /// Type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
    /// `v1beta2`, or `v1beta1` for a condition that only the former API has.
    pub version: &'static str,
}

/// A kind as users read it: kinds of Cluster API whose names `machine.sapcloud.io` also has are marked.
pub fn titled(api_group: Option<&str>, kind: &str) -> String {
    let is_shared = CONTROLLERS.iter().any(|(known, _)| *known == kind);
    if api_group.is_some() && is_shared { format!("CAPI {kind}") } else { kind.to_owned() }
}

/// A remedy for an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ObjectRemedy {
    /// A command, or an instruction.
    pub text: String,
    /// What it does; empty if its text says so.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub note: &'static str,
    /// Its effect.
    pub danger: mcm_rules::plan::guide::RemedyDanger,
}

impl ObjectRemedy {
    /// The remedy with the flags of a call. Those of a workload cluster of Cluster API are not known.
    pub fn addressed(self, call: &CallFlags) -> Self {
        if self.note.contains("workload cluster") {
            return self;
        }
        Self { text: call.addressed(&self.text, self.note.contains("target cluster")), ..self }
    }

    /// The text can be run as it is.
    pub fn is_command(&self) -> bool {
        ["clusterctl ", "kubectl ", "mcm "].iter().any(|program| self.text.starts_with(program))
    }
}

/// The answer for one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectAnswer {
    /// The object.
    pub object: SubjectRef,
    /// API group of its kind, for kinds of Cluster API and of its provider mcm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<&'static str>,
    /// How it is, with its machines.
    pub verdict: ObjectVerdict,
    /// Its state in words.
    pub state: String,
    /// Since when it has been in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: Option<Timestamp>,
    /// The next steps of the controller.
    pub next: Vec<PreviewStep>,
    /// Its waits, the worst first.
    pub waits: Vec<ExplainedWait>,
    /// The last step of the manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried: Option<String>,
    /// Why anything happens to it at all.
    pub chain: OwnerChain,
    /// Possible causes that do not apply.
    pub ruled_out: Vec<RuledOut>,
    /// The last operation, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The objects that own it, the nearest first.
    pub owners: Vec<SubjectRef>,
    /// Those of its machines that are not settled, the worst first.
    pub machines: Vec<ObjectAnswer>,
    /// Those of its sets that wait for a user, such as frozen ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<ObjectAnswer>,
    /// Kinds on which the answer depends, and which could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<&'static str>,
    /// For an object of Cluster API: the objects above and below it, from its Cluster down.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<ChainLink>,
    /// For an object of Cluster API: its conditions that are not as they should be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<FailingCondition>,
}

impl ObjectAnswer {
    /// Only what is known of every object.
    pub fn new(object: SubjectRef, verdict: ObjectVerdict, state: String, waits: Vec<ExplainedWait>) -> Self {
        Self {
            object,
            api_group: None,
            verdict,
            state,
            since: None,
            next: Vec::new(),
            waits,
            tried: None,
            chain: OwnerChain::default(),
            ruled_out: Vec::new(),
            failed: None,
            owners: Vec::new(),
            machines: Vec::new(),
            sets: Vec::new(),
            unread: Vec::new(),
            links: Vec::new(),
            conditions: Vec::new(),
        }
    }

    /// Its kind, as users read it.
    pub fn title(&self) -> String {
        titled(self.api_group, &self.object.kind)
    }

    /// `KIND/NAME`, as `mcm why` takes it.
    pub fn argument(&self) -> String {
        let SubjectRef { kind, name, .. } = &self.object;
        let is_shared = CONTROLLERS.iter().any(|(known, _)| known == kind);
        let group = self.api_group.filter(|_| is_shared).map(|group| format!(".{group}")).unwrap_or_default();
        format!("{}{group}/{name}", kind.to_lowercase())
    }

    /// The object below it that keeps it most: its worst set or machine that waits or failed.
    pub fn culprit(&self) -> Option<&Self> {
        let below = self.sets.iter().chain(&self.machines);
        let keeps = |one: &&Self| !one.waits.is_empty() || one.failed.is_some();
        // The first of the worst.
        below.filter(keeps).reduce(|worst, one| if one.verdict > worst.verdict { one } else { worst })
    }

    /// Actions that a user can take: first against causes of its waits that only a user ends, then against those of its culprit.
    pub fn remedies(&self) -> Vec<&ObjectRemedy> {
        let (by_user, others): (Vec<&ExplainedWait>, Vec<&ExplainedWait>) =
            self.waits.iter().partition(|wait| wait.end == WaitEnd::User);
        let of_culprit = self.culprit().map(|culprit| culprit.waits.iter().collect::<Vec<_>>());
        // Controllers end the other waits as soon as the culprit is resolved.
        let others = if of_culprit.is_some() { Vec::new() } else { others };
        let mut remedies: Vec<&ObjectRemedy> = Vec::new();
        for remedy in
            by_user.into_iter().chain(of_culprit.unwrap_or_default()).chain(others).flat_map(|one| &one.remedies)
        {
            if !remedies.contains(&remedy) {
                remedies.push(remedy);
            }
        }
        remedies
    }
}

impl NamespaceFacts {
    /// The namespace has no object, as far as it could be read.
    pub fn is_empty(&self) -> bool {
        self.deployments.is_empty()
            && self.sets.is_empty()
            && self.machines.is_empty()
            && self.classes.is_empty()
            && self.unreadable.is_empty()
            && self.memory.explained.is_empty()
            && self.unread.is_empty()
    }

    /// The namespace may have objects of Cluster API: it has machines of its provider, or nothing at all.
    pub fn may_have_cluster_api(&self) -> bool {
        let is_of_pool = |deployment: &MachineDeployment| deployment.labels().contains_key(labels::POOL);
        self.machines.keys().any(|name| self.is_provided(&self.subject(MACHINE, name)))
            || self.deployments.values().any(is_of_pool)
            || self.is_empty()
    }

    /// Finds an object by `NAME` or `KIND/NAME`. Without a kind, deployments are first.
    pub fn find(&self, text: &str) -> Option<SubjectRef> {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => match kind_of(kind) {
                Some(known) => (Some(known), name),
                None => return self.remembered_object(kind, name),
            },
            None => (None, text),
        };
        let kinds = CONTROLLERS.iter().map(|(known, _)| *known).filter(|known| kind.is_none_or(|kind| kind == *known));
        let is_it: Option<fn(&Machine, &str) -> bool> = match kind {
            Some(NODE) => Some(|machine, name| machine.node_name() == Some(name)),
            Some(INFRASTRUCTURE) => Some(is_owned),
            _ => None,
        };
        if let Some(is_it) = is_it {
            let machine = self.machines.iter().find(|(_, machine)| is_it(machine, name));
            // A Node without a machine waits for one.
            return match machine {
                Some((machine, _)) => Some(self.subject(MACHINE, machine)),
                None => self.remembered_object(kind?, name),
            };
        }
        kinds.into_iter().find(|kind| self.names(kind).any(|known| known == name)).map(|kind| self.subject(kind, name))
    }

    /// The name of the Node, if `node/NAME` leads to no machine.
    pub fn node_without_machine<'a>(&self, wanted: &'a str) -> Option<&'a str> {
        let (kind, name) = wanted.split_once('/')?;
        (kind_of(kind) == Some(NODE) && self.find(wanted).is_none()).then_some(name)
    }

    /// An object that a manager remembers, of a kind as kubectl takes it.
    fn remembered_object(&self, kind: &str, name: &str) -> Option<SubjectRef> {
        let is_of = |known: &str| [known, &format!("{known}s")].iter().any(|known| known.eq_ignore_ascii_case(kind));
        let found = self.memory.explained.iter().find(|one| is_of(&one.object.kind) && one.object.name == name)?;
        Some(self.subject(&found.object.kind, name))
    }

    /// Names of all objects, for suggestions.
    pub fn all_names(&self) -> impl Iterator<Item = &String> {
        CONTROLLERS.iter().flat_map(|(kind, _)| self.names(kind))
    }

    /// Names of the objects of a kind.
    pub fn names(&self, kind: &str) -> Box<dyn Iterator<Item = &String> + '_> {
        match kind {
            DEPLOYMENT => Box::new(self.deployments.keys()),
            SET => Box::new(self.sets.keys()),
            MACHINE => Box::new(self.machines.keys()),
            _ => Box::new(self.classes.keys()),
        }
    }

    /// A reference to an object of the namespace.
    pub fn subject(&self, kind: &str, name: &str) -> SubjectRef {
        SubjectRef { kind: kind.to_owned(), namespace: self.namespace.clone(), name: name.to_owned() }
    }

    /// The answer for an object, with its machines that are not settled.
    pub fn answer(&self, object: &SubjectRef) -> ObjectAnswer {
        let mut answer = self.alone(object);
        let machines = match object.kind.as_str() {
            DEPLOYMENT | SET => {
                unsettled(self.machines_of(object).map(|name| self.alone(&self.subject(MACHINE, name))))
            }
            _ => Vec::new(),
        };
        let sets = match object.kind.as_str() {
            DEPLOYMENT => {
                unsettled(owned_by(&self.sets, &object.name).map(|name| self.alone(&self.subject(SET, name))))
            }
            _ => Vec::new(),
        };
        answer.sets = sets.into_iter().filter(|set| set.waits.iter().any(|wait| wait.end == WaitEnd::User)).collect();
        let below = machines.iter().chain(&answer.sets).map(|one| one.verdict);
        answer.verdict = below.chain([answer.verdict]).max().unwrap_or(answer.verdict);
        answer.machines = machines;
        answer.keep_class_of_parts();
        answer
    }

    /// Everything that is not settled, the worst and longest first. The verdict of each is that of its full answer.
    pub fn all(&self) -> Vec<ObjectAnswer> {
        let every = CONTROLLERS.iter().flat_map(|(kind, _)| self.names(kind).map(|name| self.subject(kind, name)));
        let planned = |kind: &str| CONTROLLERS.iter().any(|(known, _)| *known == kind);
        let others = self.memory.explained.iter().map(|one| &one.object);
        let others: BTreeSet<(&str, &str)> = others
            .filter(|object| !planned(&object.kind))
            .map(|object| (object.kind.as_str(), object.name.as_str()))
            .collect();
        let every = every.chain(others.into_iter().map(|(kind, name)| self.subject(kind, name)));
        // A note names what could not be read. All objects that need it would hide the waiting ones.
        let is_known = |answer: &ObjectAnswer| answer.verdict != ObjectVerdict::Unknown || answer.unread.is_empty();
        let mut answers: Vec<ObjectAnswer> = every.map(|object| self.alone(&object)).collect();
        for (owner, worst) in worst_below(answers.iter().filter(|one| is_known(one))) {
            let owner = answers.iter_mut().find(|one| one.object == owner);
            if let Some(owner) =
                owner.filter(|owner| owner.verdict != ObjectVerdict::Settled && worst.verdict > owner.verdict)
            {
                owner.verdict = worst.verdict;
                owner.machines = vec![worst];
            }
        }
        unsettled(answers.into_iter().filter(is_known))
    }

    fn alone(&self, object: &SubjectRef) -> ObjectAnswer {
        let facts = self.known(object);
        let preview = self.previews.get(object.kind.as_str()).and_then(|all| all.get(&object.name));
        let Some(preview) = preview else {
            let unknown = "cannot be planned: it is gone, or it cannot be read".to_owned();
            let answer = ObjectAnswer::new(object.clone(), ObjectVerdict::Unknown, unknown, Vec::new());
            let (failed, owners) = (facts.failed, facts.owners);
            return self.answer_of_manager(object).unwrap_or(ObjectAnswer { failed, owners, ..answer });
        };
        // The plan is that of the native controllers, which leave such an object to its manager.
        let is_of_provider = self.is_of_provider(object);
        let is_left = |wait: &&Wait| is_of_provider && wait.kind == WaitKind::Hold;
        let planned = preview.waits.iter().filter(|wait| !wait.kind.is_routine());
        let planned = planned.filter(|wait| !is_left(wait) || !self.is_in_place(object));
        // A plan without a kind waits for it to be read. The manager, which reads it, may wait for nothing.
        let (of_unread, planned): (Vec<&Wait>, Vec<&Wait>) =
            planned.partition(|wait| self.depends_on(wait, object).is_some());
        let told = |wait: &Wait| match is_left(&wait) {
            true => ExplainedWait { end: WaitEnd::Controllers, remedies: Vec::new(), ..self.told(wait, object) },
            false => self.told(wait, object),
        };
        let mut waits: Vec<ExplainedWait> = planned.into_iter().map(told).collect();
        let mut unread: Vec<&str> = of_unread.into_iter().filter_map(|wait| self.depends_on(wait, object)).collect();
        let mut next: Vec<PreviewStep> = preview.steps.iter().filter(|step| !step.is_status).cloned().collect();
        // The manager remembers the result of a look, and the object shows it.
        if let Some(shown) = &facts.shown
            && waits.is_empty()
        {
            waits.push(self.told(shown, object));
            next.retain(|step| !step.is_look);
        }
        let explained = self.memory.remembered_plan(object);
        let remembered = explained.map(|explained| self.remembered(&explained.waits, object)).unwrap_or_default();
        let is_remembered = !remembered.is_empty();
        if is_remembered {
            let shown = facts.shown.as_ref().map(|shown| self.told(shown, object));
            waits = with_text_shown(remembered, shown);
            next.retain(|step| !step.is_look);
            unread.clear();
        }
        waits.extend(facts.refused.iter().map(|refused| self.told(refused, object)));
        let is_settled_so_far = waits.is_empty() && next.is_empty();
        if !is_settled_so_far && !is_of_provider {
            if let Some(frozen) = self.frozen_manager(object) {
                next.clear();
                waits.retain(|wait| wait.kind != WaitKind::NodesUnknown);
                waits.insert(0, frozen);
            }
            waits.extend(self.absent_manager(object));
        }
        waits.sort_by_key(|wait| (wait.end, wait.kind != WaitKind::Manager));
        // A manager that ended its plan with waits has nothing else to do: steps that are planned here are a guess.
        let decided: &[PreviewStep] = if is_remembered { &[] } else { &next };
        let verdict = match verdict(&waits, decided) {
            ObjectVerdict::Settled if !unread.is_empty() => ObjectVerdict::Unknown,
            verdict => verdict,
        };
        let is_settled = verdict == ObjectVerdict::Settled;
        ObjectAnswer {
            tried: explained.and_then(|explained| explained.step.clone()),
            chain: if is_settled { OwnerChain::default() } else { self.chain(object, &facts.owners) },
            ruled_out: if is_settled { Vec::new() } else { self.ruled_out(object, &facts.owners, &waits) },
            state: facts.state,
            since: facts.since,
            next,
            waits,
            failed: facts.failed,
            owners: facts.owners,
            unread,
            ..ObjectAnswer::new(object.clone(), verdict, String::new(), Vec::new())
        }
    }

    /// A wait with its entry in the catalogue.
    fn told(&self, wait: &Wait, object: &SubjectRef) -> ExplainedWait {
        let guide = wait.kind.guide();
        let Wait { kind, until, forced_at, .. } = *wait;
        ExplainedWait {
            kind,
            text: self.text_of(wait),
            meaning: guide.meaning,
            end: if is_never(kind, &wait.text) { WaitEnd::User } else { guide.end },
            next_attempt: until,
            forced_at: forced_at.or_else(|| self.drain_ends(kind, object)),
            since: None,
            plans: None,
            remedies: self.remedies_of(wait, object),
        }
    }

    /// The text of a wait, with the pods without which its budget allows no eviction.
    fn text_of(&self, wait: &Wait) -> String {
        let shortage = self.budget_of(wait).filter(|_| !wait.text.contains(NEVER)).and_then(BudgetState::shortage);
        let shortage = shortage.map(|shortage| format!(": {shortage}")).unwrap_or_default();
        format!("{}{shortage}", cleaned(&wait.text))
    }

    /// The Machine is the VM of an MCMMachine.
    pub fn is_provided(&self, object: &SubjectRef) -> bool {
        let machine = self.machines.get(&object.name).filter(|_| object.kind == MACHINE);
        machine.is_some_and(|machine| {
            machine.owner_references().iter().any(|one| one.controller == Some(true) && one.kind == INFRASTRUCTURE)
        })
    }

    /// The provider for Cluster API manages the object.
    fn is_of_provider(&self, object: &SubjectRef) -> bool {
        let meta = match object.kind.as_str() {
            MACHINE => self.machines.get(&object.name).map(|machine| &machine.metadata),
            CLASS => self.classes.get(&object.name).map(|class| &class.metadata),
            _ => None,
        };
        meta.and_then(authority::of_native).is_some_and(|hold| !hold.is_confirmed)
    }

    /// The Machine has its VM and Node and is not deleted. A class has neither.
    fn is_in_place(&self, object: &SubjectRef) -> bool {
        let machine = self.machines.get(&object.name).filter(|_| object.kind == MACHINE);
        machine.is_none_or(|machine| {
            !machine.is_terminating() && matches!(machine.phase(), MachinePhase::Running | MachinePhase::Available)
        })
    }

    /// The waits that a manager remembers, without routine checks and kinds of another version.
    fn remembered(&self, waits: &[RememberedWait], object: &SubjectRef) -> Vec<ExplainedWait> {
        let told = |wait: &RememberedWait| {
            let kind = WaitKind::named(&wait.kind).filter(|kind| !kind.is_routine())?;
            let forced_at = wait.forced_at;
            let planned = Wait { forced_at, ..Wait::new(kind, wait.text.clone(), wait.next_attempt) };
            let of_kind = self.told(&planned, object);
            Some(ExplainedWait { since: Some(wait.since), plans: Some(wait.plans), ..of_kind })
        };
        waits.iter().filter_map(told).collect()
    }

    /// The answer for an object of a kind that only managers plan, such as a Secret.
    fn answer_of_manager(&self, object: &SubjectRef) -> Option<ObjectAnswer> {
        let explained = self.memory.remembered_plan(object)?;
        let mut waits = self.remembered(&explained.waits, object);
        waits.sort_by_key(|wait| wait.end);
        let since = waits.iter().filter_map(|wait| wait.since).min();
        let verdict = verdict(&waits, &[]);
        Some(ObjectAnswer {
            tried: explained.step.clone(),
            since,
            ..ObjectAnswer::new(object.clone(), verdict, String::new(), waits)
        })
    }

    /// The kind that could not be read, or the driver that this build lacks, if a wait is for it. A manager may have both.
    fn depends_on(&self, wait: &Wait, object: &SubjectRef) -> Option<&'static str> {
        let kind = match wait.kind {
            WaitKind::Class if self.is_unserved(object) => return Some("drivers"),
            WaitKind::Secret => kinds::SECRETS.plural,
            WaitKind::NodesUnknown | WaitKind::NodeJoin | WaitKind::NodeHealth => NODES.plural,
            WaitKind::Class | WaitKind::ClassUnknown => MACHINE_CLASSES.plural,
            _ => return None,
        };
        self.unread.iter().any(|unread| unread == kind).then_some(kind)
    }

    fn is_unserved(&self, object: &SubjectRef) -> bool {
        let class = match object.kind.as_str() {
            MACHINE => self.machines.get(&object.name).map(|machine| machine.spec.class.name.as_str()),
            CLASS => Some(object.name.as_str()),
            _ => None,
        };
        class.is_some_and(|class| self.unserved.contains(class))
    }

    /// The wait for a manager, if none renews its Lease.
    fn absent_manager(&self, object: &SubjectRef) -> Option<ExplainedWait> {
        let text = self.manager_of(&object.kind)?.absence(self.now)?;
        Some(self.told(&Wait::new(WaitKind::Manager, text, None), object))
    }

    /// The wait of a Machine for the API servers without which its manager acts on none.
    fn frozen_manager(&self, object: &SubjectRef) -> Option<ExplainedWait> {
        let manager = self.manager_of(&object.kind).filter(|_| object.kind == MACHINE)?;
        let freeze = manager.freeze(self.now)?;
        let text = format!("an API server to answer: machines are frozen since {:.0}: {}", freeze.since, freeze.why);
        Some(ExplainedWait {
            since: Some(freeze.since),
            ..self.told(&Wait::new(WaitKind::NodesUnknown, text, None), object)
        })
    }

    /// The kinds without which an answer about the whole namespace is unknown, and which could not be read.
    pub fn unread_kinds(&self) -> Vec<&str> {
        let needed = [MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, MACHINE_CLASSES, NODES].map(|kind| kind.plural);
        self.unread.iter().map(String::as_str).filter(|kind| needed.contains(kind)).collect()
    }

    /// The manager whose controllers act on a kind.
    pub fn manager_of(&self, kind: &str) -> Option<&ManagerLease> {
        let role = if kind == DEPLOYMENT || kind == SET { "sets" } else { "machines" };
        self.managers.iter().find(|manager| manager.role == role)
    }

    /// Names of the machines of a deployment or a set.
    pub fn machines_below(&self, object: &SubjectRef) -> Vec<String> {
        self.machines_of(object).cloned().collect()
    }

    /// Names of the sets of a deployment.
    pub fn sets_of(&self, deployment: &str) -> Vec<String> {
        owned_by(&self.sets, deployment).cloned().collect()
    }

    /// The answer for a machine.
    pub fn machine(&self, name: &str) -> ObjectAnswer {
        self.alone(&self.subject(MACHINE, name))
    }

    /// Names of the machines of a deployment or a set.
    pub fn machines_of<'a>(&'a self, object: &'a SubjectRef) -> impl Iterator<Item = &'a String> {
        let sets: Vec<&str> = match object.kind.as_str() {
            SET => vec![&object.name],
            _ => owned_by(&self.sets, &object.name).map(String::as_str).collect(),
        };
        let mut names: Vec<&String> = sets.iter().flat_map(|set| self.owned.of_owner(&self.machines, set)).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter()
    }
}

/// The worst set or machine of each owner whose verdict is worse than settled. A set counts if it waits for a user.
fn worst_below<'a>(answers: impl Iterator<Item = &'a ObjectAnswer>) -> Vec<(SubjectRef, ObjectAnswer)> {
    let is_counted = |one: &&ObjectAnswer| match one.object.kind.as_str() {
        MACHINE => one.verdict != ObjectVerdict::Settled,
        SET => one.waits.iter().any(|wait| wait.end == WaitEnd::User),
        _ => false,
    };
    let mut worst: BTreeMap<&SubjectRef, &ObjectAnswer> = BTreeMap::new();
    for one in answers.filter(is_counted) {
        for owner in &one.owners {
            let known = worst.entry(owner).or_insert(one);
            if one.verdict > known.verdict {
                *known = one;
            }
        }
    }
    worst.into_iter().map(|(owner, one)| (owner.clone(), one.clone())).collect()
}

fn verdict(waits: &[ExplainedWait], next: &[PreviewStep]) -> ObjectVerdict {
    match waits.iter().any(|wait| wait.end == WaitEnd::User) {
        true => ObjectVerdict::Blocked,
        false if !next.is_empty() => ObjectVerdict::Progressing,
        false if waits.is_empty() => ObjectVerdict::Settled,
        false => ObjectVerdict::Waiting,
    }
}

/// The eviction never becomes possible: a user has to change the budget or the workload.
fn is_never(kind: WaitKind, text: &str) -> bool {
    kind == WaitKind::Eviction && text.contains(NEVER)
}

/// The waits that a manager remembers, where those for what the object shows have the text that it shows, once. That text names
/// the cause; a manager remembers the last answer for each pod.
fn with_text_shown(remembered: Vec<ExplainedWait>, shown: Option<ExplainedWait>) -> Vec<ExplainedWait> {
    let Some(shown) = shown else { return remembered };
    let is_shown = |wait: &ExplainedWait| wait.kind == shown.kind && budget_in(&wait.text) == budget_in(&shown.text);
    let (same, mut waits): (Vec<ExplainedWait>, Vec<ExplainedWait>) = remembered.into_iter().partition(is_shown);
    let joined = same.into_iter().reduce(|one, other| ExplainedWait {
        since: one.since.min(other.since),
        plans: one.plans.max(other.plans),
        next_attempt: one.next_attempt.into_iter().chain(other.next_attempt).min(),
        forced_at: one.forced_at.into_iter().chain(other.forced_at).min(),
        ..one
    });
    if let Some(ExplainedWait { since, plans, next_attempt, forced_at, .. }) = joined {
        let forced_at = forced_at.or(shown.forced_at);
        waits.insert(0, ExplainedWait { since, plans, next_attempt, forced_at, ..shown });
    }
    waits
}

/// Objects that are not settled, the worst and longest first.
pub fn unsettled(answers: impl Iterator<Item = ObjectAnswer>) -> Vec<ObjectAnswer> {
    let mut found: Vec<ObjectAnswer> = answers.filter(|one| one.verdict != ObjectVerdict::Settled).collect();
    found.sort_by(|one, other| other.verdict.cmp(&one.verdict).then(one.since.cmp(&other.since)));
    found
}

/// The text of a remedy for an object and the text of its wait; `None` if it is for objects or waits of another kind.
pub fn filled(remedy: &WaitRemedy, object: &SubjectRef, node: Option<&str>, wait: &str) -> Option<ObjectRemedy> {
    let of = |kind: &str| (object.kind == kind).then_some(object.name.as_str());
    let budget = budget_in(wait);
    let kind = resource_name(&object.kind);
    let places = [
        ("kind", Some(kind.as_str())),
        ("namespace", Some(&object.namespace)),
        ("name", Some(&object.name)),
        ("machine", of(MACHINE)),
        ("machineset", of(SET)),
        ("node", node),
        ("budget", budget.map(|(_, name)| name)),
        ("budget-namespace", budget.map(|(namespace, _)| namespace)),
        ("secret", missing_secret_in(wait)),
    ];
    Some(ObjectRemedy { text: remedy.text_with(&places)?, note: remedy.note, danger: remedy.danger })
}

/// Namespace and name of the disruption budget that a text names.
pub fn budget_in(text: &str) -> Option<(&str, &str)> {
    text.match_indices("budget ").find_map(|(start, word)| name_at(&text[start + word.len()..]).split_once('/'))
}

/// Name of the Secret that a text reports as missing.
fn missing_secret_in(text: &str) -> Option<&str> {
    let is_missing = ["does not exist", "to be created"].iter().any(|words| text.contains(words));
    let (start, word) = text.match_indices("ecret ").next().filter(|_| is_missing)?;
    let name = name_at(&text[start + word.len()..]);
    Some(name.rsplit_once('/').map_or(name, |(_, name)| name)).filter(|name| !name.is_empty())
}

/// The name, with or without a namespace, at the beginning of a text.
fn name_at(text: &str) -> &str {
    let is_of_name = |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '.' | '/');
    let end = text.find(|one| !is_of_name(one)).unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}

/// Names of the objects that `owner` controls.
pub fn owned_by<'a>(all: &'a ByName<impl ResourceExt>, owner: &str) -> impl Iterator<Item = &'a String> {
    all.iter().filter(move |(_, object)| is_owned(*object, owner)).map(|(name, _)| name)
}

pub fn is_owned(object: &impl ResourceExt, owner: &str) -> bool {
    object.owner_references().iter().any(|one| one.controller == Some(true) && one.name == owner)
}

/// Kind of the infrastructure of a CAPI Machine, which owns an MCM Machine.
const INFRASTRUCTURE: &str = MCM_MACHINES.name;
/// Kind of a Node in the command line.
pub const NODE: &str = NODES.name;

/// Words for a kind beside its names.
const OTHER_WORDS: [(&str, &str); 3] = [("machdeploy", DEPLOYMENT), ("machset", SET), ("mach", MACHINE)];

/// The kind of a word, as kubectl takes it: singular, plural or short.
pub fn kind_of(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let word = word.strip_suffix(GROUP).and_then(|word| word.strip_suffix('.')).unwrap_or(&word);
    let all = [MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, MACHINE_CLASSES, NODES, MCM_MACHINES];
    let has_word = |kind: &ResourceKind| OTHER_WORDS.contains(&(word, kind.name));
    all.iter().find(|kind| kind.is_named(word) || has_word(kind)).map(|kind| kind.name)
}

#[cfg(test)]
mod tests;
