//! The plan of a migration: its checks, its steps, and the next step.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Kind, MachineObjects, MigrationDirection, MigrationStage, MigrationUnit, ObjectId, Snapshot, UnstructuredObject,
    checks::{checks, converted},
    group, hand_over,
    hold::{pause_all, resume_all},
    route::MigrationRoute,
    step::{Action, MigrationWrite, RemainingWork, each, wait, want, want_status, write},
    verdicts::{MigrationCheck, OF_MACHINE},
};
use mcm_conversion::types::{MCMMigration, MachineAuthority, MigratedMachine, MigrationSide};

/// Condition of an MCMMigration.
pub const MIGRATED: &str = "Migrated";
const REFUSED: &str = "every check to pass";
/// The most changed Nodes in that condition.
const MOST_CHANGES: usize = 20;

/// A plan for one deployment, or one machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The migrated unit.
    #[serde(flatten)]
    pub unit: MigrationUnit,
    /// The new owner of the machines.
    pub to: MigrationSide,
    /// The stage of the migration.
    pub stage: MigrationStage,
    /// Preconditions of the migration; empty once it has begun and the machines are recorded.
    pub checks: Vec<MigrationCheck>,
    /// Losses that change no VM, and Nodes that were lost or restarted during a complete migration.
    pub losses: Vec<String>,
    /// All steps, in order.
    pub steps: Vec<StepState>,
    /// Commands that the user runs when a step waits for their results.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_hand: Vec<String>,
    /// The remaining work of the current step.
    #[serde(skip)]
    pub todo: RemainingWork,
    /// The current step depends on the state of the VMs.
    #[serde(skip)]
    pub asks_cloud: bool,
}

/// A step, and whether it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepState {
    /// The purpose of the step.
    pub title: &'static str,
    /// The progress of the step.
    pub progress: StepProgress,
}

/// The progress of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum StepProgress {
    /// No work remains.
    Done,
    /// The next step.
    Current,
    /// The step is not reached yet.
    Later,
}

/// A plan cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlan {
    /// A migration in another direction is not complete.
    #[error(
        "{unit}: a migration to {to:?} is in progress: complete it with mcm adopt apply, or undo it with mcm adopt \
         abort"
    )]
    OtherWay {
        /// The migrated unit.
        unit: MigrationUnit,
        /// The new owner.
        to: MigrationSide,
    },
    /// It is being undone.
    #[error("{unit}: its migration is being undone: complete that with mcm adopt abort")]
    Aborting {
        /// The migrated unit.
        unit: MigrationUnit,
    },
    /// The MCMMigration of the name has another unit.
    #[error("{unit}: MCMMigration {} belongs to {other}, which has the same name: rename one of them, or delete the MCMMigration if it is complete and not to be reversed", .unit.name())]
    OtherUnit {
        /// The requested unit.
        unit: MigrationUnit,
        /// The unit of the MCMMigration.
        other: MigrationUnit,
    },
    /// It cannot be undone.
    #[error(
        "{unit}: there is nothing to undo: no migration is in progress, or its authority is already switched; mcm adopt \
         apply completes it, or reverses a complete one"
    )]
    NothingToUndo {
        /// The requested unit.
        unit: MigrationUnit,
    },
}

impl Plan {
    /// The failed checks.
    pub fn failed(&self) -> impl Iterator<Item = &MigrationCheck> {
        self.checks.iter().filter(|check| !check.passed)
    }

    /// The side that owns the machines.
    pub fn side_of_machines(&self, way: MigrationDirection) -> MigrationSide {
        if self.stage == MigrationStage::Closing { way.to() } else { way.from() }
    }

    /// The current step, counted from 1.
    pub fn current(&self) -> Option<(usize, &StepState)> {
        (1..).zip(&self.steps).find(|(_, step)| step.progress == StepProgress::Current)
    }
}

/// Plans the next step of a migration.
///
/// # Errors
/// The unit is migrated in another direction.
pub fn plan(s: &Snapshot, way: MigrationDirection) -> Result<Plan, NoPlan> {
    if way == MigrationDirection::FromStandIn {
        return Ok(plan_hand_over(s));
    }
    let migration = s.migration();
    let stage = stage_of(s, migration.as_ref(), way)?;
    let mut plan = Plan::begun(s, way, stage);
    let recorded = migration.as_ref().and_then(|migration| migration.status.as_ref());
    let is_recorded = recorded.is_some_and(|status| !status.machines.is_empty());
    if stage == MigrationStage::Fresh || (stage == MigrationStage::Forward && !is_recorded) {
        plan.checks = checks(s, way);
        plan.losses = converted(s, way).losses.iter().map(ToString::to_string).collect();
        plan.asks_cloud = stage == MigrationStage::Fresh;
    }
    if stage == MigrationStage::Backward {
        let route = MigrationRoute::in_direction(way.back(), &s.unit);
        for step in route.before.iter().rev() {
            plan.add(step.title, || step.undo.map(|undo| undo(s)).unwrap_or_default());
        }
        plan.add(route.pause, || resume_all(s, way.back()));
        plan.add("restore the authority", || switch(s, way.to(), "Aborted"));
        plan.asks_cloud |= plan.todo.asks_cloud;
        return Ok(plan);
    }
    if s.unit.is_pool() && matches!(stage, MigrationStage::Fresh | MigrationStage::Forward) {
        plan.by_hand = group::commands(s, way);
    }
    if stage == MigrationStage::Done {
        plan.losses.extend(noted(migration.as_ref()));
    }
    let is_begun = stage != MigrationStage::Fresh;
    let is_done = stage == MigrationStage::Done;
    let is_switched = is_done || stage == MigrationStage::Closing;
    let is_refused = plan.failed().next().is_some();
    let route = MigrationRoute::in_direction(way, &s.unit);
    plan.add_unless(is_begun, "suspend the authority of the controllers", || begin(s, way, is_refused));
    plan.add_unless(is_switched, route.pause, || pause_all(s, way));
    let is_over = is_switched || is_recorded;
    let is_recording = plan.add_unless(is_over, "record machines, VMs and Nodes", || record(s, way, is_refused));
    for step in route.before {
        plan.add_unless(is_switched, step.title, || (step.todo)(s));
    }
    plan.add_unless(is_switched, "switch the authority", || switch(s, way.to(), "Switched"));
    for step in route.after {
        plan.add_unless(is_done, step.title, || (step.todo)(s));
    }
    let is_comparing = plan.add_unless(is_done, "compare VMs and Nodes with the record", || finish(s, way));
    plan.asks_cloud |= is_recording || is_comparing || plan.todo.asks_cloud;
    Ok(plan)
}

/// The stand-in performs its part, so there is no MCMMigration of ours.
fn plan_hand_over(s: &Snapshot) -> Plan {
    let mut plan = Plan::begun(s, MigrationDirection::FromStandIn, hand_over::stage_of(s));
    if plan.stage == MigrationStage::Fresh {
        plan.checks = hand_over::checks(s);
    }
    plan.losses.extend(hand_over::kept_label(s));
    let is_refused = plan.failed().next().is_some();
    for step in &hand_over::STEPS {
        plan.add(step.title, || if is_refused { wait(REFUSED) } else { (step.todo)(s) });
    }
    if plan.current().is_none() {
        plan.stage = MigrationStage::Done;
    }
    plan
}

impl Plan {
    /// A plan without steps.
    fn begun(s: &Snapshot, way: MigrationDirection, stage: MigrationStage) -> Self {
        Self {
            unit: s.unit.clone(),
            to: way.to(),
            stage,
            checks: Vec::new(),
            losses: Vec::new(),
            steps: Vec::new(),
            by_hand: Vec::new(),
            todo: RemainingWork::default(),
            asks_cloud: false,
        }
    }

    /// Adds a step that is done if `is_over`, whatever the objects are by now. True if it is the current one.
    fn add_unless(&mut self, is_over: bool, title: &'static str, todo: impl FnOnce() -> RemainingWork) -> bool {
        self.add(title, || if is_over { RemainingWork::default() } else { todo() })
    }

    /// Adds a step. True if it is the current one. Later steps are not computed.
    fn add(&mut self, title: &'static str, todo: impl FnOnce() -> RemainingWork) -> bool {
        let progress = if self.current().is_some() {
            StepProgress::Later
        } else {
            self.todo = todo();
            if self.todo.is_done() { StepProgress::Done } else { StepProgress::Current }
        };
        self.steps.push(StepState { title, progress });
        progress == StepProgress::Current
    }
}

fn stage_of(s: &Snapshot, migration: Option<&MCMMigration>, way: MigrationDirection) -> Result<MigrationStage, NoPlan> {
    let Some(migration) = migration else { return Ok(MigrationStage::Fresh) };
    let wanted = migration.spec.authority;
    let status = migration.status.clone().unwrap_or_default();
    let unit = s.unit.clone();
    let other = MigrationUnit::from_spec(&migration.spec, s.name());
    if other != unit {
        return Err(NoPlan::OtherUnit { unit, other });
    }
    let (is_undone, begun) = (status.from == Some(wanted), MigrationDirection::begun(&status));
    if status.authority == Some(MachineAuthority::Migrating) {
        return match is_undone {
            false if begun == Some(way) => Ok(MigrationStage::Forward),
            true if begun == Some(way.back()) => Ok(MigrationStage::Backward),
            true => Err(NoPlan::Aborting { unit }),
            false => Err(NoPlan::OtherWay { unit, to: wanted }),
        };
    }
    let is_there = status.authority == Some(wanted.into());
    let is_migrated = status.conditions.iter().any(|one| one.type_ == MIGRATED && one.status == "True");
    match is_there {
        true if !is_undone && !is_migrated && begun == Some(way) => Ok(MigrationStage::Closing),
        true if !is_undone && !is_migrated => Err(NoPlan::OtherWay { unit, to: wanted }),
        true if wanted == way.to() => Ok(MigrationStage::Done),
        _ => Ok(MigrationStage::Fresh),
    }
}

/// Writes into the MCMMigration that no side has the authority any more.
fn begin(s: &Snapshot, way: MigrationDirection, is_refused: bool) -> RemainingWork {
    if is_refused {
        return wait(REFUSED);
    }
    let mut spec = json!({ "authority": way.to(), "clusterName": s.cluster });
    if !matches!(s.unit, MigrationUnit::Deployment(_)) {
        spec["kind"] = json!(s.unit.kind());
    }
    let Some(migration) = s.find(Kind::Migration, s.name()) else {
        let id = ObjectId::new(Kind::Migration, s.name());
        let metadata = json!({ "name": s.name(), "namespace": s.namespace });
        let object = json!({
            "apiVersion": Kind::Migration.api_version(), "kind": "MCMMigration", "metadata": metadata, "spec": spec,
        });
        return write(id, MigrationWrite::Create(object));
    };
    want(migration, &json!({ "spec": spec })).then(|| {
        let status = json!({
            "authority": MachineAuthority::Migrating, "from": way.from(), "to": way.to(), "machines": null, "set": null,
            "conditions": conditions(s, "False", "Migrating", String::new()),
        });
        want_status(migration, &status)
    })
}

/// Records the state that must be the same in the end. Everything is paused now, so it is read again.
fn record(s: &Snapshot, way: MigrationDirection, is_refused: bool) -> RemainingWork {
    let Some(migration) = s.find(Kind::Migration, s.name()) else { return RemainingWork::default() };
    if is_refused {
        return wait("every check to pass, or mcm adopt abort to undo the migration");
    }
    let from = way.from();
    let machines: Vec<MigratedMachine> = s.members_of(from).iter().filter_map(recorded).collect();
    let set = s.set_of(from).map(UnstructuredObject::name);
    want_status(migration, &json!({ "machines": machines, "set": set }))
}

fn recorded(member: &MachineObjects<'_>) -> Option<MigratedMachine> {
    let node = member.node?;
    Some(MigratedMachine {
        name: member.name.to_owned(),
        machine: member.machine.map_or(member.name, UnstructuredObject::name).to_owned(),
        provider_id: node.text("/spec/providerID").to_owned(),
        node: node.name().to_owned(),
        node_uid: node.uid().to_owned(),
        boot_id: node.text("/status/nodeInfo/bootID").to_owned(),
    })
}

fn switch(s: &Snapshot, to: MigrationSide, reason: &str) -> RemainingWork {
    let Some(migration) = s.find(Kind::Migration, s.name()) else { return RemainingWork::default() };
    if migration.value["status"]["authority"] == json!(MachineAuthority::from(to)) {
        return RemainingWork::default();
    }
    let conditions = conditions(s, "False", reason, String::new());
    want_status(migration, &json!({ "authority": MachineAuthority::from(to), "conditions": conditions }))
}

/// The same machines, the same VMs, the same Nodes since the same boot, and no VM without a machine. A Node that was lost or
/// restarted meanwhile is named in the condition: nothing would restore it.
fn finish(s: &Snapshot, way: MigrationDirection) -> RemainingWork {
    let Some(migration) = s.find(Kind::Migration, s.name()) else { return RemainingWork::default() };
    let lost: Vec<&str> = s.recorded().filter(|member| member.node.is_none()).map(|member| member.name).collect();
    let of_cloud = ["orphans", "unclaimed", OF_MACHINE[1], OF_MACHINE[2]];
    let is_meant = |one: &MigrationCheck| of_cloud.contains(&one.check) && !lost.contains(&one.machine.as_str());
    let failed = checks(s, way.back()).into_iter().filter(|one| is_meant(one) && !one.passed);
    each(failed, |check| wait(format!("this check to pass: {check}"))).then(|| {
        let migrated = conditions(s, "True", "Migrated", shortened(&changes(s)));
        want_status(migration, &json!({ "conditions": migrated }))
    })
}

/// Changes of Nodes during a complete migration.
fn noted(migration: Option<&MCMMigration>) -> Option<String> {
    let migrated = migration?.status.as_ref()?.conditions.iter().find(|one| one.type_ == MIGRATED)?;
    Some(migrated.message.clone()).filter(|message| !message.is_empty())
}

/// The first of all changes, as the message of a condition is limited.
fn shortened(changes: &[String]) -> String {
    let first = changes.iter().take(MOST_CHANGES).cloned().collect::<Vec<_>>().join(", ");
    match changes.len().saturating_sub(MOST_CHANGES) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// How Nodes differ from the record.
fn changes(s: &Snapshot) -> Vec<String> {
    let recorded = s.migration().and_then(|one| one.status).map(|status| status.machines).unwrap_or_default();
    let change = |machine: &MigratedMachine| {
        let node = s.find(Kind::Node, &machine.node).filter(|node| node.uid() == machine.node_uid);
        let differs = |node: &UnstructuredObject, field: &str, before: &str| node.text(field) != before;
        match node {
            None => Some(format!("Node {} was lost", machine.node)),
            Some(node) if differs(node, "/spec/providerID", &machine.provider_id) => {
                Some(format!("Node {} has another VM", machine.node))
            }
            Some(node) if differs(node, "/status/nodeInfo/bootID", &machine.boot_id) => {
                Some(format!("Node {} was restarted", machine.node))
            }
            Some(_) => None,
        }
    };
    recorded.iter().filter_map(change).collect()
}

fn conditions(s: &Snapshot, status: &str, reason: &str, message: String) -> Value {
    let migrated = Condition {
        type_: MIGRATED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: Time(s.now),
        observed_generation: None,
    };
    json!([migrated])
}

/// The reverse direction, and the patch that turns a migration round.
///
/// # Errors
/// The authority was already switched, or no migration is running.
pub fn abort(s: &Snapshot) -> Result<(MigrationDirection, Vec<Action>), NoPlan> {
    let status = s.migration().and_then(|migration| migration.status).unwrap_or_default();
    let (Some(migration), Some(MachineAuthority::Migrating), Some(way)) =
        (s.find(Kind::Migration, s.name()), status.authority, MigrationDirection::begun(&status))
    else {
        return Err(NoPlan::NothingToUndo { unit: s.unit.clone() });
    };
    Ok((way.back(), want(migration, &json!({ "spec": { "authority": way.from() } })).actions))
}

/// The direction of the running migration, or of the last one.
pub fn way_of(migration: &MCMMigration) -> MigrationDirection {
    let begun = migration.status.as_ref().and_then(MigrationDirection::begun).map(|way| {
        let is_back = migration.spec.authority == way.from();
        if is_back { way.back() } else { way }
    });
    // The status follows the spec in a second write.
    begun.filter(|way| way.to() == migration.spec.authority).unwrap_or(match migration.spec.authority {
        MigrationSide::MachineController => MigrationDirection::ToNative,
        MigrationSide::ClusterApi => MigrationDirection::FromNative,
        MigrationSide::OtherProvider => MigrationDirection::ToOther,
    })
}
