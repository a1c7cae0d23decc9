//! `mcm demo` on the control plane that it starts.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

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

fn on_own_control_plane(folder: &Path) -> Command {
    demo(folder, &["--output=json", "--control-plane-binaries", assets().to_str().unwrap()])
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

#[test]
fn a_demo_brings_its_control_plane_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = on_own_control_plane(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["acts"].as_array().unwrap().len(), 5, "{summary}");
    assert_eq!(summary["vms_alive"], 0);
    assert_eq!(running_in(folder.path()), [""; 0]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[rstest]
#[case::by_ctrl_c("-INT")]
#[case::by_sigterm("-TERM")]
fn a_demo_that_is_stopped_ends_its_processes(#[case] signal: &str) {
    let folder = tempfile::tempdir().unwrap();
    let child = on_own_control_plane(folder.path()).spawn().unwrap();
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
    let output = demo(folder.path(), &["--control-plane-binaries", "."]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = "error: start a control plane for the demo: there is no etcd, no kube-apiserver, \
                no kube-controller-manager, no kube-scheduler in . (--control-plane-binaries)\nhint: mkdir -p";
    assert!(said(&output).starts_with(text), "{}", said(&output));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
