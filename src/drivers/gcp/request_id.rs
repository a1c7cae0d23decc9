//! IDs of the requests that create a VM.
//!
//! Google answers a request with a known ID with the operation of the first one, for an hour. So an answer that is lost does
//! no harm, and a request that failed, or whose VM was deleted, is spent: the next one has the next ID. Names are unique in a
//! zone, so whatever Google remembers there is never a second VM.

use uuid::Uuid;

use mcm_api::machine::Machine;
use mcm_driver::{DriverError, cloud::idempotency_token};

/// State of a Machine: so many of its requests are spent.
const SPENT: &str = "Spent requests: ";

/// The ID of a request, in the form that Google requires: a UUID, the same for every attempt.
///
/// # Errors
/// The Machine has no UID.
pub(super) fn request_id(machine: &Machine, number: u32) -> Result<String, DriverError> {
    let token = idempotency_token(machine, number)?;
    Ok(Uuid::new_v5(&Uuid::NAMESPACE_OID, token.as_bytes()).to_string())
}

/// The number of spent requests of a Machine, according to its state.
pub(super) fn spent_requests(machine: &Machine) -> u32 {
    let state = machine.status.as_ref().map_or("", |status| status.last_known_state.as_str());
    state.strip_prefix(SPENT).and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// The state of a Machine whose requests up to this one are spent.
pub(super) fn spent(number: u32) -> String {
    format!("{SPENT}{}", number.saturating_add(1))
}
