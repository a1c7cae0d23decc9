//! State of one reconcile of a Machine.

use tokio::time::Instant;

use super::{lanes::Visit, permits::Held};
use crate::machine::Learned;
use mcm_driver::SecretData;

/// State of one reconcile: results of its calls, and guards that are released when it ends.
#[derive(Default)]
pub(crate) struct Session {
    /// UID of the Machine. Another Machine may get the same name while a call is in flight.
    pub(super) uid: Option<String>,
    pub(super) learned: Learned,
    /// Data of the Secrets and the bootstrap token. Plans do not see it.
    pub(super) secret: SecretData,
    pub(super) token: Option<String>,
    pub(super) visit: Option<Visit>,
    pub(super) permit: Option<Held>,
    pub(super) began: Option<Instant>,
}

impl Session {
    /// The state with which a reconcile begins.
    pub(in super::super) fn of(visit: Visit) -> Self {
        Self { visit: Some(visit), ..Self::default() }
    }

    /// The results of calls for the Machine with this UID.
    pub(in super::super) fn learned_of(&self, uid: Option<&str>) -> Learned {
        if self.uid.as_deref() == uid { self.learned.clone() } else { Learned::default() }
    }
}
