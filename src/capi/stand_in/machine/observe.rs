use kube::ResourceExt;

use super::{Snapshot, StandInMachineSession, apply::StandInMachineReconciler};
use crate::{
    object::{observe::view, view::ObjectView},
    stand_in::mirror,
};
use mcm_api::labels;
use mcm_controllers::object::owner;
use mcm_runtime::{cache::Key, reconcile::SnapshotReader};

impl SnapshotReader for StandInMachineReconciler {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = StandInMachineSession;

    /// `None` if the machine is on neither side.
    fn observe(&self, key: &Key, (): &(), session: &StandInMachineSession) -> Option<Snapshot> {
        let mirror = view(&self.mirrors.cache, key);
        let native = view(&self.natives.cache, key);
        if matches!((&mirror, &native), (ObjectView::Missing, ObjectView::Missing)) {
            return None;
        }
        let beside = |name: &str| Key::new(&key.namespace, name);
        let controller = native.known().and_then(|native| owner::controller_of(&native.metadata).cloned());
        let set = controller.filter(|one| one.kind == "MachineSet").map(|one| beside(&one.name));
        let native_set = set.as_ref().map_or(ObjectView::Missing, |key| view(&self.native_sets.cache, key));
        let above = native_set.known().map(|set| self.deployments.above(set));
        let is_unknown = matches!(native_set, ObjectView::Unknown) || matches!(above, Some(None));
        let native = if is_unknown { ObjectView::Unknown } else { native };
        let above = above.flatten().unwrap_or_default();
        let class = native.known().map(|native| native.spec.class.name.clone());
        let newest = above.native.as_ref().and_then(|one| one.annotations().get(labels::REVISION));
        let own = native_set.known().and_then(|one| one.annotations().get(labels::REVISION));
        let set = set.as_ref().and_then(|key| self.sets.cache.get(key));
        Some(Snapshot {
            standing: self.ground.standing(&key.namespace),
            is_up_to_date: newest.is_some() && newest == own,
            set: set.filter(|set| mirror::is_mirror(&set.metadata) && set.metadata.deletion_timestamp.is_none()),
            class: class.and_then(|name| self.classes.cache.get(&beside(&name))),
            above,
            mirror,
            native,
            session: *session,
            now: self.clock.now(),
        })
    }
}
