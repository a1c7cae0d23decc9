//! The local repository of clusterctl: `BASE/PROVIDER/VERSION/`, for all four providers, and the configuration that names
//! them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;

use crate::{
    support::objects::PLANTED,
    world::{LATER, VERSION},
};

/// Lays it out in a folder. `programs` has the releases of the other providers.
pub fn lay_out(folder: &Path, programs: &Path) {
    let base = folder.join("repository");
    for version in [VERSION, LATER] {
        let root = env!("CARGO_MANIFEST_DIR");
        let made = Command::new(format!("{root}/hack/release/clusterctl")).arg(version).arg(&base).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let folder = base.join("infrastructure-mcm").join(version);
        for (flavour, fixed) in [("simulated", "fixed"), ("machine-pool", "fixed-pool")] {
            let text = std::fs::read_to_string(folder.join(format!("cluster-template-{flavour}.yaml"))).unwrap();
            std::fs::write(folder.join(format!("cluster-template-{fixed}.yaml")), with_control_plane(&text)).unwrap();
        }
    }
    let (released, core) = (released(programs), core_version(programs));
    let cert_manager = base.join("cert-manager/v1.0.0/cert-manager.yaml");
    std::fs::create_dir_all(cert_manager.parent().unwrap()).unwrap();
    std::fs::write(&cert_manager, "apiVersion: v1\nkind: Namespace\nmetadata: {name: cert-manager}\n").unwrap();
    let provider = |name: &str, type_: &str, url: String| json!({"name": name, "type": type_, "url": url});
    let of_core = |folder: &str, file: &str| format!("{}/{folder}/{core}/{file}-components.yaml", released.display());
    let ours = format!("file://{}/infrastructure-mcm/latest/infrastructure-components.yaml", base.display());
    let providers = json!({
        "providers": [
            provider("mcm", "InfrastructureProvider", ours),
            provider("cluster-api", "CoreProvider", of_core("cluster-api", "core")),
            provider("kubeadm", "BootstrapProvider", of_core("bootstrap-kubeadm", "bootstrap")),
            provider("kubeadm", "ControlPlaneProvider", of_core("control-plane-kubeadm", "control-plane")),
        ],
        "cert-manager": {"externallyProvisioned": "true", "timeout": "60s", "version": "v1.0.0", "url": cert_manager},
    });
    std::fs::write(config(folder), serde_yaml_ng::to_string(&providers).unwrap()).unwrap();
}

/// The releases of core and of kubeadm's providers, which `hack/control-plane` makes.
fn released(programs: &Path) -> PathBuf {
    programs.join("repository")
}

/// The version of those releases.
pub fn core_version(programs: &Path) -> String {
    let folder = released(programs).join("cluster-api");
    let versions = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let names: Vec<String> = versions.map(|version| version.unwrap().file_name().into_string().unwrap()).collect();
    let [version]: [String; 1] = names.try_into().unwrap_or_else(|names| panic!("not one version of core: {names:?}"));
    version
}

/// The configuration of clusterctl.
pub fn config(folder: &Path) -> PathBuf {
    folder.join("clusterctl.yaml")
}

/// The flavour with an object for the control plane, so that the Cluster becomes Available.
fn with_control_plane(flavour: &str) -> String {
    const SPEC: &str = "spec:\n  controlPlaneEndpoint:";
    let reference = "{apiGroup: controlplane.cluster.x-k8s.io, kind: FixedControlPlane, name: \"${CLUSTER_NAME}\"}";
    assert!(flavour.contains(SPEC));
    let cluster = with_user_data(flavour).replacen(
        SPEC,
        &format!("spec:\n  controlPlaneRef: {reference}\n  controlPlaneEndpoint:"),
        1,
    );
    let object = "apiVersion: controlplane.cluster.x-k8s.io/v1beta2\nkind: FixedControlPlane\nmetadata:\n  \
                  name: ${CLUSTER_NAME}\n  namespace: ${NAMESPACE}\nspec:\n  version: ${KUBERNETES_VERSION}\n";
    format!("{cluster}---\n{object}")
}

/// Manifests whose user data contain a secret.
pub fn with_user_data(manifests: &str) -> String {
    const HEAD: &str = "    #cloud-config\n";
    assert!(manifests.contains(HEAD));
    manifests.replace(HEAD, &format!("{HEAD}    password: {PLANTED}\n"))
}
