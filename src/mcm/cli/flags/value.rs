//! Parses the value of one flag. An error names the allowed values; the caller adds the name of the flag.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
    path::{Component, PathBuf},
    time::Duration,
};

use reqwest::Url;

use crate::{
    api::GoDuration,
    process::{NamespaceSelector, PlaneSource, SimulatedPlace},
};
use mcm_driver::secret_policy::{ALL_NAMESPACES, AllowedEndpoint, InvalidEndpoint};
#[cfg(feature = "remote")]
use mcm_driver_host::remote::{DriverAddress, DriverEndpoint, InvalidDriverAddress, ListenAddress};
use mcm_runtime::{members::is_fleet_name, metrics::MachineSeries};

/// An invalid value of a flag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}")]
pub struct InvalidValue {
    rule: Cow<'static, str>,
    hint: Option<String>,
    class: InvalidValueKind,
}

/// Kind of an invalid value. The Go programs use different exit codes for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidValueKind {
    /// It cannot be parsed.
    Syntax,
    /// It is out of range.
    Range,
}

impl InvalidValue {
    fn syntax(rule: impl Into<Cow<'static, str>>) -> Self {
        Self { rule: rule.into(), hint: None, class: InvalidValueKind::Syntax }
    }

    fn range(rule: impl Into<Cow<'static, str>>) -> Self {
        Self { class: InvalidValueKind::Range, ..Self::syntax(rule) }
    }

    fn with_hint(self, hint: String) -> Self {
        Self { hint: Some(hint), ..self }
    }

    /// A correct value, if it can be guessed.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The kind.
    pub fn class(&self) -> InvalidValueKind {
        self.class
    }
}

/// A boolean in any spelling of Go's `strconv.ParseBool`.
///
/// # Errors
/// For any other text.
pub fn boolean(text: &str) -> Result<bool, InvalidValue> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(InvalidValue::syntax("must be true or false")),
    }
}

/// A Go duration of zero or more.
///
/// # Errors
/// It cannot be parsed, has no unit, or is negative.
pub fn duration(text: &str) -> Result<Duration, InvalidValue> {
    const RULE: &str = "must be a duration of zero or more, such as 90s, 20m or 1h30m";
    match text.parse::<GoDuration>() {
        Ok(duration) if duration < GoDuration::default() => Err(InvalidValue::range(RULE)),
        Ok(duration) => Ok(duration.as_std()),
        Err(_) if text.parse::<f64>().is_ok_and(f64::is_finite) => Err(InvalidValue::syntax(RULE)
            .with_hint(format!("a duration needs a unit: write {text}s for seconds, {text}m for minutes"))),
        Err(_) => Err(InvalidValue::syntax(RULE)),
    }
}

/// A period of at least a second.
///
/// # Errors
/// It is shorter, or no duration.
pub fn period(text: &str) -> Result<Duration, InvalidValue> {
    const RULE: &str = "must be a duration of at least a second, such as 90s, 5m or 1h";
    let period = duration(text)?;
    if period < Duration::from_secs(1) { Err(InvalidValue::range(RULE)) } else { Ok(period) }
}

/// The retry period after an exhausted resource: a duration, where zero means the default of ten minutes.
///
/// # Errors
/// As for [`duration`].
pub fn exhausted_retry(text: &str) -> Result<Duration, InvalidValue> {
    let pause = duration(text)?;
    Ok(if pause.is_zero() { Duration::from_secs(600) } else { pause })
}

/// A TCP port.
///
/// # Errors
/// Outside 1 to 65535.
pub fn port(text: &str) -> Result<u16, InvalidValue> {
    const RULE: &str = "must be a port number from 1 to 65535";
    match u16::try_from(number(text, RULE)?) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(InvalidValue::range(RULE)),
    }
}

/// An address of this host to listen on.
///
/// # Errors
/// It is not an IP address.
pub fn address(text: &str) -> Result<IpAddr, InvalidValue> {
    text.parse()
        .map_err(|_| InvalidValue::syntax("must be an IP address, such as 0.0.0.0 (all interfaces), 127.0.0.1 or ::"))
}

/// An address and port to listen on, as Go programs write it: `:9440` is that port on all interfaces.
///
/// # Errors
/// It has no port, or the host is not an IP address.
pub fn listen_address(text: &str) -> Result<SocketAddr, InvalidValue> {
    let spelled = match text.rsplit_once(':') {
        Some(("", port)) => format!("0.0.0.0:{port}"),
        Some(("localhost", port)) => format!("127.0.0.1:{port}"),
        _ => text.to_owned(),
    };
    spelled.parse().map_err(|_| InvalidValue::syntax("must be an address with a port, such as :9440 or 127.0.0.1:9440"))
}

/// A namespace by name, or all of them if it is empty.
///
/// # Errors
/// As for [`namespace`].
pub fn namespace_or_all(text: &str) -> Result<String, InvalidValue> {
    if text.is_empty() { Ok(String::new()) } else { namespace(text) }
}

/// A number of workers.
///
/// # Errors
/// Below 1 or above 2147483647.
pub fn workers(text: &str) -> Result<usize, InvalidValue> {
    const RULE: &str = "must be a number of workers, 1 or more";
    match usize::try_from(number(text, RULE)?) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(InvalidValue::range(RULE)),
    }
}

/// A number of Nodes.
///
/// # Errors
/// Below 1 or above 2147483647.
pub fn nodes(text: &str) -> Result<usize, InvalidValue> {
    const RULE: &str = "must be a number of Nodes, 1 or more";
    match usize::try_from(number(text, RULE)?) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(InvalidValue::range(RULE)),
    }
}

/// A count that may be zero.
///
/// # Errors
/// Below 0 or above 2147483647.
pub fn count(text: &str) -> Result<u32, InvalidValue> {
    const RULE: &str = "must be a number, 0 or more";
    u32::try_from(number(text, RULE)?).map_err(|_| InvalidValue::range(RULE))
}

/// A verbosity level of klog; negative ones are as quiet as zero.
///
/// # Errors
/// It is not a number.
pub fn level(text: &str) -> Result<i32, InvalidValue> {
    number(text, "must be a number: 0 to 2 for normal logs, 3 or 4 for more, 5 and above for everything")
}

/// Requests per second.
///
/// # Errors
/// It is not a finite number above 0.
pub fn rate(text: &str) -> Result<f32, InvalidValue> {
    const RULE: &str = "must be a number of requests per second above 0";
    match text.parse::<f32>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        Ok(_) => Err(InvalidValue::range(RULE)),
        Err(_) => Err(InvalidValue::syntax(RULE)),
    }
}

/// A namespace by name.
///
/// # Errors
/// It is not a valid name of a namespace.
pub fn namespace(text: &str) -> Result<String, InvalidValue> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_edge_ok = !text.starts_with('-') && !text.ends_with('-');
    if (1..=63).contains(&text.len()) && is_edge_ok && text.chars().all(is_inner) {
        Ok(text.to_owned())
    } else {
        Err(InvalidValue::range(
            "must be the name of one namespace: 1 to 63 of a-z, 0-9 and \"-\", not at the start or end",
        ))
    }
}

/// The name of one namespace, or `*` for all.
///
/// # Errors
/// It is neither.
pub fn namespace_or_star(text: &str) -> Result<String, InvalidValue> {
    if text == ALL_NAMESPACES { Ok(text.to_owned()) } else { namespace(text) }
}

/// The source of the control planes of a fleet.
///
/// # Errors
/// The text names none.
pub fn fleet(text: &str) -> Result<PlaneSource, InvalidValue> {
    const RULE: &str = "must be gardener, cluster-api, or folder=DIR with an absolute path";
    PlaneSource::parse(text).ok_or(InvalidValue::range(RULE))
}

/// The name of a fleet of replicas.
///
/// # Errors
/// It does not fit into the name of a Lease.
pub fn fleet_name(text: &str) -> Result<String, InvalidValue> {
    const RULE: &str = "must be 1 to 40 of a-z, 0-9 and \"-\", not at the start or end";
    if is_fleet_name(text) { Ok(text.to_owned()) } else { Err(InvalidValue::range(RULE)) }
}

/// A selector of Namespaces.
///
/// # Errors
/// The text has another syntax.
pub fn selector(text: &str) -> Result<NamespaceSelector, InvalidValue> {
    const RULE: &str = "must be key=value, key!=value, key or !key, separated by commas";
    NamespaceSelector::parse(text).ok_or(InvalidValue::range(RULE))
}

/// The absolute path of a folder other than the root.
///
/// # Errors
/// The text is a relative path or the root.
pub fn folder(text: &str) -> Result<PathBuf, InvalidValue> {
    let path = PathBuf::from(text);
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if path.is_absolute() && is_plain && path.parent().is_some() {
        Ok(path)
    } else {
        Err(InvalidValue::syntax("must be the absolute path of a folder other than /, without \"..\""))
    }
}

/// Hosts that Secrets may name.
///
/// # Errors
/// It is no host.
pub fn allowed_endpoint(text: &str) -> Result<AllowedEndpoint, InvalidValue> {
    text.parse().map_err(|error: InvalidEndpoint| InvalidValue::syntax(error.to_string()))
}

/// A media type such as `application/json`, with or without parameters.
///
/// # Errors
/// It is not of the form `type/subtype`.
pub fn media_type(text: &str) -> Result<String, InvalidValue> {
    let is_token = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`{|}~".contains(c))
    };
    let essence = text.split(';').next().unwrap_or_default().trim();
    match essence.split_once('/') {
        Some((kind, subtype)) if is_token(kind) && is_token(subtype) => Ok(text.to_owned()),
        _ => Err(InvalidValue::range("must be a media type, such as application/json")),
    }
}

/// The address of a simulated cloud, which has no TLS.
///
/// # Errors
/// It is not an `http` URL.
pub fn http_url(text: &str) -> Result<Url, InvalidValue> {
    match text.parse::<Url>() {
        Ok(url) if url.scheme() == "http" && url.has_host() => Ok(url),
        _ => Err(InvalidValue::syntax("must be an http URL, such as http://127.0.0.1:10270")),
    }
}

/// A choice of series.
///
/// # Errors
/// It is not one of the three.
pub fn machine_series(text: &str) -> Result<MachineSeries, InvalidValue> {
    let all = [MachineSeries::Auto, MachineSeries::Always, MachineSeries::Never];
    let chosen = all.into_iter().find(|choice| choice.as_str() == text);
    chosen.ok_or_else(|| InvalidValue::syntax("must be auto, always or never"))
}

/// The simulated cloud to serve.
///
/// # Errors
/// It is neither `embedded` nor an `http` URL.
pub(in crate::cli) fn simulated_place(text: &str) -> Result<SimulatedPlace, InvalidValue> {
    match http_url(text) {
        _ if text == "embedded" => Ok(SimulatedPlace::Embedded),
        Ok(url) => Ok(SimulatedPlace::Url(url.into())),
        Err(_) => Err(InvalidValue::syntax("must be embedded, or an http URL such as http://127.0.0.1:10270")),
    }
}

/// A remote driver.
///
/// # Errors
/// It is not of the form `NAME=ADDRESS[,OPTION=VALUE]…`.
#[cfg(feature = "remote")]
pub fn driver_endpoint(text: &str) -> Result<DriverEndpoint, InvalidValue> {
    text.parse().map_err(|error: InvalidDriverAddress| InvalidValue::syntax(error.to_string()))
}

/// The address of a remote driver.
///
/// # Errors
/// It is no address.
#[cfg(feature = "remote")]
pub fn driver_address(text: &str) -> Result<DriverAddress, InvalidValue> {
    text.parse().map_err(|error: InvalidDriverAddress| InvalidValue::syntax(error.to_string()))
}

/// Where a driver listens.
///
/// # Errors
/// It is neither a Unix socket nor a host and port.
#[cfg(feature = "remote")]
pub fn listen(text: &str) -> Result<ListenAddress, InvalidValue> {
    text.parse().map_err(|error: InvalidDriverAddress| InvalidValue::syntax(error.to_string()))
}

fn number(text: &str, rule: &'static str) -> Result<i32, InvalidValue> {
    text.parse::<i64>()
        .map_err(|_| InvalidValue::syntax(rule))
        .and_then(|number| i32::try_from(number).map_err(|_| InvalidValue::range(rule)))
}
