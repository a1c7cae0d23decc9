//! Requests of creations, which are numbered: each has another idempotency key.
//!
//! The cloud answers a request whose key it remembers with the operation of the first one. So an answer that is lost does no harm,
//! and a request whose operation failed, or whose VM is no more, is spent: the next one has the next number. Names are unique in
//! a folder, so whatever the cloud remembers there is never a second VM.

use mcm_api::machine::Machine;
use mcm_driver::{DriverError, cloud::idempotency_token};
use uuid::Uuid;

use crate::operation::Begun;

/// State of a Machine: so many of its requests are spent.
const SPENT: &str = "Spent requests: ";
/// State of a Machine: its VM is being created.
const BEGUN: &str = "Creation by operation ";
/// Before the number of the request, in the same state.
const NUMBER: &str = " of request ";

/// The idempotency key of a request: a UUID, the same for every attempt.
///
/// # Errors
/// The Machine has no UID.
pub(crate) fn key(machine: &Machine, number: u32) -> Result<String, DriverError> {
    let token = idempotency_token(machine, number)?;
    Ok(Uuid::new_v5(&Uuid::NAMESPACE_OID, token.as_bytes()).to_string())
}

/// How many requests of a Machine are spent, by its state.
pub(crate) fn spent_requests(machine: &Machine) -> u32 {
    let spent = state(machine).strip_prefix(SPENT).and_then(|count| count.parse().ok());
    spent.or_else(|| begun_of(machine).map(|(_, number)| number)).unwrap_or_default()
}

/// The operation that creates the VM of a Machine, by its state.
pub(crate) fn stored_creation(machine: &Machine) -> Option<Begun> {
    let (id, number) = begun_of(machine)?;
    Begun::earlier(id, number)
}

/// The state of a Machine with so many spent requests.
pub(crate) fn spent(count: u32) -> String {
    format!("{SPENT}{count}")
}

/// The state of a Machine whose VM is being created.
pub(crate) fn begun(begun: &Begun) -> String {
    format!("{BEGUN}{}{NUMBER}{}", begun.id, begun.number)
}

fn begun_of(machine: &Machine) -> Option<(&str, u32)> {
    let (id, number) = state(machine).strip_prefix(BEGUN)?.split_once(NUMBER)?;
    Some((id, number.parse().ok()?))
}

fn state(machine: &Machine) -> &str {
    machine.status.as_ref().map_or("", |status| status.last_known_state.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn machine(state: &str) -> Machine {
        let mut machine = Machine::default();
        machine.metadata.uid = Some("5f3c8e0a-0000-4000-8000-000000000000".to_owned());
        machine.status.get_or_insert_default().last_known_state = state.to_owned();
        machine
    }

    #[test]
    fn each_request_has_a_key_that_stays() {
        let keys: Vec<String> = (0..3).map(|number| key(&machine(""), number).unwrap()).collect();
        assert!(keys.iter().all(|key| Uuid::parse_str(key).is_ok()), "{keys:?}");
        assert_ne!(keys[0], keys[1]);
        assert_eq!(key(&machine("another state"), 0).unwrap(), keys[0]);
        key(&Machine::default(), 0).unwrap_err();
    }

    #[rstest]
    #[case("", 0, None)]
    #[case("Spent requests: 2", 2, None)]
    #[case("Creation by operation fhmop of request 3", 3, Some("fhmop"))]
    #[case::leads_elsewhere("Creation by operation ../x of request 3", 3, None)]
    #[case::unreadable("Creation by operation fhmop", 0, None)]
    #[case::of_another_kind("Created yandex://z/fhm", 0, None)]
    fn states_are_read_back(#[case] state: &str, #[case] number: u32, #[case] operation: Option<&str>) {
        let machine = machine(state);
        assert_eq!(spent_requests(&machine), number);
        let stored = stored_creation(&machine);
        assert_eq!(stored.as_ref().map(|begun| begun.id.as_str()), operation);
        if let Some(stored) = stored {
            assert_eq!(begun(&stored), state);
        }
        assert_eq!(spent_requests(&self::machine(&spent(7))), 7);
    }
}
