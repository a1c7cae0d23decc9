//! Durations in Go's syntax (`2h0m0s`), as used in objects and flags.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A signed duration in nanoseconds. Parses every form that Go accepts, prints Go's normal form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

/// The text is not a Go duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: write numbers with units, such as \"20m\", \"1h30m\" or \"90s\"")]
pub struct InvalidDuration {
    text: String,
}

/// The pattern in the CRDs; the parser accepts the same texts.
pub const PATTERN: &str = r"^[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// The longest text, in characters.
const LONGEST: u32 = 64;

const UNITS: [(&str, f64); 8] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("μs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 6e10), ("h", 3.6e12)];

impl GoDuration {
    /// From whole seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// The duration, unless it is negative.
    pub fn not_negative(self) -> Option<Self> {
        (self.0 >= 0).then_some(self)
    }

    /// The duration, if it is above zero.
    pub fn positive(self) -> Option<Self> {
        (self.0 > 0).then_some(self)
    }

    /// The length in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// As an unsigned duration; a negative one is zero.
    pub fn as_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or_default())
    }

    /// As a span of time that may be added to a timestamp.
    pub const fn as_signed(self) -> jiff::SignedDuration {
        jiff::SignedDuration::from_nanos(self.0)
    }
}

impl From<Duration> for GoDuration {
    fn from(value: Duration) -> Self {
        Self(i64::try_from(value.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl FromStr for GoDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map(Self).ok_or_else(|| InvalidDuration { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let scale = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        total = total.checked_add(scaled(number, scale)?)?;
        rest = tail;
    }
    Some(if negative { -total } else { total })
}

/// Parses the whole part exactly and the fraction in floating point, as Go does.
fn scaled(number: &str, scale: f64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Further digits are less than a nanosecond, even for the longest unit.
    let fraction = fraction.get(..fraction.len().min(18))?;
    let digits: i64 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let unit = scale / 10f64.powi(i32::try_from(fraction.len()).ok()?);
    whole.checked_mul(scale as i64)?.checked_add((digits as f64 * unit) as i64)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let nanos = self.0.unsigned_abs();
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write!(f, "{}µs", decimal(nanos, 1_000)),
            1_000_000..1_000_000_000 => write!(f, "{}ms", decimal(nanos, 1_000_000)),
            _ => {
                let minutes = nanos / 60_000_000_000;
                if minutes >= 60 {
                    write!(f, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(f, "{}m", minutes % 60)?;
                }
                write!(f, "{}s", decimal(nanos % 60_000_000_000, 1_000_000_000))
            }
        }
    }
}

fn decimal(value: u64, unit: u64) -> String {
    let width = unit.ilog10() as usize;
    let fraction = format!("{:0width$}", value % unit);
    match fraction.trim_end_matches('0') {
        "" => (value / unit).to_string(),
        fraction => format!("{}.{fraction}", value / unit),
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for GoDuration {
    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let rules = [
            rule(format!("self.matches(r'{PATTERN}')"), "write numbers with units, such as 20m, 1h30m or 90s"),
            rule(
                format!("!self.matches(r'{PATTERN}') || {}", is_in_range()),
                "write at most 2562047h, which is the longest duration that clients can read, in at most 64 characters",
            ),
        ];
        json_schema!({ "type": "string", "maxLength": LONGEST, "x-kubernetes-validations": rules })
    }
}

/// The text is not negative.
pub(crate) fn is_not_negative() -> ValidationRule {
    rule("!self.matches('^-[0-9.]')".to_owned(), "write a duration that is not negative")
}

/// The text has a digit that is not 0.
pub(crate) fn is_not_zero() -> ValidationRule {
    rule("!self.matches('[0-9]') || self.matches('[1-9]')".to_owned(), "write a duration above zero")
}

fn rule(rule: String, message: &str) -> ValidationRule {
    ValidationRule { rule, message: Some(message.to_owned()), ..ValidationRule::default() }
}

/// The sum of the parts, in nanoseconds and floating point, is one that [`GoDuration`] can hold. `duration` of CEL fails
/// for longer ones, and a rule must not fail.
fn is_in_range() -> String {
    let units: Vec<String> = UNITS.iter().map(|(unit, scale)| format!("'{unit}': {scale:.1}")).collect();
    let part = "double(part.find('[0-9.]+'))";
    let scale = format!("{{{}}}[part.find('[^0-9.]+')]", units.join(", "));
    format!(
        "size(self) <= {LONGEST} && self.findAll('[0-9.]+[^0-9.]+').map(part, {part} * {scale}).sum() < {:.1}",
        i64::MAX as f64
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("2h", "2h0m0s")]
    #[case("90s", "1m30s")]
    #[case("1.5h", "1h30m0s")]
    #[case("0", "0s")]
    #[case("-1m", "-1m0s")]
    #[case("+300ms", "300ms")]
    #[case("1.5ms", "1.5ms")]
    #[case("3us", "3µs")]
    #[case("1h2m3.25s", "1h2m3.25s")]
    #[case("96h", "96h0m0s")]
    fn normalised_like_go(#[case] text: &str, #[case] written: &str) {
        let duration: GoDuration = text.parse().unwrap();
        assert_eq!(duration.to_string(), written);
        assert_eq!(written.parse::<GoDuration>().unwrap(), duration);
    }

    #[rstest]
    #[case("")]
    #[case("2 hours")]
    #[case("10")]
    #[case("h")]
    #[case(".s")]
    #[case("1.2.3s")]
    #[case("9999999999h")]
    fn refused(#[case] text: &str) {
        assert!(text.parse::<GoDuration>().unwrap_err().to_string().contains("is not a duration"));
    }

    proptest::proptest! {
        #[test]
        fn written_form_reads_back(nanos in -(1i64 << 60)..(1i64 << 60)) {
            let duration = GoDuration(nanos);
            proptest::prop_assert_eq!(duration.to_string().parse::<GoDuration>().unwrap(), duration);
        }
    }
}
