//! Areas that a seed plays beside rollouts, drains and faults. Each area costs time, so most seeds have none.

use std::env;

/// The areas of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Areas {
    /// Nodes are updated in place.
    pub in_place: bool,
    /// Users request the preservation of Machines.
    pub preservation: bool,
    /// VMs without Machines, VMs of other owners, and a cloud that lists them.
    pub orphans: bool,
    /// Too many Machines, sets that are frozen, and a target that does not answer for long.
    pub freezes: bool,
    /// Pods have volumes.
    pub volumes: bool,
    /// Users and programs change objects of other controllers.
    pub external_writers: bool,
    /// The autoscaler chooses several Machines one after the other.
    pub autoscaler: bool,
}

impl Areas {
    /// The areas in `MODEL_AREAS`.
    pub(super) fn asked_for() -> Self {
        env::var("MODEL_AREAS").map_or_else(|_| Self::default(), |names| Self::named(&names))
    }

    /// The areas of a list such as `in-place,volumes`, or `none`.
    pub(super) fn named(names: &str) -> Self {
        Self::drawn(|name| names.split(',').any(|it| it.trim() == name))
    }

    fn drawn(mut has: impl FnMut(&str) -> bool) -> Self {
        Self {
            in_place: has("in-place"),
            preservation: has("preservation"),
            orphans: has("orphans"),
            freezes: has("freezes"),
            volumes: has("volumes"),
            external_writers: has("external-writers"),
            autoscaler: has("autoscaler"),
        }
    }
}
