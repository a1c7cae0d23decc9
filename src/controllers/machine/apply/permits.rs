use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use crate::{
    api::machine::{Machine, MachinePhase},
    controllers::machine::BY_DEPLOYMENT,
    runtime::cache::{Cache, Key},
    safety::meltdown::{OutOfService, Permit, PermitKey},
};

/// The replacement permits of the meltdown guard, and which Machine holds each.
#[derive(Debug, Default)]
pub struct Permits {
    holders: Mutex<BTreeMap<PermitKey, Key>>,
    /// UIDs of Machines whose VM is certainly gone. After a restart the process finds out again.
    waived: Mutex<BTreeMap<Key, Option<String>>>,
}

/// A permit. Dropping it releases it.
pub(crate) struct Held {
    machine: Key,
    permits: Option<Arc<Permits>>,
}

impl Held {
    /// Keeps the permit until `Permits::release`.
    pub(super) fn keep(mut self) {
        self.permits = None;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(permits) = &self.permits {
            permits.release(&self.machine);
        }
    }
}

impl Permits {
    /// Takes a permit unless another Machine that still exists holds it.
    fn take(&self, permit: &PermitKey, machine: &Key, exists: impl Fn(&Key) -> bool) -> Result<(), Key> {
        let mut holders = self.holders.lock();
        if let Some(holder) = holders.get(permit).filter(|holder| *holder != machine && exists(holder)) {
            return Err(holder.clone());
        }
        holders.insert(permit.clone(), machine.clone());
        Ok(())
    }

    /// Replaces this Machine without regard to the others.
    pub(super) fn waive(&self, machine: &Machine) {
        self.waived.lock().insert(Key::of(&machine.metadata), machine.metadata.uid.clone());
    }

    /// Whether a Machine is replaced without regard to the others. Drops entries of deleted Machines.
    fn is_waived(&self, key: &Key, machines: &Cache<Machine>) -> bool {
        let mut waived = self.waived.lock();
        waived.retain(|key, uid| machines.get(key).is_some_and(|machine| machine.metadata.uid == *uid));
        waived.contains_key(key)
    }

    /// Releases the permits of a Machine.
    pub(super) fn release(&self, machine: &Key) {
        self.holders.lock().retain(|_, holder| holder != machine);
    }
}

/// Takes a permit for a Machine, then counts the Machines that are out of service. The Machine itself does not count if
/// its in-place update is why: it would block its own replacement.
pub(crate) fn take(
    permits: &Arc<Permits>,
    machines: &Cache<Machine>,
    permit: &PermitKey,
    machine: &Key,
) -> (Option<Held>, Permit) {
    match permits.take(permit, machine, |holder| machines.get(holder).is_some()) {
        Ok(()) => {
            let held = Held { machine: machine.clone(), permits: Some(Arc::clone(permits)) };
            if permits.is_waived(machine, machines) {
                return (Some(held), Permit::Held(OutOfService::default()));
            }
            let siblings = machines.by(BY_DEPLOYMENT, &permit.deployment);
            let is_own_update = |other: &&Machine| Key::of(&other.metadata) == *machine && is_being_updated(other);
            let counted = siblings.iter().map(|machine| &**machine).filter(|other| !is_own_update(other));
            (Some(held), Permit::Held(OutOfService::of(permit, counted)))
        }
        Err(holder) => (None, Permit::Refused { by: holder.name }),
    }
}

fn is_being_updated(machine: &Machine) -> bool {
    matches!(machine.phase(), MachinePhase::InPlaceUpdating | MachinePhase::InPlaceUpdateFailed)
        && machine.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::runtime::cell::Kept;

    fn permit(namespace: &str) -> PermitKey {
        PermitKey { namespace: namespace.to_owned(), deployment: "pool".to_owned() }
    }

    #[test]
    fn one_machine_of_a_deployment_holds_the_permit_until_it_gives_it_back_or_is_gone() {
        let (permits, a, b) = (Permits::default(), Key::new("ns", "a"), Key::new("ns", "b"));
        assert_eq!(permits.take(&permit("ns"), &a, |_| true), Ok(()));
        assert_eq!(permits.take(&permit("ns"), &a, |_| true), Ok(()), "it has it already");
        assert_eq!(permits.take(&permit("ns"), &b, |_| true), Err(a.clone()));
        assert_eq!(permits.take(&permit("other"), &Key::new("other", "b"), |_| true), Ok(()));
        permits.release(&Key::new("other", "a"));
        assert_eq!(permits.take(&permit("ns"), &b, |_| true), Err(a.clone()), "a Machine of that name elsewhere");
        permits.release(&a);
        assert_eq!(permits.take(&permit("ns"), &b, |_| true), Ok(()));
        assert_eq!(permits.take(&permit("ns"), &a, |_| false), Ok(()), "b is gone, so nobody gives it back");
    }

    #[test]
    fn a_permit_is_waived_for_one_machine_and_not_for_a_later_one_of_its_name() {
        let cache = Machine::cache();
        let machine = |uid: &str| -> Machine {
            let meta = json!({ "namespace": "ns", "name": "m", "uid": uid, "resourceVersion": "1" });
            serde_json::from_value(json!({ "metadata": meta, "spec": {} })).unwrap()
        };
        let (permits, key) = (Permits::default(), Key::new("ns", "m"));
        cache.wrote(machine("1"));
        permits.waive(&machine("1"));
        assert!(permits.is_waived(&key, &cache));
        permits.waive(&machine("of a machine that is gone"));
        assert!(!permits.is_waived(&key, &cache));
    }

    #[test]
    fn a_machine_whose_in_place_update_failed_does_not_block_its_own_replacement() {
        let cache = Machine::cache();
        let machine = |name: &str, phase: &str| -> Machine {
            let meta = json!({ "namespace": "ns", "name": name, "uid": name, "resourceVersion": "1", "labels": { "name": "pool" } });
            let status = json!({ "currentStatus": { "phase": phase } });
            serde_json::from_value(json!({ "metadata": meta, "spec": {}, "status": status })).unwrap()
        };
        let blockers = |cache: &Cache<Machine>| {
            let (_held, permit) = take(&Arc::default(), cache, &permit("ns"), &Key::new("ns", "a"));
            let Permit::Held(others) = permit else { panic!("{permit:?}") };
            others.blocked_by(crate::safety::meltdown::Limit::default())
        };
        cache.wrote(machine("a", "InPlaceUpdateFailed"));
        assert_eq!(blockers(&cache), None);
        cache.wrote(machine("b", "InPlaceUpdating"));
        assert_eq!(blockers(&cache).as_deref(), Some("b (InPlaceUpdating)"), "others out of service do");
    }
}
