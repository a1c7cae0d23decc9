use super::{Action, Snapshot};
use crate::controllers::plan::Plan;

/// What a set does next.
pub fn plan(_snapshot: &Snapshot) -> Plan<Action> {
    Plan::default()
}
