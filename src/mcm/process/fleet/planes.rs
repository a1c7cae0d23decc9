//! Decides which control planes are served, and with which kubeconfigs. Reads nothing.

use std::{collections::BTreeMap, net::IpAddr};

use http::Uri;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{KeyToPath, SecretProjection, Volume},
};
use kube::config::Kubeconfig;

use crate::{
    api::decode::{self, YamlLimits},
    process::options::{CellOptions, CellSecrets, TargetKubeconfigs},
};
use mcm_runtime::{
    cell::CellScope,
    kubeconfig::{ClusterConfig, ControlKubeconfig, FoundKubeconfig, TargetKubeconfig},
    objects::chain,
};

/// The only token file that a kubeconfig may name: that of the Secret or folder beside it. Gardener mounts it there.
const TOKEN_FILE: &str = "/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/token";
/// Most bytes of a token. A request header has room for little more.
const LONGEST_TOKEN: usize = 64 << 10;

/// A reason for which a control plane is not served, or is served with its last kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PlaneProblem {
    #[error("{name:?} is not the name of a namespace: rename the file or folder")]
    Name { name: String },
    #[error("read {what}: {cause}")]
    Unread { what: String, cause: String },
    #[error(
        "the Deployment machine-controller-manager has no projected volume with Secrets for the paths kubeconfig and token, as \
         gardenlet adds it: exclude the namespace with --fleet-selector, or let gardenlet reconcile the shoot"
    )]
    NoVolume,
    #[error("the namespace has the Clusters {names}, and its machines can have one target: move all but one of them")]
    Clusters { names: String },
    #[error("the kubeconfig of {origin} cannot be used: {cause}")]
    Kubeconfig { origin: String, cause: String },
}

/// A value in a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretValue {
    pub name: String,
    pub key: String,
}

/// The Secrets with the access to a target cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AccessSecrets {
    pub kubeconfig: SecretValue,
    pub token: Option<SecretValue>,
}

/// The Secrets that gardenlet mounts into the Deployment of a shoot.
pub(super) fn secrets_of_shoot(deployment: &Deployment) -> Result<AccessSecrets, PlaneProblem> {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let mut volumes = pod.and_then(|pod| pod.volumes.as_ref()).into_iter().flatten();
    volumes.find_map(access_of_volume).ok_or(PlaneProblem::NoVolume)
}

fn access_of_volume(volume: &Volume) -> Option<AccessSecrets> {
    let sources = volume.projected.as_ref()?.sources.as_ref()?;
    let at =
        |path: &str| sources.iter().filter_map(|source| source.secret.as_ref()).find_map(|one| value_at(one, path));
    Some(AccessSecrets { kubeconfig: at("kubeconfig")?, token: Some(at("token")?) })
}

fn value_at(secret: &SecretProjection, path: &str) -> Option<SecretValue> {
    let is_there = |item: &&KeyToPath| item.path == path;
    let item = secret.items.as_ref()?.iter().find(is_there)?;
    Some(SecretValue { name: secret.name.clone(), key: item.key.clone() })
}

/// The Secret of the only Cluster in a namespace.
pub(super) fn secret_of_clusters(clusters: &[&str]) -> Result<AccessSecrets, PlaneProblem> {
    let [name] = clusters else { return Err(PlaneProblem::Clusters { names: clusters.join(", ") }) };
    let name = format!("{name}-kubeconfig");
    Ok(AccessSecrets { kubeconfig: SecretValue { name, key: "value".to_owned() }, token: None })
}

/// Rules for the servers of kubeconfigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerRule {
    /// Any, in a folder that the operator fills.
    Any,
    /// For kubeconfigs of others: no address of this process or of another namespace. A name without a dot is a Service of the
    /// namespace if `names_services`, and otherwise refused.
    Confined { names_services: bool, allows_loopback: bool },
}

impl ServerRule {
    /// The URL of a server as this process may use it.
    fn checked(self, server: &str, namespace: &str) -> Result<String, String> {
        let Self::Confined { names_services, allows_loopback } = self else { return Ok(server.to_owned()) };
        let url: Uri = server.parse().map_err(|_| "its server is not a URL".to_owned())?;
        let host = url.host().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
        if url.scheme_str() != Some("https") || host.is_empty() {
            return Err("its server must be an https:// URL with a host".to_owned());
        }
        if let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            let is_refused = is_of_process(ip) && !(allows_loopback && ip.is_loopback());
            let cause = format!("its server {ip} is an address of this process: use that of the API server");
            return if is_refused { Err(cause) } else { Ok(server.to_owned()) };
        }
        if host == "localhost" || host.ends_with(".localhost") {
            return Err(format!("its server {host} is this process: use the name of the API server"));
        }
        let labels: Vec<&str> = host.split('.').collect();
        if let [service] = labels[..] {
            if !names_services {
                return Err(format!(
                    "its server {service} has no domain, so it would be a Service beside this process"
                ));
            }
            let port = url.port_u16().map_or_else(String::new, |port| format!(":{port}"));
            return Ok(format!("https://{service}.{namespace}.svc{port}"));
        }
        let is_service = labels.get(2) == Some(&"svc") || host.ends_with(".cluster.local");
        if is_service && labels[1] != namespace {
            return Err(format!("its server {host} is a Service of another namespace than {namespace}"));
        }
        Ok(server.to_owned())
    }
}

/// True for addresses of this host, and of its link, such as the metadata service of a cloud.
fn is_of_process(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            ip.octets()[0] == 0 || ip.is_loopback() || ip.is_link_local() || ip.is_multicast() || ip.is_broadcast()
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unspecified() || ip.is_unicast_link_local() || ip.is_multicast(),
    }
}

/// A kubeconfig that contains all that it needs.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PlaneTarget {
    /// The URL of the API server, which the caches belong to.
    pub server: String,
    pub text: String,
}

/// Puts the token into a kubeconfig, checks its server, and refuses all that would read files, start programs or use a proxy.
/// `origin` names its source in errors.
pub(super) async fn target_of(
    (namespace, origin): (&str, &str),
    text: &str,
    token: Option<&str>,
    rule: ServerRule,
) -> Result<PlaneTarget, PlaneProblem> {
    let unusable = |cause: String| PlaneProblem::Kubeconfig { origin: origin.to_owned(), cause };
    let with_token = contained(namespace, text, token, rule).map_err(unusable)?;
    let checked = ClusterConfig::from_text(&with_token, "found by --fleet", origin).await;
    let config = checked.map_err(|error| unusable(chain(&error)))?.config;
    Ok(PlaneTarget { server: config.cluster_url.to_string(), text: with_token })
}

fn contained(namespace: &str, text: &str, token: Option<&str>, rule: ServerRule) -> Result<String, String> {
    // The parser's own text would quote the file, which contains secrets.
    let malformed = |_| "it is not the YAML of a kubeconfig, or is too large".to_owned();
    let mut kubeconfig: Kubeconfig = decode::yaml(text, YamlLimits::KUBECONFIG).map_err(malformed)?;
    let token = token.map(str::trim);
    if token.is_some_and(|token| token.is_empty() || token.len() > LONGEST_TOKEN || !token.is_ascii()) {
        return Err(format!("its token is empty, not ASCII, or has more than {} KiB", LONGEST_TOKEN >> 10));
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        if let (Some(TOKEN_FILE), Some(token)) = (user.token_file.as_deref(), token) {
            (user.token_file, user.token) = (None, Some(token.to_owned().into()));
        }
    }
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        if cluster.proxy_url.as_ref().is_some_and(|proxy| !proxy.is_empty()) {
            return Err("proxy-url is not allowed: this process connects to the server itself".to_owned());
        }
        let server = cluster.server.as_deref().unwrap_or_default();
        cluster.server = Some(rule.checked(server, namespace)?);
    }
    serde_json::to_string(&kubeconfig).map_err(|_| "it cannot be written again".to_owned())
}

/// The control planes of one look, by namespace.
pub(super) type FoundPlanes = BTreeMap<String, Result<PlaneTarget, PlaneProblem>>;

/// Cells to run, and control planes with a problem.
#[derive(Debug, Default)]
pub(super) struct FoundCells {
    pub cells: BTreeMap<String, CellOptions>,
    /// Their reasons. A control plane that had a kubeconfig keeps its cell.
    pub problems: BTreeMap<String, PlaneProblem>,
}

/// The control planes so far.
pub(super) struct KnownPlanes {
    control: ControlKubeconfig,
    has_switch: bool,
    /// Servers and kubeconfigs, by namespace.
    targets: BTreeMap<String, (String, FoundKubeconfig)>,
}

impl KnownPlanes {
    pub fn new(control: ControlKubeconfig, has_switch: bool) -> Self {
        Self { control, has_switch, targets: BTreeMap::new() }
    }

    /// The cells of the control planes that exist now. New credentials for the same server go into the running cell; another
    /// server makes another cell.
    pub fn follow(&mut self, planes: FoundPlanes) -> FoundCells {
        self.targets.retain(|namespace, _| planes.contains_key(namespace));
        let mut problems = BTreeMap::new();
        for (namespace, found) in planes {
            match (found, self.targets.get(&namespace)) {
                (Err(problem), _) => drop(problems.insert(namespace, problem)),
                (Ok(found), Some((server, kubeconfig))) if *server == found.server => {
                    if kubeconfig.replace(&found.text) {
                        tracing::info!(cell = namespace, "credentials of the target replaced");
                    }
                }
                (Ok(found), _) => {
                    let kubeconfig = FoundKubeconfig::new(&namespace, &found.text);
                    self.targets.insert(namespace, (found.server, kubeconfig));
                }
            }
        }
        let cells = self
            .targets
            .iter()
            .map(|(namespace, (_, kubeconfig))| (namespace.clone(), self.cell(namespace, kubeconfig)));
        FoundCells { cells: cells.collect(), problems }
    }

    fn cell(&self, namespace: &str, kubeconfig: &FoundKubeconfig) -> CellOptions {
        CellOptions {
            name: namespace.to_owned(),
            scope: CellScope::Namespace(namespace.to_owned()),
            leases: namespace.to_owned(),
            control: self.control.clone(),
            targets: TargetKubeconfigs::Same(TargetKubeconfig::Found(kubeconfig.clone())),
            has_switch: self.has_switch,
            secrets: Some(CellSecrets::default()),
        }
    }
}

#[cfg(test)]
mod tests;
