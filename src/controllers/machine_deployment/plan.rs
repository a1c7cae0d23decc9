use std::sync::Arc;

use kube::ResourceExt;

use super::{
    Action, Failure, Policy, Snapshot, autoscaler, conditions,
    draft::Draft,
    hash_label, history,
    naming::identity_for,
    nodes::Nodes,
    revision, rollback,
    rollout::{self, Bounds, Count},
    scale::{self, Mode},
    sets::{Family, SetView},
    status::{self, Facts},
    steps::{emit_creation, emit_deployment, emit_status, machines, push, resize, resize_for_now, wait_for_unreadable},
    validate::{Invalid, Wish, validate},
};
use crate::{
    api::{
        labels,
        machine::{Machine, MachineDeployment, MachineDeploymentStatus, MachineSet, StrategyType},
        reasons::{ConditionReason, ConditionType, EventReason},
    },
    controllers::plan::{Note, Plan},
};

/// What a deployment does next. To be asked again, with a fresh snapshot, until there are no steps.
pub fn plan(snapshot: &Snapshot, policy: &Policy) -> Plan<Action> {
    if snapshot.deployment.metadata.deletion_timestamp.is_some() {
        return delete(snapshot);
    }
    match validate(&snapshot.deployment) {
        Err(invalid) => refuse(snapshot, &invalid),
        Ok(wish) if wish.strategy == StrategyType::InPlaceUpdate => stand_by(snapshot, &wish),
        Ok(wish) => Work::begin(snapshot, policy, &wish).plan(),
    }
}

/// All sets go, then the finalizer.
fn delete(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    let deployment = &snapshot.deployment;
    if !deployment.finalizers().iter().any(|finalizer| finalizer == labels::FINALIZER) {
        return plan;
    }
    let family = Family::controlled(snapshot);
    for set in family.sets.iter().filter(|set| !set.is_deleting()) {
        let reason = format!("delete set {}: its deployment is being deleted", set.name());
        plan.then(Action::DeleteSet(set.draft.seen().clone()), reason);
    }
    if !family.sets.is_empty() {
        plan.wait(format!("{} sets with {} to be gone", family.sets.len(), machines(family.existing())), None);
        return plan;
    }
    if !snapshot.unreadable.is_empty() {
        wait_for_unreadable(&mut plan, &snapshot.unreadable);
        return plan;
    }
    let mut draft = Draft::of(deployment.clone());
    draft.edit("no set is left: let the deployment go", |deployment| {
        deployment.finalizers_mut().retain(|finalizer| finalizer != labels::FINALIZER);
    });
    emit_deployment(&mut plan, draft);
    plan
}

/// The spec makes no sense: say so, and do nothing else.
fn refuse(snapshot: &Snapshot, invalid: &Invalid) -> Plan<Action> {
    let mut plan = Plan::default();
    let message = invalid.to_string();
    let mut status = snapshot.deployment.status.clone().unwrap_or_default();
    status.observed_generation = snapshot.deployment.metadata.generation.unwrap_or_default();
    let reading = conditions::Reading::is_true(ConditionReason::InvalidSpec, message.clone());
    let said = conditions::find(&status.conditions, ConditionType::Invalid);
    // The same reason may stand for another mistake.
    let reading = if said.is_some_and(|said| said.message != message) { reading.confirmed() } else { reading };
    conditions::set(&mut status.conditions, ConditionType::Invalid, reading, autoscaler::whole_seconds(snapshot.now));
    let event = match invalid {
        Invalid::SelectsAll => EventReason::SelectingAll,
        Invalid::Fields(_) => EventReason::InvalidSpec,
    };
    emit_status(&mut plan, snapshot, status, Some(Note::warning(event, message.clone())));
    plan.wait(format!("the spec to be corrected: {message}"), None);
    plan
}

/// In-place updates are not available yet: keep the finalizer and the status, touch nothing.
fn stand_by(snapshot: &Snapshot, wish: &Wish) -> Plan<Action> {
    const TEXT: &str = "in-place updates are not available yet: no set is created or changed; \
                        use the strategy RollingUpdate or Recreate to have machines replaced";
    let mut plan = Plan::default();
    let mut deployment = Draft::of(snapshot.deployment.clone());
    add_finalizer(&mut deployment);
    emit_deployment(&mut plan, deployment);
    let family = Family::controlled(snapshot);
    if !family.unknown.is_empty() {
        wait_for_unreadable(&mut plan, &family.unknown);
        return plan;
    }
    let facts = Facts { snapshot, family: &family, bounds: &wish.bounds, created: None, collisions: 0 };
    let status = status::status_of(&facts);
    let observed = snapshot.deployment.status.as_ref().map_or(0, |status| status.observed_generation);
    let is_news = observed != status.observed_generation;
    emit_status(&mut plan, snapshot, status, is_news.then(|| Note::warning(EventReason::Waiting, TEXT)));
    plan.wait(TEXT, None);
    plan
}

/// One pass over a deployment that can be acted on.
struct Work<'a> {
    snapshot: &'a Snapshot,
    bounds: &'a Bounds,
    strategy: StrategyType,
    deployment: Draft<MachineDeployment>,
    family: Family,
    nodes: Nodes<'a>,
    marked: Vec<Draft<Machine>>,
    created: Option<MachineSet>,
    collisions: i32,
}

impl<'a> Work<'a> {
    fn begin(snapshot: &'a Snapshot, policy: &Policy, wish: &'a Wish) -> Self {
        let stored = snapshot.deployment.status.as_ref().and_then(|status| status.collision_count).unwrap_or_default();
        let family = Family::gather(snapshot, &wish.selector);
        let taken = snapshot.failure == Some(Failure::NameTaken) && family.new.is_none();
        Self {
            snapshot,
            bounds: &wish.bounds,
            strategy: wish.strategy,
            deployment: Draft::of(snapshot.deployment.clone()),
            family,
            nodes: Nodes::of(snapshot, policy),
            marked: Vec::new(),
            created: None,
            collisions: if taken { stored.saturating_add(1) } else { stored },
        }
    }

    fn plan(mut self) -> Plan<Action> {
        add_finalizer(&mut self.deployment);
        if !self.family.unknown.is_empty() {
            let mut plan = Plan::default();
            emit_deployment(&mut plan, self.deployment);
            wait_for_unreadable(&mut plan, &self.family.unknown);
            return plan;
        }
        self.marked = autoscaler::mark_machines(&mut self.deployment, self.snapshot);
        let spec = &self.snapshot.deployment.spec;
        if let Some(request) = spec.rollback_to.as_ref().filter(|_| !spec.paused) {
            rollback::roll_back(&mut self.deployment, &mut self.family, &mut self.nodes, request);
            return self.emit(None, Vec::new());
        }
        revision::keep_in_step(&mut self.family, self.deployment.wanted());
        let labelled =
            hash_label::complete(&mut self.family, &self.snapshot.deployment.name_any(), &self.snapshot.sets);
        self.marked = merged(self.marked, labelled);
        if !self.scale(spec.paused) && !spec.paused {
            self.prepare_nodes();
            match self.strategy {
                StrategyType::Recreate => self.recreate(),
                StrategyType::RollingUpdate | StrategyType::InPlaceUpdate => self.roll(),
            }
        }
        self.follow_revision();
        self.finish()
    }

    /// Machines of two sets may exist side by side.
    fn mixes(&self) -> bool {
        self.strategy == StrategyType::RollingUpdate
    }

    fn scalable(&self) -> Vec<scale::Scalable> {
        let sets = self.family.sets.iter().enumerate().filter(|(_, set)| !set.is_deleting());
        sets.map(|(index, set)| set.scalable(Some(index) == self.family.new)).collect()
    }

    /// The replicas were changed, or nothing but the replicas may change. True if that gave a set another size, which
    /// is enough for one plan.
    fn scale(&mut self, paused: bool) -> bool {
        let sets = self.scalable();
        let side_by_side = sets.iter().filter(|set| set.count.planned() > 0).count() > 1;
        let waits_for_old = !self.mixes() && (!paused || side_by_side);
        if waits_for_old || !scale::is_pending(self.bounds, &sets, paused) {
            return false;
        }
        let departing = self.family.sets.iter().filter(|set| set.is_deleting()).map(SetView::count).sum();
        let mode = Mode { paused, mixes: self.mixes(), departing };
        let wanted = scale::sizes(self.bounds, &sets, mode);
        let sizes = scale::fitted(self.bounds, &sets, mode, &wanted);
        let is_resized = sets.iter().zip(&sizes).any(|(set, size)| set.count.spec != *size);
        if !paused && !is_resized {
            return false;
        }
        let new = self.family.new;
        let why = format!("{} wanted", machines(self.bounds.desired));
        let sets = self.family.sets.iter_mut().enumerate().filter(|(_, set)| !set.is_deleting());
        for ((index, set), (size, wanted)) in sets.zip(sizes.into_iter().zip(wanted)) {
            match size == wanted {
                true => resize(set, Some(index) == new, self.bounds, size, &why),
                false => {
                    resize_for_now(set, Some(index) == new, size, &format!("{why}, and there is no room for more"))
                }
            }
        }
        is_resized
    }

    /// Before old Machines go: new pods avoid their Nodes, and the autoscaler waits. After: the reverse.
    fn prepare_nodes(&mut self) {
        if self.family.is_rolling() {
            for set in &self.family.sets {
                self.nodes.disable_scale_down(set);
            }
            if self.mixes() {
                for set in self.family.old_sets_mut() {
                    self.nodes.taint(set);
                }
            }
        }
        if let Some(set) = self.family.new_set_mut() {
            self.nodes.untaint(set);
        }
    }

    /// New Machines come and old ones go, within bounds.
    fn roll(&mut self) {
        let old: Vec<Count> = self.family.old_sets().map(SetView::count).collect();
        let existing: i32 = old.iter().map(Count::planned).sum();
        let Some(new) = self.family.new_set().map(SetView::count) else {
            let size = rollout::new_size(self.bounds, &Count::default(), &old);
            self.create(size);
            return;
        };
        let bounds = self.bounds;
        let room =
            format!("{} machines exist or are asked for, at most {} may", existing + new.planned(), bounds.at_most());
        let new_size = rollout::new_size(bounds, &new, &old);
        if let Some(set) = self.family.new_set_mut() {
            resize(set, true, bounds, new_size, &room);
        }
        let available = new.available_now() + old.iter().map(Count::available_now).sum::<i32>();
        let spare = format!("{} stay available, at least {} must", machines(available), bounds.at_least());
        let sizes = rollout::old_sizes(bounds, &new, &old);
        for (set, size) in self.family.old_sets_mut().zip(sizes) {
            resize(set, false, bounds, size, &spare);
        }
    }

    /// All old Machines go before the first new one comes.
    fn recreate(&mut self) {
        let bounds = self.bounds;
        for set in self.family.old_sets_mut() {
            resize(set, false, bounds, 0, "all machines are replaced at once");
        }
        // A set that has not heard of its new size may still be creating Machines.
        if self.family.old_sets().any(|set| set.wanted_replicas() != set.count().spec || !is_gone(set)) {
            return;
        }
        let Some(new) = self.family.new_set().map(SetView::count) else { return self.create(bounds.desired) };
        // Only a wish for more Machines does not wait for those that leave.
        let is_scaled = scale::is_pending(bounds, &self.scalable(), false);
        let size = if is_scaled { bounds.desired } else { rollout::new_size(bounds, &new, &[]) };
        if let Some(set) = self.family.new_set_mut() {
            resize(set, true, bounds, size, &format!("{} wanted", machines(bounds.desired)));
        }
    }

    fn create(&mut self, replicas: i32) {
        let deployment = &self.snapshot.deployment;
        let identity = identity_for(
            &deployment.name_any(),
            &deployment.spec.template,
            self.collisions,
            self.snapshot.sets.iter().map(Arc::as_ref),
        );
        let revision = revision::next_revision(&self.family);
        self.created = Some(revision::new_set(self.deployment.wanted(), &identity, self.bounds, revision, replicas));
    }

    fn follow_revision(&mut self) {
        let revision = match &self.created {
            Some(set) => revision::revision_of(set),
            None => self.family.new_set().map_or(0, |set| revision::revision_of(set.draft.wanted())),
        };
        revision::note_revision(&mut self.deployment, revision);
    }

    /// Status and clean-up, from all that was decided.
    fn finish(mut self) -> Plan<Action> {
        let name = self.created.as_ref().map(|set| (set.name_any(), set.spec.replicas));
        let facts = Facts {
            snapshot: self.snapshot,
            family: &self.family,
            bounds: self.bounds,
            created: name.as_ref().map(|(name, size)| (name.as_str(), *size)),
            collisions: self.collisions,
        };
        let status = status::status_of(&facts);
        let deadline = status::progress_deadline(&facts, &status);
        let spec = &self.snapshot.deployment.spec;
        let is_complete = status::is_complete(&status, spec.replicas) && !self.family.is_rolling();
        if is_complete
            && !spec.paused
            && let Some(set) = self.family.new_set()
        {
            self.nodes.allow_scale_down(set);
        }
        let surplus = if is_complete || spec.paused {
            history::surplus(&self.family, spec.revision_history_limit)
        } else {
            Vec::new()
        };
        let waits = self.waits();
        let mut plan = self.emit(Some(status), surplus);
        for wait in waits {
            plan.wait(wait, deadline);
        }
        plan
    }

    /// What has to happen elsewhere.
    fn waits(&self) -> Vec<String> {
        let mut waits = Vec::new();
        if self.snapshot.deployment.spec.paused && (self.family.new.is_none() || self.family.is_rolling()) {
            waits.push("the deployment to be resumed: it is paused, so nothing is rolled out".to_owned());
        }
        if let Some(set) = &self.created {
            waits.push(format!("new set {} to make {}", set.name_any(), machines(set.spec.replicas)));
        }
        if let Some(set) = self.family.new_set() {
            let (name, count) = (set.name(), set.count());
            let missing = self.bounds.desired - count.available;
            if set.is_deleting() {
                waits.push(format!("new set {name} to be gone: it was deleted and will be created again"));
            } else if missing > 0 {
                waits.push(format!("{} of new set {name} to become available", machines(missing)));
            }
            if count.live > count.spec && !set.is_deleting() {
                waits.push(format!("new set {name} to delete {}", machines(count.live - count.spec)));
            }
            if count.terminating > 0 {
                waits.push(format!("{} of new set {name} to be gone", machines(count.terminating)));
            }
        }
        for set in self.family.old_sets().filter(|set| !is_gone(set)) {
            let planned = set.count().planned();
            waits.push(match planned {
                0 => format!("old set {} to notice its new size", set.name()),
                _ => format!("{} of old set {} to be gone", machines(planned), set.name()),
            });
        }
        waits
    }

    /// The steps, in the order in which they are safe: marks before sizes, Nodes before their Machines, status last.
    fn emit(self, status: Option<MachineDeploymentStatus>, surplus: Vec<Arc<MachineSet>>) -> Plan<Action> {
        let mut plan = Plan::default();
        let Self { snapshot, deployment, family, nodes, marked, created, bounds, .. } = self;
        let failed = match &snapshot.failure {
            Some(Failure::Other { message }) if created.is_some() => Some(Note::warning(
                EventReason::MachineSetCreateError,
                format!("Failed to create new machine set: {message}"),
            )),
            _ => None,
        };
        // What failed may fail again; it must not keep the status from saying so.
        let (early, late) =
            if snapshot.failure.is_some() && created.is_some() { (status, None) } else { (None, status) };

        emit_deployment(&mut plan, deployment);
        if let Some(status) = early {
            emit_status(&mut plan, snapshot, status, failed);
        }
        for change in marked.into_iter().filter_map(Draft::finish) {
            plan.then(Action::PatchMachine { machine: change.seen, patch: change.patch }, change.reason);
        }
        for change in nodes.finish().filter_map(Draft::finish) {
            plan.then(Action::PatchNode { node: change.seen, patch: change.patch }, change.reason);
        }
        if let Some(set) = created {
            emit_creation(&mut plan, set, &family, bounds);
        }
        let Family { sets, new, released, .. } = family;
        let (new_sets, old_sets): (Vec<_>, Vec<_>) =
            sets.into_iter().enumerate().partition(|(index, _)| Some(*index) == new);
        let drafts = new_sets.into_iter().chain(old_sets).map(|(_, set)| set.draft).chain(released);
        for change in drafts.filter_map(Draft::finish) {
            let action = Action::PatchSet { set: change.seen, patch: change.patch };
            push(&mut plan, action, change.reason, change.note);
        }
        for set in surplus {
            let reason =
                format!("delete old set {}: it is empty and beyond the revision history limit", set.name_any());
            plan.then(Action::DeleteSet(set), reason);
        }
        if let Some(status) = late {
            emit_status(&mut plan, snapshot, status, None);
        }
        plan
    }
}

/// No Machine is left of it, and none can come.
fn is_gone(set: &SetView) -> bool {
    set.count().planned() == 0 && set.is_observed()
}

fn add_finalizer(deployment: &mut Draft<MachineDeployment>) {
    if !deployment.seen().finalizers().iter().any(|finalizer| finalizer == labels::FINALIZER) {
        deployment.edit("its sets must be deleted before it may go: add the finalizer", |deployment| {
            deployment.finalizers_mut().push(labels::FINALIZER.to_owned());
        });
    }
}

/// One draft for each Machine, whoever wants to change it.
fn merged(mut drafts: Vec<Draft<Machine>>, more: Vec<Draft<Machine>>) -> Vec<Draft<Machine>> {
    // What is left out comes with the next plan.
    let is_new = |draft: &Draft<Machine>| !drafts.iter().any(|other| Arc::ptr_eq(other.seen(), draft.seen()));
    let more: Vec<_> = more.into_iter().filter(is_new).collect();
    drafts.extend(more);
    drafts
}
