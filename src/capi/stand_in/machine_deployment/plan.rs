use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::json;

use super::{
    Action, Snapshot,
    native::{self, DesiredNativeObjects, is_ours},
    status, tear_down,
};
use crate::{
    object::{conditions::ConditionVerdict, hold, view::ObjectView},
    stand_in::{mirror, standing::StandInStatus},
};
use mcm_api::{
    labels,
    machine::MachineDeployment as Native,
    reasons::{StandInCondition, StandInReason},
};
use mcm_controllers::object::finalizer;
pub use mcm_conversion::{
    ConversionRefusal, default_deployment,
    types::{
        MCMMigration, MCMMigrationSpec, MCMMigrationStatus, MachineAuthority, MachineDeployment,
        MachineDeploymentStatus, MigrationSide,
    },
};
use mcm_rules::plan::{Plan, PlanInput, SentPatch, WaitKind};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self)
    }

    fn sent_patch<'a>(&'a self, action: &'a Action) -> Option<SentPatch<'a>> {
        match action {
            Action::PatchSelf(patch) => self.object.known().map(|object| SentPatch::new(&**object, patch)),
            Action::PatchNative { native, patch } => Some(SentPatch::new(&**native, patch)),
            Action::PatchMachine { machine, patch } => Some(SentPatch::new(&**machine, patch)),
            _ => None,
        }
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus(_))
    }
}

/// Plans the next steps of a MachineDeployment. A plan has at most one write of the object itself.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    if let Some(on) = snapshot.standing.wait() {
        if snapshot.standing != StandInStatus::NotAsked {
            say(&mut plan, snapshot, snapshot.standing.condition());
        }
        plan.wait(WaitKind::Hold, on, None);
        return plan;
    }
    let object = match &snapshot.object {
        ObjectView::Present(object) => object,
        ObjectView::Missing => {
            vanished(&mut plan, snapshot);
            return plan;
        }
        ObjectView::Unknown => {
            plan.wait(WaitKind::Unreadable, "the MachineDeployment to become readable", None);
            return plan;
        }
    };
    let meta = &object.metadata;
    if let Some(on) = hold::not_ours(meta, snapshot.watch_filter.as_deref()) {
        plan.wait(WaitKind::Hold, on, None);
        return plan;
    }
    if matches!(snapshot.migration, ObjectView::Unknown) {
        plan.wait(WaitKind::Unreadable, "its MCMMigration to become readable", None);
        return plan;
    }
    if snapshot.authority() == Some(MachineAuthority::Migrating) {
        plan.wait(WaitKind::Hold, "its migration to be complete", None);
        return plan;
    }
    if let Some(on) = hold::paused(meta, &snapshot.cluster) {
        report(&mut plan, object, status::paused(snapshot, object, &on));
        plan.wait(WaitKind::Hold, on, None);
        return plan;
    }
    if meta.deletion_timestamp.is_some() {
        tear_down::plan(&mut plan, snapshot, object);
        return plan;
    }
    if let Some(patch) = prepared(object) {
        plan.then(
            Action::PatchSelf(patch),
            "defaults are explicit, and a deployment that may have VMs has the finalizer",
        );
        return plan;
    }
    if !decide_authority(&mut plan, snapshot, object) {
        return plan;
    }
    let synchronized = match snapshot.authority() {
        Some(MachineAuthority::MachineController) => follow(&mut plan, snapshot, object),
        _ => lead(&mut plan, snapshot, object),
    };
    if plan.steps.is_empty() {
        if !synchronized.is_true() {
            plan.wait(WaitKind::SpecCorrection, synchronized.message.clone(), None);
        }
        report(&mut plan, object, status::current(snapshot, object, synchronized));
    }
    plan
}

/// The defaults of core's webhooks, and the finalizer.
fn prepared(object: &MachineDeployment) -> Option<serde_json::Value> {
    let mut next = object.clone();
    default_deployment(&mut next);
    if let Some(finalizers) = finalizer::with(&object.metadata, labels::STAND_IN_FINALIZER) {
        next.metadata.finalizers = Some(finalizers);
    }
    mirror::change(object, &next)
}

/// The MachineDeployment does not exist: that deletes nothing.
fn vanished(plan: &mut Plan<Action>, snapshot: &Snapshot) {
    let text = "its MachineDeployment vanished without the finalizer of the stand-in, so the MCM MachineDeployment is \
                kept: create the MachineDeployment again, or delete the MCM MachineDeployment and this object";
    say(plan, snapshot, ConditionVerdict::no(StandInReason::MachineDeploymentMissing, text));
}

/// Records the authority over the deployment in an MCMMigration. False while that has to be written.
fn decide_authority(plan: &mut Plan<Action>, snapshot: &Snapshot, object: &MachineDeployment) -> bool {
    let Some(migration) = snapshot.migration.known() else {
        if matches!(&snapshot.native, ObjectView::Present(native) if !is_ours(native, object)) {
            // A user has to decide the authority over a deployment of another client.
            return true;
        }
        plan.then(Action::CreateMigration(Box::new(claim(object))), "the MCMMigration records the authority");
        return false;
    };
    let stored = migration.status.clone().unwrap_or_default();
    let wanted = MachineAuthority::from(migration.spec.authority);
    let next = MCMMigrationStatus { authority: Some(wanted), ..stored.clone() };
    let next = status::with_verdict(&next, snapshot, ConditionVerdict::yes(StandInReason::Serving));
    if next == stored {
        return true;
    }
    let is_switch = snapshot.authority().is_some_and(|now| now != wanted);
    if is_switch && !is_synchronized(object) {
        plan.wait(WaitKind::SpecCorrection, "both sides to be synchronized before the authority changes", None);
        return true;
    }
    plan.then(Action::WriteAuthority(Box::new(next)), "the authority over the deployment is decided");
    false
}

fn is_synchronized(object: &MachineDeployment) -> bool {
    let status = object.status.clone().unwrap_or_default();
    let condition = status.conditions.iter().find(|one| one.type_ == StandInCondition::Synchronized.as_str());
    condition.is_some_and(|one| one.status == "True" && one.observed_generation == object.metadata.generation)
}

fn claim(object: &MachineDeployment) -> MCMMigration {
    MCMMigration {
        metadata: ObjectMeta {
            name: object.metadata.name.clone(),
            namespace: object.namespace(),
            labels: Some([(labels::STAND_IN.to_owned(), labels::SERVED.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: MCMMigrationSpec {
            authority: MigrationSide::ClusterApi,
            cluster_name: object.spec.cluster_name.clone(),
            ..MCMMigrationSpec::default()
        },
        status: None,
    }
}

/// The MachineDeployment has the authority: updates the native one to match it. Returns the condition `Synchronized`.
fn lead(plan: &mut Plan<Action>, snapshot: &Snapshot, object: &MachineDeployment) -> ConditionVerdict {
    if let Some(problem) = obstacle(snapshot, object) {
        return problem;
    }
    let wanted = match native::wanted(snapshot, object) {
        Ok(wanted) => wanted,
        Err(refusals) => return ConditionVerdict::no(StandInReason::FailedToConvertToMcm, listed(&refusals)),
    };
    if let Some(problem) = supply(plan, snapshot, &wanted) {
        return problem;
    }
    if !plan.steps.is_empty() {
        return ConditionVerdict::yes(StandInReason::ResourceSynchronized);
    }
    match &snapshot.native {
        ObjectView::Present(native) if native.metadata.deletion_timestamp.is_some() => {
            let text = "the MCM MachineDeployment is being deleted; it is created again afterwards";
            return ConditionVerdict::no(StandInReason::Deleting, text);
        }
        ObjectView::Present(native) => update(plan, snapshot, native, &wanted.deployment),
        ObjectView::Missing | ObjectView::Unknown => {
            let native = Action::CreateNative(Box::new(wanted.deployment.clone()));
            plan.then(native, "the MCM controllers keep the machines");
        }
    }
    if plan.steps.is_empty() {
        let class = wanted.deployment.spec.template.spec.class.name.as_str();
        native::clean_up(plan, snapshot, Some(class));
    }
    ConditionVerdict::yes(StandInReason::ResourceSynchronized)
}

/// The reason for which nothing can be converted.
fn obstacle(snapshot: &Snapshot, object: &MachineDeployment) -> Option<ConditionVerdict> {
    let no = |text: &str| Some(ConditionVerdict::no(StandInReason::FailedToReadInfrastructure, text));
    let reference = &object.spec.template.spec.infrastructure_ref;
    match (&snapshot.cluster, &snapshot.template) {
        (ObjectView::Missing, _) => return no("its Cluster does not exist: create it"),
        (_, ObjectView::Unknown) => return no(&format!("{} {} cannot be read", reference.kind, reference.name)),
        (_, ObjectView::Missing) if reference.kind == "MCMMachineTemplate" => {
            return no(&format!("MCMMachineTemplate {} does not exist: create it", reference.name));
        }
        _ => {}
    }
    if let Err(text) = &snapshot.health_checks {
        return no(text);
    }
    match &snapshot.native {
        ObjectView::Unknown => no("the MCM MachineDeployment cannot be read"),
        ObjectView::Present(native) if !is_ours(native, object) => {
            let text = format!(
                "MCM MachineDeployment {} is not managed by the stand-in: delete or rename one of them, or set its \
                 authority in an MCMMigration of the same name",
                native.name_any()
            );
            Some(ConditionVerdict::no(StandInReason::NameTaken, text))
        }
        ObjectView::Present(_) | ObjectView::Missing => None,
    }
}

/// Creates the derived class and the copy of the bootstrap data. Returns the missing part.
fn supply(plan: &mut Plan<Action>, snapshot: &Snapshot, wanted: &DesiredNativeObjects) -> Option<ConditionVerdict> {
    if let Some((source, copy)) = &wanted.copied {
        let no = |text: String| Some(ConditionVerdict::no(StandInReason::FailedToReadInfrastructure, text));
        let version = match &snapshot.bootstrap {
            ObjectView::Present(version) => version.as_str(),
            ObjectView::Missing => {
                return no(format!("Secret {source} does not exist: create it, with the bootstrap data"));
            }
            ObjectView::Unknown => return no(format!("Secret {source} cannot be read")),
        };
        if let Some((_, problem)) = snapshot.memory.unusable.as_ref().filter(|(unusable, _)| unusable == version) {
            return no(problem.clone());
        }
        let is_current = match &snapshot.copy {
            ObjectView::Present(copied) => copied.is_empty() || copied.as_str() == version,
            ObjectView::Missing => false,
            ObjectView::Unknown => true,
        };
        if !is_current {
            let action = Action::CopyBootstrap { source: source.clone(), copy: copy.clone() };
            plan.then(action, "MCM machines boot with the data of an MCM Secret");
        }
    }
    if let Some(class) = wanted.class.as_ref().filter(|class| !snapshot.classes.contains_key(&class.name_any())) {
        plan.then(Action::CreateClass(Box::new(class.clone())), "the MCM MachineDeployment needs a class");
    }
    None
}

/// S4: updates the native deployment to match the MachineDeployment. A lower number of machines is written last, after
/// the machines to delete were marked.
fn update(plan: &mut Plan<Action>, snapshot: &Snapshot, native: &Arc<Native>, wanted: &Native) {
    let next = native::updated(native, wanted);
    if next.spec.replicas < native.spec.replicas {
        if !snapshot.session.has_read_machines {
            plan.then(Action::ReadMachines, "the client that lowered the number may have just chosen machines");
            return;
        }
        for (machine, native) in &snapshot.machines {
            if let Some(patch) = mirror::priority(machine, native) {
                let action = Action::PatchMachine { machine: Arc::clone(native), patch };
                plan.then(action, "its Machine shows whether it is deleted first");
            }
        }
    }
    if let Some(patch) = mirror::change(native.as_ref(), &next) {
        let action = Action::PatchNative { native: Arc::clone(native), patch };
        plan.then(action, "the MachineDeployment changed");
    }
}

/// S4: the native deployment has the authority, so an edit of the MachineDeployment is undone.
fn follow(plan: &mut Plan<Action>, snapshot: &Snapshot, object: &MachineDeployment) -> ConditionVerdict {
    let native = match &snapshot.native {
        ObjectView::Present(native) => native,
        ObjectView::Missing => {
            let text = "the MCM MachineDeployment has the authority and does not exist";
            return ConditionVerdict::no(StandInReason::FailedToConvertToCapi, text);
        }
        ObjectView::Unknown => {
            return ConditionVerdict::no(
                StandInReason::FailedToConvertToCapi,
                "the MCM MachineDeployment cannot be read",
            );
        }
    };
    let spec = match native::shown(snapshot, native, &object.spec.cluster_name) {
        Ok(spec) => spec,
        Err(refusals) => return ConditionVerdict::no(StandInReason::FailedToConvertToCapi, listed(&refusals)),
    };
    let mut next = MachineDeployment::clone(object);
    next.spec = spec;
    default_deployment(&mut next);
    if let Some(patch) = mirror::change(&object.spec, &next.spec) {
        plan.then(Action::PatchSelf(json!({ "spec": patch })), "the MCM MachineDeployment has the authority");
    }
    ConditionVerdict::yes(StandInReason::ResourceSynchronized)
}

/// All refusals with their paths.
fn listed(refusals: &[ConversionRefusal]) -> String {
    let lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    if lines.is_empty() { "the result of the conversion has no deployment".to_owned() } else { lines.join("\n") }
}

/// Adds a write of the status, if it changes.
fn report(plan: &mut Plan<Action>, object: &MachineDeployment, next: MachineDeploymentStatus) {
    if object.status.as_ref() != Some(&next) {
        plan.then(Action::WriteStatus(Box::new(next)), "its conditions or its machines changed");
    }
}

/// The condition `StandIn` of the object that has the authority, if there is one.
fn say(plan: &mut Plan<Action>, snapshot: &Snapshot, verdict: ConditionVerdict) {
    let Some(migration) = snapshot.migration.known().filter(|one| one.labels().contains_key(labels::STAND_IN)) else {
        return;
    };
    let stored = migration.status.clone().unwrap_or_default();
    let next = status::with_verdict(&stored, snapshot, verdict);
    if next != stored {
        plan.then(Action::WriteAuthority(Box::new(next)), "whether the stand-in serves the deployment changed");
    }
}
