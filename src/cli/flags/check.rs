//! Rules that involve several flags; rules of a single flag are in [`super::value`].

use std::fmt;

use super::{
    ControlKubeconfig, ControllerManagerOptions, GenericOptions, LeaderElectionOptions, MachineControllerOptions,
    MachineOptions, RunOptions, TargetKubeconfig,
};
use crate::api::GoDuration;

/// client-go's jitter: pauses are up to this multiple of the retry period.
const RETRY_JITTER: f64 = 1.2;

/// Conflicting flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
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
}

/// All conflicts of one command line, at least one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Conflicts(Vec<Conflict>);

impl fmt::Display for Conflicts {
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
    pub fn check(&self) -> Result<(), Conflicts> {
        verdict(generic_conflicts(&self.generic))
    }
}

impl MachineControllerOptions {
    /// Checks for conflicting flags.
    ///
    /// # Errors
    /// All conflicts.
    pub fn check(&self) -> Result<(), Conflicts> {
        verdict(generic_conflicts(&self.generic).chain(machine_conflicts(&self.machine)))
    }
}

impl RunOptions {
    /// Checks for conflicting flags.
    ///
    /// # Errors
    /// All conflicts.
    pub fn check(&self) -> Result<(), Conflicts> {
        verdict(generic_conflicts(&self.generic).chain(machine_conflicts(&self.machine)))
    }
}

fn verdict(conflicts: impl Iterator<Item = Conflict>) -> Result<(), Conflicts> {
    let conflicts: Vec<_> = conflicts.collect();
    if conflicts.is_empty() { Ok(()) } else { Err(Conflicts(conflicts)) }
}

fn generic_conflicts(options: &GenericOptions) -> impl Iterator<Item = Conflict> {
    let no_control = options.target_kubeconfig == TargetKubeconfig::None
        && options.control_kubeconfig == ControlKubeconfig::SameAsTarget;
    let contention = options.compatibility.contention_profiling && !options.profiling;
    [no_control.then_some(Conflict::NoControlCluster), contention.then_some(Conflict::ContentionWithoutProfiling)]
        .into_iter()
        .flatten()
        .chain(election_conflicts(&options.leader_election))
}

/// Timing flags are ignored while leader election is off.
fn election_conflicts(options: &LeaderElectionOptions) -> impl Iterator<Item = Conflict> {
    let (lease, renew, retry) = (options.lease_duration, options.renew_deadline, options.retry_period);
    [
        (options.resource_lock != "leases").then(|| Conflict::ResourceLock(options.resource_lock.clone())),
        (lease <= renew).then(|| Conflict::LeaseTooShort { lease: lease.into(), renew: renew.into() }),
        (renew <= retry.mul_f64(RETRY_JITTER))
            .then(|| Conflict::RenewTooShort { renew: renew.into(), retry: retry.into() }),
        retry.is_zero().then_some(Conflict::NoRetryPeriod),
    ]
    .into_iter()
    .flatten()
    .filter(|_| options.enabled)
}

fn machine_conflicts(options: &MachineOptions) -> impl Iterator<Item = Conflict> {
    let (period, timeout) = (options.api_server_check_period, options.api_server_check_timeout);
    (period < timeout)
        .then(|| Conflict::CheckPeriodTooShort { period: period.into(), timeout: timeout.into() })
        .into_iter()
}
