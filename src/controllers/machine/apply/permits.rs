use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use crate::{
    api::machine::Machine,
    controllers::machine::BY_DEPLOYMENT,
    runtime::cache::{Cache, Key},
    safety::meltdown::{OutOfService, Permit, PermitKey},
};

/// Which Machine holds which permit of the meltdown guard.
#[derive(Debug, Default)]
pub struct Permits(Mutex<BTreeMap<PermitKey, Key>>);

/// A permit, given back when dropped.
pub(crate) struct Held {
    machine: Key,
    permits: Option<Arc<Permits>>,
}

impl Held {
    /// Does not give it back: `Permits::release` does.
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
    /// Takes a permit unless another Machine has it that still exists.
    fn take(&self, permit: &PermitKey, machine: &Key, exists: impl Fn(&Key) -> bool) -> Result<(), Key> {
        let mut holders = self.0.lock();
        if let Some(holder) = holders.get(permit).filter(|holder| *holder != machine && exists(holder)) {
            return Err(holder.clone());
        }
        holders.insert(permit.clone(), machine.clone());
        Ok(())
    }

    /// Gives back what a Machine holds.
    pub(super) fn release(&self, machine: &Key) {
        self.0.lock().retain(|_, holder| holder != machine);
    }
}

/// Takes a permit for a Machine, then counts who is out of service.
pub(crate) fn take(
    permits: &Arc<Permits>,
    machines: &Cache<Machine>,
    permit: &PermitKey,
    machine: &Key,
) -> (Option<Held>, Permit) {
    match permits.take(permit, machine, |holder| machines.get(holder).is_some()) {
        Ok(()) => {
            let held = Held { machine: machine.clone(), permits: Some(Arc::clone(permits)) };
            let siblings = machines.by(BY_DEPLOYMENT, &permit.deployment);
            (Some(held), Permit::Held(OutOfService::of(permit, siblings.iter().map(|machine| &**machine))))
        }
        Err(holder) => (None, Permit::Refused { by: holder.name }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
