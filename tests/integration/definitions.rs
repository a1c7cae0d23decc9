//! Our CRDs, installed with the command of the first tutorial, also over those of another program.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use mcm::api::crd::{crds, yaml};

use crate::support::control_plane::ControlPlane;

#[tokio::test]
async fn the_definitions_are_installed_over_those_of_another_program() {
    let control_plane = ControlPlane::apart().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    // Without rules, as the Go program brings them, and created by kubectl.
    for crd in crds() {
        let mut crd = crd;
        for version in &mut crd.spec.versions {
            let schema = version.schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
            schema.x_kubernetes_validations = None;
        }
        let file = folder.path().join(crd.metadata.name.as_deref().unwrap());
        std::fs::write(&file, yaml(&crd).unwrap()).unwrap();
        run(control_plane.kubeconfig(), "kubectl create -f FILE", &file);
    }
    let install = tutorial_line("mcm crd | kubectl");
    run(control_plane.kubeconfig(), &install, folder.path());
    run(
        control_plane.kubeconfig(),
        "kubectl get crd machines.machine.sapcloud.io -o yaml | grep -q x-kubernetes-validations",
        folder.path(),
    );
    // It can be repeated.
    run(control_plane.kubeconfig(), &install, folder.path());
}

/// A command of the first tutorial that contains this.
fn tutorial_line(part: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tutorials/first-pool.md");
    let page = std::fs::read_to_string(page).unwrap();
    let line = page.lines().find(|line| line.starts_with("$ ") && line.contains(part));
    line.unwrap().trim_start_matches("$ ").to_owned()
}

/// Runs a line in a shell that finds kubectl and this mcm.
fn run(kubeconfig: &Path, line: &str, file: &Path) {
    let mcm = Path::new(env!("CARGO_BIN_EXE_mcm")).parent().unwrap();
    let path =
        std::env::join_paths([mcm, &ControlPlane::programs().unwrap(), Path::new("/usr/bin"), Path::new("/bin")]);
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", &line.replace("FILE", "\"$FILE\"")])
        .env("KUBECONFIG", kubeconfig)
        .env("PATH", path.unwrap())
        .env("FILE", file)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}
