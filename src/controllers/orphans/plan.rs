use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::{Action, Listing, Memory, Policy, Snapshot};
use crate::{
    api::{machine::Machine, reasons::EventReason},
    controllers::object::authority,
    plan::{Event, Plan, WaitKind},
    safety::orphans::{Verdict, identity, is_proven, judge, seen, without_vm},
};

/// The shortest pause between two lists.
const SHORTEST_PERIOD: SignedDuration = SignedDuration::from_mins(1);
/// How soon to list again after a failure, at the latest.
const AFTER_FAILURE: SignedDuration = SignedDuration::from_mins(10);

/// Plans the next steps of a pass over one class.
///
/// The loop calls it until no steps are left: list, record what was seen, read the Machine of an orphan, delete its VM.
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
    let vms = match &list.vms {
        Ok(vms) => vms,
        Err(error) => {
            let again = after(snapshot.now, period.min(AFTER_FAILURE));
            plan.wait(WaitKind::OrphanCheck, format!("a complete list of VMs: {error}"), Some(again));
            return plan;
        }
    };
    let again = Some(after(snapshot.now, period));
    if let Some(problem) = &snapshot.uncertain {
        plan.wait(WaitKind::CacheUntrusted, format!("certainty about machines: {problem}"), again);
        return plan;
    }
    let verdicts = judge(vms, &snapshot.claims);
    if snapshot.learned.is_recorded {
        delete(&mut plan, snapshot, policy, list, vms, &verdicts);
    } else {
        record(&mut plan, snapshot, policy, list, vms, &verdicts);
    }
    if plan.steps.is_empty() {
        let orphans = snapshot.memory.orphans.len();
        let text = match orphans {
            0 => "the next check for orphan VMs".to_owned(),
            _ => format!("the next check of {orphans} VMs without a machine"),
        };
        plan.wait(WaitKind::OrphanCheck, text, again);
    }
    plan
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
    vms: &BTreeMap<String, String>,
    verdicts: &BTreeMap<&str, Verdict>,
) {
    let (before, began) = (&snapshot.memory, list.began_at);
    let with = |verdict: Verdict| -> Vec<String> {
        verdicts.iter().filter(|(_, one)| **one == verdict).map(|(id, _)| describe(vms, id)).collect()
    };
    let (orphans, doubtful) = (with(Verdict::Orphan), with(Verdict::Doubtful));
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
    };
    let mut report = Vec::new();
    for machine in lost {
        let uid = machine.uid().unwrap_or_default();
        if is_proven(&memory.without_vm, &uid, patience(policy), began) && memory.reported.insert(uid) {
            report.push(machine.clone());
        }
    }
    let new: Vec<String> = orphans.into_iter().filter(|vm| !before.orphans.contains_key(vm)).collect();
    let reason = format!(
        "{} VMs: {} without a machine, {} that may be of another machine; {} machines without a VM",
        vms.len(),
        memory.orphans.len(),
        memory.doubtful.len(),
        memory.without_vm.len()
    );
    let action = Action::Record { memory: Box::new(memory), report };
    if new.is_empty() {
        plan.then(action, reason);
    } else {
        let fate = if policy.is_dry_run {
            "they are left alone (dry run)".to_owned()
        } else {
            format!("deleted if that is still so in {} min", patience(policy).as_mins())
        };
        let text = format!("VMs without a machine: {}; {fate}", shortened(&new));
        plan.then_recording(action, reason, Event::warning(EventReason::OrphanFound, text));
    }
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

fn describe(vms: &BTreeMap<String, String>, id: &str) -> String {
    identity(id, vms.get(id).map(String::as_str).unwrap_or_default())
}

/// One VM at a time, so that everything is read again before the next.
fn delete(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    policy: &Policy,
    list: &Listing,
    vms: &BTreeMap<String, String>,
    verdicts: &BTreeMap<&str, Verdict>,
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
        let Some(name) = vms.get(*id) else { continue };
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
