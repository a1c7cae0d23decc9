//! Times: Go durations on the native side, whole seconds on the side of Cluster API. What has no limit there has one of
//! a hundred years here.

use mcm_api::GoDuration;

/// Means "no limit" on the native side, where an absent value is a limit and 0 is "at once": `876000h`.
pub(super) const NEVER: GoDuration = GoDuration::from_secs(876_000 * 3600);
const SECOND: i64 = 1_000_000_000;

/// A limit in seconds as a duration; 0 is no limit.
pub fn limit(seconds: i32) -> GoDuration {
    if seconds <= 0 { NEVER } else { GoDuration::from_secs(i64::from(seconds)) }
}

/// A duration in seconds, rounded up and at least 1; `None` if there is no limit.
pub(super) fn seconds(duration: GoDuration) -> Option<i32> {
    if duration >= NEVER {
        return None;
    }
    let nanos = duration.as_nanos().max(0);
    let seconds = (nanos / SECOND + i64::from(nanos % SECOND > 0)).max(1);
    Some(i32::try_from(seconds).unwrap_or(i32::MAX))
}

/// The other side can hold the duration.
pub(super) fn fits(duration: GoDuration) -> bool {
    duration >= NEVER || duration.as_nanos() <= i64::from(i32::MAX) * SECOND
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Rule 3.3, "drain limit", and the row on `nodeDrainTimeoutSeconds` of 3.5 (trap T7).
    #[rstest]
    #[case("2h", Some(7200))]
    #[case("0s", Some(1))]
    #[case("-5s", Some(1))]
    #[case("1500ms", Some(2))]
    #[case("876000h", None)]
    #[case("876001h", None)]
    fn a_native_duration_becomes_whole_seconds_rounded_up(#[case] text: &str, #[case] expected: Option<i32>) {
        assert_eq!(seconds(text.parse().unwrap()), expected);
    }

    #[test]
    fn no_limit_is_a_hundred_years_and_never_absent_or_zero() {
        assert_eq!(limit(0).to_string(), "876000h0m0s");
        assert_eq!(limit(90).to_string(), "1m30s");
    }

    #[rstest]
    #[case("596523h14m7s", true)]
    #[case("596523h14m8s", false)]
    #[case("876000h", true)]
    fn a_duration_beyond_seconds_does_not_fit(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(fits(text.parse().unwrap()), expected);
    }
}
