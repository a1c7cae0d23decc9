use super::Policy;
use super::{Action, Snapshot};
use crate::controllers::plan::Plan;

/// What a deployment does next.
pub fn plan(_snapshot: &Snapshot, _policy: &Policy) -> Plan<Action> {
    Plan::default()
}
