//! The result of a list: sightings for the next plans, and events.

use std::collections::BTreeSet;

use kube::ResourceExt;

use super::{
    Action, Memory,
    pass::{MISSING_RIGHT, OrphanPass, VmListSharing, patience, period_of, probe, shortened},
};
use mcm_api::{labels, machine::Machine, reasons::EventReason};
use mcm_driver::VmsByProviderId;
use mcm_rules::{
    plan::{Event, Plan},
    safety::orphans::{SightingTimes, VmClassification, is_proven, seen, without_vm},
};

/// Replaces the sightings, and reports what is new.
pub(super) fn plan(plan: &mut Plan<Action>, pass: &OrphanPass<'_>) {
    let (snapshot, policy, vms) = (pass.snapshot, pass.policy, pass.vms);
    let (before, began) = (&snapshot.memory, pass.list.began_at);
    let (mut bare, doubtful) = (named(pass, pass.bare()), named(pass, pass.with(VmClassification::Doubtful)));
    let mut serving = named(pass, pass.serving().map(|(id, _)| id));
    let mut marked = named(pass, pass.serving().filter(|(_, node)| node.is_marked()).map(|(id, _)| id));
    let unmarked = named(pass, pass.with(VmClassification::Unmarked));
    if matches!(pass.sharing, VmListSharing::Unknown(_)) {
        // As after a failed list: it proves nothing and drops nothing.
        let kept = [(&before.orphans, &mut bare), (&before.serving, &mut serving), (&before.marked, &mut marked)];
        for (sightings, list) in kept {
            list.extend(unmarked.iter().filter(|vm| sightings.contains_key(*vm)).cloned());
        }
    }
    let left_alone = match pass.sharing {
        VmListSharing::Shared(_) | VmListSharing::Unchecked => unmarked,
        VmListSharing::Alone | VmListSharing::Unknown(_) => Vec::new(),
    };
    let claims: Vec<_> = snapshot.machines.iter().map(|machine| super::claim_of(machine)).collect();
    let missing: Vec<&str> = without_vm(vms, &claims).map(|claim| claim.name.as_str()).collect();
    let is_missing = |machine: &Machine| missing.contains(&machine.name_any().as_str()) && !machine.is_terminating();
    let lost: Vec<_> = snapshot.machines.iter().filter(|machine| is_missing(machine)).collect();
    let uids: Vec<String> = lost.iter().filter_map(|machine| machine.uid()).collect();
    let sighted =
        |sightings: &SightingTimes, shown: &[String]| seen(sightings, shown.iter().map(String::as_str), began);
    let mut memory = Memory {
        orphans: sighted(&before.orphans, &bare),
        serving: sighted(&before.serving, &serving),
        marked: sighted(&before.marked, &marked),
        claimed: BTreeSet::new(),
        doubtful: sighted(&before.doubtful, &doubtful),
        without_vm: sighted(&before.without_vm, &uids),
        reported: before.reported.iter().filter(|uid| uids.contains(uid)).cloned().collect(),
        left_alone: left_alone.into_iter().collect(),
        foreign: pass.with(VmClassification::Foreign).count(),
        unidentified: unidentified(pass),
    };
    memory.claimed = claimed(pass, &memory);
    let mut report = Vec::new();
    for machine in lost {
        let uid = machine.uid().unwrap_or_default();
        if is_proven(&memory.without_vm, &uid, patience(policy), began) && memory.reported.insert(uid) {
            report.push(machine.clone());
        }
    }
    let reason = reason(vms, &memory);
    let warnings = [
        left_alone_text(&pass.sharing, &before.left_alone, &memory.left_alone),
        claimed_text(&before.claimed, &memory.claimed),
    ];
    let warnings = warnings.into_iter().flatten().map(|text| Event::warning(EventReason::OrphanKept, text));
    let unidentified = unidentified_text(&before.unidentified, &memory.unidentified);
    let unidentified = unidentified.map(|text| Event::warning(EventReason::VmUnidentified, text));
    let warnings = warnings.chain(unidentified).collect();
    let is_new = |vm: &String| !before.orphans.contains_key(vm) && !before.serving.contains_key(vm);
    let found = found_text(
        pass,
        &bare.into_iter().filter(is_new).collect::<Vec<_>>(),
        &serving.into_iter().filter(is_new).collect::<Vec<_>>(),
    );
    let action = Action::Record { memory: Box::new(memory), report, warnings };
    match found {
        None => plan.then(action, reason),
        Some(text) => plan.then_recording(action, reason, Event::warning(EventReason::OrphanFound, text)),
    };
}

fn named<'a>(pass: &OrphanPass<'_>, ids: impl Iterator<Item = &'a str>) -> Vec<String> {
    ids.map(|id| pass.describe(id)).collect()
}

/// The event about VMs that newly have no Machine.
fn found_text(pass: &OrphanPass<'_>, bare: &[String], serving: &[String]) -> Option<String> {
    let minutes = |duration: jiff::SignedDuration| duration.as_mins();
    let (of_bare, of_serving) = match pass.policy.is_dry_run {
        true => ("they are kept (dry run)".to_owned(), "they are kept (dry run)".to_owned()),
        false => (
            format!("deleted if they still have none in {} min", minutes(patience(pass.policy))),
            format!(
                "their nodes are drained one at a time if no manager claims them in {} min and their pools have their \
                 replicas",
                minutes(probe(pass.policy))
            ),
        ),
    };
    let text = |of: &str, vms: &[String], fate: &str| {
        (!vms.is_empty()).then(|| format!("VMs without a machine{of}: {}; {fate}", shortened(vms)))
    };
    let texts = [text("", bare, &of_bare), text(", with nodes", serving, &of_serving)];
    let texts: Vec<String> = texts.into_iter().flatten().collect();
    (!texts.is_empty()).then(|| texts.join(". "))
}

/// VMs whose Nodes lack the annotation although it must be there by now: another manager removed it.
fn claimed(pass: &OrphanPass<'_>, memory: &Memory) -> BTreeSet<String> {
    let long = after_probe(pass);
    let began = pass.list.began_at;
    let is_claimed = |vm: &String| is_proven(&memory.serving, vm, long, began) && !memory.marked.contains_key(vm);
    pass.serving().map(|(id, _)| pass.describe(id)).filter(is_claimed).collect()
}

/// Since when a VM must have been an orphan so that its Node is old enough to have got the annotation.
fn after_probe(pass: &OrphanPass<'_>) -> jiff::SignedDuration {
    probe(pass.policy).saturating_add(period_of(pass.policy))
}

fn claimed_text(before: &BTreeSet<String>, now: &BTreeSet<String>) -> Option<String> {
    let new: Vec<String> = now.difference(before).cloned().collect();
    (!new.is_empty()).then(|| {
        format!(
            "VMs without a machine here are kept, because another manager has their nodes: it removed the annotation {}: \
             {}. Stop the manager that should not have them, for example in the former control cluster",
            labels::NOT_MANAGED,
            shortened(&new)
        )
    })
}

fn reason(vms: &VmsByProviderId, memory: &Memory) -> String {
    let counts = format!(
        "{} VMs: {} without a machine, {} that may belong to another machine; {} machines without a VM",
        vms.len(),
        memory.orphans.len().saturating_add(memory.serving.len()),
        memory.doubtful.len(),
        memory.without_vm.len()
    );
    match (memory.foreign, memory.left_alone.len()) {
        (0, 0) => counts,
        (foreign, 0) => format!("{counts}; {foreign} VMs of other owners"),
        (foreign, unmarked) => format!("{counts}; {foreign} VMs of other owners, {unmarked} of an unknown owner"),
    }
}

/// The text about VMs that this check leaves alone for the first time.
fn left_alone_text(sharing: &VmListSharing, before: &BTreeSet<String>, now: &BTreeSet<String>) -> Option<String> {
    let new: Vec<String> = now.difference(before).cloned().collect();
    let (reason, remedy) = match sharing {
        _ if new.is_empty() => return None,
        VmListSharing::Alone | VmListSharing::Unknown(_) => return None,
        VmListSharing::Shared(how) => (
            format!("because others use the cluster tag: {}; {how}", shortened(&new)),
            "Give each namespace its own cluster tag, or delete those VMs that no namespace needs".to_owned(),
        ),
        VmListSharing::Unchecked => (
            format!("because this process cannot see whether others use the cluster tag: {}", shortened(&new)),
            format!(
                "Grant {MISSING_RIGHT} (config/rbac/classes.yaml), or set --machine-safety-orphan-vms-sole-user if this \
                 namespace alone uses the tag"
            ),
        ),
    };
    Some(format!("VMs without a machine here and without an owner are kept, {reason}. {remedy}"))
}

/// VMs without a provider ID or Machine in the driver's answer.
fn unidentified(pass: &OrphanPass<'_>) -> BTreeSet<String> {
    let name = |id: &str| if id.is_empty() { "one without an ID".to_owned() } else { id.to_owned() };
    let all = pass.verdicts.keys().filter(|id| id.is_empty() || pass.machine_of(id).is_empty());
    all.map(|id| name(id)).collect()
}

/// The event about VMs that are newly unidentified.
fn unidentified_text(before: &BTreeSet<String>, now: &BTreeSet<String>) -> Option<String> {
    let new: Vec<String> = now.difference(before).cloned().collect();
    let text = format!(
        "VMs without a valid provider ID or name of a machine: {}; they are kept: correct their names in the cloud, or \
         the driver",
        shortened(&new)
    );
    (!new.is_empty()).then_some(text)
}
