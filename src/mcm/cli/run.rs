//! Starts the controllers of the three running commands.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use clap::{Args, FromArgMatches};
use jiff::SignedDuration;

use super::flags::{
    CapiExtensionOptions, CapiManagerOptions, ControllerManagerOptions, DriverOptions, GenericOptions,
    LeaderElectionOptions, MachineControllerOptions, MachineOptions, PresenceOptions, RolloutOptions, RunOptions,
};
use crate::{
    api::GoDuration,
    process::{
        self, CellOptions, CellSource, DriverChoice, FleetOptions, MetricsAddress, ProcessOptions, ProviderOptions,
        TargetKubeconfigs,
    },
};
use mcm_capi::{provider, stand_in};
use mcm_controllers::{MACHINES, SETS, Settings, machine, machine_deployment, node, orphans, overshoot};
use mcm_driver_host::DriverCatalogue;
use mcm_rules::{
    drain::VolumeTimeouts,
    safety::{api_server::ProbeTiming, meltdown::MeltdownLimits, overshoot::OvershootMargins},
};
use mcm_runtime::{
    cell::CellScope,
    http::DiagnosticReaders,
    kubeconfig::{ControlKubeconfig, KubeconfigFallback, TargetKubeconfig, UserAgent},
    leader::LeaseTiming,
    limiter::RequestRate,
    metrics::MachineSeries,
    role::ControllerRole,
};

/// Age at which the node controller adds a finalizer that the machine controller should have added.
const FINALIZER_GRACE: SignedDuration = SignedDuration::from_secs(30);

/// The name of a fleet that has no other.
const DEFAULT_FLEET: &str = "default";

/// All controllers in one process.
///
/// # Errors
/// The clusters cannot be reached, the endpoints cannot be served, or a Lease is lost.
pub async fn run(options: RunOptions) -> Result<()> {
    process::serve(run_options(options)).await
}

fn run_options(options: RunOptions) -> ProcessOptions {
    let mut process = process_options(&options.generic, UserAgent::Mcm, vec![SETS, MACHINES], options.listen());
    process.fallback = KubeconfigFallback::LocalKubeconfig;
    process.slots = options.machine_workers();
    with_sets(&mut process, &options.rollout);
    if let Some(file) = options.cells {
        process.cells = CellSource::File(file);
    }
    if let Some(source) = options.fleet {
        let control = match options.generic.control_kubeconfig {
            ControlKubeconfig::SameAsTarget => ControlKubeconfig::Default,
            given => given,
        };
        let selector = options.fleet_selector.unwrap_or_default();
        let name = options.fleet_name.unwrap_or_else(|| DEFAULT_FLEET.to_owned());
        let namespace = options.fleet_namespace.or_else(own_namespace);
        process.cells = CellSource::Fleet(FleetOptions { source, selector, control, name, namespace });
    }
    with_machines(process, &options.machine, &options.driver)
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
    let process = process_options(&options.generic, agent, vec![MACHINES], options.listen());
    process::serve(of_one_tenant(with_machines(process, &options.machine, &options.driver), &options)).await
}

/// The drop-in program serves one namespace, whose Secrets its operator writes. So their TLS options have the effect that they
/// have in the Go programs.
fn of_one_tenant(mut process: ProcessOptions, options: &MachineControllerOptions) -> ProcessOptions {
    process.slots = options.concurrent_syncs;
    if let Some(drivers) = &mut process.drivers {
        drivers.secrets.allows_unverified_tls = true;
    }
    process
}

/// The provider for Cluster API, or the stand-in for its core.
///
/// # Errors
/// As for [`run`].
pub async fn capi_manager(options: CapiManagerOptions) -> Result<()> {
    process::serve(provider_options(&options, own_namespace())).await
}

/// The update extension for Cluster API.
///
/// # Errors
/// The management cluster cannot be reached, or the address or the certificate cannot be used.
pub async fn capi_extension(options: CapiExtensionOptions) -> Result<()> {
    process::serve_extension(options.process()).await
}

/// The process in the place of a manager, for a namespace that a fleet serves.
///
/// # Errors
/// The endpoints cannot be served.
pub async fn presence(options: PresenceOptions) -> Result<()> {
    process::serve_presence(options.listen()).await
}

/// Settings with the policies of the default flags.
pub(super) fn default_settings(drivers: DriverCatalogue) -> Settings {
    let target = TargetKubeconfig::InCluster;
    let cell = only_cell(CellScope::All, String::new(), ControlKubeconfig::Default, target);
    process::settings(&defaults(UserAgent::Mcm, vec![SETS, MACHINES], cell), true, drivers)
}

/// Settings with the policies of flags of a manager. Flags that set no policy are ignored.
///
/// # Errors
/// A value is invalid.
pub(super) fn with_flags(settings: &Settings, flags: &BTreeMap<String, String>) -> Result<Settings, clap::Error> {
    let command = clap::Command::new("flags").no_binary_name(true);
    let command = RolloutOptions::augment_args(MachineOptions::augment_args(command));
    let known: BTreeSet<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    let words = flags.iter().filter(|(flag, _)| known.contains(flag.as_str()));
    let words: Vec<String> = words.map(|(flag, value)| format!("--{flag}={value}")).collect();
    let matches = command.clone().try_get_matches_from(words)?;
    let (machine, rollout) = (MachineOptions::from_arg_matches(&matches)?, RolloutOptions::from_arg_matches(&matches)?);
    let mut settings = settings.clone();
    settings.machine = machine_policy(&machine);
    settings.overshoot = overshoot_policy(&rollout);
    settings.deployment.annotate_nodes = rollout.autoscaler_scaledown_annotation_during_rollout;
    settings.node.creation_timeout = settings.machine.creation_timeout.as_signed();
    settings.node.unhealthy_replacements = settings.machine.unhealthy_replacements;
    Ok(settings)
}

/// The namespace of this pod, if it is one.
fn own_namespace() -> Option<String> {
    const FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
    let given = std::env::var("POD_NAMESPACE").ok().or_else(|| std::fs::read_to_string(FILE).ok());
    given.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}

fn provider_options(options: &CapiManagerOptions, own_namespace: Option<String>) -> ProcessOptions {
    let namespace = Some(&options.namespace).filter(|name| !name.is_empty());
    let leases = own_namespace.or_else(|| namespace.cloned()).unwrap_or_else(|| "default".to_owned());
    let scope = namespace.map_or(CellScope::All, |name| CellScope::Namespace(name.clone()));
    let cell = only_cell(scope, leases, options.kubeconfig.clone().into(), TargetKubeconfig::None);
    let role = if options.stand_in { stand_in::ROLE } else { provider::ROLE };
    let process = defaults(UserAgent::CapiManager, vec![role], cell);
    ProcessOptions {
        fallback: KubeconfigFallback::LocalKubeconfig,
        listen: options.health_addr,
        diagnostics: match options.insecure_diagnostics {
            true if options.diagnostics_address == options.health_addr => MetricsAddress::Beside,
            true => MetricsAddress::At(options.diagnostics_address),
            false => MetricsAddress::Secured(options.diagnostics_address, options.certificate()),
        },
        rate: RequestRate { qps: f64::from(options.kube_api_qps), burst: options.kube_api_burst },
        max_nodes: options.max_nodes_per_target,
        series: options.machine_series,
        leases: timing(&options.leader_election),
        deployment: machine_deployment::DeploymentPolicy { has_target: false, ..process.deployment },
        node: node::NodePolicy { marks_strangers: false, ..process.node },
        machine: machine::MachinePolicy { vm_check_period: options.vm_check_period.into(), ..process.machine },
        slots: options.concurrency,
        drivers: (!options.stand_in).then(|| DriverChoice {
            secrets: options.driver.secrets.policy_of_tenants(),
            ..driver_choice(&options.driver)
        }),
        provider: Some(ProviderOptions {
            watch_filter: Some(options.watch_filter.clone()).filter(|value| !value.is_empty()),
            concurrency: options.concurrency,
            stand_in: options.stand_in,
            replaces_native_manager: options.replaces_machine_controller_manager,
        }),
        ..process
    }
}

/// The cell of a process that serves no others, with at most one target.
fn only_cell(scope: CellScope, leases: String, control: ControlKubeconfig, target: TargetKubeconfig) -> CellOptions {
    let targets = TargetKubeconfigs::Same(target);
    CellOptions { name: String::new(), scope, leases, control, targets, has_switch: false, secrets: None }
}

fn timing(election: &LeaderElectionOptions) -> Option<LeaseTiming> {
    election.enabled.then_some(LeaseTiming {
        lease_duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry_period: election.retry_period,
    })
}

fn driver_choice(driver: &DriverOptions) -> DriverChoice {
    DriverChoice {
        provider: driver.provider.clone(),
        simulated_cloud: driver.simulated_place(),
        secrets: driver.secrets.policy(),
        #[cfg(feature = "remote")]
        remote: driver.remote.endpoints(),
    }
}

fn process_options(
    generic: &GenericOptions,
    agent: UserAgent,
    roles: Vec<ControllerRole>,
    listen: std::net::SocketAddr,
) -> ProcessOptions {
    let scope = CellScope::Namespace(generic.namespace.clone());
    let (control, target) = (generic.control_kubeconfig.clone(), generic.target_kubeconfig.clone());
    let cell = only_cell(scope, generic.namespace.clone(), control, target);
    ProcessOptions {
        listen,
        readers: if generic.explain_to_all { DiagnosticReaders::All } else { DiagnosticReaders::Local },
        profiling: generic.profiling,
        rate: RequestRate { qps: f64::from(generic.kube_api_qps), burst: generic.kube_api_burst },
        max_nodes: generic.max_nodes_per_target,
        leases: timing(&generic.leader_election),
        ..defaults(agent, roles, cell)
    }
}

/// Options with the policies of the default flags, without Leases.
fn defaults(agent: UserAgent, roles: Vec<ControllerRole>, cell: CellOptions) -> ProcessOptions {
    let machine = machine::MachinePolicy::default();
    ProcessOptions {
        agent,
        fallback: KubeconfigFallback::None,
        roles,
        listen: ([127, 0, 0, 1], 0).into(),
        diagnostics: MetricsAddress::Beside,
        readers: DiagnosticReaders::Local,
        series: MachineSeries::default(),
        profiling: false,
        rate: RequestRate { qps: 0.0, burst: 0 },
        max_nodes: usize::MAX,
        leases: None,
        deployment: machine_deployment::DeploymentPolicy { annotate_nodes: false, has_target: true },
        overshoot: overshoot::OvershootPolicy::default(),
        orphans: orphans::OrphanPolicy::default(),
        probing: ProbeTiming::default(),
        node: node::NodePolicy {
            creation_timeout: machine.creation_timeout.as_signed(),
            marks_strangers: true,
            finalizer_grace: FINALIZER_GRACE,
            unhealthy_replacements: machine.unhealthy_replacements,
        },
        machine,
        slots: 1,
        drivers: None,
        provider: None,
        cells: CellSource::One(cell),
    }
}

fn with_sets(process: &mut ProcessOptions, rollout: &RolloutOptions) {
    process.deployment.annotate_nodes = rollout.autoscaler_scaledown_annotation_during_rollout;
    process.overshoot = overshoot_policy(rollout);
}

fn overshoot_policy(rollout: &RolloutOptions) -> overshoot::OvershootPolicy {
    overshoot::OvershootPolicy {
        margins: OvershootMargins { up: rollout.safety_up, down: rollout.safety_down },
        period: rollout.machine_safety_overshooting_period,
    }
}

fn with_machines(process: ProcessOptions, machine: &MachineOptions, driver: &DriverOptions) -> ProcessOptions {
    let creation_timeout = GoDuration::from(machine.machine_creation_timeout);
    ProcessOptions {
        machine: machine_policy(machine),
        orphans: orphans_policy(machine),
        probing: probing(machine),
        series: machine.machine_series,
        node: node::NodePolicy {
            creation_timeout: creation_timeout.as_signed(),
            unhealthy_replacements: unhealthy_replacements(machine),
            ..process.node
        },
        drivers: Some(driver_choice(driver)),
        ..process
    }
}

fn orphans_policy(options: &MachineOptions) -> orphans::OrphanPolicy {
    orphans::OrphanPolicy {
        period: options.orphan_vms_period,
        minimum_age: GoDuration::from(options.orphan_vms_minimum_age).as_signed(),
        is_dry_run: options.orphan_vms_dry_run,
        is_sole_user: options.orphan_vms_sole_user,
        claim_timeout: GoDuration::from(options.machine_creation_timeout).as_signed(),
        unhealthy_replacements: unhealthy_replacements(options),
        ..orphans::OrphanPolicy::default()
    }
}

fn probing(options: &MachineOptions) -> ProbeTiming {
    let signed = |duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    ProbeTiming { timeout: signed(options.api_server_check_timeout), period: signed(options.api_server_check_period) }
}

fn machine_policy(options: &MachineOptions) -> machine::MachinePolicy {
    machine::MachinePolicy {
        creation_timeout: options.machine_creation_timeout.into(),
        health_timeout: options.machine_health_timeout.into(),
        drain_timeout: options.machine_drain_timeout.into(),
        in_place_update_timeout: options.machine_in_place_update_timeout.into(),
        preserve_timeout: options.machine_preserve_timeout.into(),
        max_evict_retries: i32::try_from(options.machine_max_evict_retries).unwrap_or(i32::MAX),
        volumes: VolumeTimeouts {
            detach: GoDuration::from(options.machine_pv_detach_timeout).as_signed(),
            reattach: GoDuration::from(options.machine_pv_reattach_timeout).as_signed(),
        },
        node_conditions: options.node_conditions.as_slice().to_vec(),
        resource_exhausted_retry: options.resource_exhausted_retry.into(),
        bootstrap_token_groups: options.bootstrap_token_auth_extra_groups.clone(),
        unhealthy_replacements: unhealthy_replacements(options),
        ..machine::MachinePolicy::default()
    }
}

fn unhealthy_replacements(options: &MachineOptions) -> MeltdownLimits {
    MeltdownLimits {
        per_deployment: options.max_unhealthy_replacements,
        per_zone: options.max_unhealthy_replacements_per_zone,
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, time::Duration};

    use super::*;
    use crate::{
        cli::args::{self, McmCommand},
        process::SimulatedPlace,
    };
    use mcm_rules::safety::meltdown::ReplacementLimit;
    use mcm_runtime::http::CertificateFiles;

    #[test]
    fn flags_reach_the_probes_and_the_orphan_collector() {
        let flags = [
            "mcm",
            "--machine-safety-apiserver-statuscheck-timeout=5s",
            "--machine-safety-apiserver-statuscheck-period=7s",
            "--machine-safety-orphan-vms-period=3m",
            "--machine-safety-orphan-vms-minimum-age=4m",
            "--machine-safety-orphan-vms-dry-run=true",
            "--machine-safety-orphan-vms-sole-user=true",
            "--machine-creation-timeout=5m",
        ];
        let matches = MachineOptions::augment_args(clap::Command::new("mcm")).get_matches_from(flags);
        let options = MachineOptions::from_arg_matches(&matches).unwrap();
        let seconds = SignedDuration::from_secs;
        assert_eq!(probing(&options), ProbeTiming { timeout: seconds(5), period: seconds(7) });
        let orphans = orphans_policy(&options);
        let period = Duration::from_mins(3);
        let (minimum_age, default) = (seconds(240), orphans::OrphanPolicy::default());
        let expected = orphans::OrphanPolicy {
            period,
            minimum_age,
            is_dry_run: true,
            is_sole_user: true,
            claim_timeout: seconds(300),
            ..default
        };
        assert_eq!(orphans, expected);
    }

    fn capi_manager(flags: &[&str]) -> ProcessOptions {
        let words = ["mcm", "capi-manager"].iter().chain(flags).map(OsString::from);
        let McmCommand::CapiManager(options) = args::parse(words).unwrap() else { panic!("another command") };
        provider_options(&options, Some("capmcm-system".to_owned()))
    }

    /// R3, B5, B10.
    #[test]
    fn the_provider_has_the_flags_and_defaults_that_users_of_cluster_api_expect() {
        let process = capi_manager(&[]);
        assert_eq!(process.listen.to_string(), "0.0.0.0:9440");
        assert_eq!(process.diagnostics, MetricsAddress::Secured(([0, 0, 0, 0], 8443).into(), None), "self-signed");
        assert!(process.leases.is_none());
        assert_eq!((process.max_nodes, process.series), (20_000, MachineSeries::Auto));
        assert_eq!(process.roles, [provider::ROLE]);
        let CellSource::One(cell) = process.cells else { panic!("several cells") };
        assert_eq!(
            (cell.scope, cell.control, cell.leases.as_str()),
            (CellScope::All, ControlKubeconfig::Default, "capmcm-system")
        );
        assert_eq!(cell.targets, TargetKubeconfigs::Same(TargetKubeconfig::None), "core drains");

        let process = capi_manager(&[
            "--namespace=team",
            "--watch-filter=blue",
            "--leader-elect",
            "--health-addr=127.0.0.1:1",
            "--diagnostics-address=localhost:2",
            "--insecure-diagnostics",
            "--concurrency=3",
            "--kubeconfig=/k",
            "--vm-check-period=1m",
            "--machine-series=never",
        ]);
        assert_eq!(process.series, MachineSeries::Never);
        assert_eq!(process.machine.vm_check_period, GoDuration::from_secs(60));
        let secrets = process.drivers.unwrap().secrets;
        assert!(secrets.confines_files && !secrets.allows_unverified_tls, "namespaces are tenants");
        let provider = ProviderOptions {
            watch_filter: Some("blue".to_owned()),
            concurrency: 3,
            stand_in: false,
            replaces_native_manager: false,
        };
        assert_eq!((process.provider, process.slots), (Some(provider), 3));
        assert_eq!(process.diagnostics, MetricsAddress::At(([127, 0, 0, 1], 2).into()));
        assert!(process.leases.is_some());
        let CellSource::One(cell) = process.cells else { panic!("several cells") };
        assert_eq!(cell.scope, CellScope::Namespace("team".to_owned()));
        assert_eq!((cell.control, cell.leases.as_str()), (ControlKubeconfig::Named("/k".into()), "capmcm-system"));
    }

    #[rstest::rstest]
    #[case::one_namespace(&[], MachineSeries::Always)]
    #[case::one_namespace_with_a_choice(&["--machine-series=never"], MachineSeries::Never)]
    #[case::several_namespaces(&["--cells=/c"], MachineSeries::Auto)]
    #[case::a_fleet(&["--fleet=gardener"], MachineSeries::Auto)]
    fn a_process_for_one_namespace_exports_the_series_of_each_machine(
        #[case] flags: &[&str],
        #[case] expected: MachineSeries,
    ) {
        let words = ["mcm", "run"].iter().chain(flags).map(OsString::from);
        let McmCommand::Run(options) = args::parse(words).unwrap() else { panic!("another command") };
        assert_eq!(run_options(*options).exported_series(), expected);
        assert_eq!(capi_manager(&[]).exported_series(), MachineSeries::Auto, "many clusters");
    }

    #[rstest::rstest]
    #[case(&[])]
    #[case(&["--cells=/c"])]
    fn certificates_are_verified_where_others_write_secrets(#[case] flags: &[&str]) {
        let words = ["mcm", "run"].iter().chain(flags).map(OsString::from);
        let McmCommand::Run(options) = args::parse(words).unwrap() else { panic!("another command") };
        let process = run_options(*options);
        assert!(!process.drivers.unwrap().secrets.allows_unverified_tls);
        assert_eq!(matches!(process.cells, CellSource::File(_)), !flags.is_empty());
    }

    #[rstest::rstest]
    #[case(&["run"], None)]
    #[case(&["machine-controller", "--namespace=n"], None)]
    #[case(&["capi-manager"], None)]
    #[case(&["run", "--provider=AWS"], None)]
    #[case(&["run", "--simulated-cloud=embedded"], Some(SimulatedPlace::Embedded))]
    #[case(&["machine-controller", "--namespace=n", "--provider=simulated"], Some(SimulatedPlace::Embedded))]
    #[case(&["capi-manager", "--simulated-cloud=http://cloud:1"], Some(SimulatedPlace::Url("http://cloud:1/".to_owned())))]
    fn no_manager_serves_the_simulated_cloud_unasked(#[case] words: &[&str], #[case] expected: Option<SimulatedPlace>) {
        let options = match args::parse(["mcm"].iter().chain(words).map(OsString::from)).unwrap() {
            McmCommand::Run(options) => options.driver,
            McmCommand::MachineController(options) => options.driver,
            McmCommand::CapiManager(options) => options.driver,
            _ => panic!("another command"),
        };
        assert_eq!(driver_choice(&options).simulated_cloud, expected);
    }

    #[test]
    fn metrics_have_the_certificate_of_the_flags() {
        let process = capi_manager(&["--tls-cert-file=/c", "--tls-private-key-file=/k", "--diagnostics-address=:1"]);
        let files = CertificateFiles { cert: "/c".into(), key: "/k".into() };
        assert_eq!(process.diagnostics, MetricsAddress::Secured(([0, 0, 0, 0], 1).into(), Some(files)));
        for (flags, expected) in [
            (&["--tls-cert-file=/c"][..], "a certificate needs its key"),
            (&["--tls-private-key-file=/k"], "a certificate needs its key"),
            (&["--tls-cert-file=/c", "--tls-private-key-file=/k", "--insecure-diagnostics"], "leave one of them out"),
        ] {
            let words = ["mcm", "capi-manager"].iter().chain(flags).map(OsString::from);
            let refused = format!("{:?}", args::parse(words).err().unwrap());
            assert!(refused.contains(expected), "{refused}");
        }
    }

    /// T26: a Go MCM is taken over only on request.
    #[test]
    fn t26_a_native_manager_is_replaced_only_by_a_flag() {
        assert!(!capi_manager(&[]).provider.unwrap().replaces_native_manager);
        let process = capi_manager(&["--replaces-machine-controller-manager"]);
        assert!(process.provider.unwrap().replaces_native_manager);
    }

    /// S1: off by default; with the flag nothing else runs, and no driver.
    #[test]
    fn s1_the_stand_in_runs_only_with_its_flag_and_in_place_of_the_provider() {
        assert!(!capi_manager(&[]).provider.unwrap().stand_in);
        let process = capi_manager(&["--stand-in"]);
        assert_eq!(process.roles, [stand_in::ROLE]);
        assert!(process.provider.unwrap().stand_in && process.drivers.is_none());
    }

    #[test]
    fn flags_reach_the_overshoot_freeze() {
        let flags = RolloutOptions {
            safety_up: 5,
            safety_down: 3,
            machine_safety_overshooting_period: Duration::from_secs(7),
            autoscaler_scaledown_annotation_during_rollout: true,
        };
        let expected =
            overshoot::OvershootPolicy { margins: OvershootMargins { up: 5, down: 3 }, period: Duration::from_secs(7) };
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
            "--machine-safety-max-unhealthy-replacements=30%",
            "--machine-safety-max-unhealthy-replacements-per-zone=3",
            "--namespace=n",
            "--max-nodes-per-target=7",
            "--machine-series=always",
        ];
        let McmCommand::MachineController(options) = args::parse(words.map(OsString::from)).unwrap() else {
            panic!("another command")
        };
        let process = process_options(&options.generic, UserAgent::MachineController, vec![MACHINES], options.listen());
        let process = of_one_tenant(with_machines(process, &options.machine, &options.driver), &options);
        assert!(process.drivers.as_ref().is_some_and(|drivers| drivers.secrets.allows_unverified_tls), "as in Go");
        let expected = machine::MachinePolicy {
            creation_timeout: GoDuration::from_secs(60),
            health_timeout: GoDuration::from_secs(120),
            drain_timeout: GoDuration::from_secs(180),
            in_place_update_timeout: GoDuration::from_secs(360),
            preserve_timeout: GoDuration::from_secs(420),
            max_evict_retries: 4,
            node_conditions: vec!["A".to_owned(), "B".to_owned()],
            resource_exhausted_retry: GoDuration::from_secs(300),
            bootstrap_token_groups: "g".to_owned(),
            unhealthy_replacements: MeltdownLimits {
                per_deployment: ReplacementLimit::Percent(30),
                per_zone: Some(ReplacementLimit::Machines(3)),
            },
            ..machine::MachinePolicy::default()
        };
        assert_eq!(process.node.unhealthy_replacements, expected.unhealthy_replacements);
        assert_eq!(process.machine, expected);
        assert_eq!((process.max_nodes, process.series), (7, MachineSeries::Always));
        assert_eq!(process.node.creation_timeout.as_secs(), 60, "from this age a Node without a machine is marked");
        let CellSource::One(cell) = process.cells else { panic!("several cells") };
        assert_eq!(cell.leases, "n");
        assert!(matches!(cell.scope, CellScope::Namespace(namespace) if namespace == "n"));
    }
}
