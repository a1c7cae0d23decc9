//! Why objects do or do not progress: from the objects and the plans for them to the answer. Pure.

mod object_answer;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::OnceLock,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde::Serialize;

use crate::{
    budget::BudgetState,
    memory::{Memory, RememberedWait},
    place::CallTarget,
    place_counts::PlaceCounts,
    terminal::short,
    wording::{NEVER, cleaned},
};
use mcm_api::{
    kinds::{
        self, LEASES, MACHINE_CLASSES, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES, MCM_MACHINES, NODES, ResourceKind,
    },
    labels,
    machine::{Machine, MachineClass, MachineDeployment, MachinePhase, MachineSet},
};
use mcm_controllers::object::{authority, owner::controller_of};
use mcm_rules::plan::{
    PlanPreview, PreviewStep, SubjectRef, Wait, WaitKind,
    guide::{RemedyDanger, WaitEnd, WaitRemedy},
    shell::{CommandCluster, resource_name},
};

pub use super::manager::{ManagerLease, ManagerPark};
pub use object_answer::{
    ChainLink, ExplainedWait, FailingCondition, ObjectAnswer, ObjectRemedy, ObjectVerdict, OwnerChain, RuledOut, titled,
};
pub use words::{CLASS, CONTROLLERS, DEPLOYMENT, MACHINE, NODE, SET, kind_of};

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
    /// Machines by their places.
    pub places: PlaceCounts,
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

impl UndecodableObject {
    /// An object with the error of its decoding.
    pub fn from_meta(kind: &str, meta: &ObjectMeta, error: String) -> Self {
        let owner = controller_of(meta).map(|owner| owner.name.clone());
        Self { kind: kind.to_owned(), name: meta.name.clone().unwrap_or_default(), owner, error }
    }

    /// The command with which a user corrects it.
    pub fn correction(&self, namespace: &str) -> String {
        format!("kubectl edit {} {} -n {namespace}", resource_name(&self.kind), self.name)
    }
}

impl std::fmt::Display for UndecodableObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} cannot be read: {}", self.kind, self.name, short(&self.error))
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

    /// Every kind and every object without which an answer about the whole namespace is unknown was read.
    pub fn is_whole(&self) -> bool {
        self.unread_kinds().is_empty() && self.unreadable.is_empty()
    }

    /// The objects that cannot be decoded, each with the command that corrects it.
    pub fn corrections(&self) -> impl Iterator<Item = (&UndecodableObject, String)> {
        self.unreadable.iter().map(move |one| (one, self.place.call.addressed(&one.correction(&self.namespace), false)))
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
        // The first of the worst.
        let below = machines.iter().chain(&answer.sets);
        let worst = below.reduce(|worst, one| if one.verdict > worst.verdict { one } else { worst });
        if let Some((verdict, since)) = worst.map(|worst| (worst.verdict, worst.since_below(answer.since))) {
            answer.take_worse(verdict, since);
        }
        self.note_unread_parts(&mut answer, &machines);
        answer.machines = machines;
        answer.keep_class_of_parts();
        answer
    }

    /// Without the kinds below an object its verdict is unknown.
    fn note_unread_parts(&self, answer: &mut ObjectAnswer, machines: &[ObjectAnswer]) {
        let below: &[ResourceKind] = match answer.object.kind.as_str() {
            DEPLOYMENT => &[MACHINE_SETS, MACHINES, MACHINE_CLASSES],
            SET => &[MACHINES, MACHINE_CLASSES],
            _ => &[],
        };
        let is_unread = |kind: &&ResourceKind| self.unread.iter().any(|unread| unread == kind.plural);
        let of_kinds = below.iter().filter(is_unread).map(|kind| kind.plural);
        for kind in of_kinds.chain(machines.iter().flat_map(|machine| machine.unread.iter().copied())) {
            if !answer.unread.contains(&kind) {
                answer.unread.push(kind);
            }
        }
        if !answer.unread.is_empty() {
            answer.verdict = answer.verdict.max(ObjectVerdict::Unknown);
        }
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
        let mut worst = worst_below(answers.iter().filter(|one| is_known(one)));
        for owner in answers.iter_mut().filter(|owner| owner.verdict != ObjectVerdict::Settled) {
            if let Some(worst) = worst.remove(&owner.object).filter(|worst| worst.verdict > owner.verdict) {
                owner.take_worse(worst.verdict, worst.since_below(owner.since));
                owner.machines = vec![worst];
            }
        }
        let undecodable = self.unreadable.iter().map(|one| self.undecodable(one));
        unsettled(answers.into_iter().filter(is_known).chain(undecodable))
    }

    /// The answer for an object that cannot be decoded.
    pub fn undecodable(&self, one: &UndecodableObject) -> ObjectAnswer {
        let object = self.subject(&one.kind, &one.name);
        let text = format!("a user to correct it, because it cannot be read: {}", short(&one.error));
        let correction = ObjectRemedy {
            text: one.correction(&self.namespace),
            note: "corrects the field that the error names",
            danger: RemedyDanger::Safe,
            cluster: CommandCluster::Control,
        };
        let wait = self.told(&Wait::new(WaitKind::Unreadable, text, None), &object);
        let wait = ExplainedWait { remedies: vec![correction.addressed(&self.place.call)], ..wait };
        ObjectAnswer::new(object, ObjectVerdict::Unknown, "cannot be read".to_owned(), vec![wait])
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
        let is_told = |cause: &Wait| waits.iter().any(|wait| wait.kind == cause.kind);
        let is_known = |cause: &Wait| self.depends_on(cause, object).is_none();
        let cause = facts.failed_creation.as_ref().filter(|cause| is_known(cause) && !is_told(cause));
        waits.extend(cause.map(|cause| self.told(cause, object)));
        let is_settled_so_far = waits.is_empty() && next.is_empty();
        if !is_settled_so_far && !is_of_provider {
            if let Some(frozen) = self.frozen_manager(object) {
                next.clear();
                waits.retain(|wait| wait.kind != WaitKind::NodesUnknown);
                waits.insert(0, frozen);
            }
            if let Some(absent) = self.absent_manager(object) {
                if self.park_for(object).is_some() {
                    next.clear();
                }
                // A manager remembers that its namespace is parked.
                if !waits.iter().any(|wait| wait.text == absent.text) {
                    waits.insert(0, absent);
                }
            }
        }
        waits.sort_by_key(|wait| (wait.end, wait.kind != WaitKind::Manager));
        // A manager that ended its plan with waits has nothing else to do: steps that are planned here are a guess.
        let decided: &[PreviewStep] = if is_remembered { &[] } else { &next };
        let is_unread = |kind: &str| self.unread.iter().any(|unread| unread == kind);
        if !is_settled_so_far && !is_of_provider && is_unread(LEASES.plural) {
            unread.push(LEASES.plural);
        }
        let verdict = match verdict(&waits, decided) {
            ObjectVerdict::Settled if !unread.is_empty() => ObjectVerdict::Unknown,
            // Whether a controller acts is not known.
            ObjectVerdict::Progressing | ObjectVerdict::Waiting if unread.contains(&LEASES.plural) => {
                ObjectVerdict::Unknown
            }
            verdict => verdict,
        };
        let is_settled = verdict == ObjectVerdict::Settled;
        // A deployment shows when it last made progress, and a set shows nothing.
        let remembered = waits.first().and_then(|wait| wait.since).filter(|_| object.kind != MACHINE);
        ObjectAnswer {
            tried: explained.and_then(|explained| explained.step.clone()),
            chain: if is_settled { OwnerChain::default() } else { self.chain(object, &facts.owners) },
            ruled_out: if is_settled { Vec::new() } else { self.ruled_out(object, &facts.owners, &waits) },
            state: facts.state,
            since: remembered.or(facts.since),
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
        let budget = self.budget_of(wait);
        // The amounts of a budget that counts no pods are not the cause.
        let text = match budget.is_some_and(BudgetState::counts_none) {
            true => wait.text.replace(NEVER, ""),
            false => wait.text.clone(),
        };
        let shortage = budget.filter(|_| !text.contains(NEVER)).and_then(BudgetState::shortage);
        let shortage = shortage.map(|shortage| format!(": {shortage}")).unwrap_or_default();
        format!("{}{shortage}", cleaned(&text))
    }

    /// The Machine is the VM of an MCMMachine.
    pub fn is_provided(&self, object: &SubjectRef) -> bool {
        let machine = self.machines.get(&object.name).filter(|_| object.kind == MACHINE);
        machine.is_some_and(|machine| {
            machine.owner_references().iter().any(|one| one.controller == Some(true) && one.kind == INFRASTRUCTURE)
        })
    }

    /// The provider for Cluster API manages all deployments, sets and machines, so that native managers have nothing to do.
    pub fn is_of_provider_alone(&self) -> bool {
        let kinds = [DEPLOYMENT, SET, MACHINE].into_iter();
        let mut objects = kinds.flat_map(|kind| self.names(kind).map(move |name| self.subject(kind, name))).peekable();
        objects.peek().is_some() && objects.all(|object| self.is_of_provider(&object))
    }

    /// The provider for Cluster API manages the object.
    pub fn is_of_provider(&self, object: &SubjectRef) -> bool {
        let meta = match object.kind.as_str() {
            MACHINE => self.machines.get(&object.name).map(|machine| &machine.metadata),
            SET => self.sets.get(&object.name).map(|set| &set.metadata),
            DEPLOYMENT => self.deployments.get(&object.name).map(|deployment| &deployment.metadata),
            CLASS => self.classes.get(&object.name).map(|class| &class.metadata),
            _ => None,
        };
        meta.is_some_and(authority::is_of_provider)
    }

    /// The Machine has its VM and Node, a set or deployment has its Machines, and it is not deleted. A class has no such parts.
    fn is_in_place(&self, object: &SubjectRef) -> bool {
        let name = &object.name;
        match object.kind.as_str() {
            MACHINE => self.machines.get(name).is_none_or(|machine| {
                !machine.is_terminating() && matches!(machine.phase(), MachinePhase::Running | MachinePhase::Available)
            }),
            SET => self.sets.get(name).is_none_or(has_its_machines),
            DEPLOYMENT => self.deployments.get(name).is_none_or(|deployment| {
                deployment.metadata.deletion_timestamp.is_none() && has_current_machines(deployment)
            }),
            _ => true,
        }
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

    /// The wait for a manager that acts, if its namespace is parked, or none renews its Lease.
    pub fn absent_manager(&self, object: &SubjectRef) -> Option<ExplainedWait> {
        let wait = match self.park_for(object) {
            Some(park) => Wait::new(WaitKind::Hold, park.why.clone(), None),
            None => Wait::new(WaitKind::Manager, self.manager_of(&object.kind)?.absence(self.now)?, None),
        };
        Some(self.told(&wait, object))
    }

    /// The Deployment for which the manager of an object waits.
    fn park_for(&self, object: &SubjectRef) -> Option<&ManagerPark> {
        self.manager_of(&object.kind)?.parked.as_ref()
    }

    /// The Deployment for which a manager of the namespace waits.
    pub fn park(&self) -> Option<&ManagerPark> {
        self.managers.iter().find_map(|manager| manager.parked.as_ref())
    }

    /// A note that the namespace is parked, with the step that ends it.
    pub fn park_note(&self) -> Option<String> {
        let park = self.park()?;
        let remedy = park.remedy.clone().placed(&self.place);
        Some(format!("the manager waits for {}: {}", park.why, remedy.text))
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

    /// The manager that acts on an object; `None` for one of the provider for Cluster API, which has another Lease.
    pub fn manager_for(&self, object: &SubjectRef) -> Option<&ManagerLease> {
        self.manager_of(&object.kind).filter(|_| !self.is_of_provider(object))
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
fn worst_below<'a>(answers: impl Iterator<Item = &'a ObjectAnswer>) -> BTreeMap<SubjectRef, ObjectAnswer> {
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

/// All Machines of a deployment have the current template and are available, as its status shows them.
pub(crate) fn has_current_machines(deployment: &MachineDeployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    status.observed_generation >= deployment.metadata.generation.unwrap_or_default()
        && [status.updated_replicas, status.replicas, status.available_replicas] == [deployment.spec.replicas; 3]
}

/// All Machines of a set exist and are available, and it is not deleted.
fn has_its_machines(set: &MachineSet) -> bool {
    let (status, replicas) = (set.status.clone().unwrap_or_default(), set.spec.replicas);
    set.metadata.deletion_timestamp.is_none() && [status.replicas, status.available_replicas] == [replicas; 2]
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
    Some(ObjectRemedy::from_catalogue(remedy, remedy.text_with(&places)?))
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
#[cfg(test)]
mod tests;
