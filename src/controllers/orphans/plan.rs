use jiff::SignedDuration;
use kube::ResourceExt;

use super::{
    Action, ClassVms, ForeignClasses, OrphanPolicy, Snapshot,
    nodes::NodeIndex,
    pass::{MISSING_RIGHT, OrphanPass, VmListSharing, VmVerdicts, after, patience, period_of, shortened},
    record, serving,
};
use crate::object::authority;
use mcm_api::reasons::EventReason;
use mcm_driver::VmsByProviderId;
use mcm_rules::{
    plan::{Event, Plan, PlanInput, WaitKind},
    safety::orphans::{VmClassification, identity, is_proven, judge},
};

/// How soon to list again after a failure, at the latest.
const AFTER_FAILURE: SignedDuration = SignedDuration::from_mins(10);

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self, &self.policy)
    }
}

/// Plans the next steps of a pass over one class.
///
/// The loop calls it until no steps are left: list, look for other owners that use the cluster tag if that matters, divide the
/// VMs among the classes that list them, record the findings, delete the VM of an orphan without a Node, drain the Node of
/// another.
pub fn plan(snapshot: &Snapshot, policy: &OrphanPolicy) -> Plan<Action> {
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
    let ClassVms { owner, vms } = match &list.found {
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
    let Some(sharing) = sharing(vms, &verdicts, snapshot.learned.others.as_ref(), policy) else {
        let reason = "VMs without a marker are orphans only if no other namespace uses the cluster tag";
        plan.then(Action::ListClassesOfOthers, reason);
        return plan;
    };
    if matches!(sharing, VmListSharing::Alone) {
        verdicts
            .values_mut()
            .filter(|one| **one == VmClassification::Unmarked)
            .for_each(|one| *one = VmClassification::Orphan);
    }
    if !divide(&mut plan, snapshot, vms, &mut verdicts) {
        return plan;
    }
    let nodes = NodeIndex::new(&snapshot.nodes, &snapshot.all_machines);
    let pass = OrphanPass { snapshot, policy, list, vms, verdicts, sharing, nodes };
    if !snapshot.learned.is_recorded {
        record::plan(&mut plan, &pass);
        return plan;
    }
    delete(&mut plan, &pass);
    if plan.steps.is_empty() {
        serving::plan(&mut plan, &pass);
    }
    if plan.steps.is_empty() {
        wait(&mut plan, &pass);
    }
    plan
}

/// Leaves VMs to another class whose list shows them as well, so that each orphan is reported and deleted once. False if the
/// classes have not been asked yet.
fn divide(plan: &mut Plan<Action>, snapshot: &Snapshot, vms: &VmsByProviderId, verdicts: &mut VmVerdicts<'_>) -> bool {
    let is_shared = |verdict: &VmClassification| !matches!(verdict, VmClassification::Claimed);
    let shown: Vec<String> = verdicts.iter().filter(|(_, one)| is_shared(one)).map(|(id, _)| named(vms, id)).collect();
    match &snapshot.learned.elsewhere {
        None if shown.is_empty() => {}
        None => {
            let reason = "a VM without a machine that several classes list is handled once";
            plan.then(Action::DivideVms(shown), reason);
            return false;
        }
        Some(elsewhere) => verdicts.retain(|id, one| !is_shared(&*one) || !elsewhere.contains(&named(vms, id))),
    }
    true
}

fn named(vms: &VmsByProviderId, id: &str) -> String {
    identity(id, vms.get(id).map(|vm| vm.machine.as_str()).unwrap_or_default())
}

/// `None` if it matters, and the classes of other namespaces were not listed.
fn sharing(
    vms: &VmsByProviderId,
    verdicts: &VmVerdicts<'_>,
    others: Option<&ForeignClasses>,
    policy: &OrphanPolicy,
) -> Option<VmListSharing> {
    let first = |verdict: VmClassification| verdicts.iter().find(|(_, one)| **one == verdict).map(|(id, _)| *id);
    if first(VmClassification::Unmarked).is_none() {
        return Some(VmListSharing::Alone);
    }
    if let Some(id) = first(VmClassification::Foreign) {
        let marker = vms.get(id).and_then(|vm| vm.owner.as_deref()).unwrap_or_default();
        return Some(VmListSharing::Shared(format!("VM {} has the owner {marker}", named(vms, id))));
    }
    Some(match others? {
        // Permissions of the Go programs.
        ForeignClasses::Forbidden { has_own_tag } if *has_own_tag || policy.is_sole_user => VmListSharing::Alone,
        ForeignClasses::Forbidden { .. } => VmListSharing::Unchecked,
        ForeignClasses::Known(classes) if classes.is_empty() => VmListSharing::Alone,
        ForeignClasses::Known(classes) => {
            VmListSharing::Shared(format!("MachineClass {} has the same tag", shortened(classes)))
        }
        ForeignClasses::Unknown(error) => VmListSharing::Unknown(error.clone()),
    })
}

fn wait(plan: &mut Plan<Action>, pass: &OrphanPass<'_>) {
    let again = after(pass.snapshot.now, period_of(pass.policy));
    let unmarked = pass.with(VmClassification::Unmarked).count();
    match (&pass.sharing, pass.snapshot.memory.orphans.len()) {
        (VmListSharing::Unknown(error), _) => {
            let text = format!(
                "the MachineClasses of other namespaces, to decide about {unmarked} VMs without a marker: {error}"
            );
            plan.wait(WaitKind::OrphanCheck, text, Some(again.min(after(pass.snapshot.now, AFTER_FAILURE))));
        }
        (VmListSharing::Shared(how), _) => {
            let text =
                format!("its own cluster tag, to decide about {unmarked} VMs without a machine and a marker: {how}");
            plan.wait(WaitKind::OrphanCheck, text, Some(again));
        }
        (VmListSharing::Unchecked, _) => {
            let text = format!("{MISSING_RIGHT}, to decide about {unmarked} VMs without a machine and a marker");
            plan.wait(WaitKind::OrphanCheck, text, Some(again));
        }
        (VmListSharing::Alone, 0) => {
            plan.wait(WaitKind::OrphanCheck, "the next check for orphan VMs", Some(again));
        }
        (VmListSharing::Alone, orphans) => {
            let text = format!("the next check of {orphans} VMs without a machine");
            plan.wait(WaitKind::OrphanCheck, text, Some(again));
        }
    }
}

/// One VM at a time, so that everything is read again before the next.
fn delete(plan: &mut Plan<Action>, pass: &OrphanPass<'_>) {
    let (snapshot, policy, began) = (pass.snapshot, pass.policy, pass.list.began_at);
    let learned = &snapshot.learned;
    if policy.is_dry_run || snapshot.recently_deleted >= policy.limit {
        return;
    }
    if let Some((id, node)) = pass.serving().find(|(_, node)| !node.is_marked()) {
        // A manager that has a Node of these VMs may be creating others, whose Nodes have not joined yet.
        let (name, vm) = (node.node.name_any(), pass.describe(id));
        if pass.bare().next().is_some() {
            let text = format!("node {name} of VM {vm} to be free: another manager may have VMs of this list");
            plan.wait(WaitKind::OrphanCheck, text, Some(after(snapshot.now, period_of(policy))));
        }
        return;
    }
    let due = pass.bare().filter(|id| {
        !learned.deleted.contains_key(*id)
            && is_proven(&snapshot.memory.orphans, &pass.describe(id), patience(policy), began)
    });
    for id in due {
        let (name, vm) = (pass.machine_of(id), pass.describe(id));
        match learned.machines.get(name) {
            None => {
                let reason = format!("VM {id} is deleted only after a live read of its machine");
                plan.then(Action::GetMachine(name.to_owned()), reason);
                return;
            }
            Some(Ok(false)) => {}
            // One that the cache has was judged already; its VM is another one.
            Some(Ok(true)) if snapshot.claims.iter().any(|claim| claim.name == *name) => {}
            Some(Ok(true)) | Some(Err(_)) => continue,
        }
        let text = format!("Deleted VM {vm}: no machine has it");
        let action = Action::DeleteVm { id: id.to_owned(), machine: name.to_owned() };
        let since = snapshot.memory.orphans.get(&vm).copied().unwrap_or(began);
        let reason = format!("no machine has VM {vm} since {since:.0}");
        plan.then_recording(action, reason, Event::normal(EventReason::OrphanDeleted, text));
        return;
    }
}
