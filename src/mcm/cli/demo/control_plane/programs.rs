//! The programs of a control plane: where they are on this machine, and how to get them.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use mcm_insight::error::UsageError;

/// Versions in the command that downloads them; those of the tests.
const KUBERNETES: &str = "v1.36.3";
const ETCD: &str = "v3.6.8";
/// Directory in the command that downloads them.
const DOWNLOADS: &str = "mcm-control-plane";
const NAMES: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// The programs of a control plane.
#[derive(Debug, PartialEq, Eq)]
pub struct ControlPlanePrograms {
    /// etcd.
    pub etcd: PathBuf,
    /// kube-apiserver.
    pub api_server: PathBuf,
    /// kube-controller-manager.
    pub controller_manager: PathBuf,
    /// kube-scheduler.
    pub scheduler: PathBuf,
}

impl ControlPlanePrograms {
    /// Finds them in a directory of the user's choice. Without one, in `KUBEBUILDER_ASSETS`, the default of which is
    /// `/usr/local/kubebuilder/bin`, and then in `PATH`.
    pub fn find(given: Option<&Path>) -> Result<Self, UsageError> {
        let assets = env::var_os("KUBEBUILDER_ASSETS").unwrap_or_else(|| "/usr/local/kubebuilder/bin".into());
        Self::find_in(&directories(given, &assets, &env::var_os("PATH").unwrap_or_default()), given)
    }

    fn find_in(directories: &[PathBuf], given: Option<&Path>) -> Result<Self, UsageError> {
        let found =
            NAMES.map(|name| directories.iter().map(|directory| directory.join(name)).find(|file| file.is_file()));
        match found {
            [Some(etcd), Some(api_server), Some(controller_manager), Some(scheduler)] => {
                Ok(Self { etcd, api_server, controller_manager, scheduler })
            }
            found => {
                let pairs = NAMES.into_iter().zip(&found);
                let missing: Vec<&str> = pairs.filter(|(_, file)| file.is_none()).map(|(name, _)| name).collect();
                Err(UsageError { message: text(&missing, given), hint: hint(&missing) })
            }
        }
    }
}

fn directories(given: Option<&Path>, assets: &OsStr, path: &OsStr) -> Vec<PathBuf> {
    match given {
        Some(given) => vec![given.to_owned()],
        None => [assets.into()].into_iter().chain(env::split_paths(path)).collect(),
    }
}

fn text(missing: &[&str], given: Option<&Path>) -> String {
    let place = given.map_or_else(
        || "in $KUBEBUILDER_ASSETS or $PATH".to_owned(),
        |given| format!("in {} (--control-plane-binaries)", given.display()),
    );
    format!("start a control plane for the demo: there is no {} {place}", missing.join(", no "))
}

/// One shell command that downloads what is missing and runs the demo.
fn hint(missing: &[&str]) -> String {
    let architecture = match env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    };
    let (etcd, kubernetes): (Vec<&str>, Vec<&str>) = missing.iter().partition(|name| **name == "etcd");
    let mut commands = vec![format!("mkdir -p {DOWNLOADS}")];
    if !kubernetes.is_empty() {
        let names = match kubernetes.as_slice() {
            [one] => (*one).to_owned(),
            several => format!("{{{}}}", several.join(",")),
        };
        commands.push(format!(
            "curl -fL --remote-name-all --output-dir {DOWNLOADS} https://dl.k8s.io/release/{KUBERNETES}/bin/linux/{architecture}/{names}"
        ));
    }
    if !etcd.is_empty() {
        let release = format!("etcd-{ETCD}-linux-{architecture}");
        commands.push(format!(
            "curl -fL https://github.com/etcd-io/etcd/releases/download/{ETCD}/{release}.tar.gz | tar -xz --strip-components=1 -C {DOWNLOADS} {release}/etcd"
        ));
    }
    commands.push(format!("chmod +x {DOWNLOADS}/*"));
    let download = commands.join(" && ");
    if missing.len() == NAMES.len() {
        format!(
            "{download} && mcm demo --control-plane-binaries {DOWNLOADS}; or pass --kubeconfig FILE to use a cluster"
        )
    } else {
        format!("{download}; then all four must be in one directory, or in $PATH")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn directory(programs: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for name in programs {
            fs::write(directory.path().join(name), "").unwrap();
        }
        directory
    }

    #[test]
    fn programs_are_found_in_the_assets_before_the_path() {
        let (assets, path) = (directory(&NAMES[..2]), directory(&NAMES));
        let directories = directories(None, assets.path().as_os_str(), path.path().as_os_str());
        let found = ControlPlanePrograms::find_in(&directories, None).unwrap();
        assert_eq!(found.etcd, assets.path().join("etcd"));
        assert_eq!(found.scheduler, path.path().join("kube-scheduler"));
    }

    #[test]
    fn a_given_directory_is_the_only_one() {
        let (given, other) = (directory(&NAMES[1..]), directory(&NAMES));
        let directories = directories(Some(given.path()), other.path().as_os_str(), other.path().as_os_str());
        let missing = ControlPlanePrograms::find_in(&directories, Some(given.path())).unwrap_err();
        let place = given.path().display();
        let text =
            format!("start a control plane for the demo: there is no etcd in {place} (--control-plane-binaries)");
        assert_eq!(missing.message, text);
        assert!(missing.hint.contains("/etcd-v3.6.8-linux-") && !missing.hint.contains("kube-"), "{}", missing.hint);
    }

    #[test]
    fn the_hint_is_a_command_that_a_shell_can_read() {
        let missing = ControlPlanePrograms::find_in(&[], None).unwrap_err();
        assert!(missing.message.ends_with(
            "no etcd, no kube-apiserver, no kube-controller-manager, no kube-scheduler in $KUBEBUILDER_ASSETS or $PATH"
        ));
        let command = missing.hint.split(';').next().unwrap();
        assert!(command.ends_with("&& mcm demo --control-plane-binaries mcm-control-plane"), "{command}");
        let checked = std::process::Command::new("bash").args(["-n", "-c", command]).status().unwrap();
        assert!(checked.success(), "{command}");
    }

    #[test]
    fn the_versions_to_download_are_those_of_the_tests() {
        let pin = |folder: &str, version: &str| {
            let file = format!("{}/hack/controlplane/{folder}/go.mod", env!("CARGO_MANIFEST_DIR"));
            assert!(fs::read_to_string(file).unwrap().contains(version), "{folder} {version}");
        };
        pin("kube", &format!("k8s.io/kubernetes {KUBERNETES}"));
        pin("etcd", &format!("go.etcd.io/etcd/server/v3 {ETCD}"));
    }
}
