//! The life of a release: installed, upgraded, rolled back, uninstalled and installed again, while machines run.

use std::path::PathBuf;

use crate::{
    cluster::{CHART, Cluster, documents, play, play_apart},
    rights::Life,
    support::wait,
};

const CRD: &str = "machines.machine.sapcloud.io";
const NAME: &str = "mcm";

/// A copy of the chart, later by a version, with a field in a definition.
fn later_chart(cluster: &Cluster) -> PathBuf {
    let copy = cluster.folder.join("later");
    let copied = std::process::Command::new("cp").arg("-rL").arg(CHART).arg(&copy).status().unwrap();
    assert!(copied.success());
    let change = |file: &str, from: &str, to: &str| {
        let file = copy.join(file);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{}", file.display());
        std::fs::write(file, text.replacen(from, to, 1)).unwrap();
    };
    change("Chart.yaml", "version: 0.1.0\nappVersion: v0.1.0", "version: 0.2.0\nappVersion: v0.2.0");
    change("files/crds/machine.sapcloud.io_machines.yaml", "    categories:\n", "    categories:\n    - later\n");
    copy
}

fn categories(cluster: &Cluster) -> String {
    cluster.get("", "customresourcedefinition", CRD).unwrap()["spec"]["names"]["categories"].to_string()
}

fn image(cluster: &Cluster, namespace: &str) -> String {
    let deployment = cluster.get(namespace, "deployment", NAME).unwrap();
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

#[test]
fn machines_outlive_upgrade_rollback_and_uninstall() {
    play_apart(async |cluster| {
        let namespace = cluster.namespace("release").await;
        let helm = |words: &[&str]| cluster.helm(&[words, &["-n", &namespace]].concat());
        let installed = helm(&["install", NAME, CHART, "--set", "target.bootstrapTokens=true"]);
        for line in [
            "rollout status deployment/mcm",
            "helm test mcm",
            "mcm why -n ",
            "leaves the custom resource definitions, the machines and their VMs",
        ] {
            assert!(installed.contains(line), "{installed}");
        }
        wait::until("two pods", async || {
            let pods = cluster.kubectl(&["get", "pods", "-n", &namespace, "-o", "name"], "");
            (pods.lines().count() == 2).then_some(())
        })
        .await;
        let life = Life::begin(cluster, &namespace).await;
        let managers = cluster.start_deployment(&namespace, NAME, &life.cloud).await;
        life.pool(2).await;
        life.settled(2, "small").await;
        let before = life.scene.now().uids();

        let later = later_chart(cluster);
        helm(&["upgrade", NAME, later.to_str().unwrap()]);
        assert_eq!(
            (categories(cluster).as_str(), image(cluster, &namespace).as_str()),
            (r#"["later","mcm"]"#, "localhost/mcm:v0.2.0")
        );
        helm(&["rollback", NAME, "1"]);
        assert_eq!(
            (categories(cluster).as_str(), image(cluster, &namespace).as_str()),
            (r#"["mcm"]"#, "localhost/mcm:v0.1.0")
        );
        assert_eq!(life.scene.now().uids(), before);

        let said = helm(&["uninstall", NAME]);
        assert!(said.contains("kept due to the resource policy") && said.contains(CRD), "{said}");
        for mut manager in managers {
            manager.program.kill();
        }
        assert!(cluster.get(&namespace, "deployment", NAME).is_none() && cluster.get("", "crd", CRD).is_some());
        assert!(cluster.get("", "clusterrole", &format!("{namespace}-mcm-target")).is_none());
        assert_eq!(life.cloud.count("/alive").await, 2);
        assert_eq!(life.scene.now().uids(), before);

        // The definitions still belong to a release of this name.
        helm(&["install", NAME, CHART]);
        let _managers = cluster.start_deployment(&namespace, NAME, &life.cloud).await;
        life.end().await;
        assert_eq!(life.cloud.count("/created").await, 2, "VMs ever made");
    });
}

/// As `mcm crd | kubectl apply`, clusterctl or the Go programs leave them.
#[test]
fn definitions_of_others_are_taken_over_on_request() {
    play_apart(async |cluster| {
        cluster.kubectl(&["apply", "--server-side", "-k", concat!(env!("CARGO_MANIFEST_DIR"), "/config/crd")], "");
        let namespace = cluster.namespace("others").await;
        let install = ["install", NAME, CHART, "-n", &namespace];
        let error = cluster.try_helm(&install).unwrap_err();
        assert!(error.contains("invalid ownership metadata"), "{error}");
        cluster.helm(&[&install[..], &["--take-ownership"]].concat());
        let policy = &cluster.get("", "crd", CRD).unwrap()["metadata"]["annotations"]["helm.sh/resource-policy"];
        assert_eq!(policy, "keep");
        // A second release, for another namespace.
        let other = cluster.namespace("others").await;
        cluster.helm(&["install", NAME, CHART, "-n", &other, "--set", "crds.enabled=false"]);
    });
}

/// Each mode is upgraded to each set of values without a conflict.
#[test]
fn values_of_an_installed_release_can_change() {
    play(async |cluster| {
        for mode in ["standalone", "drop-in", "capi-manager"] {
            let namespace = cluster.namespace("change").await;
            let with = format!("mode={mode},crds.enabled=false");
            let name = format!("{mode}-mcm");
            let words = [&name, CHART, "-n", &namespace, "--set", &with];
            cluster.helm(&[&["install"], &words[..]].concat());
            let changed = "replicas=3,log.level=3,podDisruptionBudget.enabled=false,resources.limits.memory=2Gi,priorityClassName=system-cluster-critical";
            cluster.helm(&[&["upgrade"], &words[..], &["--set", changed]].concat());
            let deployment = cluster.get(&namespace, "deployment", &name).unwrap();
            assert_eq!(deployment["spec"]["replicas"], 3);
            cluster.helm(&["rollback", &name, "1", "-n", &namespace]);
            let manifest = cluster.helm(&["get", "manifest", &name, "-n", &namespace]);
            assert!(documents(&manifest).iter().any(|one| one["kind"] == "PodDisruptionBudget"));
            cluster.helm(&["uninstall", &name, "-n", &namespace]);
        }
    });
}
