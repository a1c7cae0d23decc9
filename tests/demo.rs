//! `mcm demo` on the control planes that it starts, and kubectl on the embedded one.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use regex::Regex;
use rstest::rstest;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);

/// The programs of a control plane, which `hack/control-plane` finds or builds.
fn assets() -> PathBuf {
    if let Some(given) = env::var_os("KUBEBUILDER_ASSETS") {
        return given.into();
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/control-plane");
    let found = Command::new(script).arg("get").output().unwrap();
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    String::from_utf8(found.stdout).unwrap().trim().into()
}

/// A demo whose temporary files are in a folder of the test.
fn demo(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcm"));
    command.arg("demo").args(arguments).env("TMPDIR", folder).env("CI", "true").current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The flags of a demo on a control plane.
fn flags(plane: &str) -> Vec<String> {
    match plane {
        "real" => vec!["--control-plane-binaries".to_owned(), assets().to_str().unwrap().to_owned()],
        _ => Vec::new(),
    }
}

fn demo_on(plane: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = demo(folder, arguments);
    command.args(flags(plane));
    command
}

/// The programs that have the folder in their command line.
fn running_in(folder: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let texts = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    texts.filter(|text| text.contains(folder.to_str().unwrap())).collect()
}

fn interrupt(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The folder has no files, and no process of it runs.
fn assert_nothing_left(folder: &Path) {
    assert_eq!(running_in(folder), [""; 0]);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}

#[test]
fn a_demo_brings_its_control_plane_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), &["--output=json"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let first = said(&output).lines().next().unwrap().to_owned();
    assert!(first.contains("embedded API server") && first.contains("mcm demo --control-plane real"), "{first}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["acts"].as_array().unwrap().len(), 5, "{summary}");
    assert_eq!(summary["vms_alive"], 0);
    assert_nothing_left(folder.path());
}

/// The acts and their results, and the states of machines in each act, without names and times.
fn acts(output: &Output) -> (Vec<String>, Vec<BTreeSet<String>>) {
    let names = Regex::new(r"pool-[0-9a-z]+-[0-9a-z]+").unwrap();
    let times = Regex::new(r" *\d+\.\d( s)?").unwrap();
    let spaces = Regex::new(r"  +|═+|─+").unwrap();
    let (mut said_lines, mut states) = (Vec::new(), Vec::new());
    for line in said(output).lines().skip(1) {
        let line = names.replace_all(line, "MACHINE");
        let line = times.replace_all(&line, " TIME");
        match line.strip_prefix("  MACHINE: ") {
            Some(state) => {
                let last: &mut BTreeSet<String> = states.last_mut().unwrap();
                last.extend(state.split(" → ").map(str::to_owned));
            }
            None => {
                if line.starts_with('▶') {
                    states.push(BTreeSet::new());
                }
                said_lines.push(spaces.replace_all(&line, " ").into_owned());
            }
        }
    }
    (said_lines, states)
}

/// The states without those of a moment, which may be missed between two looks. A machine without pods is deleted in a moment.
fn lasting(states: &BTreeSet<String>) -> BTreeSet<String> {
    let mut lasting = states - &["Creating", "Unknown", "Failed", "Terminating"].map(str::to_owned).into();
    if lasting.contains("deleted") {
        lasting.remove("Running");
    }
    lasting
}

#[test]
fn the_acts_are_the_same_on_both_control_planes() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let start = |plane: &str, folder: &tempfile::TempDir| demo_on(plane, folder.path(), &[]).spawn().unwrap();
    let children = [start("embedded", &folders[0]), start("real", &folders[1])];
    let [embedded, real] = children.map(|child| child.wait_with_output().unwrap());
    for (output, folder) in [&embedded, &real].into_iter().zip(&folders) {
        assert!(output.status.success(), "{}", said(output));
        assert_nothing_left(folder.path());
    }
    let (embedded, real) = (acts(&embedded), acts(&real));
    assert_eq!(embedded.0, real.0);
    assert_eq!(embedded.0.iter().filter(|line| line.starts_with('▶')).count(), 5, "{embedded:?}");
    for (embedded, real) in embedded.1.iter().zip(&real.1) {
        assert_eq!(lasting(embedded), lasting(real));
    }
}

#[rstest]
#[case::by_ctrl_c("real", "-INT")]
#[case::by_sigterm("real", "-TERM")]
#[case::embedded("embedded", "-INT")]
fn a_demo_that_is_stopped_ends_its_processes(#[case] plane: &str, #[case] signal: &str) {
    let folder = tempfile::tempdir().unwrap();
    let child = demo_on(plane, folder.path(), &["--output=json"]).spawn().unwrap();
    let start = Instant::now();
    // The manager is the last process that is started.
    while !running_in(folder.path()).iter().any(|line| line.contains("--machine-health-timeout")) {
        assert!(start.elapsed() < LIMIT, "{:?}", running_in(folder.path()));
        std::thread::sleep(Duration::from_millis(20));
    }
    interrupt(&child, signal);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("error: the demo was stopped"), "{}", said(&output));
    while !running_in(folder.path()).is_empty() {
        assert!(start.elapsed() < LIMIT, "{:?}", running_in(folder.path()));
        std::thread::sleep(Duration::from_millis(20));
    }
    let left: Vec<PathBuf> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.iter().all(|path| path.join("logs").is_dir() && !path.join("control-plane").exists()), "{left:?}");
}

#[test]
fn a_demo_without_programs_prints_the_command_that_downloads_them() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), &["--control-plane=real", "--control-plane-binaries", "."]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = "error: start a control plane for the demo: there is no etcd, no kube-apiserver, \
                no kube-controller-manager, no kube-scheduler in . (--control-plane-binaries)\nhint: mkdir -p";
    assert!(said(&output).starts_with(text), "{}", said(&output));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A demo that runs on, until it is dropped.
struct KeptDemo {
    folder: tempfile::TempDir,
    child: Child,
    kubeconfig: PathBuf,
}

impl KeptDemo {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = demo(folder.path(), &["--keep"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.find(|line| line.contains("export KUBECONFIG=")).unwrap();
        let kubeconfig = line.split_once('=').unwrap().1.into();
        // The pipe has to be read until the demo ends.
        std::thread::spawn(move || lines.for_each(drop));
        Self { folder, child, kubeconfig }
    }

    fn kubectl(&self, arguments: &str) -> Command {
        let mut command = Command::new(assets().join("kubectl"));
        command.args(arguments.split(' ')).env("KUBECONFIG", &self.kubeconfig).env("HOME", self.folder.path());
        command.current_dir(self.folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A line of a page, with mcm and kubectl in the path.
    fn shell(&self, line: &str) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_mcm")).parent().unwrap().display();
        let path = format!("{}:{program}:/usr/bin:/bin", assets().display());
        let mut command = Command::new("bash");
        command
            .args(["-c", line])
            .env("PATH", path)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.folder.path());
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// The output of a command that succeeds.
    #[track_caller]
    fn prints(&self, arguments: &str) -> String {
        let output = self.kubectl(arguments).output().unwrap();
        assert!(output.status.success(), "kubectl {arguments}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error of a command that fails.
    #[track_caller]
    fn refuses(&self, arguments: &str) -> String {
        let output = self.kubectl(arguments).output().unwrap();
        assert!(!output.status.success(), "kubectl {arguments}: {}", String::from_utf8_lossy(&output.stdout));
        said(&output)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }
}

impl Drop for KeptDemo {
    fn drop(&mut self) {
        interrupt(&self.child, "-INT");
        self.child.wait().unwrap();
    }
}

const POOL: &str = include_str!("../templates/simulated/pool.yaml");

#[test]
fn kubectl_works_on_the_embedded_api_server() {
    let demo = KeptDemo::start();
    assert_eq!(fs::metadata(&demo.kubeconfig).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(demo.refuses("get nodes --token=other").contains("must be logged in"));
    assert!(demo.prints("version").contains("-embedded"));

    // The objects of the demo, which its manager and its cloud keep.
    let all = demo.prints("get mcd,mcs,mc,mcc -n demo -o wide");
    for text in ["machinedeployment.machine.sapcloud.io/pool   2 ", "Running", "PROVIDERID", "simulated:///"] {
        assert!(all.contains(text), "{text}: {all}");
    }
    assert_eq!(demo.prints("get nodes").matches(" Ready ").count(), 2);
    let node = demo.prints("get nodes -o name").lines().next().unwrap().to_owned();
    let described = demo.prints(&format!("describe {node}"));
    for text in ["KubeletReady", "Allocated resources:", "workload-"] {
        assert!(described.contains(text), "{text}: {described}");
    }
    let described = demo.prints("describe mcd pool -n demo");
    assert!(described.contains("NewMachineSetAvailable") && described.contains("ScalingMachineSet"), "{described}");
    assert!(demo.prints("get events -n demo --field-selector type=Warning").contains("Unhealthy"));
    assert_eq!(demo.prints("get pods -n demo -l app=workload -o name").lines().count(), 6);
    assert!(demo.prints("explain mcd.spec.replicas").contains("Desired number of Machines"));
    assert_eq!(demo.prints("auth can-i delete nodes"), "yes\n");
    assert_eq!(demo.prints("auth whoami -o jsonpath={.status.userInfo.username}"), "mcm-demo");

    // A watch shows the machine of a scale, which the manager creates. The head and two rows are the list before it.
    let mut watch = demo.kubectl("get mc -n demo -w").spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.by_ref().take(3).count(), 3);
    assert!(demo.prints("scale mcd/pool -n demo --replicas=3").contains("scaled"));
    assert!(lines.any(|line| line.contains("Pending")) && lines.any(|line| line.contains("Running")));
    watch.kill().unwrap();
    watch.wait().unwrap();
    demo.prints("wait mcd/pool -n demo --for=jsonpath={.status.availableReplicas}=3 --timeout=60s");

    // Objects of another namespace, which no manager has.
    demo.write(
        "pool.yaml",
        &POOL.replace("namespace: demo", "namespace: other").replace("  name: demo", "  name: other"),
    );
    assert_eq!(demo.prints("apply -f pool.yaml").matches(" created").count(), 5);
    assert_eq!(
        demo.prints("apply -f pool.yaml").matches(" unchanged").count(),
        4,
        "all but the Secret with its stringData"
    );
    let token = demo.prints("get secret pool -n other -o jsonpath={.data.userData}");
    assert!(token.starts_with("I2Nsb3VkLWNvbmZpZw"), "{token}");
    assert!(demo.prints("diff -f pool.yaml").is_empty());
    demo.prints("patch mcd/pool -n other --type=merge -p {\"spec\":{\"paused\":true}}");
    demo.prints(
        "patch mcd/pool -n other --type=json -p [{\"op\":\"replace\",\"path\":\"/spec/replicas\",\"value\":7}]",
    );
    let spec = demo.prints("get mcd pool -n other -o jsonpath={.spec.paused},{.spec.replicas}");
    assert_eq!(spec, "true,7");
    assert!(demo.refuses("patch mcd/pool -n other -p {}").contains("not supported"));
    demo.prints("annotate mcd/pool -n other a=b");
    demo.prints("label mcd/pool -n other a=b");
    assert_eq!(demo.prints("get mcd -A -l a=b -o name").lines().count(), 1);
    demo.write("wrong.yaml", &POOL.replace("replicas: 5", "replica: 5"));
    assert!(demo.refuses("apply -f wrong.yaml").contains("unknown field \"spec.replica\""));
    demo.write(
        "crds.yaml",
        &String::from_utf8(Command::new(env!("CARGO_BIN_EXE_mcm")).arg("crd").output().unwrap().stdout).unwrap(),
    );
    let applied = demo.prints("apply --server-side --force-conflicts -f crds.yaml");
    assert_eq!(applied.matches("serverside-applied").count(), 4, "{applied}");
    demo.prints("wait crd --all --for=condition=Established --timeout=30s");
    assert!(demo.prints("delete mcd/pool -n other").contains("deleted"));
    assert!(demo.refuses("get mcd pool -n other").contains("NotFound"));
    demo.prints("delete namespace other --timeout=30s");
    assert!(demo.refuses("get namespace other").contains("NotFound"));

    // The steps of the tutorial after the first machines.
    let page = include_str!("../docs/tutorials/first-pool.md");
    let commands: Vec<&str> =
        page.split_once("## 3. ").unwrap().1.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(commands.len() >= 10 && commands.iter().any(|command| command.contains("rollout undo")), "{commands:?}");
    for command in commands {
        let output = demo.shell(command);
        // The exit code of this one says that something waits.
        assert!(output.status.success() || command.starts_with("mcm why"), "{command}: {}", said(&output));
    }
    assert!(said(&demo.kubectl("get nodes").output().unwrap()).contains("No resources found"));
}

/// The list of clouds that `hack/demo` prints.
#[test]
fn a_cloud_that_does_not_exist_is_answered_with_all_of_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("hack/demo")).env("CLOUD", "none").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let mut clouds: Vec<String> = fs::read_dir(root.join("src/drivers"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    clouds.sort();
    assert_eq!(said(&output), format!("demo: CLOUD is one of: simulated {}\n", clouds.join(" ")));
}
