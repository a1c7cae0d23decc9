use jiff::SignedDuration;

use super::{Action, Snapshot};
use crate::plan::{Plan, WaitKind};

/// How often to look.
const PERIOD: SignedDuration = SignedDuration::from_secs(30);

/// The same after a look that failed, since nothing is done until one succeeds.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// Plans the next look. A Lease that nobody renews is free as soon as it expires.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    if snapshot.has_looked {
        let period = if snapshot.has_failed { RETRY } else { snapshot.validity.map_or(PERIOD, |end| end.min(PERIOD)) };
        let next = snapshot.now.checked_add(period).ok();
        plan.wait(WaitKind::Hold, "the next look for Leases of native managers", next);
    } else {
        plan.then(Action::Look, "a native manager may have come or gone");
    }
    plan
}
