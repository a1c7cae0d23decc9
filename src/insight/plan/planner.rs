//! Plans changes: plays the controllers of each object, and finds what is in the way.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    answer::{self, FieldEffect, ObjectPlan, Plan, PlanSummary, PlanVerdict},
    assume::{AssumedFault, FaultScene},
    change::{self, ChangeContent, ChangedObject, PlannedChange, PlannedSecret},
    fields::{ValueDifference, differences, to_value},
    fold::{self, MachineFold, WholeDeployment},
    live, obstacles,
    outcome::{self, PlannedDeployment},
    rehearse::{RehearsalFacts, SecretFaults},
    scope::{PlanScope, machines_of_sets, owned_sets},
};
use crate::{
    budget::BudgetState,
    budget_reader,
    error::{UsageError, error_line},
    read_only::ReadOnly,
    rehearsal::play::{DeploymentWrite, SeedObject},
    story::{ByName, CLASS, DEPLOYMENT, MACHINE, NamespaceFacts, SET, UndecodableObject},
};
use mcm_api::{
    kinds::{MACHINE_CLASSES, MACHINE_SETS, MACHINES},
    machine::{Machine, MachineClass, MachineDeployment, MachineSet},
};
use mcm_controllers::{
    machine_class::secret_refs,
    machine_deployment::{bounds_of, keeps_machines},
};
use mcm_rules::plan::{WaitKind, counted};
use mcm_runtime::cell::{UnreadCause, UnreadKind};

/// The kinds without which it is not known what a deployment has.
const NEEDED: [&str; 3] = [MACHINE_SETS.plural, MACHINES.plural, MACHINE_CLASSES.plural];
/// Fields of a class that lead its driver to its VMs.
const PLACES: [&str; 4] =
    ["/provider", "/providerSpec/region", "/providerSpec/location", "/providerSpec/resourceGroup"];
/// The most machines of a deployment that is planned.
const MOST_MACHINES: usize = 10_000;

/// The premises of a plan beside the objects.
#[derive(Clone, Debug, Default)]
pub struct PlanPremises {
    /// Names of Secrets that the files bring.
    pub new_secrets: BTreeSet<String>,
    /// The clouds of classes are asked.
    pub is_live: bool,
    /// Faults that are assumed.
    pub faults: BTreeSet<AssumedFault>,
}

/// Plans changes of objects of one namespace. Nothing is written.
///
/// # Errors
/// An object cannot be read.
pub async fn plan_of(
    cell: &ReadOnly,
    facts: &NamespaceFacts,
    changes: &[PlannedChange],
    premises: PlanPremises,
) -> Result<Plan> {
    check_classes(facts, changes, &premises.faults)?;
    ChangePlanner::for_facts(cell, facts, premises).await.plan(changes).await
}

/// A stock-out of a class that no object can use would change nothing, and its plan would be taken for an all-clear.
fn check_classes(facts: &NamespaceFacts, changes: &[PlannedChange], faults: &BTreeSet<AssumedFault>) -> Result<()> {
    let new = changes.iter().filter(|change| change.kind == CLASS).map(|change| &change.name);
    let known: BTreeSet<&String> = facts.classes.keys().chain(new).collect();
    for fault in faults {
        if let AssumedFault::StockOut(class) = fault
            && !known.contains(class)
        {
            let names: Vec<&str> = known.iter().map(|name| name.as_str()).collect();
            let message = format!("--assume stock-out={class}: there is no MachineClass {class}");
            let hint = match names.is_empty() {
                true => "the namespace has none".to_owned(),
                false => format!("name one of: {}", names.join(", ")),
            };
            return Err(UsageError { message, hint }.into());
        }
    }
    Ok(())
}

/// Parts of the clusters that could not be read.
#[derive(Clone, Copy, Default)]
struct UnreadParts {
    nodes: bool,
    /// Disruption budgets, or their pods.
    budgets: bool,
    secrets: bool,
}

impl UnreadParts {
    /// The plan of an object would differ, or would have something in its way, if these had another content.
    fn matter_to(self, plan: &ObjectPlan) -> bool {
        let PlanSummary { create, delete, in_place, .. } = plan.summary;
        self.nodes && !plan.machines.is_empty()
            || self.budgets && (delete > 0 || in_place > 0 || !plan.settles)
            || self.secrets && (create > 0 || !plan.settles)
    }
}

struct ChangePlanner<'a> {
    cell: &'a ReadOnly,
    facts: &'a NamespaceFacts,
    /// Classes as they will be.
    classes: ByName<MachineClass>,
    secrets: SecretFaults,
    /// Names of Secrets that the files bring.
    new_secrets: BTreeSet<String>,
    nodes: Option<Vec<Value>>,
    /// Classes of which no VM can be created.
    out_of_stock: BTreeSet<String>,
    budgets: Vec<BudgetState>,
    unread: UnreadParts,
    /// The clouds of classes are asked.
    is_live: bool,
    /// Faults are assumed: a strategy bounds no machines that fail.
    has_faults: bool,
    notes: Vec<String>,
}

impl<'a> ChangePlanner<'a> {
    async fn for_facts(cell: &'a ReadOnly, facts: &'a NamespaceFacts, premises: PlanPremises) -> Self {
        let PlanPremises { new_secrets, is_live, faults } = premises;
        let (mut notes, mut unread) = (Vec::new(), UnreadParts::default());
        let mut nodes: Option<Vec<Value>> =
            cell.nodes().map(|nodes| nodes.iter().map(|node| to_value(node.as_ref())).collect());
        if cell.target.is_some() && nodes.is_none() {
            unread.nodes = true;
            notes.push("Nodes could not be read: those of running machines are taken for ready".to_owned());
        }
        let scene = FaultScene::apply(&faults, facts.machines.values(), &facts.classes, nodes.as_mut(), facts.now);
        notes.extend(scene.notes);
        let budgets = match &cell.target {
            Some(target) => budget_reader::strict(target).await.unwrap_or_else(|error| {
                unread.budgets = true;
                notes.push(format!(
                    "pods and budgets could not be read, so blocked drains are unknown: {}",
                    error_line(&error)
                ));
                Vec::new()
            }),
            None => Vec::new(),
        };
        let mut planner = Self {
            cell,
            facts,
            classes: facts.classes.clone(),
            secrets: SecretFaults::default(),
            new_secrets,
            nodes,
            out_of_stock: scene.out_of_stock,
            budgets,
            unread,
            is_live,
            has_faults: !faults.is_empty(),
            notes,
        };
        planner.look_for_secrets(facts.classes.values().cloned().collect()).await;
        planner
    }

    async fn plan(mut self, changes: &[PlannedChange]) -> Result<Plan> {
        let mut plans = Vec::new();
        // Each class is looked at once, for all objects that use it.
        let mut in_clouds: BTreeMap<String, Vec<answer::PlanBlocker>> = BTreeMap::new();
        for change in changes {
            if let Some(plan) = self.undecodable(change) {
                plans.push(plan);
                continue;
            }
            let version = change::version(self.cell, self.facts, change).await?;
            self.notes.extend(version.note.clone());
            let class = version.wanted.clone().filter(|_| change.kind == CLASS);
            if let Some(Ok(class)) = class.map(serde_json::from_value::<MachineClass>) {
                self.look_for_secrets(vec![class]).await;
            }
            let mut plan = match change.kind {
                CLASS => self.class(change, &version),
                _ => self.deployment(change, &version).await,
            };
            if let Some((name, class)) = self.class_of_new_vms(&plan, &version).filter(|_| self.is_live) {
                if !in_clouds.contains_key(name) {
                    in_clouds.insert(name.to_owned(), live::obstacles(self.cell, name, class).await);
                }
                plan.blockers.extend(in_clouds.get(name).into_iter().flatten().cloned());
            }
            plan.bounds = plan.bounds.filter(|_| !self.has_faults);
            plans.push(plan);
        }
        let is_partial = plans.iter().any(|plan| self.unread.matter_to(plan));
        let plan = Plan::from_objects(self.facts.now, plans, self.notes);
        Ok(Plan { complete: plan.complete && !is_partial, ..plan })
    }

    /// The plan for an object as it is that cannot be decoded.
    fn undecodable(&self, change: &PlannedChange) -> Option<ObjectPlan> {
        let is_it = |one: &&UndecodableObject| one.kind == change.kind && one.name == change.name;
        let one = self.facts.unreadable.iter().find(is_it).filter(|_| change.wish == ChangeContent::Nothing)?;
        let namespace = &self.cell.namespace;
        let plan = ObjectPlan::without_effect(change.kind, namespace, &change.name, PlanVerdict::Unknown);
        let blockers = vec![obstacles::of_undecodable(one, namespace)];
        Some(ObjectPlan { reason: Some(one.to_string()), settles: false, blockers, ..plan })
    }

    /// The class from which an object creates VMs, or that is changed itself, with its name.
    fn class_of_new_vms<'b>(
        &'b self,
        plan: &'b ObjectPlan,
        version: &'b ChangedObject,
    ) -> Option<(&'b str, &'b MachineClass)> {
        let wanted = version.wanted.as_ref()?;
        let name = match plan.kind.as_str() {
            CLASS => plan.name.as_str(),
            _ if plan.summary.create > 0 => wanted["spec"]["template"]["spec"]["class"]["name"].as_str()?,
            _ => return None,
        };
        Some((name, self.classes.get(name)?))
    }

    async fn look_for_secrets(&mut self, classes: Vec<MachineClass>) {
        let names: BTreeSet<(String, String)> = classes
            .iter()
            .flat_map(secret_refs)
            .filter(|secret| !secret.name.is_empty())
            .map(|secret| (secret.namespace.clone(), secret.name.clone()))
            .collect();
        let mut is_unknown = false;
        for (namespace, name) in names {
            let namespace = if namespace.is_empty() { &self.cell.namespace } else { &namespace };
            match change::secret(&self.cell.control, namespace, &name).await {
                _ if self.new_secrets.contains(&name) => {}
                PlannedSecret::Complete => {}
                PlannedSecret::WithoutUserData => drop(self.secrets.without_user_data.insert(name)),
                PlannedSecret::Missing => drop(self.secrets.missing.insert(name)),
                PlannedSecret::Unread => is_unknown = true,
            }
        }
        let note = "Secrets may not be read: those of classes are taken for existing and complete".to_owned();
        if is_unknown && !self.notes.contains(&note) {
            self.unread.secrets = true;
            self.notes.push(note);
        }
    }

    /// A class replaces no machine.
    fn class(&mut self, change: &PlannedChange, version: &ChangedObject) -> ObjectPlan {
        let mut plan =
            ObjectPlan::without_effect(CLASS, &self.cell.namespace, &change.name, PlanVerdict::ReplacesNothing);
        if let Some(reason) = &version.refused {
            return ObjectPlan { reason: Some(reason.clone()), ..refused(plan) };
        }
        let users: Vec<(&String, usize)> = (self.facts.deployments.iter())
            .filter(|(_, one)| one.spec.template.spec.class.name == change.name)
            .map(|(name, _)| (name, machines_of_sets(&owned_sets(self.facts, DEPLOYMENT, name), self.facts).len()))
            .collect();
        for (name, count) in &users {
            plan.remarks.push(format!(
                "used by MachineDeployment {name}: {} keep the VMs they have",
                counted(*count, "machine")
            ));
        }
        plan.remarks.extend(self.users_of_old_templates(&change.name));
        let Some(wanted) = &version.wanted else {
            plan.verdict = PlanVerdict::Deletes;
            "DELETES the class".clone_into(&mut plan.headline);
            if self.has_users(&change.name) {
                plan.remarks.push("a finalizer keeps the class until no machine and no deployment uses it".to_owned());
            }
            return plan;
        };
        if let Some(live) = &version.live {
            let changed = differences::<MachineClass>(live, wanted);
            let effect = |one: &ValueDifference| if one.is_same { FieldEffect::Same } else { FieldEffect::NewMachines };
            plan.fields = changed.iter().map(|one| one.field(effect(one))).collect();
            if plan.fields.iter().all(|one| one.effect == FieldEffect::Same) {
                (plan.verdict, plan.headline) = (PlanVerdict::NoChange, PlanVerdict::NoChange.words().to_owned());
            } else {
                let restart = |(name, _): &(&String, usize)| {
                    format!("to replace them: mcm rollout restart {name} -n {}", self.cell.namespace)
                };
                plan.remarks.extend(users.iter().map(restart));
            }
            plan.remarks.extend(self.lost_vms(&change.name, live, wanted));
        } else {
            (plan.verdict, plan.headline) = (PlanVerdict::Creates, "CREATES the class".to_owned());
        }
        match serde_json::from_value::<MachineClass>(wanted.clone()) {
            Ok(class) => {
                let drivers = &self.cell.settings.drivers;
                plan.blockers = obstacles::of_class(&change.name, Some(&class), drivers, &self.secrets);
                self.classes.insert(change.name.clone(), class);
            }
            Err(error) => {
                return ObjectPlan { reason: Some(format!("it cannot be decoded: {error}")), ..refused(plan) };
            }
        }
        plan
    }

    /// The machines of a class.
    fn machines_of_class(&self, class: &str) -> impl Iterator<Item = &Machine> {
        self.facts.machines.values().filter(move |machine| machine.spec.class.name == class)
    }

    /// A deployment, a set or a machine has the class.
    fn has_users(&self, class: &str) -> bool {
        let is_used = |name: &str| name == class;
        self.facts.deployments.values().any(|one| is_used(&one.spec.template.spec.class.name))
            || self.facts.sets.values().any(|one| is_used(&one.spec.template.spec.class.name))
            || self.machines_of_class(class).next().is_some()
    }

    /// Sets and machines that have the class from a template that their deployment has no more, or without a deployment.
    fn users_of_old_templates(&self, class: &str) -> Option<String> {
        let of_deployments = self.facts.deployments.iter();
        let users = of_deployments.filter(|(_, one)| one.spec.template.spec.class.name == class);
        let current: BTreeSet<String> =
            users.flat_map(|(name, _)| owned_sets(self.facts, DEPLOYMENT, name)).map(ResourceExt::name_any).collect();
        let is_old = |set: &&MachineSet| !current.contains(&set.name_any());
        let sets = self.facts.sets.values().filter(|set| set.spec.template.spec.class.name == class).filter(is_old);
        let of_current = |machine: &Machine| {
            let mut owners = machine.metadata.owner_references.iter().flatten();
            owners.any(|owner| owner.controller == Some(true) && current.contains(&owner.name))
        };
        let (sets, machines) =
            (sets.count(), self.machines_of_class(class).filter(|machine| !of_current(machine)).count());
        let parts = [(sets, "MachineSet"), (machines, "machine")].into_iter().filter(|(number, _)| *number > 0);
        let parts: Vec<String> = parts.map(|(number, thing)| counted(number, thing)).collect();
        let whose = "whose deployments use another class, or that have none";
        (!parts.is_empty()).then(|| format!("used by {} {whose}", parts.join(" and ")))
    }

    /// The VMs of a class that its driver can find no more after a change.
    fn lost_vms(&self, class: &str, live: &Value, wanted: &Value) -> Option<String> {
        let count = self.machines_of_class(class).filter(|machine| !machine.spec.provider_id.is_empty()).count();
        let moved: Vec<String> = PLACES
            .iter()
            .filter(|at| live.pointer(at) != wanted.pointer(at))
            .map(|at| at.trim_start_matches('/').replace('/', "."))
            .collect();
        (count > 0 && !moved.is_empty()).then(|| {
            format!(
                "{} changes: the {} that the class has can then be neither found nor deleted by the controllers; make another \
                 class instead, and roll the deployments to it",
                moved.join(" and "),
                counted(count, "VM")
            )
        })
    }

    /// The plan for a deployment, or for a set without one, after what holds it up now.
    async fn deployment(&self, change: &PlannedChange, version: &ChangedObject) -> ObjectPlan {
        let mut plan = self.judged(change, version).await;
        if version.live.is_none() || plan.verdict == PlanVerdict::Refused {
            return plan;
        }
        let object = self.facts.subject(change.kind, &change.name);
        let (answer, is_changed) = (self.facts.answer(&object), change.wish != ChangeContent::Nothing);
        let mut of_now = obstacles::of_now(&answer, is_changed);
        let late = obstacles::of_late_joins(&answer, |machine| self.facts.is_late_join(machine));
        of_now.extend(late.filter(|_| !is_changed));
        // One text for each fact, unless it is worse now.
        let is_as_bad = |known: &answer::PlanBlocker, one: &answer::PlanBlocker| {
            known.wait_kind == one.wait_kind && known.severity >= one.severity
        };
        let is_new = |one: &answer::PlanBlocker| !plan.blockers.iter().any(|known| is_as_bad(known, one));
        let mut of_now: Vec<answer::PlanBlocker> = of_now.into_iter().filter(is_new).collect();
        // A pause that holds a template back now is worse than one that will.
        let paused = format!("{:?}", WaitKind::Paused);
        let is_paused = of_now.iter().any(|one| one.wait_kind == paused);
        plan.blockers.retain(|known| !is_paused || known.wait_kind != paused);
        // A pool that is settled needs no manager until it is changed.
        let has_effect = plan.verdict != PlanVerdict::NoChange;
        let absent = self.facts.absent_manager(&object).filter(|_| has_effect);
        let absent = absent.map(|wait| obstacles::blocker_now((&object, &wait)));
        let is_known = |one: &answer::PlanBlocker| of_now.iter().any(|known| known.wait_kind == one.wait_kind);
        if let Some(absent) = absent.filter(|one| !is_known(one)) {
            of_now.insert(0, absent);
        }
        plan.blockers.splice(0..0, of_now);
        plan
    }

    async fn judged(&self, change: &PlannedChange, version: &ChangedObject) -> ObjectPlan {
        let mut plan =
            ObjectPlan::without_effect(change.kind, &self.cell.namespace, &change.name, PlanVerdict::Unknown);
        let mut version = version.clone();
        if let Some(reason) = &version.refused {
            return ObjectPlan { reason: Some(reason.clone()), ..refused(plan) };
        }
        let typed = |value: &Option<Value>| value.as_ref().map(|value| typed(change.kind, value)).transpose();
        let (live, mut wanted): (Option<MachineDeployment>, Option<MachineDeployment>) =
            match (typed(&version.live), typed(&version.wanted)) {
                (Ok(live), Ok(wanted)) => (live, wanted),
                (Err(error), _) => {
                    return ObjectPlan { reason: Some(format!("it cannot be decoded: {error}")), ..plan };
                }
                (_, Err(error)) => {
                    return ObjectPlan { reason: Some(format!("it cannot be decoded: {error}")), ..refused(plan) };
                }
            };
        if let (Some(live), Some(wanted), Some(value)) = (&live, &mut wanted, &mut version.wanted)
            && live.spec.replicas > 0
            && value["spec"]["replicas"].is_null()
            && keeps_machines(wanted)
        {
            wanted.spec.replicas = live.spec.replicas;
            value["spec"]["replicas"] = json!(live.spec.replicas);
            plan.remarks.push(format!("the change removes spec.replicas: the controllers keep {}", live.spec.replicas));
        }
        if let Some(Err(reason)) = wanted.as_ref().map(bounds_of) {
            return ObjectPlan { reason: Some(reason), ..refused(plan) };
        }
        let scope = PlanScope::of_object(self.facts, change.kind, &change.name, [live.as_ref(), wanted.as_ref()]);
        if let Some(reason) = self.unknown_part(&change.name, &scope.sets, wanted.as_ref()) {
            return ObjectPlan { reason: Some(reason), ..plan };
        }
        let wished = wanted.as_ref().map_or(0, |wanted| usize::try_from(wanted.spec.replicas).unwrap_or_default());
        if scope.machines.len().saturating_add(scope.rivals.len()).max(wished) > MOST_MACHINES {
            let reason = format!("more than {MOST_MACHINES} machines are not planned");
            return ObjectPlan { reason: Some(reason), ..plan };
        }
        match self.play(change, &version, [live.as_ref(), wanted.as_ref()], scope, plan.clone()).await {
            Ok(plan) => plan,
            Err(failure) => ObjectPlan { reason: Some(failure.to_string()), settles: false, ..plan },
        }
    }

    /// Why it is not known which machines a deployment has, or from which class it makes them.
    fn unknown_part(&self, name: &str, sets: &[&MachineSet], wanted: Option<&MachineDeployment>) -> Option<String> {
        let is_needed =
            |one: &&UnreadKind| matches!(one.cause, UnreadCause::Refusal(_)) && NEEDED.contains(&one.kind.as_str());
        if let Some(unread) = self.cell.unread.iter().find(is_needed) {
            return Some(format!("you may not list {}", unread.kind));
        }
        let sets: BTreeSet<String> = sets.iter().map(|set| set.name_any()).collect();
        let is_part = |one: &&UndecodableObject| match (one.kind.as_str(), &one.owner) {
            (SET, Some(owner)) => owner == name,
            (MACHINE, Some(owner)) => sets.contains(owner),
            (CLASS, _) => {
                let is_used = wanted.is_some_and(|wanted| wanted.spec.template.spec.class.name == one.name);
                is_used && !self.classes.contains_key(&one.name)
            }
            _ => false,
        };
        self.facts.unreadable.iter().find(is_part).map(ToString::to_string)
    }

    async fn play(
        &self,
        change: &PlannedChange,
        version: &ChangedObject,
        [live, wanted]: [Option<&MachineDeployment>; 2],
        scope: PlanScope<'_>,
        mut plan: ObjectPlan,
    ) -> Result<ObjectPlan, crate::rehearsal::play::RehearsalError> {
        let is_deployment = change.kind == DEPLOYMENT;
        let class = wanted.map(|wanted| wanted.spec.template.spec.class.name.clone());
        let strategy = wanted.and_then(|wanted| wanted.spec.strategy.in_place_update.as_ref());
        let PlanScope { sets, mut machines, adopts, rivals } = scope;
        let scene = RehearsalFacts {
            now: self.facts.now,
            namespace: &self.cell.namespace,
            settings: &self.cell.settings,
            has_target: self.cell.target.is_some(),
            deployment: version.live.as_ref().filter(|_| is_deployment),
            sets,
            classes: self.classes_of(&machines, class.as_deref(), &rivals),
            machines: machines.clone(),
            secrets: &self.secrets,
            out_of_stock: &self.out_of_stock,
            nodes: self.nodes_of(&machines, &rivals),
            rivals,
            selects: strategy.is_some_and(|strategy| strategy.orchestration_type == "Manual"),
            join: outcome::join_of(&machines),
        };
        let fields = match (&version.live, &version.wanted, live) {
            (Some(before), Some(after), Some(live)) => {
                scene.fields(live, differences::<MachineDeployment>(before, after)).await?
            }
            _ => Vec::new(),
        };
        let cue = match (&version.live, &version.wanted) {
            (_, None) => Some(DeploymentWrite::Delete),
            (None, Some(wanted)) => Some(DeploymentWrite::Create(wanted.clone())),
            (Some(_), Some(wanted)) => {
                (change.wish != ChangeContent::Nothing).then(|| DeploymentWrite::Write(wanted.clone()))
            }
        };
        let (sets, nodes) = (scene.sets.as_slice(), scene.nodes.as_deref());
        let whole = WholeDeployment { live, wanted, sets, machines: &machines, nodes, now: scene.now };
        let folds = if is_deployment && !adopts { MachineFold::all_of(&whole) } else { Vec::new() };
        let (course, fold) = scene.play(&change.name, cue, &folds).await?;
        machines.retain(|machine| !course.others.contains(&machine.name_any()));
        let policy = &self.cell.settings.machine;
        PlannedDeployment { live, wanted, machines: &machines, policy, fields, now: self.facts.now }
            .fill(&mut plan, &course);
        if let Some((fold, trust)) = fold {
            plan.remarks.push(fold.remark(trust));
            fold::mark(&mut plan, trust);
        }
        let under_way = outcome::under_way(&machines);
        plan.is_settled =
            plan.verdict == PlanVerdict::NoChange && plan.settles && under_way.is_none() && plan.summary.adopt == 0;
        plan.remarks.extend(under_way);

        let of_deployment = wanted.filter(|_| is_deployment);
        let mut blockers = obstacles::of_objects(&plan, of_deployment, &machines, self.facts.now);
        if let Some(class) = class.filter(|_| plan.summary.create > 0 || !plan.settles) {
            let drivers = &self.cell.settings.drivers;
            blockers.extend(obstacles::of_class(&class, self.classes.get(&class), drivers, &self.secrets));
            blockers
                .extend((!plan.settles && self.out_of_stock.contains(&class)).then(|| obstacles::of_stock_out(&class)));
        }
        blockers.extend(obstacles::of_budgets(&plan, &self.budgets, &machines, policy.drain_timeout));
        let overshoot = &self.cell.settings.overshoot;
        blockers.extend(obstacles::of_frozen_sets(&scene.sets, &course, &machines, of_deployment, overshoot));
        if !plan.settles && blockers.is_empty() {
            blockers.extend(obstacles::of_waits(&course.waits, &self.cell.namespace));
            if fold.is_some() && !blockers.is_empty() {
                plan.remarks
                    .push("numbers of what is in the way are those of the machines that were played".to_owned());
            }
        }
        plan.blockers = blockers;
        Ok(plan)
    }

    /// The classes of machines, of new machines, and of the machines of other objects.
    fn classes_of(&self, machines: &[&Machine], class: Option<&str>, rivals: &[SeedObject]) -> Vec<&MachineClass> {
        let of_rivals = rivals.iter().filter_map(|(_, value)| {
            ["/spec/class/name", "/spec/template/spec/class/name"].iter().find_map(|at| value.pointer(at)?.as_str())
        });
        let of_machines = machines.iter().map(|machine| machine.spec.class.name.as_str());
        let names: BTreeSet<&str> = of_machines.chain(class).chain(of_rivals).collect();
        names.into_iter().filter_map(|name| self.classes.get(name)).collect()
    }

    /// The Nodes of the machines, and of those of other objects.
    fn nodes_of(&self, machines: &[&Machine], rivals: &[SeedObject]) -> Option<Vec<Value>> {
        let of_rivals = rivals.iter().filter_map(|(_, value)| value["metadata"]["labels"]["node"].as_str());
        let names: BTreeSet<&str> =
            machines.iter().filter_map(|machine| machine.node_name()).chain(of_rivals).collect();
        let is_of = |node: &&Value| node["metadata"]["name"].as_str().is_some_and(|name| names.contains(name));
        Some(self.nodes.as_ref()?.iter().filter(is_of).cloned().collect())
    }
}

fn refused(plan: ObjectPlan) -> ObjectPlan {
    ObjectPlan {
        verdict: PlanVerdict::Refused,
        headline: PlanVerdict::Refused.words().to_owned(),
        summary: PlanSummary::default(),
        ..plan
    }
}

/// The deployment of a value. For a set without one it is a deployment that has only this set, so that no bounds apply.
fn typed(kind: &str, value: &Value) -> serde_json::Result<MachineDeployment> {
    let mut value = value.clone();
    if kind == SET {
        value["spec"]["strategy"] = json!({ "type": "Recreate" });
        value["status"] = json!({});
    }
    serde_json::from_value(value)
}
