//! Rules that involve several flags; rules of a single flag are in [`super::value`].

use std::fmt;

use super::{
    CapiManagerOptions, ControlKubeconfig, ControllerManagerOptions, DriverOptions, GenericOptions,
    LeaderElectionOptions, MachineControllerOptions, MachineOptions, RunOptions, SecretOptions, TargetKubeconfig,
};
use crate::{api::GoDuration, process::PlaneSource};
#[cfg(feature = "remote")]
use mcm_driver_host::remote::DriverAddress;

/// client-go's jitter: pauses are up to this multiple of the retry period.
const RETRY_JITTER: f64 = 1.2;

/// Conflicting flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagConflict {
    /// No control cluster is given.
    #[error("--control-kubeconfig must not be empty when --target-kubeconfig is none")]
    NoControlCluster,
    /// Lock profiles are part of profiling.
    #[error("--contention-profiling needs --profiling")]
    ContentionWithoutProfiling,
    /// Leases are the only kind of lock.
    #[error("--leader-elect-resource-lock={0}: must be leases")]
    ResourceLock(String),
    /// Others would take over before the leader stops.
    #[error("--leader-elect-lease-duration={lease}: must be more than --leader-elect-renew-deadline={renew}")]
    LeaseTooShort {
        /// The lease duration.
        lease: GoDuration,
        /// The renew deadline.
        renew: GoDuration,
    },
    /// A leader would have no second attempt.
    #[error("--leader-elect-renew-deadline={renew}: must be more than 1.2 times --leader-elect-retry-period={retry}")]
    RenewTooShort {
        /// The renew deadline.
        renew: GoDuration,
        /// The retry period.
        retry: GoDuration,
    },
    /// There would be no pause between attempts.
    #[error("--leader-elect-retry-period=0s: must be more than 0s")]
    NoRetryPeriod,
    /// A server would count as unreachable before the second check.
    #[error(
        "--machine-safety-apiserver-statuscheck-period={period}: must not be less than --machine-safety-apiserver-statuscheck-timeout={timeout}"
    )]
    CheckPeriodTooShort {
        /// The period of the check.
        period: GoDuration,
        /// The timeout of the check.
        timeout: GoDuration,
    },
    /// One is useless without the other.
    #[error("--tls-cert-file and --tls-private-key-file: a certificate needs its key, and a key its certificate")]
    HalfIdentified,
    /// There is no TLS.
    #[error("--tls-cert-file: not used with --insecure-diagnostics, which serves plain HTTP; leave one of them out")]
    UnusedCertificate,
    /// Namespaces of the same name on several servers are different tenants.
    #[error(
        "--process-credentials-namespaces: not used with --cells; set processCredentialsNamespaces of the cells in the file"
    )]
    ProcessCredentialsOfCells,
    /// Each cell has another folder.
    #[error("--credential-files-folder: not used with --cells; set credentialFilesFolder of the cells in the file")]
    CredentialFilesOfCells,
    /// Each control plane has its credentials in its Secrets.
    #[error(
        "{0}: not used with --fleet, whose control planes have their credentials in Secrets; list cells in a file of --cells"
    )]
    CredentialsOfFleet(&'static str),
    /// The control planes of a folder have no Namespace objects at hand.
    #[error("--fleet-selector: not used with --fleet=folder; take files out of the folder")]
    SelectorOfFolder,
    /// Two drivers for one provider.
    #[error("--driver={0}=…: given twice; pass one driver per provider")]
    DriverTwice(String),
    /// Anybody could read the credentials.
    #[error("--driver={0}=…: credentials would be sent unencrypted: use https://, or --driver-insecure")]
    DriverExposed(String),
    /// Anybody could be the driver.
    #[error("--driver={0}=…: https needs the CA of the driver: pass ca=FILE or --driver-ca-file")]
    DriverWithoutCa(String),
    /// One is useless without the other.
    #[error("--driver={0}=…: a certificate needs its key, and a key its certificate")]
    DriverHalfIdentified(String),
}

/// All conflicts of one command line, at least one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FlagConflicts(Vec<FlagConflict>);

impl fmt::Display for FlagConflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, conflict) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{conflict}")?;
        }
        Ok(())
    }
}

impl ControllerManagerOptions {
    /// Checks for conflicting flags.
    ///
    /// # Errors
    /// All conflicts.
    pub fn check(&self) -> Result<(), FlagConflicts> {
        verdict(generic_conflicts(&self.generic))
    }
}

impl MachineControllerOptions {
    /// Checks for conflicting flags.
    ///
    /// # Errors
    /// All conflicts.
    pub fn check(&self) -> Result<(), FlagConflicts> {
        verdict(
            generic_conflicts(&self.generic)
                .chain(machine_conflicts(&self.machine))
                .chain(driver_conflicts(&self.driver)),
        )
    }
}

impl RunOptions {
    /// Checks for conflicting flags.
    ///
    /// # Errors
    /// All conflicts.
    pub fn check(&self) -> Result<(), FlagConflicts> {
        verdict(
            generic_conflicts(&self.generic)
                .chain(machine_conflicts(&self.machine))
                .chain(driver_conflicts(&self.driver))
                .chain(self.cells.iter().flat_map(|_| cell_conflicts(&self.driver.secrets)))
                .chain(self.fleet.iter().flat_map(|source| self.fleet_conflicts(source))),
        )
    }
}

impl CapiManagerOptions {
    /// Checks for conflicting flags.
    ///
    /// # Errors
    /// All conflicts.
    pub fn check(&self) -> Result<(), FlagConflicts> {
        verdict(
            election_conflicts(&self.leader_election)
                .chain(driver_conflicts(&self.driver))
                .chain(certificate_conflicts(self)),
        )
    }
}

fn verdict(conflicts: impl Iterator<Item = FlagConflict>) -> Result<(), FlagConflicts> {
    let conflicts: Vec<_> = conflicts.collect();
    if conflicts.is_empty() { Ok(()) } else { Err(FlagConflicts(conflicts)) }
}

fn generic_conflicts(options: &GenericOptions) -> impl Iterator<Item = FlagConflict> {
    let no_control = options.target_kubeconfig == TargetKubeconfig::None
        && options.control_kubeconfig == ControlKubeconfig::SameAsTarget;
    let contention = options.compatibility.contention_profiling && !options.profiling;
    [
        no_control.then_some(FlagConflict::NoControlCluster),
        contention.then_some(FlagConflict::ContentionWithoutProfiling),
    ]
    .into_iter()
    .flatten()
    .chain(election_conflicts(&options.leader_election))
}

/// Timing flags are ignored while leader election is off.
fn election_conflicts(options: &LeaderElectionOptions) -> impl Iterator<Item = FlagConflict> {
    let (lease, renew, retry) = (options.lease_duration, options.renew_deadline, options.retry_period);
    [
        (options.resource_lock != "leases").then(|| FlagConflict::ResourceLock(options.resource_lock.clone())),
        (lease <= renew).then(|| FlagConflict::LeaseTooShort { lease: lease.into(), renew: renew.into() }),
        (renew <= retry.mul_f64(RETRY_JITTER))
            .then(|| FlagConflict::RenewTooShort { renew: renew.into(), retry: retry.into() }),
        retry.is_zero().then_some(FlagConflict::NoRetryPeriod),
    ]
    .into_iter()
    .flatten()
    .filter(|_| options.enabled)
}

fn certificate_conflicts(options: &CapiManagerOptions) -> impl Iterator<Item = FlagConflict> {
    let (cert, key) = (options.tls_cert_file.is_some(), options.tls_private_key_file.is_some());
    [
        (cert != key).then_some(FlagConflict::HalfIdentified),
        (cert && options.insecure_diagnostics).then_some(FlagConflict::UnusedCertificate),
    ]
    .into_iter()
    .flatten()
}

fn machine_conflicts(options: &MachineOptions) -> impl Iterator<Item = FlagConflict> {
    let (period, timeout) = (options.api_server_check_period, options.api_server_check_timeout);
    (period < timeout)
        .then(|| FlagConflict::CheckPeriodTooShort { period: period.into(), timeout: timeout.into() })
        .into_iter()
}

impl RunOptions {
    fn fleet_conflicts(&self, source: &PlaneSource) -> impl Iterator<Item = FlagConflict> + use<> {
        let of_cells = cell_conflicts(&self.driver.secrets).map(|conflict| {
            FlagConflict::CredentialsOfFleet(match conflict {
                FlagConflict::ProcessCredentialsOfCells => "--process-credentials-namespaces",
                _ => "--credential-files-folder",
            })
        });
        let is_unused = matches!(source, PlaneSource::Folder(_)) && self.fleet_selector.is_some();
        of_cells.chain(is_unused.then_some(FlagConflict::SelectorOfFolder))
    }
}

/// The credentials that Secrets may use differ from cell to cell.
fn cell_conflicts(options: &SecretOptions) -> impl Iterator<Item = FlagConflict> + use<> {
    let SecretOptions { process_credentials_namespaces: namespaces, credential_files_folder: folders, .. } = options;
    [
        (!namespaces.is_empty()).then_some(FlagConflict::ProcessCredentialsOfCells),
        (*folders != SecretOptions::default().credential_files_folder).then_some(FlagConflict::CredentialFilesOfCells),
    ]
    .into_iter()
    .flatten()
}

#[cfg(not(feature = "remote"))]
fn driver_conflicts(_: &DriverOptions) -> impl Iterator<Item = FlagConflict> {
    std::iter::empty()
}

#[cfg(feature = "remote")]
fn driver_conflicts(options: &DriverOptions) -> impl Iterator<Item = FlagConflict> {
    let (endpoints, is_insecure) = (options.remote.endpoints(), options.remote.driver_insecure);
    let names: Vec<String> = endpoints.iter().map(|endpoint| endpoint.name.to_ascii_lowercase()).collect();
    endpoints.into_iter().enumerate().flat_map(move |(index, endpoint)| {
        let is_twice = names[..index].contains(&names[index]);
        let is_https = matches!(endpoint.address, DriverAddress::Tcp { is_tls: true, .. });
        let name = || endpoint.name.clone();
        [
            is_twice.then(|| FlagConflict::DriverTwice(name())),
            (endpoint.address.is_exposed() && !is_insecure).then(|| FlagConflict::DriverExposed(name())),
            (is_https && endpoint.tls.ca.is_none()).then(|| FlagConflict::DriverWithoutCa(name())),
            (endpoint.tls.cert.is_some() != endpoint.tls.key.is_some())
                .then(|| FlagConflict::DriverHalfIdentified(name())),
        ]
        .into_iter()
        .flatten()
    })
}

#[cfg(all(test, feature = "remote"))]
mod tests {
    use super::*;
    use crate::cli::flags::RemoteOptions;
    use rstest::rstest;

    #[rstest]
    #[case::socket(&["aws=unix:///s"], false, None)]
    #[case::two(&["aws=unix:///s", "gcp=unix:///t"], false, None)]
    #[case::twice(&["aws=unix:///s", "AWS=unix:///t"], false, Some("AWS=…: given twice"))]
    #[case::loopback(&["aws=http://127.0.0.1:1"], false, None)]
    #[case::exposed(&["aws=http://driver:1"], false, Some("unencrypted"))]
    #[case::exposed_on_purpose(&["aws=http://driver:1"], true, None)]
    #[case::https(&["aws=https://driver:1,ca=/ca"], false, None)]
    #[case::https_without_ca(&["aws=https://driver:1"], true, Some("needs the CA"))]
    #[case::half(&["aws=https://driver:1,ca=/ca,cert=/c"], false, Some("needs its key"))]
    fn a_driver_is_reached_safely_or_not_at_all(
        #[case] drivers: &[&str],
        #[case] is_insecure: bool,
        #[case] expected: Option<&str>,
    ) {
        let driver = drivers.iter().map(|text| text.parse().unwrap()).collect();
        let remote = RemoteOptions { driver, driver_insecure: is_insecure, ..RemoteOptions::default() };
        let options =
            DriverOptions { provider: None, simulated_cloud: None, secrets: SecretOptions::default(), remote };
        let conflicts: Vec<String> = driver_conflicts(&options).map(|conflict| conflict.to_string()).collect();
        match expected {
            None => assert_eq!(conflicts, [""; 0]),
            Some(text) => assert!(conflicts.len() == 1 && conflicts[0].contains(text), "{conflicts:?}"),
        }
    }
}
