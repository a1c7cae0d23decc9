//! Idempotency tokens of creations.

use crate::{code::Code, error::DriverError};
use mcm_api::machine::Machine;

/// The token of the `generation`th VM of a Machine: the same for every attempt, and the next one once the cloud reports that
/// the VM of this one is deleted.
///
/// # Errors
/// The Machine has no UID, so a repeated call would create a second VM.
pub fn idempotency_token(machine: &Machine, generation: u32) -> Result<String, DriverError> {
    match machine.metadata.uid.as_deref() {
        Some(uid) if !uid.is_empty() => {
            Ok(if generation == 0 { uid.to_owned() } else { format!("{uid}-{generation}") })
        }
        _ => {
            let name = machine.metadata.name.as_deref().unwrap_or_default();
            let message = format!("machine {name:?} has no UID: it is not from an API server");
            Err(DriverError::new(Code::InvalidArgument, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_token_per_generation_and_none_without_a_uid() {
        let mut machine = Machine::default();
        idempotency_token(&machine, 0).unwrap_err();
        machine.metadata.uid = Some("5f3c8e0a-0000-4000-8000-000000000000".to_owned());
        let token = |generation| idempotency_token(&machine, generation).unwrap();
        assert_eq!(token(0), "5f3c8e0a-0000-4000-8000-000000000000");
        assert_eq!(token(2), "5f3c8e0a-0000-4000-8000-000000000000-2");
        assert!(token(99).len() <= 64, "clouds take 64 characters");
    }
}
