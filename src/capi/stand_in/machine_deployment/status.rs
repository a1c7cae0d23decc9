//! The status of a MachineDeployment, and of the object that has the authority over it.

use std::sync::Arc;

use super::Snapshot;
use crate::object::conditions::{self, ConditionVerdict};
use mcm_api::{machine::MachineDeployment as Native, reasons::StandInCondition};
use mcm_conversion::{
    status,
    types::{MCMMigrationStatus, MachineDeployment, MachineDeploymentStatus},
};

/// The status during a hold: only the condition `Paused` changes.
pub(super) fn paused(snapshot: &Snapshot, object: &MachineDeployment, on: &str) -> MachineDeploymentStatus {
    let mut next = object.status.clone().unwrap_or_default();
    conditions::set_paused(&mut next.conditions, Some(on), object.metadata.generation, snapshot.now);
    next
}

/// The status of an object that is not being deleted.
pub(super) fn current(
    snapshot: &Snapshot,
    object: &MachineDeployment,
    synchronized: ConditionVerdict,
) -> MachineDeploymentStatus {
    let generation = object.metadata.generation;
    let mut next = object.status.clone().unwrap_or_default();
    let native = snapshot.native.known().map(Arc::as_ref);
    let shown = native.map(status::deployment).unwrap_or_default();
    next.selector = status::selector_text(&object.spec.selector);
    next.replicas = Some(shown.replicas.unwrap_or(0));
    next.ready_replicas = Some(shown.ready_replicas.unwrap_or(0));
    next.available_replicas = Some(shown.available_replicas.unwrap_or(0));
    next.up_to_date_replicas = Some(shown.up_to_date_replicas.unwrap_or(0));
    next.phase = if native.is_some() { shown.phase } else { "Unknown".to_owned() };
    if synchronized.is_true() && native.is_some_and(is_observed) {
        next.observed_generation = generation;
    }
    let desired = native.map_or(0, |native| native.spec.replicas);
    let [replicas, updated, available] =
        [next.replicas, next.up_to_date_replicas, next.available_replicas].map(Option::unwrap_or_default);
    let is_available =
        shown.conditions.iter().any(|one| one.type_ == StandInCondition::Available.as_str() && one.status == "True");
    let all = [
        (StandInCondition::Available, is_available, format!("{available} of {desired} machines are available")),
        (
            StandInCondition::RollingOut,
            updated < replicas,
            format!("{updated} of {replicas} machines have the current template"),
        ),
        (StandInCondition::ScalingUp, replicas < desired, format!("{replicas} of {desired} machines exist")),
        (StandInCondition::ScalingDown, replicas > desired, format!("{replicas} of {desired} machines exist")),
    ];
    conditions::set(&mut next.conditions, StandInCondition::Synchronized, synchronized, generation, snapshot.now);
    for (type_, is_true, message) in all {
        let desired = ConditionVerdict::whether(is_true, type_.reason(is_true), message);
        conditions::set(&mut next.conditions, type_, desired, generation, snapshot.now);
    }
    conditions::set_paused(&mut next.conditions, None, generation, snapshot.now);
    next
}

/// The counters are of the current spec.
fn is_observed(native: &Native) -> bool {
    let observed = native.status.as_ref().map_or(0, |status| status.observed_generation);
    native.metadata.generation.unwrap_or_default() <= observed
}

/// A status with the condition `StandIn`.
pub(super) fn with_verdict(
    stored: &MCMMigrationStatus,
    snapshot: &Snapshot,
    verdict: ConditionVerdict,
) -> MCMMigrationStatus {
    let mut next = stored.clone();
    let generation = snapshot.migration.known().and_then(|migration| migration.metadata.generation);
    conditions::set(&mut next.conditions, StandInCondition::StandIn, verdict, generation, snapshot.now);
    next
}
