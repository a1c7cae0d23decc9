//! Where a driver listens, as it is written in flags.

use std::{fmt, net::IpAddr, path::PathBuf, str::FromStr};

use super::tls::TlsFiles;

/// The address of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverAddress {
    /// `unix:///path`
    Unix(PathBuf),
    /// `https://host:port`, or `http://host:port` without TLS.
    Tcp {
        /// Name or IP address.
        host: String,
        /// The port.
        port: u16,
        /// The scheme is `https`.
        is_tls: bool,
    },
}

/// A driver that is another process, and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverEndpoint {
    /// Name in `MachineClass.provider`.
    pub name: String,
    /// Where it listens.
    pub address: DriverAddress,
    /// Files for TLS.
    pub tls: TlsFiles,
    /// The name in its certificate, if it is not the host.
    pub server_name: Option<String>,
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// `unix:///path`
    Unix(PathBuf),
    /// `host:port`
    Tcp(String),
}

/// An address that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidDriverAddress(String);

impl DriverAddress {
    /// The traffic could be read on the network.
    pub fn is_exposed(&self) -> bool {
        match self {
            Self::Unix(_) => false,
            Self::Tcp { host, is_tls, .. } => !is_tls && !is_loopback(host),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn invalid<T>(text: impl Into<String>) -> Result<T, InvalidDriverAddress> {
    Err(InvalidDriverAddress(text.into()))
}

impl FromStr for DriverAddress {
    type Err = InvalidDriverAddress;

    fn from_str(text: &str) -> Result<Self, InvalidDriverAddress> {
        const FORMS: &str = "must be unix:///PATH, https://HOST:PORT or http://HOST:PORT";
        let Some((scheme, rest)) = text.split_once("://") else { return invalid(FORMS) };
        match scheme {
            "unix" => unix(rest).map(Self::Unix),
            "https" | "http" => {
                let (host, port) = host_and_port(rest.trim_end_matches('/'))?;
                Ok(Self::Tcp { host, port, is_tls: scheme == "https" })
            }
            _ => invalid(FORMS),
        }
    }
}

impl fmt::Display for DriverAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp { host, port, is_tls: true } => write!(f, "https://{host}:{port}"),
            Self::Tcp { host, port, is_tls: false } => write!(f, "http://{host}:{port}"),
        }
    }
}

fn unix(path: &str) -> Result<PathBuf, InvalidDriverAddress> {
    if path.starts_with('/') && path.len() > 1 {
        Ok(path.into())
    } else {
        invalid("a unix address needs an absolute path: unix:///run/driver.sock")
    }
}

fn host_and_port(text: &str) -> Result<(String, u16), InvalidDriverAddress> {
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '@', ',', ' ']);
    match text.rsplit_once(':') {
        Some((host, port)) if is_host(host) => match port.parse() {
            Ok(port) => Ok((host.to_owned(), port)),
            Err(_) => invalid(format!("{port:?} is not a port")),
        },
        _ => invalid("needs a host and a port: HOST:PORT"),
    }
}

/// `NAME=ADDRESS[,ca=FILE][,cert=FILE][,key=FILE][,server-name=NAME]`
impl FromStr for DriverEndpoint {
    type Err = InvalidDriverAddress;

    fn from_str(text: &str) -> Result<Self, InvalidDriverAddress> {
        let Some((name, rest)) = text.split_once('=') else { return invalid("must be NAME=ADDRESS") };
        let is_name =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if !is_name(name) {
            return invalid(format!("{name:?} is not the name of a provider: write NAME=ADDRESS"));
        }
        let mut parts = rest.split(',');
        let address = parts.next().unwrap_or_default().parse()?;
        let mut endpoint = Self { name: name.to_owned(), address, tls: TlsFiles::default(), server_name: None };
        for part in parts {
            match part.split_once('=') {
                Some((_, "")) | None => return invalid(format!("{part:?}: must be OPTION=VALUE")),
                Some(("ca", file)) => endpoint.tls.ca = Some(file.into()),
                Some(("cert", file)) => endpoint.tls.cert = Some(file.into()),
                Some(("key", file)) => endpoint.tls.key = Some(file.into()),
                Some(("server-name", name)) => endpoint.server_name = Some(name.to_owned()),
                Some((option, _)) => {
                    return invalid(format!("unknown option {option:?}: use ca, cert, key or server-name"));
                }
            }
        }
        Ok(endpoint)
    }
}

impl DriverEndpoint {
    /// A driver that serves classes of `name`.
    pub fn new(name: impl Into<String>, address: DriverAddress) -> Self {
        Self { name: name.into(), address, tls: TlsFiles::default(), server_name: None }
    }

    /// With these files where it names none itself.
    #[must_use]
    pub fn or_files(mut self, files: &TlsFiles) -> Self {
        let TlsFiles { ca, cert, key } = files.clone();
        self.tls.ca = self.tls.ca.or(ca);
        if self.tls.cert.is_none() && self.tls.key.is_none() {
            (self.tls.cert, self.tls.key) = (cert, key);
        }
        self
    }
}

impl FromStr for ListenAddress {
    type Err = InvalidDriverAddress;

    fn from_str(text: &str) -> Result<Self, InvalidDriverAddress> {
        if let Some(path) = text.strip_prefix("unix://") {
            return unix(path).map(Self::Unix);
        }
        host_and_port(text)
            .map(|(host, port)| Self::Tcp(format!("{host}:{port}")))
            .map_err(|_| InvalidDriverAddress("must be unix:///PATH or HOST:PORT".to_owned()))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => f.write_str(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("unix:///run/x.sock", false)]
    #[case("https://driver.example:8443", false)]
    #[case("http://127.0.0.1:1", false)]
    #[case("http://localhost:1", false)]
    #[case("http://[::1]:1", false)]
    #[case("http://10.0.0.1:1", true)]
    #[case("http://localhost.example:1", true)]
    fn only_plain_http_to_other_machines_is_exposed(#[case] text: &str, #[case] is_exposed: bool) {
        let address: DriverAddress = text.parse().unwrap();
        assert_eq!((address.to_string().as_str(), address.is_exposed()), (text, is_exposed));
    }

    #[rstest]
    #[case("aws", "must be NAME=ADDRESS")]
    #[case("=unix:///x", "not the name of a provider")]
    #[case("a/b=unix:///x", "not the name of a provider")]
    #[case("aws=unix://x", "absolute path")]
    #[case("aws=tcp://h:1", "must be unix:///PATH")]
    #[case("aws=https://h", "HOST:PORT")]
    #[case("aws=https://h:x", "not a port")]
    #[case("aws=https://user@h:1", "HOST:PORT")]
    #[case("aws=https://h:1,ca", "OPTION=VALUE")]
    #[case("aws=https://h:1,ca=", "OPTION=VALUE")]
    #[case("aws=https://h:1,insecure=1", "unknown option")]
    fn an_endpoint_that_is_wrong_is_refused_with_the_reason(#[case] text: &str, #[case] reason: &str) {
        let error = text.parse::<DriverEndpoint>().unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }

    #[test]
    fn an_endpoint_has_files_of_its_own_or_those_of_all() {
        let all = TlsFiles { ca: Some("/ca".into()), cert: Some("/cert".into()), key: Some("/key".into()) };
        let own: DriverEndpoint = "aws=https://h:1,ca=/own,server-name=driver".parse().unwrap();
        assert_eq!(own.server_name.as_deref(), Some("driver"));
        assert_eq!(own.or_files(&all).tls, TlsFiles { ca: Some("/own".into()), ..all.clone() });
        let pair: DriverEndpoint = "aws=https://h:1,cert=/c,key=/k".parse().unwrap();
        let expected = TlsFiles { ca: Some("/ca".into()), cert: Some("/c".into()), key: Some("/k".into()) };
        assert_eq!(pair.or_files(&all).tls, expected);
    }

    #[rstest]
    #[case("unix:///run/x.sock", true)]
    #[case("127.0.0.1:0", true)]
    #[case("[::]:8443", true)]
    #[case("unix://x", false)]
    #[case("8443", false)]
    fn a_server_listens_on_a_socket_or_a_port(#[case] text: &str, #[case] is_valid: bool) {
        let parsed = text.parse::<ListenAddress>();
        assert_eq!(parsed.as_ref().map(ToString::to_string).ok().as_deref(), is_valid.then_some(text));
    }
}
