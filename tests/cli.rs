//! The binary as its users meet it: names, flags, texts and exit codes.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use assert_cmd::{Command, cargo::cargo_bin};
use rstest::rstest;
use tempfile::TempDir;

/// No setting of the user's shell is inherited.
fn isolated(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    command.env_clear().env("HOME", "/nonexistent");
    command
}

fn mcm(args: &[&str]) -> Command {
    let mut command = isolated(cargo_bin!("mcm"));
    command.args(args);
    command
}

fn stderr(command: &mut Command, code: i32) -> String {
    let output = command.assert().code(code).get_output().clone();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "standard output stays clean");
    String::from_utf8(output.stderr).unwrap()
}

fn stdout(command: &mut Command) -> String {
    String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
}

/// The binary under another name.
struct Alias {
    path: PathBuf,
    _folder: TempDir,
}

fn alias(name: &str) -> Alias {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    symlink(cargo_bin!("mcm"), &path).unwrap();
    Alias { path, _folder: folder }
}

const NO_FILE: &str = "error: read kubeconfig /nonexistent/config (--target-kubeconfig): no such file\n\
                       hint: check the path, and that the secret is mounted\n";

#[rstest]
#[case("mcm", &[])]
#[case("run", &["run"])]
#[case("machine-controller-manager", &["machine-controller-manager"])]
#[case("machine-controller", &["machine-controller"])]
#[case("capi-extension", &["capi-extension"])]
#[case("capi-manager", &["capi-manager"])]
#[case("presence", &["presence"])]
#[case("simulated-cloud", &["simulated-cloud"])]
#[case("why", &["why"])]
#[case("check", &["check"])]
#[case("dashboard", &["dashboard"])]
#[case("check-takeover", &["check", "takeover"])]
#[case("plan", &["plan"])]
#[case("convert", &["convert"])]
#[case("adopt", &["adopt"])]
#[case("adopt-apply", &["adopt", "apply"])]
#[case("class", &["class"])]
#[cfg_attr(feature = "remote", case("class-check", &["class", "check"]))]
#[case("crd", &["crd"])]
#[cfg_attr(feature = "remote", case("driver", &["driver"]))]
#[cfg_attr(feature = "remote", case("driver-serve", &["driver", "serve"]))]
#[cfg_attr(feature = "remote", case("driver-test", &["driver", "test"]))]
#[case("drain-force", &["drain", "force"])]
#[case("events", &["events"])]
#[case("fleet", &["fleet"])]
#[case("fleet-release", &["fleet", "release"])]
#[case("freeze", &["freeze"])]
#[case("machine-forget", &["machine", "forget"])]
#[case("machine-preserve", &["machine", "preserve"])]
#[case("machine-replace", &["machine", "replace"])]
#[case("rollout", &["rollout"])]
#[case("rollout-abort", &["rollout", "abort"])]
#[case("rollout-history", &["rollout", "history"])]
#[case("rollout-restart", &["rollout", "restart"])]
#[case("rollout-status", &["rollout", "status"])]
#[case("rollout-undo", &["rollout", "undo"])]
#[case("scale", &["scale"])]
#[case("top", &["top"])]
#[case("tree", &["tree"])]
#[case("unfreeze", &["unfreeze"])]
#[case("completion", &["completion"])]
#[case("version", &["version"])]
fn help_reads_well(#[case] name: &str, #[case] command: &[&str]) {
    let help = stdout(&mut mcm(&[command, &["--help"]].concat()));
    insta::assert_snapshot!(format!("help-{name}"), help);
}

#[rstest]
#[case("machine-controller-manager", "Usage: machine-controller-manager [OPTIONS]")]
#[case("machine-controller", "Usage: machine-controller [OPTIONS]")]
#[case("machine-controller.exe", "Usage: machine-controller [OPTIONS]")]
#[case("kubectl-mcm", "Usage: kubectl mcm <COMMAND>")]
#[case("anything", "Usage: mcm <COMMAND>")]
fn the_name_of_the_program_chooses_the_command(#[case] name: &str, #[case] usage: &str) {
    let alias = alias(name);
    let help = stdout(isolated(&alias.path).arg("--help"));
    assert!(help.contains(usage), "{help}");
}

#[test]
fn a_relative_path_is_as_good_a_name() {
    let alias = alias("machine-controller");
    let mut command = isolated("./machine-controller");
    command.current_dir(alias.path.parent().unwrap()).arg("--target-kubeconfig=/nonexistent/config");
    assert_eq!(stderr(&mut command, 1), NO_FILE);
}

/// The flags of both Go programs, in their documented spelling and with their defaults.
const SHARED: [&str; 17] = [
    "--address=0.0.0.0",
    "--cloud-provider=",
    "--min-resync-period=12h",
    "--profiling=false",
    "--contention-profiling=false",
    "--control-kubeconfig=",
    "--namespace=default",
    "--kube-api-content-type=application/vnd.kubernetes.protobuf",
    "--kube-api-qps=20",
    "--kube-api-burst=30",
    "--controller-start-interval=0s",
    "--leader-elect=true",
    "--leader-elect-lease-duration=15s",
    "--leader-elect-renew-deadline=10s",
    "--leader-elect-retry-period=2s",
    "--leader-elect-resource-lock=leases",
    "--v=0",
];
const MANAGER: [&str; 6] = [
    "--port=10258",
    "--concurrent-syncs=10",
    "--safety-up=2",
    "--safety-down=1",
    "--machine-safety-overshooting-period=1m",
    "--autoscaler-scaledown-annotation-during-rollout=true",
];
const MACHINE_CONTROLLER: [&str; 16] = [
    "--port=10259",
    "--concurrent-syncs=50",
    "--machine-creation-timeout=20m",
    "--machine-health-timeout=10m",
    "--machine-drain-timeout=2h",
    "--machine-inplace-update-timeout=20m",
    "--machine-max-evict-retries=360",
    "--machine-pv-detach-timeout=2m",
    "--machine-pv-reattach-timeout=90s",
    "--machine-preserve-timeout=96h",
    "--machine-safety-apiserver-statuscheck-timeout=30s",
    "--machine-safety-apiserver-statuscheck-period=1m",
    "--machine-safety-orphan-vms-period=15m",
    "--node-conditions=KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable",
    "--bootstrap-token-auth-extra-groups=",
    "--resource-exhausted-retry=10m",
];
const LOGS: [&str; 3] = ["--vmodule=", "--log-flush-frequency=5s", "--target-kubeconfig=/nonexistent/config"];

/// An error about the missing file proves that all flags were accepted.
#[rstest]
#[case("machine-controller-manager", &MANAGER)]
#[case("machine-controller", &MACHINE_CONTROLLER)]
fn a_go_program_is_replaced_with_all_its_flags(#[case] name: &str, #[case] own: &[&str]) {
    let flags = [&SHARED[..], own, &LOGS].concat();
    let alias = alias(name);
    assert_eq!(stderr(isolated(&alias.path).args(&flags), 1), NO_FILE);
    assert_eq!(stderr(mcm(&[name]).args(&flags), 1), NO_FILE);
}

#[test]
fn run_takes_the_flags_of_both_and_its_own() {
    let own = ["--log-format=json", "--simulated-cloud=http://127.0.0.1:8080", "--provider=simulated"];
    let flags = [&["run"], &SHARED[..], &MACHINE_CONTROLLER, &MANAGER, &own, &LOGS].concat();
    assert_eq!(stderr(&mut mcm(&flags), 1), NO_FILE);
}

const SEE_HELP: &str = "see mcm machine-controller --help";

/// The exit codes are those of the Go program: 2 for invalid flags, 1 for forbidden values.
#[rstest]
#[case("--port=0", 1, "--port=0: must be a port number from 1 to 65535", SEE_HELP)]
#[case("--port=65536", 1, "--port=65536: must be a port number from 1 to 65535", SEE_HELP)]
#[case("--port=99999999999", 1, "--port=99999999999: must be a port number from 1 to 65535", SEE_HELP)]
#[case("--port=http", 2, "--port=http: must be a port number from 1 to 65535", SEE_HELP)]
#[case("--port", 2, "--port needs a value", SEE_HELP)]
#[case("--port=", 2, "--port=: must be a port number from 1 to 65535", SEE_HELP)]
#[case(
    "--address=localhost",
    2,
    "--address=localhost: must be an IP address, such as 0.0.0.0 (all interfaces), 127.0.0.1 or ::",
    SEE_HELP
)]
#[case("--concurrent-syncs=0", 1, "--concurrent-syncs=0: must be a number of workers, 1 or more", SEE_HELP)]
#[case("--kube-api-qps=0", 1, "--kube-api-qps=0: must be a number of requests per second above 0", SEE_HELP)]
#[case("--kube-api-qps=NaN", 1, "--kube-api-qps=NaN: must be a number of requests per second above 0", SEE_HELP)]
#[case("--kube-api-burst=-1", 1, "--kube-api-burst=-1: must be a number, 0 or more", SEE_HELP)]
#[case("--machine-max-evict-retries=-1", 1, "--machine-max-evict-retries=-1: must be a number, 0 or more", SEE_HELP)]
#[case(
    "--machine-drain-timeout=-1s",
    1,
    "--machine-drain-timeout=-1s: must be a duration of zero or more, such as 90s, 20m or 1h30m",
    SEE_HELP
)]
#[case(
    "--machine-safety-orphan-vms-period=30",
    2,
    "--machine-safety-orphan-vms-period=30: must be a duration of zero or more, such as 90s, 20m or 1h30m",
    "a duration needs a unit: write 30s for seconds, 30m for minutes"
)]
#[case(
    "--machine-safety-apiserver-statuscheck-period=10s",
    1,
    "--machine-safety-apiserver-statuscheck-period=10s: must not be less than --machine-safety-apiserver-statuscheck-timeout=30s",
    SEE_HELP
)]
#[case(
    "--namespace=Shoot_1",
    1,
    "--namespace=Shoot_1: must be the name of one namespace: 1 to 63 of a-z, 0-9 and \"-\", not at the start or end",
    SEE_HELP
)]
#[case(
    "--kube-api-content-type=json",
    1,
    "--kube-api-content-type=json: must be a media type, such as application/json",
    SEE_HELP
)]
#[case(
    "--target-kubeconfig=none",
    1,
    "--control-kubeconfig must not be empty when --target-kubeconfig is none",
    SEE_HELP
)]
#[case("--leader-elect=yes", 2, "--leader-elect=yes: must be true or false", SEE_HELP)]
#[case(
    "--leader-elect false",
    2,
    "unexpected argument \"false\"",
    "a boolean flag takes its value after \"=\": --leader-elect=false"
)]
#[case("--log-format=xml", 2, "--log-format=xml: must be one of text, json, klog", SEE_HELP)]
#[case(
    "--simulated-cloud=localhost",
    2,
    "--simulated-cloud=localhost: must be embedded, or an http URL such as http://127.0.0.1:10270",
    SEE_HELP
)]
#[case("--machine-drain-timout=2h", 2, "unknown flag --machine-drain-timout", "did you mean --machine-drain-timeout?")]
#[case("--kubeconfig-of-nobody=x", 2, "unknown flag --kubeconfig-of-nobody", SEE_HELP)]
#[case("-namespace=x", 2, "unknown flag -n in -namespace=x", "long flags take two dashes: --namespace")]
#[case("--safety-up=1", 2, "unknown flag --safety-up", "machine-controller-manager has this flag")]
fn a_wrong_flag_is_named_with_what_is_allowed(
    #[case] flags: &str,
    #[case] code: i32,
    #[case] error: &str,
    #[case] hint: &str,
) {
    let said = stderr(mcm(&["machine-controller"]).args(flags.split(' ')), code);
    assert_eq!(said, format!("error: {error}\nhint: {hint}\n"));
}

#[rstest]
#[case(&["crd", "Machin"], 2, "error: print the definition of kind \"Machin\": there is no such kind", "did you mean Machine?")]
#[case(&["crd", "--cluster-api", "Machine"], 2, "error: mcm crd takes --cluster-api or KIND, not both", "mcm crd | kubectl apply --server-side --force-conflicts -f -")]
#[case(&["adopt", "plan", "--cluster=c", "--from=capi", "--to=capi"], 2, "error: --from and --to are the same side", "--from capi --to native, or --from native --to capi")]
#[case(&["adopt", "plan", "--from=capi"], 2, "error: this migration needs --cluster NAME", "mcm adopt plan --cluster demo --from capi --to native")]
#[case(&["completion"], 2, "error: mcm completion needs SHELL", "source <(mcm completion bash)")]
#[case(&["adopt", "plan", "--cluster=c", "--to=native", "--kubeconfig=/nonexistent/k"], 1, "error: read kubeconfig /nonexistent/k (--kubeconfig): no such file", "check the path, and that the secret is mounted")]
#[case(&["adopt", "plan", "--cluster=c", "--to=native"], 1, "error: find a cluster: KUBECONFIG is not set", "pass --kubeconfig FILE")]
#[case(&["demo", "--kubeconfig=/nonexistent/k"], 1, "error: read kubeconfig /nonexistent/k (--kubeconfig): no such file", "check the path, and that the secret is mounted")]
#[cfg_attr(feature = "remote", case(&["driver", "test"], 2, "error: mcm driver test needs --filename FILE and ADDRESS", "mcm driver test unix:///run/mcm/aws.sock -f class.yaml --secret secret.yaml"))]
fn a_mistake_is_answered_with_the_next_step(
    #[case] args: &[&str],
    #[case] code: i32,
    #[case] error: &str,
    #[case] hint: &str,
) {
    let said = stderr(&mut mcm(args), code);
    assert!(said.starts_with(error), "{said}");
    assert!(said.ends_with(&format!("\nhint: {hint}\n")), "{said}");
}

#[rstest]
#[case(&["machine-controller-manager", "--machine-max-evict-retries=30"], "machine-controller")]
#[case(&["machine-controller", "--safety-down=1"], "machine-controller-manager")]
fn a_flag_of_the_other_go_program_is_recognized(#[case] args: &[&str], #[case] program: &str) {
    assert!(stderr(&mut mcm(args), 2).ends_with(&format!("\nhint: {program} has this flag\n")));
}

#[rstest]
#[case(&["run", "--port=0"])]
#[case(&["run", "--target-kubeconfig=none"])]
#[case(&["presence", "--namespace=shoot--a--one"])]
#[case(&["presence", "--port=0"])]
#[case(&["rnu"])]
#[case(&["crd", "--nope"])]
#[case(&["completion", "tcsh"])]
#[case(&["completion"])]
fn a_wrong_use_of_mcm_itself_leaves_with_2(#[case] args: &[&str]) {
    let said = stderr(&mut mcm(args), 2);
    assert!(said.starts_with("error: ") && said.contains("\nhint: ") && said.lines().count() == 2, "{said}");
}

#[test]
fn no_command_is_answered_with_the_commands() {
    let said = stderr(&mut mcm(&[]), 2);
    assert!(said.contains("Usage: mcm <COMMAND>"), "{said}");
}

#[test]
fn a_missing_command_is_answered_in_the_words_of_the_user() {
    let alias = alias("kubectl-mcm");
    let said = stderr(isolated(&alias.path).arg("xyzzy"), 2);
    assert_eq!(said, "error: unknown command \"xyzzy\"\nhint: see kubectl mcm --help\n");
}

#[test]
fn outside_a_pod_a_go_program_needs_a_kubeconfig() {
    let said = stderr(&mut mcm(&["machine-controller-manager"]), 1);
    assert!(said.starts_with("error: use the credentials of this pod (--target-kubeconfig): "), "{said}");
    assert!(said.contains("\nhint: outside a pod pass a kubeconfig file with that flag"), "{said}");
}

#[test]
fn run_says_where_it_has_looked_for_a_cluster() {
    assert_eq!(
        stderr(&mut mcm(&["run"]), 1),
        "error: find a cluster: KUBECONFIG is not set, ~/.kube/config does not exist, and the process does not run in a pod\n\
         hint: pass --target-kubeconfig FILE\n"
    );
}

#[rstest]
#[case("KUBECONFIG")]
#[case("HOME")]
fn run_finds_the_kubeconfig_of_its_user(#[case] variable: &str) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(".kube").join("config");
    fs::create_dir(folder.path().join(".kube")).unwrap();
    fs::write(&path, "current-context: nowhere").unwrap();
    let value = if variable == "HOME" { folder.path() } else { &path };
    let said = stderr(mcm(&["run"]).env(variable, value), 1);
    assert!(said.contains("failed to load current context: nowhere"), "{said}");
}

#[test]
fn an_api_server_that_is_not_there_is_named_within_seconds() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("config");
    let kubeconfig = r#"{"current-context": "it", "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"name": "it", "user": {}}]}"#;
    fs::write(&path, kubeconfig).unwrap();
    let started_at = Instant::now();
    let said = stderr(mcm(&["run", "--target-kubeconfig"]).arg(&path), 1);
    assert!(started_at.elapsed() < Duration::from_secs(40));
    assert!(said.starts_with("error: reach the API server https://127.0.0.1:1: Connection refused ("), "{said}");
    assert!(
        said.ends_with(
            ") (tried for 10 s)\n\
             hint: check the server's address in the kubeconfig, and that the server is up and reachable from here\n"
        ),
        "{said}"
    );
}

#[test]
fn a_proxy_of_the_environment_is_not_asked_for_this_host() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("config");
    let kubeconfig = r#"{"current-context": "it", "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": "https://127.0.0.1:1", "proxy-url": "PROXY"}}],
        "users": [{"name": "it", "user": {}}]}"#;
    fs::write(&path, kubeconfig.replace(r#", "proxy-url": "PROXY""#, "")).unwrap();
    // A proxy of this kind cannot be used, so that its use would be reported at once.
    let mut command = mcm(&["machine-controller", "--target-kubeconfig"]);
    let said = stderr(command.arg(&path).env("HTTPS_PROXY", "ftp://user:pass@proxy.example"), 1);
    assert!(said.starts_with("error: reach the API server https://127.0.0.1:1: Connection refused"), "{said}");

    fs::write(&path, kubeconfig.replace("PROXY", "ftp://user:pass@proxy.example")).unwrap();
    let said = stderr(mcm(&["machine-controller", "--target-kubeconfig"]).arg(&path), 1);
    assert_eq!(
        said,
        "error: create a client for the API server https://127.0.0.1:1: only http and https proxies are supported\n\
         hint: check the certificates, keys and the proxy in the kubeconfig\n"
    );
}

#[test]
fn a_log_filter_that_cannot_be_read_is_refused() {
    let said = stderr(mcm(&["run", "--target-kubeconfig=/nonexistent/config"]).env("RUST_LOG", "mcm=loud"), 1);
    assert!(said.starts_with("error: read RUST_LOG=\"mcm=loud\": "), "{said}");
}

#[test]
fn the_version_is_one_line_by_flag_and_more_by_command() {
    let line = format!("mcm {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(stdout(&mut mcm(&["--version"])), line);
    let text = stdout(&mut mcm(&["version"]));
    assert!(text.starts_with(&line) && text.contains("api: machine.sapcloud.io/v1alpha1\n"), "{text}");
}

#[rstest]
#[case("bash", "complete -F _mcm mcm")]
#[case("zsh", "#compdef mcm")]
#[case("fish", "complete -c mcm")]
fn shells_complete_with_the_hidden_command(#[case] shell: &str, #[case] mark: &str) {
    let script = stdout(&mut mcm(&["completion", shell]));
    assert!(script.contains(mark) && script.contains("__complete"));
}

#[rstest]
#[case("elvish")]
#[case("powershell")]
fn other_shells_complete_commands_and_flags(#[case] shell: &str) {
    assert!(stdout(&mut mcm(&["completion", shell])).contains("machine-drain-timeout"));
}

/// bash with the script, as if a user had pressed Tab after some words.
#[rstest]
#[case("mcm machine-controller --machine-drain", "--machine-drain-timeout")]
#[case("mcm comp", "completion")]
fn bash_completes_a_line(#[case] line: &str, #[case] expected: &str) {
    let script = "source <(\"$MCM\" completion bash); read -ra COMP_WORDS <<< \"$LINE\"; COMP_WORDS[0]=$MCM; \
                  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _mcm; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).env("MCM", cargo_bin!("mcm")).env("LINE", line).env("HOME", "/nonexistent");
    assert_eq!(stdout(&mut bash), format!("{expected}\n"));
}

/// kubectl calls `kubectl_complete-mcm` with the words behind `kubectl mcm`.
#[test]
fn kubectl_completes_the_plugin() {
    let alias = alias("kubectl-mcm");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/kubectl/kubectl_complete-mcm");
    let mut command = Command::new(program);
    command.env("PATH", format!("{}:/usr/bin:/bin", alias.path.parent().unwrap().display())).args(["wh"]);
    let text = stdout(&mut command);
    assert!(text.starts_with("why\t") && text.ends_with("\n:4\n"), "{text}");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = TempDir::new().unwrap();
    stdout(&mut mcm(&["man", folder.path().to_str().unwrap()]));
    for name in ["mcm.1", "mcm-run.1", "mcm-why.1", "mcm-check.1", "mcm-check-takeover.1", "mcm-class-check.1"] {
        let page = fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
}

const NATIVE: &str = "\
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata: {name: pool, namespace: demo}
spec:
  replicas: 2
  revisionHistoryLimit: 3
  selector: {matchLabels: {name: pool}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  template:
    metadata: {labels: {name: pool}}
    spec: {class: {kind: MachineClass, name: small}}
";

fn class(spec: &str) -> String {
    format!(
        "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\nmetadata: {{name: small}}\n\
         provider: simulated\nproviderSpec: {spec}\n"
    )
}

#[rstest]
#[case("{region: r}", 0, &["MachineClass default/small (simulated): no error was found"])]
#[case("{regoin: r}", 0, &["warning", "providerSpec.regoin", "unknown"])]
#[case("{createLatency: soon, zone: 7}", 3, &["no VM can be created", "providerSpec.createLatency", "providerSpec.zone"])]
fn class_check_reports_every_problem_with_its_path(#[case] spec: &str, #[case] code: i32, #[case] expected: &[&str]) {
    let output = mcm(&["class", "check", "-f", "-"]).write_stdin(class(spec)).assert().code(code).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in expected {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let error = if code == 0 { "" } else { "error: no VM can be created from 1 of 1 classes\n" };
    assert_eq!(String::from_utf8(output.stderr).unwrap(), error);
}

#[rstest]
#[case("{cpu: 2 cores, gpu: 0, memory: 8GB}", &["nodeTemplate.capacity.cpu", "nodeTemplate.capacity.memory"])]
#[case("{cpu: 2}", &["nodeTemplate.capacity", "has no gpu", "has no memory"])]
fn class_check_refuses_what_the_api_server_refuses(#[case] capacity: &str, #[case] expected: &[&str]) {
    let template = format!("nodeTemplate: {{capacity: {capacity}, instanceType: t, region: r, zone: z}}\n");
    let class = format!("{}{template}", class("{}"));
    let output = mcm(&["class", "check", "-f", "-"]).write_stdin(class).assert().code(3).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(expected.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn class_check_reads_the_files_of_a_folder() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("a.yaml"), class("{}")).unwrap();
    fs::write(folder.path().join("README.md"), "not an object").unwrap();
    let text = stdout(mcm(&["class", "check", "-f"]).arg(folder.path()));
    assert!(text.starts_with("MachineClass default/small"), "{text}");
}

/// Classes as charts of other projects render them. A build without the driver of a cloud names the feature.
#[rstest]
#[case("alicloud", cfg!(feature = "alicloud"))]
#[case("aws", cfg!(feature = "aws"))]
#[case("azure", cfg!(feature = "azure"))]
#[case("equinix-metal", cfg!(feature = "equinix-metal"))]
#[case("gcp", cfg!(feature = "gcp"))]
#[case("kubevirt", cfg!(feature = "kubevirt"))]
#[case("metal-stack", cfg!(feature = "metal-stack"))]
#[case("openstack", cfg!(feature = "openstack"))]
#[case("vsphere", cfg!(feature = "vsphere"))]
#[case("yandex", cfg!(feature = "yandex"))]
fn class_check_accepts_real_classes_of_each_cloud(#[case] cloud: &str, #[case] is_built: bool) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/drivers/{cloud}/tests/gardener.yaml"));
    let code = if is_built { 0 } else { 3 };
    let output = mcm(&["class", "check", "-f"]).arg(file).assert().code(code).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error ")).collect();
    let hint = format!("build it with --features {cloud}, or pass a remote driver");
    assert_eq!(errors.is_empty(), is_built, "{text}");
    assert!(errors.iter().all(|error| error.contains(&hint)), "{text}");
    assert_eq!(text.contains("no error was found"), is_built, "{text}");
}

#[test]
fn version_names_the_drivers_of_the_build() {
    let text = stdout(&mut mcm(&["version"]));
    let drivers = text.lines().find(|line| line.starts_with("drivers: ")).unwrap();
    assert!(drivers.contains("simulated"), "{drivers}");
    let left_out = drivers.split_once('(').map_or("", |(_, left_out)| left_out);
    assert_eq!(left_out.contains("AWS"), !cfg!(feature = "aws"), "{drivers}");
    assert!(text.contains("platform: linux/"), "{text}");
}

#[test]
fn class_check_prints_json_for_programs() {
    let mut command = mcm(&["class", "check", "-f", "-", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&stdout(command.write_stdin(class("{}")))).unwrap();
    assert_eq!(report["classes"][0]["isUsable"], true);
}

#[test]
fn a_driver_that_cannot_look_into_its_cloud_says_so() {
    let mut command = mcm(&["class", "check", "--live", "-f", "-"]);
    let text = stdout(command.write_stdin(class("{}")));
    assert!(text.contains("driver simulated cannot inspect its cloud"), "{text}");
}

#[rstest]
#[case(&["class", "check", "-f", "/nonexistent/x.yaml"], 1, "error: read /nonexistent/x.yaml: No such file")]
#[case(&["class", "check", "-f", "/dev/null"], 1, "error: there is no MachineClass in /dev/null")]
#[case(&["class", "check"], 2, "error: mcm class check needs --filename FILE\nhint: mcm class check -f class.yaml -f secret.yaml\n")]
#[cfg_attr(feature = "remote", case(&["class", "check", "-f", "/dev/null", "--driver=p"], 2, "error: --driver=p: must be NAME=ADDRESS"))]
fn class_check_says_what_is_wrong_with_its_arguments(#[case] args: &[&str], #[case] code: i32, #[case] error: &str) {
    let text = stderr(&mut mcm(args), code);
    assert!(text.starts_with(error), "{text}");
}

#[test]
fn convert_works_in_a_pipe() {
    let capi = mcm(&["convert", "--to=capi", "--cluster", "c1", "-f", "-"]).write_stdin(NATIVE).output().unwrap();
    assert!(capi.status.success());
    let warning = "warning: MachineDeployment pool: spec.revisionHistoryLimit: is not known to Cluster API";
    assert!(String::from_utf8(capi.stderr).unwrap().starts_with(warning));
    let text = String::from_utf8(capi.stdout).unwrap();
    let kinds: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
    assert_eq!(kinds, ["MachineDeployment", "MCMMachineTemplate", "MachineHealthCheck"]);

    let native = stdout(mcm(&["convert", "--to", "native", "--cluster=c1", "-f", "-", "-o", "json"]).write_stdin(text));
    let native: serde_json::Value = serde_json::from_str(&native).unwrap();
    let expected: serde_json::Value = serde_yaml_ng::from_str(NATIVE).unwrap();
    assert_eq!(native, expected);
}

#[test]
fn convert_lists_every_refusal_and_prints_no_half_result() {
    let folder = TempDir::new().unwrap();
    let (good, bad) = (folder.path().join("good.yaml"), folder.path().join("bad.yaml"));
    fs::write(&good, NATIVE).unwrap();
    let broken = NATIVE
        .replace("replicas: 2", "replicas: 2\n  repicas: 3\n  rollbackTo: {}")
        .replace("name: pool, n", "name: bad, n");
    fs::write(&bad, broken).unwrap();
    let mut command = mcm(&["convert", "--to=capi", "--cluster=c1", "-f"]);
    let said = stderr(command.arg(&good).arg("-f").arg(&bad), 1);
    assert_eq!(
        said,
        "error: MachineDeployment bad: spec.repicas: is not a field of this kind; correct or remove it\n\
         error: MachineDeployment bad: spec.rollbackTo: a rollback is about to begin; wait until the controller has cleared it\n\
         error: 2 problems in 1 object: nothing was printed\n"
    );
}

#[rstest]
#[case(&["convert", "--to=capi", "-f", "/nonexistent/x.yaml"], 1, "error: read /nonexistent/x.yaml: No such file")]
#[case(&["convert", "--to=capi", "-f", "/dev/null"], 1, "error: there is no object in /dev/null")]
#[case(&["convert", "--to=gcp", "-f", "-"], 2, "error: --to=gcp: must be one of native, capi")]
#[case(&["convert", "--to=capi"], 2, "error: mcm convert needs --filename FILE\nhint: mcm convert --to native -f cluster.yaml\n")]
fn convert_says_what_is_wrong_with_its_arguments(#[case] args: &[&str], #[case] code: i32, #[case] error: &str) {
    let said = stderr(&mut mcm(args), code);
    assert!(said.starts_with(error), "{said}");
}

#[cfg(feature = "remote")]
mod drivers {
    use std::{
        io::{BufRead, BufReader},
        process::{Child, Command, Stdio},
    };

    use super::*;

    const CLASS: &str = "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\nmetadata: {name: c, namespace: n}\nprovider: simulated\nproviderSpec: {}\n";

    /// `mcm driver serve`, until it is dropped.
    struct Server(Child);

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn serve(socket: &Path) -> Server {
        let mut child = Command::new(cargo_bin!("mcm"))
            .args(["driver", "serve", "--provider=simulated", "--listen", &format!("unix://{}", socket.display())])
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("drivers served")));
        Server(child)
    }

    fn files(class: &str) -> (TempDir, PathBuf, PathBuf) {
        let folder = TempDir::new().unwrap();
        let (socket, file) = (folder.path().join("driver.sock"), folder.path().join("class.yaml"));
        fs::write(&file, class).unwrap();
        (folder, socket, file)
    }

    #[test]
    fn a_driver_that_is_served_passes_the_test() {
        let (folder, socket, class) = files(CLASS);
        let _server = serve(&socket);
        let address = format!("unix://{}", socket.display());
        let invalid = folder.path().join("invalid.yaml");
        fs::write(&invalid, CLASS.replace("{}", "{zone: 7}")).unwrap();
        let report = stdout(
            mcm(&["driver", "test", &address, "-o", "json", "-f"]).arg(&class).arg("--invalid-class").arg(&invalid),
        );
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["failed"], 0, "{report:#}");
        assert!(report["passed"].as_u64().unwrap() >= 15, "{report:#}");

        // A class that the driver calls invalid is a bad subject: checks fail, and the exit code shows it.
        let output = mcm(&["driver", "test", &address, "-f"]).arg(&invalid).output().unwrap();
        let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(text.contains("FAILED") && text.contains("WHAT TO DO"), "{text}");
        assert!(text.lines().all(|line| line.is_ascii()), "a pipe gets plain columns: {text}");
        assert_eq!(text.matches("not run: no VM can be created from the class").count(), 18, "{text}");
        assert!(said.starts_with("error: ") && said.contains(" checks failed"), "{said}");
    }

    #[test]
    fn a_driver_that_cannot_be_tested_leaves_with_1() {
        let (_folder, socket, class) = files(CLASS);
        let address = format!("unix://{}", socket.display());
        let said = stderr(mcm(&["driver", "test", &address, "-f"]).arg(&class), 1);
        assert!(said.starts_with(&format!("error: driver simulated at {address}: ")), "{said}");
        let said = stderr(mcm(&["driver", "test", "http://driver.example:1", "-f"]).arg(&class), 1);
        assert!(said.contains("unencrypted"), "{said}");
        let said = stderr(&mut mcm(&["driver", "test", &address, "-f", "/nonexistent"]), 1);
        assert!(said.contains("read /nonexistent"), "{said}");
    }

    #[rstest]
    #[case("--driver=aws", 2, "--driver=aws: must be NAME=ADDRESS")]
    #[case("--driver=aws=http://driver:1", 1, "credentials would be sent unencrypted")]
    #[case("--driver=aws=https://driver:1", 1, "https needs the CA of the driver")]
    #[case("--driver=aws=unix:///a --driver=aws=unix:///b", 1, "given twice")]
    fn an_unsafe_or_unclear_driver_is_refused(#[case] flags: &str, #[case] code: i32, #[case] error: &str) {
        let said = stderr(mcm(&["machine-controller"]).args(flags.split(' ')), code);
        assert!(said.contains(error), "{said}");
    }
}

/// An error, and not a process that is ready and does nothing.
#[test]
fn a_limit_of_open_files_that_allows_no_cell_ends_the_process() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("cells.yaml");
    fs::write(&file, "cells:\n- {name: a, namespace: n, targetKubeconfig: none}\n").unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = r#"ulimit -n 100 && exec "$0" run --address=127.0.0.1 --port="$1" --cells="$2""#;
    let mut shell = isolated("/bin/sh");
    shell.args(["-c", script]).arg(cargo_bin!("mcm")).arg(port.to_string()).arg(&file);
    let text = stderr(&mut shell, 1);
    assert!(text.contains("the limit of open files allows no cell: raise it to 120 or more"), "{text}");
}
