use jiff::Timestamp;

/// Truncates to whole seconds, the precision of stored times.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
