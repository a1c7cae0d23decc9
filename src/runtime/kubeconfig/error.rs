//! Errors at the start of the process, each with a hint.

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
};

use http::Uri;
use kube::{client::AuthError, config::KubeconfigError};

/// Group and version of the machine objects.
pub const API_VERSION: &str = "machine.sapcloud.io/v1alpha1";

/// The command that installs the kinds; it also overwrites kinds that another program installed.
const INSTALL: &str = "install them with: mcm crd | kubectl apply --server-side --force-conflicts -f -";

/// A cluster cannot be used. Texts contain nothing of a kubeconfig but server addresses and file names.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file does not exist.
    #[error("read kubeconfig {} ({origin}): no such file", path.display())]
    FileMissing {
        /// The flag or variable that named it.
        origin: &'static str,
        /// Its path.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("read kubeconfig {} ({origin})", path.display())]
    Unreadable {
        /// The flag or variable that named it.
        origin: &'static str,
        /// Its path.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is not a kubeconfig.
    #[error("read kubeconfig {file} ({origin}): not the YAML of a kubeconfig{place}")]
    Malformed {
        /// The flag or variable that named it.
        origin: &'static str,
        /// Its path.
        file: String,
        /// Position in the file. The parser's own text would quote the file, which contains secrets.
        place: String,
    },
    /// The kubeconfig is incomplete.
    #[error("use kubeconfig {file} ({origin}): {cause}")]
    Incomplete {
        /// The flag or variable that named it.
        origin: &'static str,
        /// Its path.
        file: String,
        /// The missing part.
        cause: String,
    },
    /// The kubeconfig does not have the context of `--context`.
    #[error("use context {context} of kubeconfig {file} (--context): it has {}", contexts(known))]
    ContextMissing {
        /// The context.
        context: String,
        /// The kubeconfig.
        file: String,
        /// The contexts that it has.
        known: Vec<String>,
    },
    /// The process runs in no pod, or the pod has no credentials.
    #[error("use the credentials of this pod ({origin}): {cause}")]
    NotInPod {
        /// The flag that requests them.
        origin: &'static str,
        /// The missing part.
        cause: String,
    },
    /// No cluster is given.
    #[error(
        "find a cluster: KUBECONFIG is not set, ~/.kube/config does not exist, and the process does not run in a pod"
    )]
    NoCluster {
        /// The flag that names one.
        flag: &'static str,
    },
    /// No control cluster is given.
    #[error("find the control cluster: --control-kubeconfig is empty and --target-kubeconfig is none")]
    NoControlCluster,
    /// No client can be created.
    #[error("create a client for the API server {server}: {cause}")]
    Client {
        /// The address of the server.
        server: String,
        /// The reason, as text.
        cause: String,
    },
    /// A certificate has X.509 version 1.
    #[error(
        "trust the API server {server}: one of the certificates in use is of X.509 version 1, which is not supported"
    )]
    OldCertificate {
        /// The address of the server.
        server: String,
    },
    /// The server does not match the certificate authority of the kubeconfig.
    #[error("trust the API server {server}: {cause}")]
    Untrusted {
        /// The address of the server.
        server: String,
        /// The certificate error.
        cause: String,
    },
    /// No response, or an error.
    #[error("reach the API server {server}: {cause} (tried for {seconds} s)")]
    Unreachable {
        /// The address of the server.
        server: String,
        /// The last error.
        cause: String,
        /// Duration of all attempts.
        seconds: u64,
    },
    /// The credentials are rejected.
    #[error("talk to the API server {server}: {cause}")]
    Refused {
        /// The address of the server.
        server: String,
        /// The error of the server.
        cause: String,
    },
    /// The server does not serve our kinds.
    #[error("the API server {server} does not serve {} of {API_VERSION}", missing.join(", "))]
    KindsMissing {
        /// The address of the server.
        server: String,
        /// Their plural names.
        missing: Vec<&'static str>,
    },
}

impl StartError {
    /// The next step.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::FileMissing { .. } => "check the path, and that the secret is mounted",
            Self::Unreadable { .. } => "check the permissions of the file and its folders",
            Self::Malformed { .. } => "try it with kubectl --kubeconfig FILE config view",
            Self::Incomplete { .. } => "check it with kubectl --kubeconfig FILE config view --minify",
            Self::ContextMissing { .. } => "kubectl config get-contexts lists the contexts",
            Self::NotInPod { .. } => {
                "outside a pod pass a kubeconfig file with that flag; inside a pod check that its service account token is mounted"
            }
            Self::NoCluster { flag: "--kubeconfig" } => "pass --kubeconfig FILE",
            Self::NoCluster { .. } => "pass --target-kubeconfig FILE",
            Self::NoControlCluster => {
                "pass --control-kubeconfig FILE, or --control-kubeconfig inClusterConfig in a pod"
            }
            Self::Client { .. } => "check the certificates, keys and the proxy in the kubeconfig",
            Self::OldCertificate { .. } => {
                "create new certificates of version 3, with the server's name as a subject alternative name"
            }
            Self::Untrusted { .. } => {
                "check the server's address and certificate-authority in the kubeconfig; the certificate must name the address"
            }
            Self::Unreachable { .. } => {
                "check the server's address in the kubeconfig, and that the server is up and reachable from here"
            }
            Self::Refused { .. } => "check the user in the kubeconfig, and its roles",
            Self::KindsMissing { .. } => INSTALL,
        }
    }

    pub(super) fn from_kubeconfig(origin: &'static str, path: Option<&Path>, error: KubeconfigError) -> Self {
        let file = || path.map_or_else(String::new, |path| path.display().to_string());
        match error {
            KubeconfigError::ReadConfig(source, path) if source.kind() == io::ErrorKind::NotFound => {
                drop(source);
                Self::FileMissing { origin, path }
            }
            KubeconfigError::ReadConfig(source, path) => Self::Unreadable { origin, path, source },
            KubeconfigError::Parse(error) => {
                let place = error.location().map(|at| format!(", line {} column {}", at.line(), at.column()));
                Self::Malformed { origin, file: file(), place: place.unwrap_or_default() }
            }
            KubeconfigError::ParseNoProxy(error) => {
                Self::Incomplete { origin, file: file(), cause: format!("NO_PROXY cannot be used: {error}") }
            }
            other => Self::Incomplete { origin, file: file(), cause: other.to_string() },
        }
    }

    pub(super) fn from_client(server: &Uri, error: &kube::Error) -> Self {
        Self::from_certificate(server, error)
            .unwrap_or_else(|| Self::Client { server: address(server), cause: cause(error) })
    }

    /// Certificate errors that a retry does not solve, as one sentence. For the creation of a client and its first
    /// call.
    pub fn from_certificate(server: &Uri, error: &kube::Error) -> Option<Self> {
        let text = innermost(error).to_string();
        if text.contains("UnsupportedCertVersion") {
            return Some(Self::OldCertificate { server: address(server) });
        }
        text.contains("invalid peer certificate").then(|| Self::Untrusted { server: address(server), cause: text })
    }
}

/// The contexts of a kubeconfig in words.
fn contexts(known: &[String]) -> String {
    match known {
        [] => "no contexts".to_owned(),
        [one] => format!("only {one}"),
        known => format!("{} others: {}", known.len(), known.join(", ")),
    }
}

/// The address of a server without user or path.
pub fn address(url: &Uri) -> String {
    let scheme = url.scheme_str().unwrap_or("https");
    let host = url.host().unwrap_or("?");
    url.port().map_or_else(|| format!("{scheme}://{host}"), |port| format!("{scheme}://{host}:{port}"))
}

/// The innermost cause of an error; the layers above it only repeat that something failed.
pub fn cause(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return format!("it responded {} {}: {}", status.code, status.reason, status.message);
    }
    if let kube::Error::ProxyProtocolUnsupported { .. } | kube::Error::ProxyProtocolDisabled { .. } = error {
        return "only http and https proxies are supported".to_owned();
    }
    if let kube::Error::SerdeError(_) = error {
        return "it does not respond like an API server".to_owned();
    }
    credential_error(error).map_or_else(|| innermost(error).to_string(), credential_cause)
}

/// An error of a request as one sentence, for texts that say what was attempted.
pub fn sentence(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return match status.message.trim() {
            "" => format!("the API server answered {} {}", status.code, status.reason),
            message => message.to_owned(),
        };
    }
    let cause = cause(error);
    match innermost(error).is::<io::Error>() && credential_error(error).is_none() {
        true => format!("the API server does not answer: {cause}"),
        false => cause,
    }
}

/// Only harmless parts: command lines, output and parser texts may contain the credential itself.
fn credential_cause(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { out, .. } => format!("the credential plugin failed with {}", out.status),
        AuthError::AuthExecStart(error) => format!("the credential plugin cannot be started: {error}"),
        AuthError::ReadTokenFile(error, path) => format!("the token file {} cannot be read: {error}", path.display()),
        AuthError::ExecPluginFailed | AuthError::AuthExecParse(_) => {
            "the credential plugin did not return an ExecCredential".to_owned()
        }
        _ => "the credentials in the kubeconfig cannot be used".to_owned(),
    }
}

/// The failure of our own credentials among an error and its causes.
pub(super) fn credential_error(error: &kube::Error) -> Option<&AuthError> {
    layers(error).find_map(|layer| layer.downcast_ref())
}

fn innermost(error: &kube::Error) -> &(dyn Error + 'static) {
    layers(error).last().unwrap_or(error)
}

fn layers(error: &kube::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(Some(error as &(dyn Error + 'static)), |layer| (**layer).source())
}
