use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use super::plane_source::{NamespaceSelector, PlaneSource};
use mcm_controllers::{machine, machine_deployment, node, orphans, overshoot};
use mcm_driver::SecretPolicy;
use mcm_rules::safety::api_server::ProbeTiming;
use mcm_runtime::{
    cell::CellScope,
    http::{CertificateFiles, DiagnosticReaders},
    kubeconfig::{ControlKubeconfig, KubeconfigFallback, TargetKubeconfig, UserAgent},
    leader::LeaseTiming,
    limiter::RequestRate,
    metrics::MachineSeries,
    role::ControllerRole,
};

/// Settings of the process, from the flags.
#[derive(Clone)]
pub(crate) struct ProcessOptions {
    /// User agent of the clients.
    pub agent: UserAgent,
    /// Where to find a kubeconfig if none is given.
    pub fallback: KubeconfigFallback,
    /// The roles of this process.
    pub roles: Vec<ControllerRole>,
    /// Listen address of the HTTP endpoints.
    pub listen: SocketAddr,
    /// Where metrics are served.
    pub diagnostics: MetricsAddress,
    /// The callers that may read `/explain` and `/configz` without authentication.
    pub readers: DiagnosticReaders,
    /// The series of single objects in metrics.
    pub series: MachineSeries,
    /// The process serves `/debug/pprof`.
    pub profiling: bool,
    /// Rate limit of each client of the controllers.
    pub rate: RequestRate,
    /// Nodes of one target cluster.
    pub max_nodes: usize,
    /// Timing of leader election; `None` runs without it.
    pub leases: Option<LeaseTiming>,
    /// For Machines.
    pub machine: machine::MachinePolicy,
    /// For MachineDeployments. The cell sets whether there is a target.
    pub deployment: machine_deployment::DeploymentPolicy,
    /// For the overshoot freeze.
    pub overshoot: overshoot::OvershootPolicy,
    /// For Nodes.
    pub node: node::NodePolicy,
    /// For the probes of API servers.
    pub probing: ProbeTiming,
    /// For the orphan collector.
    pub orphans: orphans::OrphanPolicy,
    /// Slots per account, for creations and for deletions each.
    pub slots: usize,
    /// The drivers; `None` if this process calls none.
    pub drivers: Option<DriverChoice>,
    /// The provider for Cluster API, in place of the other controllers.
    pub provider: Option<ProviderOptions>,
    /// The cells.
    pub cells: CellSource,
}

/// The address at which metrics are served, and its access control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MetricsAddress {
    /// With the other endpoints.
    Beside,
    /// At a separate address, without authentication.
    At(SocketAddr),
    /// At a separate address, with TLS, to users whom the control cluster authorizes. The certificate is self-signed if
    /// there are no files.
    Secured(SocketAddr, Option<CertificateFiles>),
}

impl ProcessOptions {
    /// The series that are exported. A process for one namespace has those of each machine, as the Go programs.
    pub fn exported_series(&self) -> MachineSeries {
        match (self.series, &self.cells, &self.provider) {
            (MachineSeries::Auto, CellSource::One(CellOptions { scope: CellScope::Namespace(_), .. }), None) => {
                MachineSeries::Always
            }
            (choice, ..) => choice,
        }
    }
}

/// Settings of the provider for Cluster API, or of the stand-in for its core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderOptions {
    /// Only objects with this value of the label `cluster.x-k8s.io/watch-filter`.
    pub watch_filter: Option<String>,
    /// Concurrent reconciles of each kind.
    pub concurrency: usize,
    /// The stand-in for core runs in place of the provider.
    pub stand_in: bool,
    /// A native manager in the same namespace is no obstacle: this process replaces it.
    pub replaces_native_manager: bool,
}

/// The simulated cloud that a process serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SimulatedPlace {
    /// One in this process.
    Embedded,
    /// A cloud with this URL.
    Url(String),
}

/// Configuration of the drivers.
#[derive(Clone, Debug)]
pub(crate) struct DriverChoice {
    /// Only classes of this provider.
    pub provider: Option<String>,
    /// The simulated cloud; its classes are not served if `None`.
    pub simulated_cloud: Option<SimulatedPlace>,
    /// Restricts the Secrets of classes.
    pub secrets: SecretPolicy,
    /// Drivers in other processes.
    #[cfg(feature = "remote")]
    pub remote: Vec<mcm_driver_host::remote::DriverEndpoint>,
}

/// The cells of a process.
#[derive(Clone)]
pub(crate) enum CellSource {
    /// One cell; the process ends with it.
    One(CellOptions),
    /// The cells of a file, which is reloaded when it changes.
    File(PathBuf),
    /// One cell for each control plane that is found.
    Fleet(FleetOptions),
}

impl CellSource {
    /// There may be several cells, which come and go.
    pub(super) fn is_fleet(&self) -> bool {
        !matches!(self, Self::One(_))
    }
}

/// The control planes that a process finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FleetOptions {
    /// Where they are found.
    pub source: PlaneSource,
    /// Only in these Namespaces.
    pub selector: NamespaceSelector,
    /// The control cluster of all of them.
    pub control: ControlKubeconfig,
    /// The replicas with this name share the control planes.
    pub name: String,
    /// The namespace of the Leases of the replicas; that of this pod if `None`.
    pub namespace: Option<String>,
}

/// One control namespace and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CellOptions {
    /// Its name in logs.
    pub name: String,
    /// The control namespace, or all of them.
    pub scope: CellScope,
    /// The namespace of its Leases.
    pub leases: String,
    /// The control cluster.
    pub control: ControlKubeconfig,
    /// The target clusters.
    pub targets: TargetKubeconfigs,
    /// The Deployment `machine-controller-manager` of each namespace is its switch.
    pub has_switch: bool,
    /// The credentials and files of the process that its Secrets may use; `None` if the flags say it, for the only cell.
    pub secrets: Option<CellSecrets>,
}

/// The target clusters of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetKubeconfigs {
    /// At most one target, for all Machines.
    Same(TargetKubeconfig),
    /// One target for each value of a label of the Namespaces.
    ByLabel {
        /// The label of a Namespace, whose value names the target of its Machines.
        label: String,
        /// Paths of kubeconfigs, by the value of the label.
        paths: BTreeMap<String, PathBuf>,
    },
}

/// The credentials and files of the process that the Secrets of one cell of several may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CellSecrets {
    /// Namespaces whose classes may use the cloud credentials of the process; `*` means all.
    pub process_credentials: Vec<String>,
    /// The folder with the token files.
    pub folder: Option<PathBuf>,
}

impl CellOptions {
    /// Restricts the Secrets of its classes. Of a process with several cells it has the hosts only: namespaces and folders are
    /// those of the cell.
    pub(super) fn secret_policy(&self, process: &SecretPolicy) -> SecretPolicy {
        let Some(CellSecrets { process_credentials, folder }) = self.secrets.clone() else { return process.clone() };
        SecretPolicy {
            process_credentials,
            folders: folder.into_iter().collect(),
            flat_folders: Vec::new(),
            confines_files: self.scope == CellScope::All,
            ..process.clone()
        }
    }
}
