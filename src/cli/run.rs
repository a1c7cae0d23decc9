//! Starts the controllers of the three running commands.

use anyhow::Result;
use jiff::SignedDuration;

use super::flags::{
    ControllerManagerOptions, DriverOptions, GenericOptions, MachineControllerOptions, MachineOptions, RolloutOptions,
    RunOptions,
};
use crate::{
    api::GoDuration,
    controllers::{MACHINES, SETS, machine, machine_deployment, node, orphans, overshoot},
    drain::Patience,
    process::{self, CellOptions, Cells, DriverChoice, ProcessOptions, TargetKubeconfigs},
    runtime::{
        cell::{Role, Scope},
        kubeconfig::{Fallback, UserAgent},
        leader::Timing,
        limiter::Rate,
    },
    safety::{api_server::Probing, overshoot::Margins},
};

/// Age at which the node controller adds a finalizer that the machine controller should have added.
const FINALIZER_GRACE: SignedDuration = SignedDuration::from_secs(30);

/// All controllers in one process.
///
/// # Errors
/// The clusters cannot be reached, the endpoints cannot be served, or a Lease is lost.
pub async fn run(options: RunOptions) -> Result<()> {
    let mut process = process_options(&options.generic, UserAgent::Mcm, vec![SETS, MACHINES], options.listen());
    process.fallback = Fallback::LocalKubeconfig;
    process.slots = options.machine_workers();
    with_sets(&mut process, &options.rollout);
    if let Some(file) = options.cells {
        process.cells = Cells::File(file);
    }
    process::serve(with_machines(process, &options.machine, &options.driver)).await
}

/// The controllers of sets and deployments.
///
/// # Errors
/// As for [`run`].
pub async fn controller_manager(options: ControllerManagerOptions) -> Result<()> {
    let mut process = process_options(&options.generic, UserAgent::ControllerManager, vec![SETS], options.listen());
    process.slots = options.concurrent_syncs;
    with_sets(&mut process, &options.rollout);
    process::serve(process).await
}

/// The controllers of machines and classes.
///
/// # Errors
/// As for [`run`].
pub async fn machine_controller(options: MachineControllerOptions) -> Result<()> {
    let agent = UserAgent::MachineController;
    let mut process = process_options(&options.generic, agent, vec![MACHINES], options.listen());
    process.slots = options.concurrent_syncs;
    process::serve(with_machines(process, &options.machine, &options.driver)).await
}

fn process_options(
    generic: &GenericOptions,
    agent: UserAgent,
    roles: Vec<Role>,
    listen: std::net::SocketAddr,
) -> ProcessOptions {
    let election = &generic.leader_election;
    let machine = machine::Policy::default();
    ProcessOptions {
        agent,
        fallback: Fallback::None,
        roles,
        listen,
        profiling: generic.profiling,
        rate: Rate { qps: f64::from(generic.kube_api_qps), burst: generic.kube_api_burst },
        leases: election.enabled.then_some(Timing {
            lease_duration: election.lease_duration,
            renew_deadline: election.renew_deadline,
            retry_period: election.retry_period,
        }),
        deployment: machine_deployment::Policy { annotate_nodes: false, has_target: true },
        overshoot: overshoot::Policy::default(),
        orphans: orphans::Policy::default(),
        probing: Probing::default(),
        node: node::Policy {
            creation_timeout: machine.creation_timeout.as_signed(),
            finalizer_grace: FINALIZER_GRACE,
            max_unhealthy_replacements: machine.max_unhealthy_replacements,
        },
        machine,
        slots: 1,
        drivers: None,
        cells: Cells::One(CellOptions {
            name: String::new(),
            scope: Scope::Namespace(generic.namespace.clone()),
            leases: generic.namespace.clone(),
            control: generic.control_kubeconfig.clone(),
            targets: TargetKubeconfigs::Same(generic.target_kubeconfig.clone()),
        }),
    }
}

fn with_sets(process: &mut ProcessOptions, rollout: &RolloutOptions) {
    process.deployment.annotate_nodes = rollout.autoscaler_scaledown_annotation_during_rollout;
    process.overshoot = overshoot_policy(rollout);
}

fn overshoot_policy(rollout: &RolloutOptions) -> overshoot::Policy {
    overshoot::Policy {
        margins: Margins { up: rollout.safety_up, down: rollout.safety_down },
        period: rollout.machine_safety_overshooting_period,
    }
}

fn with_machines(process: ProcessOptions, machine: &MachineOptions, driver: &DriverOptions) -> ProcessOptions {
    let creation_timeout = GoDuration::from(machine.machine_creation_timeout);
    ProcessOptions {
        machine: machine_policy(machine),
        orphans: orphans_policy(machine),
        probing: probing(machine),
        node: node::Policy { creation_timeout: creation_timeout.as_signed(), ..process.node },
        drivers: Some(DriverChoice {
            provider: driver.provider.clone(),
            simulated_cloud: driver.simulated_cloud.as_ref().map(ToString::to_string),
        }),
        ..process
    }
}

fn orphans_policy(options: &MachineOptions) -> orphans::Policy {
    orphans::Policy {
        period: options.orphan_vms_period,
        is_dry_run: options.orphan_vms_dry_run,
        ..orphans::Policy::default()
    }
}

fn probing(options: &MachineOptions) -> Probing {
    let signed = |duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    Probing { timeout: signed(options.api_server_check_timeout), period: signed(options.api_server_check_period) }
}

fn machine_policy(options: &MachineOptions) -> machine::Policy {
    machine::Policy {
        creation_timeout: options.machine_creation_timeout.into(),
        health_timeout: options.machine_health_timeout.into(),
        drain_timeout: options.machine_drain_timeout.into(),
        in_place_update_timeout: options.machine_in_place_update_timeout.into(),
        preserve_timeout: options.machine_preserve_timeout.into(),
        max_evict_retries: i32::try_from(options.machine_max_evict_retries).unwrap_or(i32::MAX),
        volumes: Patience {
            detach: GoDuration::from(options.machine_pv_detach_timeout).as_signed(),
            reattach: GoDuration::from(options.machine_pv_reattach_timeout).as_signed(),
        },
        node_conditions: options.node_conditions.as_slice().to_vec(),
        resource_exhausted_retry: options.resource_exhausted_retry.into(),
        bootstrap_token_groups: options.bootstrap_token_auth_extra_groups.clone(),
        ..machine::Policy::default()
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, time::Duration};

    use clap::{Args, FromArgMatches};

    use super::*;
    use crate::cli::args::{self, Command};

    #[test]
    fn flags_reach_the_probes_and_the_orphan_collector() {
        let flags = [
            "mcm",
            "--machine-safety-apiserver-statuscheck-timeout=5s",
            "--machine-safety-apiserver-statuscheck-period=7s",
            "--machine-safety-orphan-vms-period=3m",
            "--machine-safety-orphan-vms-dry-run",
        ];
        let matches = MachineOptions::augment_args(clap::Command::new("mcm")).get_matches_from(flags);
        let options = MachineOptions::from_arg_matches(&matches).unwrap();
        let seconds = SignedDuration::from_secs;
        assert_eq!(probing(&options), Probing { timeout: seconds(5), period: seconds(7) });
        let orphans = orphans_policy(&options);
        assert_eq!((orphans.period, orphans.is_dry_run), (Duration::from_mins(3), true));
    }

    #[test]
    fn flags_reach_the_overshoot_freeze() {
        let flags = RolloutOptions {
            safety_up: 5,
            safety_down: 3,
            machine_safety_overshooting_period: Duration::from_secs(7),
            autoscaler_scaledown_annotation_during_rollout: true,
        };
        let expected = overshoot::Policy { margins: Margins { up: 5, down: 3 }, period: Duration::from_secs(7) };
        assert_eq!(overshoot_policy(&flags), expected);
    }

    #[test]
    fn the_flags_of_the_machine_controller_reach_its_rules() {
        let words = [
            "mcm",
            "machine-controller",
            "--machine-creation-timeout=1m",
            "--machine-health-timeout=2m",
            "--machine-drain-timeout=3m",
            "--machine-inplace-update-timeout=6m",
            "--machine-preserve-timeout=7m",
            "--machine-max-evict-retries=4",
            "--node-conditions=A,B",
            "--resource-exhausted-retry=5m",
            "--bootstrap-token-auth-extra-groups=g",
            "--namespace=n",
        ];
        let Command::MachineController(options) = args::parse(words.map(OsString::from)).unwrap() else {
            panic!("another command")
        };
        let process = process_options(&options.generic, UserAgent::MachineController, vec![MACHINES], options.listen());
        let process = with_machines(process, &options.machine, &options.driver);
        let expected = machine::Policy {
            creation_timeout: GoDuration::from_secs(60),
            health_timeout: GoDuration::from_secs(120),
            drain_timeout: GoDuration::from_secs(180),
            in_place_update_timeout: GoDuration::from_secs(360),
            preserve_timeout: GoDuration::from_secs(420),
            max_evict_retries: 4,
            node_conditions: vec!["A".to_owned(), "B".to_owned()],
            resource_exhausted_retry: GoDuration::from_secs(300),
            bootstrap_token_groups: "g".to_owned(),
            ..machine::Policy::default()
        };
        assert_eq!(process.machine, expected);
        assert_eq!(process.node.creation_timeout.as_secs(), 60, "from this age a Node without a machine is marked");
        let Cells::One(cell) = process.cells else { panic!("several cells") };
        assert_eq!(cell.leases, "n");
        assert!(matches!(cell.scope, Scope::Namespace(namespace) if namespace == "n"));
    }
}
