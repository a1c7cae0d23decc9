//! Serde helpers for what Go writes: `null` and absent are the zero value, and zero values are not written.

use serde::{Deserialize, Deserializer};

/// Reads `null` as the zero value.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// True for the value that Go's `omitempty` leaves out.
pub(crate) fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
