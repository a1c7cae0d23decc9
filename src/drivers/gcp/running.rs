//! Operations that calls began and did not see the end of. The next call continues with them. Losing them costs the reason of a
//! failure, never a VM: Google identifies each request by its ID.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::operation::Operation;

/// The purpose of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Goal {
    Create,
    Delete,
}

/// An operation that was not done when it was seen last.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    pub operation: Operation,
    pub zone: String,
    /// When.
    pub since: Instant,
    /// The number of the request, if it is a creation.
    pub number: u32,
    /// Google just reported it.
    pub is_new: bool,
}

impl Begun {
    pub(super) fn now(operation: Operation, zone: &str, number: u32) -> Self {
        Self { operation, zone: zone.to_owned(), since: Instant::now(), number, is_new: true }
    }
}

/// The running operations of Machines, by their UID.
pub(super) struct Running {
    /// After this time no call waits for an operation any more.
    total: Duration,
    all: Mutex<HashMap<(String, Goal), Begun>>,
}

impl Running {
    pub(super) fn new(total: Duration) -> Self {
        Self { total, all: Mutex::default() }
    }

    /// The operation of a Machine that is still waited for.
    pub(super) fn pending_operation(&self, uid: &str, goal: Goal) -> Option<Begun> {
        let all = self.all.lock();
        all.get(&(uid.to_owned(), goal)).filter(|begun| begun.since.elapsed() < self.total).cloned()
    }

    /// Remembers an operation. A VM without a Machine has no UID, and its operation is not remembered.
    pub(super) fn remember(&self, uid: &str, goal: Goal, begun: &Begun) {
        let mut all = self.all.lock();
        all.retain(|_, other| other.since.elapsed() < self.total);
        if !uid.is_empty() {
            all.insert((uid.to_owned(), goal), Begun { is_new: false, ..begun.clone() });
        }
    }

    pub(super) fn forget(&self, uid: &str, goal: Goal) {
        self.all.lock().remove(&(uid.to_owned(), goal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_operation_is_remembered_for_its_machine_and_goal_as_long_as_somebody_waits() {
        let running = Running::new(Duration::from_secs(300));
        let begun = Begun::now(Operation::default(), "z", 3);
        running.remember("u", Goal::Create, &begun);
        running.remember("", Goal::Delete, &begun);
        let found = running.pending_operation("u", Goal::Create).unwrap();
        assert_eq!((found.number, found.is_new), (3, false), "it has to be looked at again");
        assert!(
            running.pending_operation("u", Goal::Delete).is_none()
                && running.pending_operation("v", Goal::Create).is_none()
        );
        assert!(running.pending_operation("", Goal::Delete).is_none(), "VMs without a Machine have nothing in common");
        tokio::time::advance(Duration::from_secs(300)).await;
        assert!(running.pending_operation("u", Goal::Create).is_none());
        running.remember("v", Goal::Create, &Begun::now(Operation::default(), "z", 0));
        assert_eq!(running.all.lock().len(), 1, "those that nobody waits for do not pile up");
        running.forget("v", Goal::Create);
        assert!(running.pending_operation("v", Goal::Create).is_none());
    }
}
