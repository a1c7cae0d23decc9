use std::{
    collections::BTreeSet,
    ffi::OsString,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use rstest::rstest;

use super::*;
use crate::{
    cli::args::{self, McmCommand},
    process::SimulatedPlace,
};
use mcm_driver::SecretPolicy;
use mcm_rules::safety::meltdown::ReplacementLimit;
use mcm_runtime::metrics::MachineSeries;

/// Flags of both Go programs, with their defaults.
const GENERIC: [(&str, &str); 23] = [
    ("address", "0.0.0.0"),
    ("cloud-provider", ""),
    ("min-resync-period", "12h"),
    ("profiling", "false"),
    ("max-nodes-per-target", "20000"),
    ("explain-to-all", "false"),
    ("contention-profiling", "false"),
    ("target-kubeconfig", ""),
    ("control-kubeconfig", ""),
    ("namespace", "default"),
    ("kube-api-content-type", "application/vnd.kubernetes.protobuf"),
    ("kube-api-qps", "20"),
    ("kube-api-burst", "30"),
    ("controller-start-interval", "0s"),
    ("leader-elect", "true"),
    ("leader-elect-lease-duration", "15s"),
    ("leader-elect-renew-deadline", "10s"),
    ("leader-elect-retry-period", "2s"),
    ("leader-elect-resource-lock", "leases"),
    ("v", "0"),
    ("vmodule", ""),
    ("log-flush-frequency", "5s"),
    ("log-format", "text"),
];

/// Flags of the Go machine-controller-manager alone.
const ROLLOUT: [(&str, &str); 4] = [
    ("safety-up", "2"),
    ("safety-down", "1"),
    ("machine-safety-overshooting-period", "1m"),
    ("autoscaler-scaledown-annotation-during-rollout", "true"),
];

/// Flags of the Go machine-controller alone, three of the safety controllers, and that of the number of series.
const MACHINE: [(&str, &str); 19] = [
    ("machine-creation-timeout", "20m"),
    ("machine-health-timeout", "10m"),
    ("machine-drain-timeout", "2h"),
    ("machine-inplace-update-timeout", "20m"),
    ("machine-max-evict-retries", "360"),
    ("machine-pv-detach-timeout", "2m"),
    ("machine-pv-reattach-timeout", "90s"),
    ("machine-preserve-timeout", "96h"),
    ("machine-safety-apiserver-statuscheck-timeout", "30s"),
    ("machine-safety-apiserver-statuscheck-period", "1m"),
    ("machine-safety-orphan-vms-period", "15m"),
    ("machine-safety-orphan-vms-minimum-age", "10m"),
    ("machine-safety-orphan-vms-dry-run", "false"),
    ("machine-safety-orphan-vms-sole-user", "false"),
    ("machine-safety-max-unhealthy-replacements", "1"),
    ("node-conditions", "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable"),
    ("bootstrap-token-auth-extra-groups", ""),
    ("resource-exhausted-retry", "10m"),
    ("machine-series", "auto"),
];

/// Flags without a default.
const MACHINES: [&str; 3] = ["provider", "simulated-cloud", PER_ZONE];
const PER_ZONE: &str = "machine-safety-max-unhealthy-replacements-per-zone";

const MANAGER_ONLY: [(&str, &str); 2] = [("port", "10258"), ("concurrent-syncs", "10")];
const MACHINE_CONTROLLER_ONLY: [(&str, &str); 2] = [("port", "10259"), ("concurrent-syncs", "50")];
const RUN_ONLY: [(&str, &str); 1] = [("port", "10258")];

fn table(command: &str) -> Vec<(&'static str, &'static str)> {
    let own: [&[_]; 3] = match command {
        "machine-controller-manager" => [&MANAGER_ONLY, &ROLLOUT, &[]],
        "machine-controller" => [&MACHINE_CONTROLLER_ONLY, &[], &MACHINE],
        _ => [&RUN_ONLY, &ROLLOUT, &MACHINE],
    };
    let limits = [("kube-api-qps", "150"), ("kube-api-burst", "200")];
    let generic = GENERIC.map(|(flag, default)| {
        let own = limits.iter().find(|(other, _)| command == "run" && *other == flag);
        let own = own.or_else(|| [("log-format", "klog")].iter().find(|(other, _)| command != "run" && *other == flag));
        (flag, own.map_or(default, |(_, default)| *default))
    });
    [own.concat(), generic.to_vec()].concat()
}

fn parse(words: &[&str]) -> McmCommand {
    args::parse(["mcm"].iter().chain(words).map(OsString::from)).unwrap()
}

fn refusal(words: &[&str]) -> String {
    match args::parse(["mcm"].iter().chain(words).map(OsString::from)) {
        Err(crate::cli::error::CommandRejection::Usage { message, .. }) => message,
        other => panic!("{words:?} is refused, not {other:?}"),
    }
}

fn manager(flags: &[&str]) -> ControllerManagerOptions {
    match parse(&[&["machine-controller-manager"], flags].concat()) {
        McmCommand::MachineControllerManager(options) => *options,
        other => panic!("{other:?}"),
    }
}

fn machine_controller(flags: &[&str]) -> MachineControllerOptions {
    match parse(&[&["machine-controller"], flags].concat()) {
        McmCommand::MachineController(options) => *options,
        other => panic!("{other:?}"),
    }
}

fn run(flags: &[&str]) -> RunOptions {
    match parse(&[&["run"], flags].concat()) {
        McmCommand::Run(options) => *options,
        other => panic!("{other:?}"),
    }
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

#[rstest]
#[case("machine-controller-manager")]
#[case("machine-controller")]
#[case("run")]
fn every_flag_has_the_default_of_the_go_program(#[case] command: &str) {
    let unset = format!("{:?}", parse(&[command]));
    for (flag, default) in table(command) {
        let is_boolean = ["true", "false"].contains(&default);
        let joined = format!("--{flag}={default}");
        let underscored = format!("--{}={default}", flag.replace('-', "_"));
        let separate = format!("--{flag}");
        assert_eq!(format!("{:?}", parse(&[command, &joined])), unset, "{joined}");
        assert_eq!(format!("{:?}", parse(&[command, &underscored])), unset, "{underscored}");
        if !is_boolean {
            assert_eq!(format!("{:?}", parse(&[command, &separate, default])), unset, "{separate} {default}");
        }
    }
}

#[rstest]
#[case("machine-controller-manager", &[])]
#[case("machine-controller", &MACHINES)]
#[case("run", &["provider", "simulated-cloud", "concurrent-syncs", "cells", "fleet", "fleet-selector", "fleet-name", "fleet-namespace", PER_ZONE])]
fn there_is_no_other_flag(#[case] command: &str, #[case] without_default: &[&'static str]) {
    let known: BTreeSet<_> =
        table(command).into_iter().map(|(flag, _)| flag).chain(without_default.iter().copied()).collect();
    let clap = args::command();
    let sub = clap.find_subcommand(command).unwrap();
    let offered: BTreeSet<_> = sub.get_arguments().filter_map(|arg| arg.get_long()).filter(|f| *f != "help").collect();
    let of_drivers = if command == "machine-controller-manager" { [&[][..], &[]] } else { [REMOTE, &SECRETS] };
    assert_eq!(offered, known.into_iter().chain(of_drivers.concat()).collect());
}

#[test]
fn a_presence_has_the_flags_of_its_endpoints_and_logs_alone() {
    let clap = args::command();
    let sub = clap.find_subcommand("presence").unwrap();
    let offered: BTreeSet<_> = sub.get_arguments().filter_map(|arg| arg.get_long()).filter(|f| *f != "help").collect();
    assert_eq!(offered, BTreeSet::from(["address", "log-format", "port", "v"]));
}

#[rstest]
#[case(&[], SocketAddr::from(([0, 0, 0, 0], 10258)))]
#[case(&["--address=127.0.0.1", "--port=10259"], SocketAddr::from(([127, 0, 0, 1], 10259)))]
fn a_presence_listens_where_a_manager_does_and_logs_as_it_does(#[case] flags: &[&str], #[case] address: SocketAddr) {
    let McmCommand::Presence(options) = parse(&[&["presence"], flags].concat()) else { panic!("another command") };
    assert_eq!(options.listen(), address);
    assert_eq!(options.log, LogOptions { verbosity: 0, format: LogFormat::Klog });
}

/// Flags about what Secrets may use.
const SECRETS: [&str; 3] = ["process-credentials-namespaces", "credential-files-folder", "allowed-cloud-endpoints"];

/// Flags of remote drivers.
#[cfg(feature = "remote")]
const REMOTE: &[&str] = &["driver", "driver-ca-file", "driver-cert-file", "driver-insecure", "driver-key-file"];
#[cfg(not(feature = "remote"))]
const REMOTE: &[&str] = &[];

#[test]
fn the_manager_gets_typed_values() {
    let ControllerManagerOptions { port, concurrent_syncs, rollout, generic } = manager(&[]);
    assert_eq!((port, concurrent_syncs), (10258, 10));
    assert_eq!(
        rollout,
        RolloutOptions {
            safety_up: 2,
            safety_down: 1,
            machine_safety_overshooting_period: MINUTE,
            autoscaler_scaledown_annotation_during_rollout: true,
        }
    );
    assert_eq!(generic.control_kubeconfig, ControlKubeconfig::SameAsTarget);
    assert_eq!(generic.target_kubeconfig, TargetKubeconfig::InCluster);
    assert_eq!(generic.namespace, "default");
    assert_eq!((generic.kube_api_qps, generic.kube_api_burst), (20.0, 30));
    assert_eq!(generic.min_resync_period, 12 * HOUR);
    assert_eq!(generic.address, IpAddr::from([0, 0, 0, 0]));
    assert!(!generic.profiling);
    assert!(generic.leader_election.enabled);
    assert_eq!(generic.leader_election.lease_duration, 15 * SECOND);
    assert_eq!(generic.leader_election.renew_deadline, 10 * SECOND);
    assert_eq!(generic.leader_election.retry_period, 2 * SECOND);
    assert_eq!(generic.log, LogOptions { verbosity: 0, format: LogFormat::Klog });
}

#[test]
fn the_machine_controller_gets_typed_values() {
    let options = machine_controller(&[]);
    assert_eq!((options.port, options.concurrent_syncs), (10259, 50));
    assert_eq!(
        options.driver,
        DriverOptions {
            provider: None,
            simulated_cloud: None,
            secrets: SecretOptions::default(),
            #[cfg(feature = "remote")]
            remote: RemoteOptions::default(),
        }
    );
    assert_eq!(
        options.machine,
        MachineOptions {
            machine_creation_timeout: 20 * MINUTE,
            machine_health_timeout: 10 * MINUTE,
            machine_drain_timeout: 2 * HOUR,
            machine_in_place_update_timeout: 20 * MINUTE,
            machine_max_evict_retries: 360,
            machine_pv_detach_timeout: 2 * MINUTE,
            machine_pv_reattach_timeout: 90 * SECOND,
            machine_preserve_timeout: 96 * HOUR,
            api_server_check_timeout: 30 * SECOND,
            api_server_check_period: MINUTE,
            orphan_vms_period: 15 * MINUTE,
            orphan_vms_minimum_age: 10 * MINUTE,
            orphan_vms_dry_run: false,
            orphan_vms_sole_user: false,
            max_unhealthy_replacements: ReplacementLimit::Machines(1),
            max_unhealthy_replacements_per_zone: None,
            node_conditions: "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable".parse().unwrap(),
            bootstrap_token_auth_extra_groups: String::new(),
            resource_exhausted_retry: 10 * MINUTE,
            machine_series: MachineSeries::Auto,
        }
    );
}

#[test]
fn workers_of_run_are_those_of_the_two_programs_unless_given() {
    assert_eq!((run(&[]).set_workers(), run(&[]).machine_workers()), (10, 50));
    let given = run(&["--concurrent-syncs=7"]);
    assert_eq!((given.set_workers(), given.machine_workers()), (7, 7));
}

#[test]
fn the_last_of_several_flags_wins() {
    let options = manager(&["--port=1", "--leader-elect=false", "--port", "2", "--leader-elect", "--v=1", "-v=3"]);
    assert_eq!(options.port, 2);
    assert!(options.generic.leader_election.enabled);
    assert_eq!(options.generic.log.verbosity, 3);
}

#[rstest]
#[case(&["-v", "2"])]
#[case(&["-v=2"])]
#[case(&["-v2"])]
#[case(&["--v=2"])]
#[case(&["--v", "2"])]
fn verbosity_has_klogs_spellings(#[case] flags: &[&str]) {
    assert_eq!(manager(flags).generic.log.verbosity, 2);
}

#[test]
fn secrets_may_use_what_the_flags_say() {
    let policy = |flags: &[&str]| machine_controller(flags).driver.secrets.policy();
    assert_eq!(policy(&[]), SecretPolicy::default());
    let given = policy(&[
        "--process-credentials-namespaces=a,b",
        "--credential-files-folder=/x",
        "--credential-files-folder=/y/z",
        "--allowed-cloud-endpoints=ec2.example.com,http://127.0.0.1",
    ]);
    assert_eq!(given.process_credentials, ["a", "b"]);
    assert_eq!(given.folders, [PathBuf::from("/x"), PathBuf::from("/y/z")]);
    assert_eq!(given.endpoints, ["ec2.example.com", "http://127.0.0.1"].map(|one| one.parse().unwrap()));
}

#[rstest]
#[case("--process-credentials-namespaces=A_B", "must be the name of one namespace")]
#[case("--credential-files-folder=/", "must be the absolute path of a folder")]
#[case("--credential-files-folder=x", "must be the absolute path of a folder")]
#[case("--credential-files-folder=/a/../b", "must be the absolute path of a folder")]
#[case("--allowed-cloud-endpoints=ftp://x", "must be HOST")]
fn what_secrets_may_use_is_checked(#[case] flag: &str, #[case] expected: &str) {
    assert!(refusal(&["run", flag]).contains(expected), "{}", refusal(&["run", flag]));
}

#[rstest]
#[case("--process-credentials-namespaces=a", "set processCredentialsNamespaces of the cells")]
#[case("--credential-files-folder=/x", "set credentialFilesFolder of the cells")]
fn what_the_secrets_of_cells_may_use_is_in_their_file(#[case] flag: &str, #[case] expected: &str) {
    assert!(refusal(&["run", "--cells=/c", flag]).contains(expected), "{}", refusal(&["run", "--cells=/c", flag]));
    assert_eq!(run(&["--cells=/c", "--allowed-cloud-endpoints=a"]).driver.secrets.allowed_cloud_endpoints.len(), 1);
}

#[rstest]
#[case(&["--fleet=gardener", "--process-credentials-namespaces=a"], "not used with --fleet")]
#[case(&["--fleet=gardener", "--credential-files-folder=/x"], "not used with --fleet")]
#[case(&["--fleet=folder=/x", "--fleet-selector=a=b"], "take files out of the folder")]
#[case(&["--fleet=gardener", "--cells=/c"], "not both")]
#[case(&["--fleet-selector=a=b"], "--fleet")]
#[case(&["--fleet-name=a"], "--fleet")]
#[case(&["--fleet=gardener", "--fleet-name=a.b"], "must be 1 to 40")]
#[case(&["--fleet=gardener", "--fleet-namespace=-"], "must be the name of one namespace")]
#[case(&["--fleet=folder=x"], "with an absolute path")]
#[case(&["--fleet=gardener", "--fleet-selector=a in (b)"], "separated by commas")]
fn a_fleet_has_one_source_and_nothing_of_the_process(#[case] flags: &[&str], #[case] expected: &str) {
    let words: Vec<&str> = ["run"].into_iter().chain(flags.iter().copied()).collect();
    assert!(refusal(&words).contains(expected), "{}", refusal(&words));
}

#[rstest]
#[case("", TargetKubeconfig::InCluster)]
#[case("none", TargetKubeconfig::None)]
#[case("None", TargetKubeconfig::Path("None".into()))]
#[case("/etc/kube/config", TargetKubeconfig::Path(PathBuf::from("/etc/kube/config")))]
fn a_target_is_a_file_the_pod_or_none(#[case] text: &str, #[case] target: TargetKubeconfig) {
    let options = manager(&["--control-kubeconfig=c", "--target-kubeconfig", text]);
    assert_eq!(options.generic.target_kubeconfig, target);
}

#[rstest]
#[case("", ControlKubeconfig::SameAsTarget)]
#[case("inClusterConfig", ControlKubeconfig::InCluster)]
#[case("./config", ControlKubeconfig::Path("./config".into()))]
fn a_control_cluster_is_a_file_the_pod_or_the_target(#[case] text: &str, #[case] control: ControlKubeconfig) {
    assert_eq!(manager(&["--control-kubeconfig", text]).generic.control_kubeconfig, control);
}

#[test]
fn node_conditions_are_split_at_commas_and_nothing_else() {
    let options = machine_controller(&["--node-conditions=A, b,,C"]);
    assert_eq!(options.machine.node_conditions.as_slice(), ["A", " b", "", "C"]);
}

#[test]
fn no_pause_after_exhaustion_means_the_usual_pause() {
    assert_eq!(machine_controller(&["--resource-exhausted-retry=0"]).machine.resource_exhausted_retry, 10 * MINUTE);
    assert_eq!(machine_controller(&["--resource-exhausted-retry=1s"]).machine.resource_exhausted_retry, SECOND);
}

#[test]
fn the_choice_of_series_is_one_of_three_words() {
    assert_eq!(machine_controller(&["--machine-series=always"]).machine.machine_series, MachineSeries::Always);
    assert_eq!(run(&["--machine-series", "never"]).machine.machine_series, MachineSeries::Never);
    let refused = refusal(&["run", "--machine-series=some"]);
    assert!(refused.contains("--machine-series=some: must be auto, always or never"), "{refused}");
}

#[test]
fn the_flags_of_a_real_manifest_are_understood() {
    let options = machine_controller(&[
        "--control-kubeconfig=inClusterConfig",
        "--machine-creation-timeout=20m",
        "--machine-drain-timeout=2h",
        "--machine-health-timeout=10m",
        "--machine-safety-apiserver-statuscheck-timeout=30s",
        "--machine-safety-apiserver-statuscheck-period=1m",
        "--machine-safety-orphan-vms-period=30m",
        "--namespace=shoot--garden--crazy",
        "--port=10259",
        "--target-kubeconfig=/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/kubeconfig",
        "--v=3",
    ]);
    assert_eq!(options.generic.namespace, "shoot--garden--crazy");
    assert_eq!(options.listen().to_string(), "0.0.0.0:10259");
    assert_eq!(options.machine.orphan_vms_period, 30 * MINUTE);
}

#[rstest]
#[case(&["--address=::1"], "[::1]:10258")]
#[case(&["--address=127.0.0.1", "--port=65535"], "127.0.0.1:65535")]
fn both_families_of_addresses_can_be_listened_on(#[case] flags: &[&str], #[case] listen: &str) {
    assert_eq!(manager(flags).listen().to_string(), listen);
}

#[rstest]
#[case(&["--leader-elect-lease-duration=10s"],
    "--leader-elect-lease-duration=10s: must be more than --leader-elect-renew-deadline=10s")]
#[case(&["--leader-elect-renew-deadline=2400ms"],
    "--leader-elect-renew-deadline=2.4s: must be more than 1.2 times --leader-elect-retry-period=2s")]
#[case(&["--leader-elect-retry-period=0s"], "--leader-elect-retry-period=0s: must be more than 0s")]
#[case(&["--leader-elect-resource-lock=endpoints"], "--leader-elect-resource-lock=endpoints: must be leases")]
#[case(&["--contention-profiling"], "--contention-profiling needs --profiling")]
#[case(&["--contention-profiling", "--target-kubeconfig=none"],
    "--control-kubeconfig must not be empty when --target-kubeconfig is none; --contention-profiling needs --profiling")]
fn flags_that_contradict_each_other_are_refused(#[case] flags: &[&str], #[case] message: &str) {
    for command in ["run", "machine-controller-manager", "machine-controller"] {
        assert_eq!(refusal(&[&[command], flags].concat()), message);
    }
}

#[test]
fn api_servers_are_not_given_up_before_they_are_asked_twice() {
    let flag = "--machine-safety-apiserver-statuscheck-period=29s";
    for command in ["run", "machine-controller"] {
        assert_eq!(
            refusal(&[command, flag]),
            format!("{flag}: must not be less than --machine-safety-apiserver-statuscheck-timeout=30s")
        );
    }
}

#[test]
fn without_an_election_its_other_flags_mean_nothing() {
    let options = manager(&["--leader-elect=false", "--leader-elect-resource-lock=endpoints"]);
    assert!(!options.generic.leader_election.enabled);
}

#[rstest]
#[case("1", true)]
#[case("t", true)]
#[case("T", true)]
#[case("TRUE", true)]
#[case("True", true)]
#[case("0", false)]
#[case("f", false)]
#[case("F", false)]
#[case("FALSE", false)]
#[case("False", false)]
fn booleans_are_those_of_go(#[case] text: &str, #[case] value: bool) {
    assert_eq!(manager(&[&format!("--profiling={text}")]).generic.profiling, value);
}

#[rstest]
#[case("application/json; charset=utf-8", true)]
#[case("a/b", true)]
#[case("json", false)]
#[case("", false)]
#[case("a/b/c", false)]
#[case("a /b", false)]
fn content_types_are_checked_though_unused(#[case] text: &str, #[case] is_accepted: bool) {
    assert_eq!(value::media_type(text).is_ok(), is_accepted);
}

#[rstest]
#[case("http://127.0.0.1:8080", true)]
#[case("http://cloud.example/base", true)]
#[case("https://cloud.example/base", false)]
#[case("127.0.0.1:8080", false)]
#[case("file:///tmp/x", false)]
fn a_simulated_cloud_is_reached_by_http(#[case] text: &str, #[case] is_accepted: bool) {
    assert_eq!(value::http_url(text).is_ok(), is_accepted);
    assert_eq!(value::simulated_place(text).is_ok(), is_accepted);
    assert_eq!(value::simulated_place("embedded"), Ok(SimulatedPlace::Embedded));
}

/// Cluster API Operator passes them where the object of the provider sets them.
#[rstest]
fn a_flag_of_cluster_api_operator_ends_no_pod(
    #[values(
        "--metrics-bind-addr=:8080",
        "--profiler-address=localhost:6060",
        "--feature-gates=MachinePool=true,ClusterTopology=true",
        "--webhook-host=0.0.0.0",
        "--webhook-port=9443",
        "--webhook-cert-dir=/tmp/certs",
        "--leader-election-id=x",
        "--max-concurrent-reconciles=10",
        "--mcmcluster-concurrency=10",
        "--mcmmachine-concurrency=10",
        "--mcmmachinepool-concurrency=10",
        "--mcmmachinetemplate-concurrency=10",
        "--sync-period=30s"
    )]
    flag: &str,
) {
    let McmCommand::CapiManager(options) = parse(&["capi-manager", flag]) else { panic!("{flag}") };
    let McmCommand::CapiManager(without) = parse(&["capi-manager"]) else { panic!("no flag") };
    let (operator, sync_period) = (without.operator.clone(), without.sync_period);
    assert_eq!(CapiManagerOptions { operator, sync_period, ..*options }, *without, "nothing else changes");
}
