//! The settings of the simulated cloud: how slow, how small, how broken it is.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

use super::messages::write_code;
use mcm_api::GoDuration;
use mcm_driver::{code::Code, operation::DriverOperation};

/// All settings. They hold from the next call on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SimulationSettings {
    /// Latencies for classes without any.
    pub latency: OperationLatencies,
    /// Largest numbers of VMs.
    pub quotas: Vec<VmQuota>,
    /// Shapes of which no VM can be created.
    pub stock_outs: Vec<VmShape>,
    /// Largest rate of calls.
    pub throttle: Option<ThrottleSettings>,
    /// Injected faults; the first that strikes decides.
    pub faults: Vec<InjectedFault>,
    /// Machines whose Nodes do not register.
    pub never_join: Vec<WildcardPattern>,
    /// How Nodes live and die.
    pub nodes: NodeSettings,
}

/// Latency of each operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OperationLatencies {
    pub create: LatencyDuration,
    pub boot: LatencyDuration,
    pub delete: LatencyDuration,
    pub initialize: LatencyDuration,
    pub status: LatencyDuration,
    pub list: LatencyDuration,
}

/// A kind of VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VmShape {
    /// Its zone.
    pub zone: WildcardPattern,
    /// Its type.
    pub instance_type: WildcardPattern,
}

/// Largest number of VMs of one kind, together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VmQuota {
    /// Zones it counts.
    #[serde(default)]
    pub zone: WildcardPattern,
    /// Types it counts.
    #[serde(default)]
    pub instance_type: WildcardPattern,
    /// The number.
    pub limit: usize,
}

impl VmQuota {
    /// The combination of zone, type and capacity that is counted.
    pub fn shape(&self) -> VmShape {
        VmShape { zone: self.zone.clone(), instance_type: self.instance_type.clone() }
    }
}

/// Largest rate of calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ThrottleSettings {
    /// Calls a second.
    pub calls_per_second: f64,
    /// Calls at once; one second's worth if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<f64>,
    /// Code of the calls beyond.
    #[serde(default = "unavailable", serialize_with = "write_code", deserialize_with = "strict_code")]
    pub code: Code,
}

/// An injected fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InjectedFault {
    /// The operation it strikes; all if absent.
    #[serde(deserialize_with = "operation_or_all", serialize_with = "write_operation")]
    pub operation: Option<DriverOperation>,
    /// The Machines it strikes.
    pub machines: WildcardPattern,
    /// Share of calls it strikes, from 0 to 1.
    pub rate: f64,
    /// How often it strikes altogether.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Code of the error; none only slows.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "write_some_code",
        deserialize_with = "some_code"
    )]
    pub code: Option<Code>,
    /// Text of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// State that is returned with the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_known_state: Option<String>,
    /// The error reports that the cloud still works on it, and when to make the same call again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_again_in: Option<LatencyDuration>,
    /// The operation is carried out and only the answer is lost.
    pub lost_reply: bool,
    /// Extra delay: before the operation, or before the error that replaces its answer.
    pub latency: LatencyDuration,
}

impl Default for InjectedFault {
    fn default() -> Self {
        Self {
            operation: None,
            machines: WildcardPattern::default(),
            rate: 1.0,
            count: None,
            code: None,
            message: None,
            last_known_state: None,
            call_again_in: None,
            lost_reply: false,
            latency: LatencyDuration::default(),
        }
    }
}

impl InjectedFault {
    /// Code of the error; `None` only slows.
    pub(super) fn error(&self) -> Option<Code> {
        self.code.or_else(|| self.call_again_in.map(|_| Code::Unavailable))
    }
}

/// How Nodes live and die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeSettings {
    /// How often a Lease is renewed; zero is never.
    pub heartbeat_period: LatencyDuration,
    /// How long a Node outlives its VM.
    pub removal_delay: LatencyDuration,
    /// Time after the last heartbeat of a Node until it becomes unhealthy.
    pub monitor_grace: LatencyDuration,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            heartbeat_period: LatencyDuration::from(Duration::from_secs(10)),
            removal_delay: LatencyDuration::from(Duration::from_secs(5)),
            monitor_grace: LatencyDuration::from(Duration::from_secs(40)),
        }
    }
}

/// The operations that can be slowed, failed, throttled and counted.
pub(super) const OPERATIONS: [DriverOperation; 7] = [
    DriverOperation::Create,
    DriverOperation::Initialize,
    DriverOperation::Delete,
    DriverOperation::Status,
    DriverOperation::List,
    DriverOperation::Register,
    DriverOperation::Deregister,
];

/// A length of time that is not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LatencyDuration(Duration);

impl LatencyDuration {
    /// The length.
    pub const fn as_std(self) -> Duration {
        self.0
    }
}

impl From<Duration> for LatencyDuration {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl Serialize for LatencyDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        GoDuration::from(self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LatencyDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let duration = GoDuration::deserialize(deserializer)?;
        if duration.as_nanos() < 0 {
            return Err(de::Error::custom(format!("the duration {duration} is negative: use zero or more")));
        }
        Ok(Self(duration.as_std()))
    }
}

/// A text in which `*` matches any number of characters. The default matches everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WildcardPattern(String);

impl Default for WildcardPattern {
    fn default() -> Self {
        Self("*".to_owned())
    }
}

impl From<&str> for WildcardPattern {
    fn from(pattern: &str) -> Self {
        Self(pattern.to_owned())
    }
}

impl fmt::Display for WildcardPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl WildcardPattern {
    /// The whole text fits.
    pub fn matches(&self, text: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == text };
        let Some(mut text) = text.strip_prefix(first) else { return false };
        let mut parts: Vec<&str> = rest.split('*').collect();
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            let Some((_, after)) = text.split_once(part) else { return false };
            text = after;
        }
        text.ends_with(last)
    }
}

/// Settings that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum InvalidControl {
    /// Not of the documented form.
    #[error("the settings do not have the documented form")]
    Form(#[from] serde_json::Error),
    /// A number out of its range.
    #[error("{field} is {value}: use {expected}")]
    Range {
        /// Path of the number.
        field: String,
        /// The number.
        value: f64,
        /// The expected value.
        expected: &'static str,
    },
}

impl SimulationSettings {
    /// The initial settings, overridden by the fields of `body`.
    ///
    /// # Errors
    /// When the outcome is not valid.
    pub fn replaced(start: &Self, body: Value) -> Result<Self, InvalidControl> {
        let mut value = serde_json::to_value(start)?;
        merge(&mut value, body);
        serde_json::from_value::<Self>(value)?.checked()
    }

    /// These settings, overridden by the fields of `patch`; `null` restores the initial value.
    ///
    /// # Errors
    /// When the outcome is not valid.
    pub fn patched(&self, start: &Self, patch: Value) -> Result<Self, InvalidControl> {
        let mut value = serde_json::to_value(self)?;
        merge(&mut value, patch);
        Self::replaced(start, value)
    }

    fn checked(self) -> Result<Self, InvalidControl> {
        let range = |field: String, value: f64, valid: bool, expected| {
            if valid { Ok(()) } else { Err(InvalidControl::Range { field, value, expected }) }
        };
        for (index, fault) in self.faults.iter().enumerate() {
            let valid = (0.0..=1.0).contains(&fault.rate);
            range(format!("faults[{index}].rate"), fault.rate, valid, "a number from 0 to 1")?;
        }
        if let Some(throttle) = &self.throttle {
            let positive = |value: f64| value.is_finite() && value > 0.0;
            let calls = throttle.calls_per_second;
            range("throttle.callsPerSecond".to_owned(), calls, positive(calls), "a number above 0")?;
            let burst = throttle.burst.unwrap_or(1.0);
            range("throttle.burst".to_owned(), burst, burst.is_finite() && burst >= 1.0, "a number of at least 1")?;
        }
        Ok(self)
    }
}

/// JSON merge patch (RFC 7386).
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    if let Value::Object(target) = target {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(&key);
            } else {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
    }
}

const fn unavailable() -> Code {
    Code::Unavailable
}

fn strict_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
    let name = String::deserialize(deserializer)?;
    let names = || Code::ALL.map(Code::as_str).join(", ");
    name.parse().map_err(|()| de::Error::custom(format!("{name:?} is not a code: use one of {}", names())))
}

fn some_code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Code>, D::Error> {
    strict_code(deserializer).map(Some)
}

fn write_some_code<S: Serializer>(code: &Option<Code>, serializer: S) -> Result<S::Ok, S::Error> {
    code.map(Code::as_str).serialize(serializer)
}

fn operation_or_all<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DriverOperation>, D::Error> {
    let name = String::deserialize(deserializer)?;
    if name == "*" {
        return Ok(None);
    }
    let names = || OPERATIONS.map(DriverOperation::as_str).join(", ");
    let found = OPERATIONS.into_iter().find(|operation| operation.as_str() == name);
    let refusal = || de::Error::custom(format!("{name:?} is not an operation: use one of {}, *", names()));
    found.map(Some).ok_or_else(refusal)
}

fn write_operation<S: Serializer>(operation: &Option<DriverOperation>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(operation.map_or("*", DriverOperation::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;
    use std::error::Error;

    #[rstest]
    #[case("*", "", true)]
    #[case("*", "anything", true)]
    #[case("worker-*", "worker-1", true)]
    #[case("worker-*", "other-1", false)]
    #[case("*-b", "x-b", true)]
    #[case("*-b", "x-b-c", false)]
    #[case("a*b*c", "a-b-b-c", true)]
    #[case("a*b*c", "abc", true)]
    #[case("a*b*c", "acb", false)]
    #[case("aa*aa", "aaa", false)]
    #[case("exact", "exact", true)]
    #[case("exact", "exactly", false)]
    #[case("", "", true)]
    fn a_star_stands_for_any_text(#[case] pattern: &str, #[case] text: &str, #[case] expected: bool) {
        assert_eq!(WildcardPattern::from(pattern).matches(text), expected);
    }

    #[test]
    fn a_patch_keeps_the_rest_and_null_returns_to_the_start() {
        let mut start = SimulationSettings::default();
        start.nodes.heartbeat_period = LatencyDuration::from(Duration::from_secs(3));
        let full = SimulationSettings::replaced(
            &start,
            json!({"latency": {"create": "2s"}, "nodes": {"heartbeatPeriod": "9s", "removalDelay": "1s"}}),
        )
        .unwrap();
        let patched =
            full.patched(&start, json!({"quotas": [{"limit": 3}], "nodes": {"heartbeatPeriod": null}})).unwrap();
        assert_eq!(patched.latency.create.as_std(), Duration::from_secs(2));
        assert_eq!(patched.quotas.first().map(|quota| quota.limit), Some(3));
        assert_eq!(patched.nodes.heartbeat_period.as_std(), Duration::from_secs(3));
        assert_eq!(patched.nodes.removal_delay.as_std(), Duration::from_secs(1));
    }

    #[rstest]
    #[case(json!({"latencies": {}}), "unknown field `latencies`")]
    #[case(json!({"latency": {"create": "-1s"}}), "the duration -1s is negative: use zero or more")]
    #[case(json!({"latency": {"create": "soon"}}), r#""soon" is not a duration"#)]
    #[case(json!({"faults": [{"rate": 1.5}]}), "faults[0].rate is 1.5: use a number from 0 to 1")]
    #[case(json!({"faults": [{"callAgainIn": "-1s"}]}), "the duration -1s is negative: use zero or more")]
    #[case(json!({"faults": [{"code": "Bad"}]}), r#""Bad" is not a code: use one of Canceled"#)]
    #[case(json!({"faults": [{"operation": "reboot"}]}), r#""reboot" is not an operation: use one of create, initialize"#)]
    #[case(json!({"throttle": {"callsPerSecond": 0}}), "throttle.callsPerSecond is 0: use a number above 0")]
    #[case(json!({"throttle": {"callsPerSecond": 1, "burst": 0.5}}), "throttle.burst is 0.5: use a number of at least 1")]
    fn settings_that_cannot_be_are_refused(#[case] body: Value, #[case] expected: &str) {
        let error = SimulationSettings::replaced(&SimulationSettings::default(), body).unwrap_err();
        let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn what_is_shown_can_be_put_back() {
        let body = json!({
            "faults": [{"operation": "create", "machines": "x-*", "rate": 0.5, "count": 2, "code": "DataLoss", "lostReply": true, "latency": "1s", "callAgainIn": "5s"}],
            "throttle": {"callsPerSecond": 5, "code": "ResourceExhausted"},
            "stockOuts": [{"zone": "a"}], "neverJoin": ["y"],
        });
        let control = SimulationSettings::replaced(&SimulationSettings::default(), body).unwrap();
        let shown = serde_json::to_value(&control).unwrap();
        assert_eq!(SimulationSettings::replaced(&SimulationSettings::default(), shown).unwrap(), control);
    }
}
