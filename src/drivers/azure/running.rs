//! Changes that calls began and did not see the end of. The next call continues with them. Losing them costs the reason of a
//! failure, never a VM: Azure identifies each resource by its name.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{login::Login, operation::Operation, resource::Target};

/// The purpose of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Goal {
    Create,
    Delete,
}

/// A change that was not done when it was seen last.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    pub operation: Option<Operation>,
    pub since: Instant,
    /// Of a deletion: whether all parts go with the VM.
    pub cascades: bool,
}

impl Begun {
    pub fn now(operation: Option<Operation>) -> Self {
        Self { operation, since: Instant::now(), cascades: false }
    }
}

/// A resource in the resource group of a login, and what is done with it.
pub(crate) type Key = (Login, String, Target, Goal);

/// The running changes of resources.
pub(crate) struct Running {
    /// After this time no call waits for a change any more.
    total: Duration,
    all: Mutex<HashMap<Key, Begun>>,
}

impl Running {
    pub fn new(total: Duration) -> Self {
        Self { total, all: Mutex::default() }
    }

    /// The change of a resource that is still waited for.
    pub fn pending_change(&self, key: &Key) -> Option<Begun> {
        self.all.lock().get(key).filter(|begun| begun.since.elapsed() < self.total).cloned()
    }

    pub fn remember(&self, key: Key, begun: Begun) {
        let mut all = self.all.lock();
        all.retain(|_, other| other.since.elapsed() < self.total);
        all.insert(key, begun);
    }

    pub fn forget(&self, key: &Key) {
        self.all.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clouds::PUBLIC, resource::Kind};
    use mcm_driver::{SecretData, SecretPolicy};

    fn key(name: &str, goal: Goal) -> Key {
        let data =
            ["clientID", "tenantID", "subscriptionID", "clientSecret"].map(|key| (key.to_owned(), b"x".to_vec()));
        let login = Login::from_secret(&SecretData(data.into()), PUBLIC, &SecretPolicy::default()).ok().unwrap();
        (login, "g".to_owned(), Target::new(Kind::Vm, name), goal)
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_remembered_as_long_as_calls_wait_for_it() {
        let running = Running::new(Duration::from_secs(300));
        running.remember(key("m", Goal::Create), Begun::now(None));
        assert!(running.pending_change(&key("m", Goal::Create)).is_some());
        assert!(
            running.pending_change(&key("m", Goal::Delete)).is_none()
                && running.pending_change(&key("n", Goal::Create)).is_none()
        );
        tokio::time::advance(Duration::from_secs(300)).await;
        assert!(running.pending_change(&key("m", Goal::Create)).is_none());
        running.remember(key("n", Goal::Create), Begun::now(None));
        assert_eq!(running.all.lock().len(), 1, "older ones do not pile up");
        running.forget(&key("n", Goal::Create));
        assert!(running.pending_change(&key("n", Goal::Create)).is_none());
    }
}
