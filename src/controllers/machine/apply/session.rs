//! State of one reconcile of a Machine.

use tokio::time::Instant;

use super::{lanes::SlotGuard, permits::HeldPermit};
use crate::machine::MachineCallResults;
use mcm_driver::SecretData;

/// State of one reconcile: results of its calls, and guards that are released when it ends.
#[derive(Default)]
pub(crate) struct MachineSession {
    /// UID of the Machine. Another Machine may get the same name while a call is in flight.
    pub(super) uid: Option<String>,
    pub(super) learned: MachineCallResults,
    /// Data of the Secrets and the bootstrap token. Plans do not see it.
    pub(super) secret: SecretData,
    pub(super) token: Option<String>,
    pub(super) visit: Option<SlotGuard>,
    pub(super) permit: Option<HeldPermit>,
    pub(super) began: Option<Instant>,
}

impl MachineSession {
    /// The state with which a reconcile begins.
    pub(in super::super) fn new(visit: SlotGuard) -> Self {
        Self { visit: Some(visit), ..Self::default() }
    }

    /// The results of calls for the Machine with this UID.
    pub(in super::super) fn learned_of(&self, uid: Option<&str>) -> MachineCallResults {
        if self.uid.as_deref() == uid { self.learned.clone() } else { MachineCallResults::default() }
    }
}
