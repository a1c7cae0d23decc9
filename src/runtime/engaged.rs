//! The namespaces of a cell in which a role may act.
//!
//! The Leases of a cell exclude other processes that use them. A cell that serves other namespaces than that of its Leases also
//! holds the Leases of these namespaces ([`claims`]): a Go program, or another cell, may have one of them. Where the Deployment of
//! the Go program is the switch of a namespace ([`switch`]), nothing is done in it while the Deployment is off.
//!
//! In a fleet of replicas the process has to be a member as well ([`crate::members`]).
//!
//! A reconcile begins only if its namespace is admitted, and carries the fence of that admission: once it closes, no further step
//! is taken, no write is sent, and driver calls are given up.

pub mod claims;
pub mod switch;

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{
    fence::{self, LeaseFence},
    members::standing::{FleetStanding, ReopenHandler},
    queue::WorkQueue,
};
use claims::NamespaceClaims;
use switch::DeploymentSwitch;

/// The right of a role of a cell to act in each namespace.
#[derive(Default)]
pub struct NamespaceGate {
    switch: Option<Arc<DeploymentSwitch>>,
    claims: Option<Arc<NamespaceClaims>>,
    member: Option<Arc<FleetStanding>>,
}

impl NamespaceGate {
    /// All may be absent: then the Lease of the role is enough.
    pub fn new(
        switch: Option<Arc<DeploymentSwitch>>,
        claims: Option<Arc<NamespaceClaims>>,
        member: Option<Arc<FleetStanding>>,
    ) -> Self {
        Self { switch, claims, member }
    }

    /// The fence of work in namespaces, with that of the current task.
    ///
    /// # Errors
    /// The role may not act in one of them; the text has the reason why it waits.
    pub fn admit(&self, namespaces: &[String]) -> Result<LeaseFence, String> {
        let mut admitted = fence::current();
        if let Some(member) = &self.member {
            admitted = admitted.and(&member.admit()?);
        }
        for namespace in namespaces {
            if let Some(switch) = &self.switch {
                admitted = admitted.and(&switch.admit(namespace)?);
            }
            if let Some(claims) = &self.claims {
                admitted = admitted.and(&claims.admit(namespace)?);
            }
        }
        Ok(admitted)
    }

    /// Work in a namespace waits until its Deployment has replicas.
    pub(crate) fn is_parked(&self, namespace: &str) -> bool {
        self.switch.as_ref().is_some_and(|switch| switch.is_off(namespace))
    }

    /// The Lease of the role is enough everywhere.
    fn admits_all(&self) -> bool {
        self.switch.is_none() && self.claims.is_none() && self.member.is_none()
    }

    /// The claims of the role, if it needs any.
    pub(crate) fn claims(&self) -> Option<&Arc<NamespaceClaims>> {
        self.claims.as_ref()
    }

    /// Calls `handler` with each namespace that may be admitted now.
    fn on_open(&self, handler: impl Fn(&str) + Clone + Send + Sync + 'static) {
        if let Some(switch) = &self.switch {
            switch.opened.add(Box::new(handler.clone()));
        }
        if let Some(claims) = &self.claims {
            claims.opened.add(Box::new(handler));
        }
    }

    /// Drops the handlers with their captured values.
    pub(crate) fn forget_handlers(&self) {
        self.switch.iter().for_each(|switch| switch.opened.forget());
        self.claims.iter().for_each(|claims| claims.opened.forget());
    }
}

/// The keys of one queue whose namespaces are not admitted.
pub(crate) struct ParkedKeys<T> {
    gate: Arc<NamespaceGate>,
    /// By namespace.
    keys: Arc<Mutex<HashMap<String, HashSet<T>>>>,
    /// Enqueues all keys. Where no process is a member it is never called.
    _reopened: Arc<ReopenHandler>,
}

impl<T: Clone + Eq + Hash + std::fmt::Debug + Send + Sync + 'static> ParkedKeys<T> {
    /// Parked keys are enqueued again once their namespace may be admitted.
    pub fn new(gate: &Arc<NamespaceGate>, queue: &Arc<WorkQueue<T>>) -> Self {
        let keys = Arc::<Mutex<HashMap<String, HashSet<T>>>>::default();
        let (parked, queue, queue_of_all) = (Arc::clone(&keys), Arc::clone(queue), Arc::clone(queue));
        gate.on_open(move |namespace| {
            let due = parked.lock().remove(namespace).unwrap_or_default();
            due.into_iter().for_each(|key| queue.add(key));
        });
        let (parked, queue) = (Arc::clone(&keys), queue_of_all);
        let reopened: Arc<ReopenHandler> = Arc::new(move || {
            let due = std::mem::take(&mut *parked.lock());
            due.into_values().flatten().for_each(|key| queue.add(key));
        });
        gate.member.iter().for_each(|member| member.on_reopen(&reopened));
        Self { gate: Arc::clone(gate), keys, _reopened: reopened }
    }

    /// The fence of a reconcile in these namespaces.
    ///
    /// # Errors
    /// One of the namespaces is not admitted: the key is parked.
    pub fn admit(&self, key: &T, namespaces: impl FnOnce() -> Vec<String>) -> Result<LeaseFence, String> {
        if self.gate.admits_all() {
            return Ok(fence::current());
        }
        let namespaces = &namespaces();
        let admitted = self.gate.admit(namespaces);
        if admitted.is_ok() {
            return admitted;
        }
        {
            let mut keys = self.keys.lock();
            for namespace in namespaces {
                keys.entry(namespace.clone()).or_default().insert(key.clone());
            }
            if namespaces.is_empty() {
                keys.entry(String::new()).or_default().insert(key.clone());
            }
        }
        // A namespace may have been opened before the key was parked.
        self.gate.admit(namespaces).inspect(|_| self.forget(key))
    }

    /// Drops a key.
    pub fn forget(&self, key: &T) {
        self.keys.lock().retain(|_, keys| {
            keys.remove(key);
            !keys.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use tokio::time::timeout;

    use super::*;
    use crate::{clock::ManualClock, members::FleetName, queue::QueuePacing};

    #[tokio::test(start_paused = true)]
    async fn keys_wait_while_the_process_cannot_renew_its_membership_and_are_due_when_it_can() {
        let fleet = FleetName { namespace: "system".to_owned(), name: "one".to_owned() };
        let (lease, wall) = (fleet.lease_name(1), ManualClock::at(Timestamp::UNIX_EPOCH));
        let identity = fleet.identity("host", &lease, 1);
        let standing = FleetStanding::new(fleet, lease, identity, Arc::new(wall));
        let gate = Arc::new(NamespaceGate::new(None, None, Some(Arc::clone(&standing))));
        let queue = WorkQueue::new("test", QueuePacing::default());
        let parked = ParkedKeys::new(&gate, &queue);
        let namespaces = || vec!["a".to_owned()];
        let refused = parked.admit(&"key", namespaces).unwrap_err();
        assert_eq!(refused, "this process to renew the Lease mcm-fleet-one-00000001 of its fleet");

        standing.renewed(standing.sending());
        assert_eq!(queue.take().await.0, "key");
        queue.done(&"key", None);
        let admitted = parked.admit(&"key", namespaces).unwrap();
        assert!(admitted.is_open());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(!admitted.is_open(), "work that is under way");
        parked.admit(&"key", namespaces).unwrap_err();

        standing.renewed(standing.sending());
        assert!(admitted.is_open() && queue.take().await.0 == "key");
        queue.done(&"key", None);
        tokio::time::advance(Duration::from_secs(10)).await;
        parked.admit(&"key", namespaces).unwrap_err();
        parked.admit(&"node", Vec::new).unwrap_err();
        standing.renewed(standing.sending());
        let mut due = [queue.take().await.0, queue.take().await.0];
        due.sort_unstable();
        assert_eq!(due, ["key", "node"]);
        due.iter().for_each(|key| queue.done(key, None));
        standing.expel();
        standing.renewed(standing.sending());
        parked.admit(&"key", namespaces).unwrap_err();
        assert!(timeout(Duration::from_secs(60), queue.take()).await.is_err(), "it stays expelled");
    }
}
