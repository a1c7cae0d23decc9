use jiff::Timestamp;

/// Cuts off fractions of a second, which the API does not store.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
