//! Machines that the autoscaler chose for deletion: it lists them in an annotation of the deployment, this file marks
//! them, and their set deletes them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kube::ResourceExt;

use super::Snapshot;
use crate::object::{
    deletion_order::{goes_first, is_chosen, scaled_at},
    draft::{DraftsByName, ObjectDraft},
    time::whole_seconds,
};
use mcm_api::{
    labels,
    machine::{Machine, MachineDeployment, MachinePhase, MachineSet},
};

/// Rewrites the annotation in its normal form without the Machines that are done, and marks the rest.
pub(super) fn mark_machines(
    deployment: &mut ObjectDraft<MachineDeployment>,
    machines: &mut DraftsByName<Machine>,
    snapshot: &Snapshot,
) {
    let annotations = deployment.current().annotations();
    let Some(list) = annotations.get(labels::TRIGGER_DELETION) else { return };
    let list = list.clone();
    let changed_at = annotations.get(labels::LAST_SCALER_CHANGE).cloned();
    let migrates = list.split(',').any(|entry| !entry.is_empty() && !entry.contains('~'));
    let default_time = changed_at.clone().unwrap_or_else(|| whole_seconds(snapshot.now).to_string());

    let mut kept = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let (name, time) = entry.split_once('~').unwrap_or((entry, &default_time));
        if name.is_empty() || time.parse::<Timestamp>().is_err() {
            continue;
        }
        match snapshot.machines.iter().find(|machine| machine.name_any() == name) {
            Some(machine) if machine.is_terminating() || machine.is_preserved_failed() => continue,
            // It must be marked, or its set may delete another one for the lower replicas. Then it is dropped: the autoscaler
            // expects no failed ones in the list.
            Some(machine) if machine.phase() == MachinePhase::Failed && is_marked_first(machine) => continue,
            Some(machine) => mark(machines, machine, time),
            None if snapshot.unreadable_machines.iter().any(|machine| machine.name == name) => {}
            None => continue,
        }
        kept.push(format!("{name}~{time}"));
    }
    let desired = kept.join(",");
    if desired != list || (migrates && changed_at.is_none()) {
        let reason = if kept.is_empty() {
            "no machine in trigger-deletion-by-mcm is left to delete".to_owned()
        } else {
            format!("machines in trigger-deletion-by-mcm that are still to delete: {}", kept.len())
        };
        deployment.edit(reason, |deployment| {
            let annotations = deployment.annotations_mut();
            if kept.is_empty() {
                annotations.remove(labels::TRIGGER_DELETION);
            } else {
                annotations.insert(labels::TRIGGER_DELETION.to_owned(), desired);
            }
            if migrates {
                annotations.entry(labels::LAST_SCALER_CHANGE.to_owned()).or_insert(default_time);
            }
        });
    }
}

/// Names of the Machines that the autoscaler chose and that are still to be deleted, in either form of the list.
pub fn chosen(deployment: &MachineDeployment) -> BTreeSet<&str> {
    let list = deployment.annotations().get(labels::TRIGGER_DELETION).map_or("", String::as_str);
    let names = list.split(',').map(|entry| entry.split_once('~').map_or(entry, |(name, _)| name).trim());
    names.filter(|name| !name.is_empty()).collect()
}

/// The record on the deployment of the Machines that the autoscaler chose.
pub(super) struct AutoscalerRecord<'a> {
    listed: BTreeMap<&'a str, Timestamp>,
    scaled_at: Option<Timestamp>,
}

impl<'a> AutoscalerRecord<'a> {
    pub(super) fn from_deployment(deployment: &'a MachineDeployment) -> Self {
        let list = deployment.annotations().get(labels::TRIGGER_DELETION).map_or("", String::as_str);
        let entries = list.split(',').filter_map(|entry| entry.trim().split_once('~'));
        let listed = entries.filter_map(|(name, time)| Some((name, time.parse().ok()?))).collect();
        Self { listed, scaled_at: scaled_at(&deployment.metadata) }
    }

    /// Of the Machines of one set. The new set gets the deployment's annotation, so the later one counts.
    pub(super) fn among<'m>(
        &self,
        machines: impl IntoIterator<Item = &'m Machine>,
        set: &MachineSet,
        is_new: bool,
    ) -> ChosenMachines {
        let of_deployment = self.scaled_at.filter(|_| is_new);
        let scaled_at = of_deployment.max(scaled_at(&set.metadata));
        let is_listed = |machine: &Machine| {
            let listed_at = machine.metadata.name.as_deref().and_then(|name| self.listed.get(name));
            listed_at.zip(scaled_at).is_some_and(|(listed, scaled)| *listed <= scaled)
        };
        let chosen = machines.into_iter().filter(|machine| is_chosen(machine, scaled_at) || is_listed(machine));
        ChosenMachines(chosen.map(ResourceExt::name_any).collect())
    }
}

/// Names of Machines that their set deletes as soon as they are marked, regardless of its replicas.
#[derive(Clone, Debug, Default)]
pub(super) struct ChosenMachines(BTreeSet<String>);

impl ChosenMachines {
    pub(super) fn has(&self, machine: &Machine) -> bool {
        machine.metadata.name.as_ref().is_some_and(|name| self.0.contains(name))
    }
}

/// The time of the first mark stays.
fn mark(machines: &mut DraftsByName<Machine>, machine: &Arc<Machine>, time: &str) {
    if is_marked_first(machine) {
        return;
    }
    let is_marked = is_marked(machine);
    machines.edit(machine, format!("trigger-deletion-by-mcm lists machine {}", machine.name_any()), |machine| {
        let annotations = machine.annotations_mut();
        annotations.insert(labels::PRIORITY.to_owned(), labels::FIRST_PRIORITY.to_owned());
        if !is_marked {
            annotations.insert(labels::MARKED_FOR_DELETION_TIME.to_owned(), time.to_owned());
        }
    });
}

fn is_marked_first(machine: &Machine) -> bool {
    goes_first(machine) && is_marked(machine)
}

fn is_marked(machine: &Machine) -> bool {
    machine.annotations().get(labels::MARKED_FOR_DELETION_TIME).is_some_and(|time| !time.is_empty())
}
