//! Which failed Machines are kept for someone to look at, instead of being replaced.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::edit::Edits;
use crate::api::{
    labels::{LAST_NODE_PRESERVE, PRESERVE},
    machine::{Machine, MachinePhase, MachineSet},
};

/// A wish to preserve a Machine, as its annotation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Preserve it, whatever its phase.
    Now,
    /// Preserve it once it is Failed.
    WhenFailed,
    /// The set chose to preserve it.
    Auto,
    /// Do not preserve it.
    Never,
}

/// The annotation of a Machine that the set preserves by itself.
const AUTO_PRESERVED: &str = "auto-preserved";

/// The wishes that a plan gives to Machines or takes from them, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Assignment(BTreeMap<String, Option<Wish>>);

impl Assignment {
    /// Whether a failed Machine stays for now.
    pub(super) fn keeps(&self, machine: &Machine, now: Timestamp) -> bool {
        match expiry(machine) {
            Some(expiry) => expiry > now,
            None => matches!(self.wish_of(machine), Some(Wish::Now | Wish::WhenFailed | Wish::Auto)),
        }
    }

    fn wish_of(&self, machine: &Machine) -> Option<Wish> {
        self.0.get(&machine.name_any()).copied().unwrap_or_else(|| wish_of(machine))
    }
}

/// Keeps as many failed Machines as the set allows: the youngest first; with fewer allowed, the oldest are given up first.
pub(super) fn assign(set: &MachineSet, machines: &[&Arc<Machine>], edits: &mut Edits) -> Assignment {
    let living: Vec<&Arc<Machine>> = machines.iter().copied().filter(|machine| !machine.is_terminating()).collect();
    let (mut kept, rest): (Vec<_>, Vec<_>) = living.into_iter().partition(|machine| is_auto_preserved(machine));
    let allowed = usize::try_from(set.spec.auto_preserve_failed_machine_max).unwrap_or_default();
    let mut assignment = Assignment::default();

    kept.sort_by_key(|machine| (machine.creation_timestamp(), machine.name_any()));
    let surplus = kept.len().saturating_sub(allowed);
    for machine in kept.iter().take(surplus) {
        let reason = format!("{} failed machines are preserved automatically and {allowed} may be", kept.len());
        edits.add(machine, json!({ "metadata": { "annotations": { PRESERVE: null } } }), reason);
        assignment.0.insert(machine.name_any(), None);
    }

    let mut eligible: Vec<_> = rest.into_iter().filter(|machine| may_be_auto_preserved(machine)).collect();
    eligible.sort_by_key(|machine| (std::cmp::Reverse(machine.creation_timestamp()), machine.name_any()));
    for machine in eligible.into_iter().take(allowed.saturating_sub(kept.len())) {
        let reason = format!("it failed, and {} of {allowed} are preserved automatically", kept.len());
        edits.add(machine, json!({ "metadata": { "annotations": { PRESERVE: AUTO_PRESERVED } } }), reason);
        assignment.0.insert(machine.name_any(), Some(Wish::Auto));
    }
    assignment
}

/// Whether the set chose to preserve the Machine.
pub(super) fn is_auto_preserved(machine: &Machine) -> bool {
    annotation(machine, PRESERVE) == Some(AUTO_PRESERVED)
}

/// Until when the Machine is preserved; `None` if it is not.
pub(super) fn preserved_until(machine: &Machine, now: Timestamp) -> Option<Timestamp> {
    expiry(machine).filter(|expiry| *expiry > now)
}

/// The time in the status, past or not.
pub(super) fn expiry(machine: &Machine) -> Option<Timestamp> {
    Some(machine.status.as_ref()?.current_status.preserve_expiry_time.as_ref()?.0)
}

/// The Node speaks first; the Machine remembers its last word, so that this needs no Node, and holds when the Node is gone.
fn wish_of(machine: &Machine) -> Option<Wish> {
    let of_node = annotation(machine, LAST_NODE_PRESERVE).and_then(parse);
    of_node.or_else(|| annotation(machine, PRESERVE).and_then(parse))
}

fn may_be_auto_preserved(machine: &Machine) -> bool {
    machine.phase() == MachinePhase::Failed && wish_of(machine).is_none()
}

fn parse(value: &str) -> Option<Wish> {
    match value {
        "now" => Some(Wish::Now),
        "when-failed" => Some(Wish::WhenFailed),
        AUTO_PRESERVED => Some(Wish::Auto),
        "false" => Some(Wish::Never),
        _ => None,
    }
}

fn annotation<'a>(machine: &'a Machine, key: &str) -> Option<&'a str> {
    machine.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
