use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::machine::BY_DEPLOYMENT;
use mcm_api::machine::{Machine, MachinePhase};
use mcm_rules::safety::meltdown::{MeltdownGroup, MeltdownLimits, OutOfService, PermitKey, ReplacementPermit};
use mcm_runtime::{
    cache::{Key, ObjectCache},
    handlers::HandlerList,
};

/// The replacement permits of the meltdown guard, and which Machine holds each.
#[derive(Default)]
pub struct ReplacementPermits {
    holders: Mutex<BTreeMap<PermitKey, Key>>,
    /// Machines that wait until another one releases a permit.
    waiting: Mutex<BTreeMap<PermitKey, BTreeSet<Key>>>,
    released: HandlerList<dyn Fn(&Key) + Send + Sync>,
    /// UIDs of Machines whose VM is certainly deleted. After a restart the process finds out again.
    waived: Mutex<BTreeMap<Key, Option<String>>>,
}

/// A permit. Dropping it releases it.
pub struct HeldPermit {
    machine: Key,
    permits: Option<Arc<ReplacementPermits>>,
}

impl HeldPermit {
    /// Keeps the permit until `Permits::release`.
    pub(super) fn keep(mut self) {
        self.permits = None;
    }
}

impl Drop for HeldPermit {
    fn drop(&mut self) {
        if let Some(permits) = &self.permits {
            permits.release(&self.machine);
        }
    }
}

impl ReplacementPermits {
    /// Calls `handler` with each Machine that waits for a permit when it is released.
    pub fn on_release(&self, handler: impl Fn(&Key) + Send + Sync + 'static) {
        self.released.add(Box::new(handler));
    }

    /// Takes these permits, unless another Machine that still exists holds one of them.
    fn take(&self, permits: &[PermitKey], machine: &Key, exists: impl Fn(&Key) -> bool) -> Result<(), Key> {
        let mut holders = self.holders.lock();
        self.look(&holders, permits, machine, exists)?;
        holders.extend(permits.iter().map(|permit| (permit.clone(), machine.clone())));
        Ok(())
    }

    /// Another Machine that holds one of these permits. Its release is announced to this Machine.
    fn look(
        &self,
        holders: &BTreeMap<PermitKey, Key>,
        permits: &[PermitKey],
        machine: &Key,
        exists: impl Fn(&Key) -> bool,
    ) -> Result<(), Key> {
        let mut held = permits.iter().filter_map(|permit| Some((permit, holders.get(permit)?)));
        let Some((permit, holder)) = held.find(|(_, it)| *it != machine && exists(it)) else {
            return Ok(());
        };
        self.waiting.lock().entry(permit.clone()).or_default().insert(machine.clone());
        Err(holder.clone())
    }

    /// Replaces this Machine without a permit.
    pub(super) fn waive(&self, machine: &Machine) {
        self.waived.lock().insert(Key::from_meta(&machine.metadata), machine.metadata.uid.clone());
    }

    /// A Machine is replaced without a permit. Drops entries of deleted Machines.
    fn is_waived(&self, key: &Key, machines: &ObjectCache<Machine>) -> bool {
        let mut waived = self.waived.lock();
        waived.retain(|key, uid| machines.get(key).is_some_and(|machine| machine.metadata.uid == *uid));
        waived.contains_key(key)
    }

    /// Releases the permits of a Machine.
    pub(super) fn release(&self, machine: &Key) {
        let mut free = Vec::new();
        self.holders.lock().retain(|permit, holder| {
            let is_kept = holder != machine;
            if !is_kept {
                free.push(permit.clone());
            }
            is_kept
        });
        let waiting: BTreeSet<Key> = {
            let mut waiting = self.waiting.lock();
            free.iter().filter_map(|permit| waiting.remove(permit)).flatten().collect()
        };
        waiting.iter().for_each(|key| self.released.each(|handler| handler(key)));
    }
}

/// The permits for a Machine as they are now, without taking them. After a refusal the Machine is enqueued at their release.
pub fn look(
    permits: &ReplacementPermits,
    machines: &ObjectCache<Machine>,
    wanted: &[PermitKey],
    machine: &Key,
    limits: &MeltdownLimits,
) -> ReplacementPermit {
    let refused = permits.look(&permits.holders.lock(), wanted, machine, |holder| machines.get(holder).is_some());
    match refused {
        Ok(()) => counted(permits, machines, wanted, machine).seen(limits),
        Err(holder) => ReplacementPermit::Refused { by: holder.name },
    }
}

/// Takes the permits for a Machine, then counts the Machines of each that are out of service. The Machine itself does not
/// count if its in-place update is why: it would block its own replacement.
pub fn take(
    permits: &Arc<ReplacementPermits>,
    machines: &ObjectCache<Machine>,
    wanted: &[PermitKey],
    machine: &Key,
) -> (Option<HeldPermit>, ReplacementPermit) {
    match permits.take(wanted, machine, |holder| machines.get(holder).is_some()) {
        Ok(()) => {
            let held = HeldPermit { machine: machine.clone(), permits: Some(Arc::clone(permits)) };
            (Some(held), counted(permits, machines, wanted, machine))
        }
        Err(holder) => (None, ReplacementPermit::Refused { by: holder.name }),
    }
}

fn counted(
    permits: &ReplacementPermits,
    machines: &ObjectCache<Machine>,
    wanted: &[PermitKey],
    machine: &Key,
) -> ReplacementPermit {
    if permits.is_waived(machine, machines) {
        return ReplacementPermit::Held(Vec::new());
    }
    let is_own_update = |other: &&Machine| Key::from_meta(&other.metadata) == *machine && is_being_updated(other);
    let count = |permit: &PermitKey| {
        let others = match &permit.group {
            MeltdownGroup::Deployment(name) => machines.by(BY_DEPLOYMENT, name),
            MeltdownGroup::Zone(_) => machines.all(),
        };
        OutOfService::for_key(permit, others.iter().map(|machine| &**machine).filter(|other| !is_own_update(other)))
    };
    ReplacementPermit::Held(wanted.iter().map(count).collect())
}

fn is_being_updated(machine: &Machine) -> bool {
    matches!(machine.phase(), MachinePhase::InPlaceUpdating | MachinePhase::InPlaceUpdateFailed)
        && machine.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use mcm_rules::safety::meltdown::ReplacementLimit;

    fn permit(namespace: &str) -> [PermitKey; 1] {
        [PermitKey { namespace: namespace.to_owned(), group: MeltdownGroup::Deployment("pool".to_owned()) }]
    }

    #[test]
    fn one_machine_of_a_deployment_holds_the_permit_until_it_gives_it_back_or_is_gone() {
        let (permits, a, b) = (ReplacementPermits::default(), Key::new("ns", "a"), Key::new("ns", "b"));
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
    fn those_that_wait_for_a_permit_learn_of_its_release_and_a_look_does_not_take_it() {
        let (permits, cache, limits) =
            (Arc::<ReplacementPermits>::default(), crate::machine::CACHE.empty(), MeltdownLimits::default());
        let [a, b, c] = ["a", "b", "c"].map(|name| {
            let meta = json!({ "namespace": "ns", "name": name, "uid": name, "resourceVersion": "1" });
            cache.wrote(serde_json::from_value(json!({ "metadata": meta, "spec": {} })).unwrap());
            Key::new("ns", name)
        });
        let woken = Arc::new(Mutex::new(Vec::new()));
        let woke = Arc::clone(&woken);
        permits.on_release(move |key| woke.lock().push(key.clone()));
        let look = |key: &Key| look(&permits, &cache, &permit("ns"), key, &limits);
        assert_eq!((look(&a), look(&b)), (ReplacementPermit::Free, ReplacementPermit::Free));
        let (held, _) = take(&permits, &cache, &permit("ns"), &a);
        assert_eq!(look(&b), ReplacementPermit::Refused { by: "a".to_owned() });
        assert!(take(&permits, &cache, &permit("ns"), &c).0.is_none());
        drop(held);
        assert_eq!(*woken.lock(), [b.clone(), c]);
        assert_eq!(look(&b), ReplacementPermit::Free);
    }

    #[test]
    fn a_machine_gets_all_its_permits_or_none() {
        let (permits, a, b) = (ReplacementPermits::default(), Key::new("ns", "a"), Key::new("ns", "b"));
        let of = |deployment: &str| {
            let groups = [MeltdownGroup::Deployment(deployment.to_owned()), MeltdownGroup::Zone("1".to_owned())];
            groups.map(|group| PermitKey { namespace: "ns".to_owned(), group })
        };
        assert_eq!(permits.take(&of("a"), &a, |_| true), Ok(()));
        assert_eq!(permits.take(&of("b"), &b, |_| true), Err(a.clone()), "they share a zone");
        assert_eq!(permits.take(&of("b")[..1], &a, |_| true), Ok(()), "b took none");
        permits.release(&a);
        assert_eq!(permits.take(&of("a"), &b, |_| true), Ok(()), "a gave back all");
    }

    #[test]
    fn the_machines_of_a_zone_are_counted_across_deployments() {
        let cache = crate::machine::CACHE.empty();
        let machine = |name: &str, phase: &str, zone: &str| -> Machine {
            let meta = json!({ "namespace": "ns", "name": name, "uid": name, "resourceVersion": "1", "labels": { "name": name } });
            let spec = json!({ "nodeTemplate": { "metadata": { "labels": { "topology.kubernetes.io/zone": zone } } } });
            let status = json!({ "currentStatus": { "phase": phase } });
            serde_json::from_value(json!({ "metadata": meta, "spec": spec, "status": status })).unwrap()
        };
        let limits = MeltdownLimits { per_zone: Some(ReplacementLimit::Machines(1)), ..MeltdownLimits::default() };
        let sick = machine("a", "Unknown", "1");
        let awaits = |cache: &ObjectCache<Machine>| {
            take(&Arc::default(), cache, &limits.permits_of(&sick), &Key::new("ns", "a")).1.awaits(&limits)
        };
        cache.wrote(sick.clone());
        cache.wrote(machine("other-zone", "Pending", "2"));
        assert_eq!(awaits(&cache), None);
        cache.wrote(machine("b", "Pending", "1"));
        assert!(awaits(&cache).is_some_and(|text| text.contains("zone 1 are out of service: b (Pending)")));
    }

    #[test]
    fn a_permit_is_waived_for_one_machine_and_not_for_a_later_one_of_its_name() {
        let cache = crate::machine::CACHE.empty();
        let machine = |uid: &str| -> Machine {
            let meta = json!({ "namespace": "ns", "name": "m", "uid": uid, "resourceVersion": "1" });
            serde_json::from_value(json!({ "metadata": meta, "spec": {} })).unwrap()
        };
        let (permits, key) = (ReplacementPermits::default(), Key::new("ns", "m"));
        cache.wrote(machine("1"));
        permits.waive(&machine("1"));
        assert!(permits.is_waived(&key, &cache));
        permits.waive(&machine("of a machine that is gone"));
        assert!(!permits.is_waived(&key, &cache));
    }

    #[test]
    fn a_machine_whose_in_place_update_failed_does_not_block_its_own_replacement() {
        let cache = crate::machine::CACHE.empty();
        let machine = |name: &str, phase: &str| -> Machine {
            let meta = json!({ "namespace": "ns", "name": name, "uid": name, "resourceVersion": "1", "labels": { "name": "pool" } });
            let status = json!({ "currentStatus": { "phase": phase } });
            serde_json::from_value(json!({ "metadata": meta, "spec": {}, "status": status })).unwrap()
        };
        let blockers = |cache: &ObjectCache<Machine>| {
            let (_held, permit) = take(&Arc::default(), cache, &permit("ns"), &Key::new("ns", "a"));
            assert!(matches!(permit, ReplacementPermit::Held(_)), "{permit:?}");
            permit.awaits(&MeltdownLimits::default())
        };
        cache.wrote(machine("a", "InPlaceUpdateFailed"));
        assert_eq!(blockers(&cache), None);
        cache.wrote(machine("b", "InPlaceUpdating"));
        assert!(
            blockers(&cache).is_some_and(|text| text.ends_with(": b (InPlaceUpdating)")),
            "others out of service do"
        );
    }
}
