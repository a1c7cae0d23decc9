use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::{Action, Found, Listing, Memory, Others, Policy, Snapshot};
use crate::{
    api::{machine::Machine, reasons::EventReason},
    controllers::object::authority,
    driver::Listed,
    plan::{Event, Plan, Plannable, WaitKind},
    safety::orphans::{Verdict, identity, is_proven, judge, seen, without_vm},
};

/// The shortest pause between two lists.
const SHORTEST_PERIOD: SignedDuration = SignedDuration::from_mins(1);
/// How soon to list again after a failure, at the latest.
const AFTER_FAILURE: SignedDuration = SignedDuration::from_mins(10);

/// The verdict on each listed VM.
type Verdicts<'a> = BTreeMap<&'a str, Verdict>;

/// Other owners of VMs in a list, beside the namespace of the class.
enum Sharing {
    /// No other namespace, as far as can be read.
    Alone,
    /// Other namespaces also have VMs in it; contains the evidence.
    Shared(String),
    /// The other owners could not be read; contains the reason.
    Unknown(String),
}

impl Plannable for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self, &self.policy)
    }
}

/// Plans the next steps of a pass over one class.
///
/// The loop calls it until no steps are left: list, look for other owners that use the cluster tag if that matters, record the
/// findings, read the Machine of an orphan, delete its VM.
pub fn plan(snapshot: &Snapshot, policy: &Policy) -> Plan<Action> {
    let mut plan = Plan::default();
    if !snapshot.can_list {
        return plan;
    }
    let period = period_of(policy);
    if let Some(hold) = authority::migrating(&snapshot.class.metadata) {
        // Its VMs get their machines, or lose them, while their owners change.
        plan.wait(WaitKind::Hold, hold.on, Some(after(snapshot.now, period)));
        return plan;
    }
    let Some(list) = &snapshot.learned.list else {
        plan.then(Action::ListVms, "VMs of the class are compared with the machines");
        return plan;
    };
    let Found { owner, vms } = match &list.found {
        Ok(found) => found,
        Err(error) => {
            let again = after(snapshot.now, period.min(AFTER_FAILURE));
            plan.wait(WaitKind::OrphanCheck, format!("a complete list of VMs: {error}"), Some(again));
            return plan;
        }
    };
    let again = Some(after(snapshot.now, period));
    if let Some(problem) = &snapshot.uncertain {
        plan.wait(WaitKind::CacheUntrusted, format!("a trusted list of machines: {problem}"), again);
        return plan;
    }
    let mut verdicts = judge(vms, &snapshot.claims, owner);
    let Some(sharing) = sharing(vms, &verdicts, snapshot.learned.others.as_ref()) else {
        let reason = "VMs without a marker are orphans only if no other namespace uses the cluster tag";
        plan.then(Action::ListClassesOfOthers, reason);
        return plan;
    };
    if matches!(sharing, Sharing::Alone) {
        verdicts.values_mut().filter(|one| **one == Verdict::Unmarked).for_each(|one| *one = Verdict::Orphan);
    }
    if snapshot.learned.is_recorded {
        delete(&mut plan, snapshot, policy, list, vms, &verdicts);
    } else {
        record(&mut plan, snapshot, policy, list, vms, &verdicts, &sharing);
    }
    if plan.steps.is_empty() {
        wait(&mut plan, snapshot, &verdicts, &sharing, period);
    }
    plan
}

/// `None` if it matters, and the classes of other namespaces were not listed.
fn sharing(vms: &Listed, verdicts: &Verdicts<'_>, others: Option<&Others>) -> Option<Sharing> {
    let first = |verdict: Verdict| verdicts.iter().find(|(_, one)| **one == verdict).map(|(id, _)| *id);
    if first(Verdict::Unmarked).is_none() {
        return Some(Sharing::Alone);
    }
    if let Some(id) = first(Verdict::Foreign) {
        let marker = vms.get(id).and_then(|vm| vm.owner.as_deref()).unwrap_or_default();
        return Some(Sharing::Shared(format!("VM {} has the owner {marker}", describe(vms, id))));
    }
    Some(match others? {
        // Permissions of the Go programs. Markers are all there is to go by.
        Others::Forbidden => Sharing::Alone,
        Others::Known(classes) if classes.is_empty() => Sharing::Alone,
        Others::Known(classes) => Sharing::Shared(format!("MachineClass {} has the same tag", shortened(classes))),
        Others::Unknown(error) => Sharing::Unknown(error.clone()),
    })
}

fn wait(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    verdicts: &Verdicts<'_>,
    sharing: &Sharing,
    period: SignedDuration,
) {
    let again = after(snapshot.now, period);
    let unmarked = verdicts.values().filter(|one| **one == Verdict::Unmarked).count();
    match (sharing, snapshot.memory.orphans.len()) {
        (Sharing::Unknown(error), _) => {
            let text = format!(
                "the MachineClasses of other namespaces, to decide about {unmarked} VMs without a marker: {error}"
            );
            plan.wait(WaitKind::OrphanCheck, text, Some(again.min(after(snapshot.now, AFTER_FAILURE))));
        }
        (Sharing::Shared(how), _) => {
            let text =
                format!("its own cluster tag, to decide about {unmarked} VMs without a machine and a marker: {how}");
            plan.wait(WaitKind::OrphanCheck, text, Some(again));
        }
        (Sharing::Alone, 0) => {
            plan.wait(WaitKind::OrphanCheck, "the next check for orphan VMs", Some(again));
        }
        (Sharing::Alone, orphans) => {
            let text = format!("the next check of {orphans} VMs without a machine");
            plan.wait(WaitKind::OrphanCheck, text, Some(again));
        }
    }
}

/// Between two lists of a class.
pub(super) fn period_of(policy: &Policy) -> SignedDuration {
    SignedDuration::try_from(policy.period).unwrap_or(SignedDuration::MAX).max(SHORTEST_PERIOD)
}

/// For how long a VM must have been without a Machine.
fn patience(policy: &Policy) -> SignedDuration {
    period_of(policy).max(policy.minimum_age)
}

fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

fn record(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    policy: &Policy,
    list: &Listing,
    vms: &Listed,
    verdicts: &Verdicts<'_>,
    sharing: &Sharing,
) {
    let (before, began) = (&snapshot.memory, list.began_at);
    let with = |verdict: Verdict| -> Vec<String> {
        verdicts.iter().filter(|(_, one)| **one == verdict).map(|(id, _)| describe(vms, id)).collect()
    };
    let (mut orphans, doubtful, unmarked) = (with(Verdict::Orphan), with(Verdict::Doubtful), with(Verdict::Unmarked));
    if matches!(sharing, Sharing::Unknown(_)) {
        // As after a failed list: it proves nothing and drops nothing.
        orphans.extend(unmarked.iter().filter(|vm| before.orphans.contains_key(*vm)).cloned());
    }
    let left_alone = if matches!(sharing, Sharing::Shared(_)) { unmarked } else { Vec::new() };
    let claims: Vec<_> = snapshot.machines.iter().map(|machine| super::claim_of(machine)).collect();
    let missing: Vec<&str> = without_vm(vms, &claims).map(|claim| claim.name.as_str()).collect();
    let is_missing = |machine: &Machine| missing.contains(&machine.name_any().as_str()) && !machine.is_terminating();
    let lost: Vec<_> = snapshot.machines.iter().filter(|machine| is_missing(machine)).collect();
    let uids: Vec<String> = lost.iter().filter_map(|machine| machine.uid()).collect();
    let mut memory = Memory {
        orphans: seen(&before.orphans, orphans.iter().map(String::as_str), began),
        doubtful: seen(&before.doubtful, doubtful.iter().map(String::as_str), began),
        without_vm: seen(&before.without_vm, uids.iter().map(String::as_str), began),
        reported: before.reported.iter().filter(|uid| uids.contains(uid)).cloned().collect(),
        left_alone: left_alone.into_iter().collect(),
        foreign: with(Verdict::Foreign).len(),
        unidentified: unidentified(vms),
    };
    let mut report = Vec::new();
    for machine in lost {
        let uid = machine.uid().unwrap_or_default();
        if is_proven(&memory.without_vm, &uid, patience(policy), began) && memory.reported.insert(uid) {
            report.push(machine.clone());
        }
    }
    let new: Vec<String> = orphans.into_iter().filter(|vm| !before.orphans.contains_key(vm)).collect();
    let reason = reason(vms, &memory);
    let left_alone = left_alone_text(sharing, &before.left_alone, &memory.left_alone);
    let left_alone = left_alone.map(|text| Event::warning(EventReason::OrphanKept, text));
    let unidentified = unidentified_text(&before.unidentified, &memory.unidentified);
    let unidentified = unidentified.map(|text| Event::warning(EventReason::VmUnidentified, text));
    let warnings = left_alone.into_iter().chain(unidentified).collect();
    let action = Action::Record { memory: Box::new(memory), report, warnings };
    if new.is_empty() {
        plan.then(action, reason);
    } else {
        let fate = if policy.is_dry_run {
            "they are kept (dry run)".to_owned()
        } else {
            format!("deleted if they still have none in {} min", patience(policy).as_mins())
        };
        let text = format!("VMs without a machine: {}; {fate}", shortened(&new));
        plan.then_recording(action, reason, Event::warning(EventReason::OrphanFound, text));
    }
}

fn reason(vms: &Listed, memory: &Memory) -> String {
    let counts = format!(
        "{} VMs: {} without a machine, {} that may belong to another machine; {} machines without a VM",
        vms.len(),
        memory.orphans.len(),
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
fn left_alone_text(sharing: &Sharing, before: &BTreeSet<String>, now: &BTreeSet<String>) -> Option<String> {
    let Sharing::Shared(how) = sharing else { return None };
    let new: Vec<String> = now.difference(before).cloned().collect();
    (!new.is_empty()).then(|| {
        format!(
            "VMs without a machine here and without an owner are kept, because others use the cluster tag: {}; {how}. \
             Give each namespace its own cluster tag, or delete those VMs that no namespace needs",
            shortened(&new)
        )
    })
}

/// VMs without a provider ID or Machine in the driver's answer.
fn unidentified(vms: &Listed) -> BTreeSet<String> {
    let name = |id: &String| if id.is_empty() { "one without an ID".to_owned() } else { id.clone() };
    vms.iter().filter(|(id, vm)| id.is_empty() || vm.machine.is_empty()).map(|(id, _)| name(id)).collect()
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

/// At most a few of many.
fn shortened(all: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown = all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn describe(vms: &Listed, id: &str) -> String {
    identity(id, vms.get(id).map(|vm| vm.machine.as_str()).unwrap_or_default())
}

/// One VM at a time, so that everything is read again before the next.
fn delete(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    policy: &Policy,
    list: &Listing,
    vms: &Listed,
    verdicts: &Verdicts<'_>,
) {
    let learned = &snapshot.learned;
    if policy.is_dry_run || snapshot.recently_deleted >= policy.limit {
        return;
    }
    let due = verdicts.iter().filter(|(id, verdict)| {
        **verdict == Verdict::Orphan
            && !learned.deleted.contains_key(**id)
            && is_proven(&snapshot.memory.orphans, &describe(vms, id), patience(policy), list.began_at)
    });
    for (id, _) in due {
        let Some(name) = vms.get(*id).map(|vm| &vm.machine) else { continue };
        match learned.machines.get(name) {
            None => {
                let reason = format!("VM {id} is deleted only after a live read of its machine");
                plan.then(Action::GetMachine(name.clone()), reason);
                return;
            }
            Some(Ok(false)) => {}
            // One that the cache has was judged already; its VM is another one.
            Some(Ok(true)) if snapshot.claims.iter().any(|claim| claim.name == *name) => {}
            Some(Ok(true)) | Some(Err(_)) => continue,
        }
        let text = format!("Deleted VM {}: no machine has it", describe(vms, id));
        let action = Action::DeleteVm { id: (*id).to_owned(), machine: name.clone() };
        let since = snapshot.memory.orphans.get(&describe(vms, id)).copied().unwrap_or(list.began_at);
        let reason = format!("no machine has VM {} since {since:.0}", describe(vms, id));
        plan.then_recording(action, reason, Event::normal(EventReason::OrphanDeleted, text));
        return;
    }
}
