//! The objects of a plan without a change, in one namespace or in all. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    answer::{Plan, SettledCounts},
    change::{ChangeContent, PlannedChange},
    scope::selector,
};
use crate::story::{DEPLOYMENT, NamespaceFacts, SET, UndecodableObject};
use mcm_api::{
    kinds::{MACHINE_DEPLOYMENTS, MACHINE_SETS, ResourceKind},
    machine::MachineSet,
    selector::Selector,
};
use mcm_controllers::object::owner::controller_of;

/// The note of a plan without objects.
const NOTHING: &str = "there are no MachineDeployments and no MachineSets";
/// Namespaces that a note names.
const MOST_NAMED: usize = 3;

/// Every deployment, and every set without one that no deployment adopts, as it is, also if it cannot be decoded; with a note if
/// the namespace is empty.
pub fn changes(facts: &NamespaceFacts) -> (Vec<PlannedChange>, Vec<String>) {
    let selectors = facts.deployments.values().filter_map(|one| selector(one.spec.selector.as_ref()));
    let selectors: Vec<Selector> = selectors.collect();
    let is_adopted = |set: &MachineSet| selectors.iter().any(|one| one.matches(set.metadata.labels.as_ref()));
    let is_alone = |set: &MachineSet| controller_of(&set.metadata).is_none() && !is_adopted(set);
    let alone = facts.sets.iter().filter(|(_, set)| is_alone(set)).map(|(name, _)| (SET, name));
    let is_planned = |one: &&UndecodableObject| one.kind == DEPLOYMENT || one.kind == SET && one.owner.is_none();
    let kind_of = |one: &UndecodableObject| if one.kind == DEPLOYMENT { DEPLOYMENT } else { SET };
    let unreadable = facts.unreadable.iter().filter(is_planned).map(|one| (kind_of(one), &one.name));
    let all = facts.deployments.keys().map(|name| (DEPLOYMENT, name)).chain(alone).chain(unreadable);
    let changes: Vec<PlannedChange> =
        all.map(|(kind, name)| PlannedChange { kind, name: name.clone(), wish: ChangeContent::Nothing }).collect();
    let is_known = |kind: ResourceKind| {
        let is_listed = facts.unread.iter().all(|unread| unread != kind.plural);
        is_listed && facts.unreadable.iter().all(|one| one.kind != kind.name)
    };
    let is_empty = changes.is_empty() && is_known(MACHINE_DEPLOYMENTS) && is_known(MACHINE_SETS);
    let notes = is_empty.then(|| format!("{NOTHING} in namespace {}", facts.namespace)).into_iter().collect();
    (changes, notes)
}

/// One plan of those of several namespaces. Namespaces that the user may not read are named.
pub fn joined(now: Timestamp, plans: Vec<(String, Plan)>, refused: &BTreeMap<String, String>) -> Plan {
    let (mut objects, mut notes, mut flags) = (Vec::new(), NamespacedNotes::default(), NamespacedNotes::default());
    let (mut settled, count) = (None, plans.len());
    let is_complete = refused.is_empty() && plans.iter().all(|(_, plan)| plan.complete);
    for (namespace, plan) in plans {
        if let Some(SettledCounts { deployments, sets }) = plan.settled {
            let sum: &mut SettledCounts = settled.get_or_insert_default();
            (sum.deployments, sum.sets) = (sum.deployments + deployments, sum.sets + sets);
        }
        objects.extend(plan.objects);
        plan.notes.into_iter().for_each(|note| notes.add(note, &namespace));
        plan.flags.into_iter().for_each(|source| flags.add(source, &namespace));
    }
    let mut unread = NamespacedNotes::default();
    refused.iter().for_each(|(namespace, refusal)| unread.add(format!("not read ({refusal})"), namespace));
    let mut texts = [unread.texts(usize::MAX), notes.texts(count)].concat();
    if count == 0 && refused.is_empty() {
        texts.push(NOTHING.to_owned());
    }
    let plan = Plan::from_objects(now, objects, texts);
    Plan {
        complete: is_complete,
        flags: Some(flags.texts(count).join("; ")).filter(|text| !text.is_empty()),
        settled,
        unread: refused.keys().cloned().collect(),
        ..plan
    }
}

/// Texts with the namespaces for which they hold, in the order in which they are first met.
#[derive(Default)]
struct NamespacedNotes(Vec<(String, Vec<String>)>);

impl NamespacedNotes {
    fn add(&mut self, text: String, namespace: &str) {
        match self.0.iter_mut().find(|(known, _)| *known == text) {
            Some((_, namespaces)) => namespaces.push(namespace.to_owned()),
            None => self.0.push((text, vec![namespace.to_owned()])),
        }
    }

    /// Each text with its namespaces. One that holds for all namespaces names none.
    fn texts(&self, count: usize) -> Vec<String> {
        let text = |(text, namespaces): &(String, Vec<String>)| match namespaces.len() {
            all if all == count => text.clone(),
            _ => format!("{}: {text}", named(namespaces)),
        };
        self.0.iter().map(text).collect()
    }
}

/// Such as `namespaces a, b, c and 4 more`.
fn named(namespaces: &[String]) -> String {
    let shown = namespaces.iter().take(MOST_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = namespaces.len().saturating_sub(MOST_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{} {shown}{more}", if namespaces.len() == 1 { "namespace" } else { "namespaces" })
}

#[cfg(test)]
mod tests;
