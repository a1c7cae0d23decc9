//! The steps of each direction. Before them, every migration suspends the authority, pauses the objects and records the machines;
//! after them, it compares the machines with the record.

use super::{
    MigrationDirection, MigrationUnit, from_other, from_pool, group, start, step::Step, swap, to_capi, to_native,
    to_other, to_pool,
};

/// The steps of a direction, in order.
pub struct MigrationRoute {
    /// The title of the step that pauses the objects.
    pub pause: &'static str,
    /// Steps until the authority is switched.
    pub before: &'static [Step],
    /// Steps after the switch.
    pub after: &'static [Step],
}

impl MigrationRoute {
    /// The steps of a unit. A hand-over by the stand-in has others.
    pub const fn in_direction(way: MigrationDirection, unit: &MigrationUnit) -> Self {
        match (way, unit) {
            (MigrationDirection::ToNative, MigrationUnit::Machine(_)) => LONE_TO_NATIVE,
            (MigrationDirection::ToNative, _) => TO_NATIVE,
            (MigrationDirection::FromNative, MigrationUnit::Machine(_)) => LONE_TO_CAPI,
            (MigrationDirection::FromNative, _) => TO_CAPI,
            (MigrationDirection::FromOther, MigrationUnit::Pool(_)) => FROM_POOL,
            (MigrationDirection::FromOther, _) => FROM_OTHER,
            (MigrationDirection::ToOther, MigrationUnit::Pool(_)) => TO_POOL,
            (MigrationDirection::ToOther, _) => TO_OTHER,
            (MigrationDirection::FromStandIn, _) => Self { pause: "", before: &[], after: &[] },
        }
    }
}

const TO_NATIVE: MigrationRoute = MigrationRoute {
    pause: "pause the CAPI objects",
    before: &[
        Step::new("create the MCM objects, paused", to_native::describe).undone_by(to_native::forget),
        Step::new("attach the MCM Machines to the MCM MachineSet", to_native::hand_over)
            .undone_by(to_native::take_back),
    ],
    after: &[
        Step::new("remove the CAPI objects", to_native::remove),
        Step::new("unpause the MCM objects", start::start_natively),
    ],
};

const LONE_TO_NATIVE: MigrationRoute = MigrationRoute {
    pause: "pause the CAPI objects",
    before: &[
        Step::new("create the class of the MCM Machine, paused", to_native::supply).undone_by(to_native::forget),
        Step::new("detach the MCM Machine from its MCMMachine", to_native::release).undone_by(to_native::take_back),
    ],
    after: TO_NATIVE.after,
};

const TO_CAPI: MigrationRoute = MigrationRoute {
    pause: "pause the MCM objects",
    before: &[
        Step::new("create the CAPI objects, paused", to_capi::describe).undone_by(to_capi::forget),
        Step::new("attach the MCM Machines to their MCMMachines", to_capi::hand_over).undone_by(to_native::take_back),
    ],
    after: &[
        Step::new("remove the MCM MachineDeployment and its MachineSets", to_capi::remove),
        Step::new("unpause the CAPI objects", start::start_under_core),
    ],
};

const LONE_TO_CAPI: MigrationRoute = MigrationRoute {
    pause: "pause the MCM Machine",
    before: &[
        Step::new("create Machine and MCMMachine, paused", to_capi::describe_lone).undone_by(to_capi::forget),
        Step::new("attach the MCM Machine to its MCMMachine", to_capi::hand_over).undone_by(to_native::take_back),
    ],
    after: &[
        Step::new("remove the MCM finalizer from the Node", to_capi::remove),
        Step::new("unpause the CAPI objects", start::start_under_core),
    ],
};

const FROM_OTHER: MigrationRoute = MigrationRoute {
    pause: "pause the CAPI objects",
    before: &[
        Step::new("create class, template and MCMMachines, paused", from_other::describe).undone_by(from_other::forget),
        Step::new("switch the references to the MCMMachines", from_other::refer).undone_by(from_other::refer_back),
    ],
    after: &[
        Step::new("remove the objects of the other provider", from_other::remove),
        Step::new("tag the VMs as their class specifies", swap::tag),
        Step::new("unpause the CAPI objects", from_other::start),
    ],
};

const TO_OTHER: MigrationRoute = MigrationRoute {
    pause: "pause the CAPI objects",
    before: &[
        Step::new("remove the tags of their class from the VMs", swap::untag).undone_by(swap::tag),
        Step::new("create the objects of the other provider, paused", to_other::describe).undone_by(to_other::forget),
        Step::new("switch the references to the objects of the other provider", to_other::refer)
            .undone_by(to_other::refer_back),
    ],
    after: &[
        Step::new("remove the MCMMachines and MCM Machines", to_other::remove),
        Step::new("unpause the objects of Cluster API and of the other provider", to_other::start),
    ],
};

const FROM_POOL: MigrationRoute = MigrationRoute {
    pause: "pause the MachinePool and its infrastructure",
    before: &[
        // The class stays.
        Step::new("create the class, paused", from_pool::supply),
        Step::new("wait until the VMs left their group", group::leave).undone_by(group::joined),
        Step::new("create template and the CAPI objects, paused", from_pool::describe).undone_by(to_capi::forget),
    ],
    after: &[
        Step::new("tag the VMs as their class specifies", swap::tag),
        Step::new("unpause the CAPI objects", from_other::start),
        Step::new("unpause the MachinePool, without machines", from_pool::empty),
    ],
};

const TO_POOL: MigrationRoute = MigrationRoute {
    pause: "pause the CAPI objects and the MachinePool",
    before: &[
        Step::new("remove the tags of their class from the VMs", swap::untag).undone_by(swap::tag),
        Step::new("wait until the VMs joined their group", group::join).undone_by(group::left),
    ],
    after: &[
        Step::new("remove the MachineDeployment and the objects of mcm", to_pool::remove),
        Step::new("unpause the MachinePool, with its machines", to_pool::fill),
    ],
};
