//! From the objects and a verb to a patch, or the reason why it makes no sense. Pure.

use kube::ResourceExt;
use serde_json::json;

use super::{
    abort::abort,
    patch::{ObjectPatch, at_once, change, deleted, machines, planned, replaced, return_text},
    scale::scale,
    verb::{ChangeVerb, PreserveTrigger},
};
use crate::{
    api::{
        labels,
        machine::{Machine, MachineDeployment, PreserveMode, StrategyType},
    },
    cli::{exit::ExitError, plan::to_revision},
};
use mcm_controllers::{machine::DrainReason, machine_deployment::revision_of};
use mcm_insight::{
    advice::{preserve_node_command, preserving_node},
    family::{DeploymentFamily, is_frozen, is_marked_frozen, is_set_marked_frozen},
    story::{CLASS, DEPLOYMENT, MACHINE, NamespaceFacts, SET, UndecodableObject},
};
use mcm_rules::plan::{SubjectRef, shell::resource_name};

/// Decides about a verb for an object.
pub(super) fn decide(facts: &NamespaceFacts, verb: ChangeVerb, object: &SubjectRef) -> Result<ObjectPatch, ExitError> {
    let wrong = || ExitError::no(format!("{} {} has no such state", object.kind, object.name), suitable(verb));
    match verb {
        ChangeVerb::Pause | ChangeVerb::Resume | ChangeVerb::Restart | ChangeVerb::Undo(_) | ChangeVerb::Abort => {
            let family = facts.family(&object.name).filter(|_| object.kind == DEPLOYMENT).ok_or_else(wrong)?;
            of_deployment(facts, verb, object, &family)
        }
        ChangeVerb::Scale(target) => scale(facts, object, target),
        ChangeVerb::Freeze => freeze(facts, object),
        ChangeVerb::Unfreeze => unfreeze(facts, object),
        // Its steps are those of super::replacement.
        ChangeVerb::Replace { .. } => Err(wrong()),
        ChangeVerb::ForceDrain | ChangeVerb::Preserve(_) | ChangeVerb::Forget { .. } => {
            let machine = facts.machines.get(&object.name).filter(|_| object.kind == MACHINE).ok_or_else(wrong)?;
            match verb {
                ChangeVerb::ForceDrain => force_drain(object, machine),
                ChangeVerb::Preserve(preserve) => keep(object, machine, preserve),
                _ => forget(facts, object, machine, verb == ChangeVerb::Forget { leaves_vm: true }),
            }
        }
    }
}

const fn suitable(verb: ChangeVerb) -> &'static str {
    match verb {
        ChangeVerb::Pause | ChangeVerb::Resume | ChangeVerb::Restart | ChangeVerb::Undo(_) | ChangeVerb::Abort => {
            "name a MachineDeployment"
        }
        ChangeVerb::Scale(_) => "name a MachineDeployment, or a MachineSet without one",
        ChangeVerb::Freeze | ChangeVerb::Unfreeze => "name a MachineSet",
        ChangeVerb::Replace { .. } | ChangeVerb::ForceDrain | ChangeVerb::Preserve(_) | ChangeVerb::Forget { .. } => {
            "name a Machine"
        }
    }
}

fn of_deployment(
    facts: &NamespaceFacts,
    verb: ChangeVerb,
    object: &SubjectRef,
    family: &DeploymentFamily<'_>,
) -> Result<ObjectPatch, ExitError> {
    let (deployment, name, namespace) = (family.deployment, &object.name, &object.namespace);
    deleted(object, &deployment.metadata)?;
    let paused = || {
        ExitError::no(
            format!("MachineDeployment {name} is paused, so this would have no effect"),
            format!("mcm rollout resume {name} -n {namespace}"),
        )
    };
    let follow = Some(format!("mcm rollout status {name} -n {namespace}"));
    match (verb, deployment.spec.paused) {
        (ChangeVerb::Pause, true) => Err(ExitError::no(
            format!("MachineDeployment {name} is paused already"),
            format!("mcm why {name} -n {namespace}"),
        )),
        (ChangeVerb::Resume, false) => Err(ExitError::no(
            format!("MachineDeployment {name} is not paused"),
            format!("mcm why {name} -n {namespace}"),
        )),
        (ChangeVerb::Pause, false) => {
            let says = format!("pauses MachineDeployment {name}: machines are scaled, and not replaced");
            let next = Some(format!("mcm rollout resume {name} -n {namespace}"));
            Ok(ObjectPatch { next, ..change(object, &deployment.metadata, json!({"spec": {"paused": true}}), says) })
        }
        (ChangeVerb::Resume, true) => {
            let left = replaced(facts, family, family.new_set());
            let at_once = at_once(deployment, left);
            let says = format!("resumes MachineDeployment {name}: {} left to replace{at_once}", machines(left));
            let patch = json!({"spec": {"paused": false}});
            Ok(ObjectPatch {
                next: follow,
                needs_consent: left > 0,
                planned: Some(planned(name, &patch)),
                ..change(object, &deployment.metadata, patch, says)
            })
        }
        (ChangeVerb::Abort, _) => Ok(ObjectPatch { next: follow, ..abort(facts, object, family)? }),
        (ChangeVerb::Undo(revision), true) => {
            let next = Some(format!("mcm rollout resume {name} -n {namespace}"));
            Ok(ObjectPatch { next, ..undo(facts, object, family, revision)? })
        }
        (_, true) => Err(paused()),
        (ChangeVerb::Undo(revision), false) => {
            Ok(ObjectPatch { next: follow, ..undo(facts, object, family, revision)? })
        }
        (_, false) => Ok(ObjectPatch { next: follow, ..restart(facts, object, family)? }),
    }
}

fn restart(
    facts: &NamespaceFacts,
    object: &SubjectRef,
    family: &DeploymentFamily<'_>,
) -> Result<ObjectPatch, ExitError> {
    let (deployment, name) = (family.deployment, &object.name);
    if deployment.spec.strategy.kind() == Some(StrategyType::InPlaceUpdate) {
        return Err(ExitError::no(
            format!("MachineDeployment {name} has the strategy InPlaceUpdate, which replaces no machine"),
            format!("kubectl delete {} NAME -n {} replaces one machine", resource_name(MACHINE), object.namespace),
        ));
    }
    let at = format!("{:.0}", facts.now);
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {labels::RESTARTED_AT: at}}}}});
    let left = replaced(facts, family, None);
    let says = format!("replaces {} of MachineDeployment {name}{}", machines(left), at_once(deployment, left));
    let planned = Some(planned(name, &patch));
    Ok(ObjectPatch { needs_consent: left > 0, planned, ..change(object, &deployment.metadata, patch, says) })
}

fn undo(
    facts: &NamespaceFacts,
    object: &SubjectRef,
    family: &DeploymentFamily<'_>,
    wanted: Option<i64>,
) -> Result<ObjectPatch, ExitError> {
    let (deployment, name) = (family.deployment, &object.name);
    let hint = format!("mcm rollout history {name} -n {}", object.namespace);
    let Some(set) = family.of_revision(wanted) else {
        let message = match wanted {
            Some(wanted) => format!("MachineDeployment {name} has no revision {wanted}"),
            None => format!("MachineDeployment {name} has no earlier revision"),
        };
        return Err(ExitError::no(message, hint));
    };
    let revision = revision_of(set);
    if set.spec.makes(&deployment.spec.template) {
        return Err(ExitError::no(
            format!("MachineDeployment {name} has the template of revision {revision} already"),
            hint,
        ));
    }
    let left = replaced(facts, family, Some(set));
    let returns = return_text(deployment, set, revision);
    let template = to_revision(facts, name, revision).map_err(|error| ExitError::no(error.message, error.hint))?;
    // The controllers return to a revision only once a pause ends. The template alone returns at once, and nothing is replaced.
    if deployment.spec.paused {
        let says = format!("{returns}, which stays paused: machines are replaced once it is resumed");
        return Ok(change(object, &deployment.metadata, template, says));
    }
    let says = format!("{returns}: replaces or deletes {}{}", machines(left), at_once(deployment, left));
    let patch = json!({"spec": {"rollbackTo": {"revision": revision}}});
    Ok(ObjectPatch {
        needs_consent: left > 0,
        planned: Some(planned(name, &template)),
        ..change(object, &deployment.metadata, patch, says)
    })
}

fn freeze(facts: &NamespaceFacts, object: &SubjectRef) -> Result<ObjectPatch, ExitError> {
    let (name, namespace) = (&object.name, &object.namespace);
    let Some(set) = facts.sets.get(name).filter(|_| object.kind == SET) else {
        return Err(ExitError::no(
            format!("a freeze of {} {name} holds nothing back", object.kind),
            format!("freeze a MachineSet, or pause the rollout: mcm rollout pause {name} -n {namespace}"),
        ));
    };
    deleted(object, &set.metadata)?;
    if is_frozen(set) {
        return Err(ExitError::no(
            format!("MachineSet {name} is frozen already"),
            format!("mcm unfreeze machineset/{name} -n {namespace}"),
        ));
    }
    let period = match facts.memory.overshoot_period {
        Some(period) => format!("within {period}"),
        None => "within the time of its flag --machine-safety-overshooting-period, 1m by default,".to_owned(),
    };
    let says = format!(
        "freezes MachineSet {name}: it creates no machines until the next overshoot check of the manager, which ends the freeze \
         {period} unless the set has too many machines"
    );
    let patch = json!({"metadata": {"labels": {labels::FREEZE: labels::TRUE}}});
    Ok(ObjectPatch {
        next: Some(format!("mcm why machineset/{name} -n {namespace}")),
        ..change(object, &set.metadata, patch, says)
    })
}

fn unfreeze(facts: &NamespaceFacts, object: &SubjectRef) -> Result<ObjectPatch, ExitError> {
    let (name, namespace) = (&object.name, &object.namespace);
    let patch = json!({"metadata": {"annotations": {labels::UNFREEZE: labels::TRUE}}});
    let says = format!("asks the controller to end the freeze of {} {name}", object.kind);
    let why = format!("mcm why {}/{name} -n {namespace}", object.kind.to_lowercase());
    let not_frozen = || ExitError::no(format!("{} {name} is not frozen", object.kind), why.clone());
    let change = match object.kind.as_str() {
        SET => {
            let set = facts.sets.get(name).filter(|set| is_set_marked_frozen(set)).ok_or_else(not_frozen)?;
            change(object, &set.metadata, patch, says)
        }
        DEPLOYMENT => {
            let is_marked = |one: &&MachineDeployment| {
                let sets = facts.family(name).map(|family| family.sets).unwrap_or_default();
                let conditions = one.status.as_ref().map(|status| status.conditions.as_slice());
                is_marked_frozen(*one, conditions.unwrap_or_default()) || sets.into_iter().any(is_set_marked_frozen)
            };
            let deployment = facts.deployments.get(name).filter(is_marked).ok_or_else(not_frozen)?;
            change(object, &deployment.metadata, patch, says)
        }
        _ => return Err(not_frozen()),
    };
    Ok(ObjectPatch { next: Some(why), ..change })
}

fn force_drain(object: &SubjectRef, machine: &Machine) -> Result<ObjectPatch, ExitError> {
    let (name, namespace) = (&object.name, &object.namespace);
    // A deletion has its effect without a Node as well.
    let reason =
        DrainReason::for_machine(machine).or_else(|| machine.is_terminating().then_some(DrainReason::Deletion));
    let Some(reason) = reason else {
        let hint = format!("mcm why machine/{name} -n {namespace}");
        return Err(ExitError::no(format!("Machine {name} is not drained now"), hint));
    };
    let label = reason.force_label();
    let what = match reason {
        DrainReason::Deletion => "its deletion continues even if the drain fails",
        DrainReason::InPlaceUpdate => "the machine stays and is updated",
        DrainReason::Preservation => "the machine stays",
    };
    if labels::is_true(machine, label) {
        return Err(ExitError::no(
            format!("the drain of Machine {name} is forced already"),
            format!("mcm why machine/{name} -n {namespace}"),
        ));
    }
    let says = format!("forces the drain of Machine {name}: deletes its pods and ignores their budgets; {what}");
    let patch = json!({"metadata": {"labels": {label: labels::TRUE}}});
    let next = Some(format!("mcm why machine/{name} -n {namespace}"));
    Ok(ObjectPatch { needs_consent: true, next, ..change(object, &machine.metadata, patch, says) })
}

fn keep(object: &SubjectRef, machine: &Machine, preserve: PreserveTrigger) -> Result<ObjectPatch, ExitError> {
    let name = &object.name;
    if machine.is_terminating() {
        return Err(ExitError::no(
            format!("Machine {name} is being deleted, which cannot be undone"),
            format!("mcm why machine/{name} -n {}", object.namespace),
        ));
    }
    const STILL: &str = "a rollout or a scale-down still deletes it, as the last of its set";
    let (mode, says) = match preserve {
        PreserveTrigger::Now => (
            PreserveMode::Now,
            format!(
                "keeps Machine {name} from now on, until its preserve timeout ends: neither a failure nor the autoscaler removes it; \
                 {STILL}"
            ),
        ),
        PreserveTrigger::WhenFailed => {
            (PreserveMode::WhenFailed, format!("keeps Machine {name} once it fails; {STILL}"))
        }
        PreserveTrigger::Never => {
            (PreserveMode::Never, format!("keeps Machine {name} no longer: if it failed, it is replaced"))
        }
    };
    let key = labels::PRESERVE;
    if let Some((node, value)) = preserving_node(machine) {
        let see = format!("mcm tree machine/{name} -n {}", object.namespace);
        let (message, hint) = match PreserveMode::parse(value) == Some(mode) {
            true => (format!("Node {node} of Machine {name} has the annotation {key}={value} already"), see),
            false => (
                format!("Node {node} has the annotation {key}={value}, so one of Machine {name} has no effect"),
                format!("with the kubeconfig of the target cluster: {}", preserve_node_command(node, mode)),
            ),
        };
        return Err(ExitError::no(message, hint));
    }
    if machine.preserve_mode() == Some(mode) {
        return Err(ExitError::no(
            format!("Machine {name} has the annotation {key}={} already", mode.as_str()),
            format!("mcm tree machine/{name} -n {}", object.namespace),
        ));
    }
    let patch = json!({"metadata": {"annotations": {key: mode.as_str()}}});
    let needs_consent = preserve == PreserveTrigger::Never && machine.phase().as_str() == "Failed";
    Ok(ObjectPatch { needs_consent, ..change(object, &machine.metadata, patch, says) })
}

fn forget(
    facts: &NamespaceFacts,
    object: &SubjectRef,
    machine: &Machine,
    leaves_vm: bool,
) -> Result<ObjectPatch, ExitError> {
    let (name, namespace) = (&object.name, &object.namespace);
    if machine.metadata.deletion_timestamp.is_none() {
        return Err(ExitError::no(
            format!("Machine {name} is not being deleted"),
            format!("kubectl delete {} {name} -n {namespace} deletes it with its VM", resource_name(MACHINE)),
        ));
    }
    let finalizers: Vec<&String> = machine.finalizers().iter().filter(|one| *one != labels::FINALIZER).collect();
    if finalizers.len() == machine.finalizers().len() {
        return Err(ExitError::no(
            format!("Machine {name} has no finalizer of the machine controller"),
            format!(
                "kubectl get {} {name} -n {namespace} -o jsonpath='{{.metadata.finalizers}}'",
                resource_name(MACHINE)
            ),
        ));
    }
    let class = &machine.spec.class.name;
    if facts.classes.contains_key(class) && !leaves_vm {
        return Err(ExitError::no(
            format!("MachineClass {class} exists, so the controller can delete the VM of Machine {name}"),
            format!("mcm why machine/{name} -n {namespace}; or add --leave-vm and delete the VM yourself"),
        ));
    }
    let is_class = |one: &&UndecodableObject| one.kind == CLASS && one.name == *class;
    if let Some(class) = facts.unreadable.iter().find(is_class).filter(|_| !leaves_vm) {
        let hint = "correct it, and the controller deletes the VM; or add --leave-vm and delete the VM yourself";
        return Err(ExitError::no(class.to_string(), hint));
    }
    let vm = &machine.spec.provider_id;
    if !vm.is_empty() && !leaves_vm {
        return Err(ExitError::no(
            format!("Machine {name} has the VM {vm}, which would stay in the cloud"),
            format!("create MachineClass {class} again, or add --leave-vm and delete the VM yourself"),
        ));
    }
    let vm = if vm.is_empty() { "no VM of it is known".to_owned() } else { format!("its VM {vm} stays in the cloud") };
    let says = format!("removes the finalizer of Machine {name}: {vm}");
    let patch = json!({"metadata": {"finalizers": finalizers}});
    Ok(ObjectPatch { needs_consent: true, ..change(object, &machine.metadata, patch, says) })
}

#[cfg(test)]
mod tests;
