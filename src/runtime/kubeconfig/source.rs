//! Sources of a cluster configuration, so that it can be read again when its files change.

use std::{
    collections::BTreeSet,
    env, io,
    path::{Path, PathBuf},
};

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use super::{ContextChoice, FoundKubeconfig, StartError, address};
use crate::{files, watched::FileFingerprints};
use mcm_api::decode::{self, YamlError, YamlLimits};

/// The origin of kubeconfigs that were found, in errors.
const FOUND: &str = "found by --fleet";

/// Source of a cluster configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConfigSource {
    /// The pod's own credentials, which the kubelet writes. Their token and CA are read again by kube-rs.
    Pod { origin: &'static str },
    /// The files that `KUBECONFIG` names.
    Environment,
    /// One file.
    File { origin: &'static str, path: PathBuf },
    /// A text that its finder replaces, in this version.
    Found { kubeconfig: FoundKubeconfig, version: u64 },
    /// No source: the configuration never changes.
    Fixed,
}

/// Configuration of the connection to one API server.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// For clients.
    pub config: Config,
    /// The context of the kubeconfig; `None` without a kubeconfig.
    pub context: Option<String>,
    source: ConfigSource,
    choice: ContextChoice,
    /// Fingerprints of its files when it was read.
    files: FileFingerprints,
}

impl From<Config> for ClusterConfig {
    /// A configuration that does not change.
    fn from(config: Config) -> Self {
        Self::fixed(config, None)
    }
}

impl ConfigSource {
    pub(super) fn file(origin: &'static str, path: &Path) -> Self {
        Self::File { origin, path: path.to_owned() }
    }

    fn origin(&self) -> (&'static str, Option<&Path>) {
        match self {
            Self::Pod { origin } => (origin, None),
            Self::Environment => ("KUBECONFIG", None),
            Self::File { origin, path } => (origin, Some(path)),
            Self::Found { kubeconfig, .. } => (FOUND, Some(Path::new(kubeconfig.name()))),
            Self::Fixed => ("", None),
        }
    }

    fn error_of_file(&self, BadFile { path, source }: BadFile) -> StartError {
        let (origin, own) = self.origin();
        let file = own.map_or_else(String::new, |path| path.display().to_string());
        StartError::Incomplete { origin, file, cause: format!("{} cannot be read: {source}", path.display()) }
    }

    fn error(&self, error: KubeconfigError) -> StartError {
        let (origin, path) = self.origin();
        StartError::from_kubeconfig(origin, path, error)
    }
}

impl ClusterConfig {
    /// A configuration that does not change.
    fn fixed(config: Config, context: Option<String>) -> Self {
        let (source, choice) = (ConfigSource::Fixed, ContextChoice::default());
        Self { config, context, source, choice, files: FileFingerprints::default() }
    }

    /// The context, or the address of the API server without one.
    pub fn title(&self) -> String {
        self.context.clone().unwrap_or_else(|| address(&self.config.cluster_url))
    }

    /// Both have one source and one server, so that each gets the changes of the other.
    pub fn follows(&self, other: &Self) -> bool {
        let is_same = (&self.source, &self.choice) == (&other.source, &other.choice);
        is_same && self.source != ConfigSource::Fixed && self.config.cluster_url == other.config.cluster_url
    }

    /// Reads a configuration. Makes no network calls.
    pub(super) async fn load(source: ConfigSource, choice: &ContextChoice) -> Result<Self, StartError> {
        if let Err(BadFile { path, source: error }) = check(&own_files(&source), files::CONFIG) {
            return Err(source.error(KubeconfigError::ReadConfig(error, path)));
        }
        let kubeconfig = match &source {
            ConfigSource::Pod { origin } => return in_pod(origin, choice),
            ConfigSource::Environment => read_environment(),
            ConfigSource::File { path, .. } => Kubeconfig::read_from(path),
            ConfigSource::Found { kubeconfig, .. } => return Self::of_found(kubeconfig).await,
            // No file to read.
            ConfigSource::Fixed => Ok(Kubeconfig::default()),
        };
        let kubeconfig = kubeconfig.map_err(|error| source.error(error))?;
        let certificates = certificates(&kubeconfig);
        check(&certificates, files::PEM).map_err(|error| source.error_of_file(error))?;
        let files = own_files(&source).into_iter().chain(certificates).chain(tokens(&kubeconfig));
        let files = FileFingerprints::read(files);
        let (origin, path) = source.origin();
        let file = path.map_or_else(|| origin.to_owned(), |path| path.display().to_string());
        let context = choice.context_of(&kubeconfig, &file)?;
        let config = configured(kubeconfig, choice.context.clone()).await.map_err(|error| source.error(error))?;
        let config = with_token(config).map_err(|error| source.error_of_file(error))?;
        Ok(Self { config: choice.impersonated(config), context, source, choice: choice.clone(), files })
    }

    /// Reads the configuration from a text of an untrusted author. It may neither start programs nor read files of this
    /// process. Makes no network calls.
    ///
    /// # Errors
    /// The text is not a kubeconfig, is incomplete, or uses a forbidden feature. `origin` and `name` are its source in the error.
    pub async fn from_text(text: &str, origin: &'static str, name: &str) -> Result<Self, StartError> {
        let refused = |error| StartError::from_kubeconfig(origin, Some(Path::new(name)), error);
        let kubeconfig = decode::yaml::<Kubeconfig>(text, YamlLimits::KUBECONFIG).map_err(|error| match error {
            YamlError::Invalid(error) => refused(KubeconfigError::Parse(error)),
            YamlError::TooLarge { .. } => {
                StartError::Incomplete { origin, file: name.to_owned(), cause: format!("it has {error}") }
            }
        })?;
        if let Some(field) = beyond_text(&kubeconfig) {
            let cause = format!("{field} is not allowed: put the credentials themselves into the kubeconfig");
            return Err(StartError::Incomplete { origin, file: name.to_owned(), cause });
        }
        let context = kubeconfig.current_context.clone();
        let config = configured(kubeconfig, None).await.map_err(refused)?;
        Ok(Self::fixed(config, context))
    }

    /// Reads the current text of a kubeconfig that was found, as [`Self::from_text`] does.
    pub(super) async fn of_found(kubeconfig: &FoundKubeconfig) -> Result<Self, StartError> {
        let (text, version) = kubeconfig.current();
        let read = Self::from_text(&text, FOUND, kubeconfig.name()).await?;
        Ok(Self { source: ConfigSource::Found { kubeconfig: kubeconfig.clone(), version }, ..read })
    }

    /// The configuration in its current files; `None` if they did not change.
    ///
    /// # Errors
    /// The files cannot be read or used, perhaps because they are being written.
    pub async fn reload(&self) -> Result<Option<Self>, StartError> {
        if let ConfigSource::Found { kubeconfig, version } = &self.source {
            let is_current = kubeconfig.current().1 == *version;
            return if is_current { Ok(None) } else { Self::of_found(kubeconfig).await.map(Some) };
        }
        match self.files.changed().await {
            Some(_) => Self::load(self.source.clone(), &self.choice).await.map(Some),
            None => Ok(None),
        }
    }
}

async fn configured(kubeconfig: Kubeconfig, context: Option<String>) -> Result<Config, KubeconfigError> {
    let own_proxy = kubeconfig.clusters.iter().find_map(|named| named.cluster.as_ref()?.proxy_url.clone());
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions { context, ..KubeConfigOptions::default() })
            .await?;
    if own_proxy.is_none_or(|proxy| proxy.is_empty()) {
        config.proxy_url = config.proxy_url.filter(|proxy| is_proxied(&config.cluster_url, proxy, &no_proxy()));
    }
    warn_of_plain_text(&config);
    Ok(with_our_retries(config))
}

/// The first field that starts a program or reads a file.
fn beyond_text(kubeconfig: &Kubeconfig) -> Option<&'static str> {
    let of_user = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref()).find_map(|user| {
        let fields = [
            ("exec", user.exec.is_some()),
            ("auth-provider", user.auth_provider.is_some()),
            ("tokenFile", user.token_file.is_some()),
            ("client-certificate", user.client_certificate.is_some()),
            ("client-key", user.client_key.is_some()),
        ];
        fields.into_iter().find_map(|(field, is_set)| is_set.then_some(field))
    });
    let mut clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let has_file = clusters.any(|cluster| cluster.certificate_authority.is_some());
    of_user.or_else(|| has_file.then_some("certificate-authority"))
}

/// The files that `KUBECONFIG` names, as one. As kubectl does, it skips those that do not exist, unless none exists.
fn read_environment() -> Result<Kubeconfig, KubeconfigError> {
    let paths: Vec<PathBuf> =
        own_files(&ConfigSource::Environment).into_iter().filter(|path| !path.as_os_str().is_empty()).collect();
    let present: Vec<&PathBuf> = paths.iter().filter(|path| path.exists()).collect();
    match (present.as_slice(), paths.first()) {
        ([], Some(missing)) => Kubeconfig::read_from(missing),
        ([], None) => Kubeconfig::read(),
        (present, _) => present
            .iter()
            .try_fold(Kubeconfig::default(), |all, path| Kubeconfig::read_from(path).and_then(|one| all.merge(one))),
    }
}

fn in_pod(origin: &'static str, choice: &ContextChoice) -> Result<ClusterConfig, StartError> {
    let config = Config::incluster().map_err(|error| StartError::NotInPod { origin, cause: error.to_string() })?;
    Ok(ClusterConfig {
        config: choice.impersonated(with_our_retries(config)),
        context: None,
        source: ConfigSource::Pod { origin },
        choice: choice.clone(),
        files: FileFingerprints::default(),
    })
}

/// The client would retry a create whose response was lost, and an eviction that a budget refused.
/// Only the caller can decide what may be retried, and when.
fn with_our_retries(mut config: Config) -> Config {
    config.default_retry = false;
    config
}

/// The files of the kubeconfig itself.
fn own_files(source: &ConfigSource) -> Vec<PathBuf> {
    match source {
        ConfigSource::File { path, .. } => vec![path.clone()],
        ConfigSource::Environment => {
            let all = env::var_os("KUBECONFIG").map(|all| env::split_paths(&all).collect());
            all.unwrap_or_default()
        }
        ConfigSource::Pod { .. } | ConfigSource::Found { .. } | ConfigSource::Fixed => Vec::new(),
    }
}

/// The files with certificates and keys to which a kubeconfig refers.
fn certificates(kubeconfig: &Kubeconfig) -> BTreeSet<PathBuf> {
    let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let authorities = clusters.filter_map(|cluster| cluster.certificate_authority.as_ref());
    let identities = users.flat_map(|user| [&user.client_certificate, &user.client_key]).flatten();
    authorities.chain(identities).map(PathBuf::from).collect()
}

/// The files with tokens to which a kubeconfig refers.
fn tokens(kubeconfig: &Kubeconfig) -> BTreeSet<PathBuf> {
    let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    users.filter_map(|user| user.token_file.as_ref()).map(PathBuf::from).collect()
}

/// A file that a configuration names and that cannot be used.
struct BadFile {
    path: PathBuf,
    source: io::Error,
}

/// Checks files before kube-rs reads them. Reports missing ones.
fn check<'a>(paths: impl IntoIterator<Item = &'a PathBuf>, most: u64) -> Result<(), BadFile> {
    for path in paths {
        match files::check(path, most) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(BadFile { path: path.clone(), source });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads the token, which kube-rs would read without a limit. The configuration is read again when the file changes.
fn with_token(mut config: Config) -> Result<Config, BadFile> {
    let user = &mut config.auth_info;
    if let Some(path) = user.token_file.take().map(PathBuf::from)
        && user.token.is_none()
    {
        let text = files::read_text(&path, files::TOKEN).map_err(|source| BadFile { path, source })?;
        user.token = Some(text.trim().to_owned().into());
    }
    Ok(config)
}

/// Warns of credentials that are sent unencrypted.
fn warn_of_plain_text(config: &Config) {
    let user = &config.auth_info;
    let has_secret =
        user.token.is_some() || user.token_file.is_some() || user.password.is_some() || user.exec.is_some();
    let is_plain = config.cluster_url.scheme_str() == Some("http");
    if has_secret && is_plain && !is_loopback(config.cluster_url.host().unwrap_or_default()) {
        let server = address(&config.cluster_url);
        tracing::warn!(
            server,
            "credentials are sent without TLS, so anyone on the network path can read them: use https"
        );
    }
}

fn no_proxy() -> String {
    env::var("NO_PROXY").or_else(|_| env::var("no_proxy")).unwrap_or_default()
}

/// The proxy in the environment is used for a server. As in Go, never for this host itself. (kube-rs compares the
/// host of the proxy with `NO_PROXY`, not that of the server.)
pub(super) fn is_proxied(server: &Uri, proxy: &Uri, no_proxy: &str) -> bool {
    let host = server.host().unwrap_or_default();
    let proxy = proxy.to_string();
    let matcher = Matcher::builder().http(proxy.clone()).https(proxy).no(no_proxy).build();
    // Go also supports entries with a port.
    let port = server.port_u16().unwrap_or(443);
    let is_named = no_proxy.split(',').any(|entry| entry.trim() == "*" || entry.trim() == format!("{host}:{port}"));
    !is_loopback(host) && !is_named && matcher.intercept(server).is_some()
}

pub(super) fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
