use jiff::SignedDuration;

use super::{Action, Snapshot};
use crate::plan::{Plan, WaitKind};

/// How often to look. clusterctl labels the definitions of core before anything else, and those are watched.
const PERIOD: SignedDuration = SignedDuration::from_secs(30);

/// The same after a look that failed, since nothing is done until one succeeds.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// Plans the next look.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    if snapshot.has_looked {
        let period = if snapshot.has_failed { RETRY } else { PERIOD };
        plan.wait(WaitKind::Hold, "the next look for core", snapshot.now.checked_add(period).ok());
    } else {
        plan.then(Action::Look, "core may have come");
    }
    plan
}
