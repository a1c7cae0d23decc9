//! The pod that Gardener deploys on a seed, with our image and the permissions of Gardener.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, ROOT, play, play_apart},
    rights::{Life, denied},
    shoot::{NAME, images, pod, shoot},
    support::{cloud::Cloud, logs, wait},
};

const IMAGES: [&str; 2] = ["registry.example/mcm:v0.1.0", "registry.example/mcm:v0.1.0-machine-controller"];

/// The expression of the fluent-bit parser that Gardener configures for these containers.
const LOG_LINE: &str = r"^(?<severity>\w)(?<time>\d{4} [^\s]*)\s+(?<pid>\d+)\s+(?<source>[^ \]]+)\] (?<log>.*)$";

/// The log pipeline of a seed finds severity and time in what both containers wrote so far, more than `least` lines each, without a
/// flag for it.
fn each_log_line_is_parsed(cluster: &Cluster, namespace: &str, least: usize) {
    let parser = regex::Regex::new(LOG_LINE).unwrap();
    let is_ours =
        |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(&format!("{namespace}-{NAME}"));
    let logs: Vec<PathBuf> = logs::of(&cluster.folder).into_iter().filter(is_ours).collect();
    assert_eq!(logs.len(), 2, "{logs:?}");
    for log in logs {
        let text = std::fs::read_to_string(&log).unwrap();
        // The last line may not be complete.
        let lines: Vec<&str> = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).collect();
        assert!(lines.len() > least, "{text}");
        for line in lines {
            assert!(parser.is_match(line), "{}: {line}", log.display());
        }
    }
}

/// `config/gardener/one-shoot.yaml`: both containers of one shoot are ours, those of the others and, after its deletion, of this
/// one are Gardener's. The Deployment is never changed, so Gardener has nothing to restore.
#[test]
fn one_shoot_of_a_seed_gets_our_image_and_has_the_permissions_that_we_need() {
    play(async |cluster| {
        let namespace = "shoot--project--name";
        let policy = format!("{ROOT}/config/gardener/one-shoot.yaml");
        cluster.kubectl(&["apply", "--server-side", "--validate=strict", "-f", &policy], "");
        let before = shoot(cluster, "shoot--project--other").await;
        assert!(are_of_gardener(&images(&before)), "{before}");
        shoot(cluster, namespace).await;
        let ours = pod_with_images(cluster, namespace, |images| images == IMAGES).await;
        assert!(ours["containers"][1]["command"].is_null());
        assert_eq!(ours["containers"][1]["args"].as_array().unwrap().len(), 13);
        assert!(ours["containers"][0]["command"][0] == "./machine-controller-manager");

        let life = Life::begin(cluster, namespace).await;
        let _managers = cluster.start_pod(namespace, &ours, &life.cloud).await;
        life.play().await;
        each_log_line_is_parsed(cluster, namespace, 20);
        let kubeconfig = cluster.folder.join(namespace).join(format!("{NAME}.kubeconfig"));
        let requests = cluster.requests(&kubeconfig, &format!("system:serviceaccount:{namespace}:{NAME}")).await;
        let denied = denied(&requests);
        // Without this right the owner of VMs is the name of the namespace.
        let is_optional = |request: &&String| request.contains(&format!("get\" \"/api/v1/namespaces/{namespace}\""));
        let refused: Vec<&String> = denied.iter().filter(|request| !is_optional(request)).collect();
        assert!(requests.len() > 100 && refused.is_empty(), "{refused:?}");

        cluster.kubectl(&["delete", "-f", &policy], "");
        pod_with_images(cluster, namespace, are_of_gardener).await;
    });
}

/// `config/gardener/fleet.yaml`: in a shoot with the label, both containers are processes that manage nothing, at the ports of
/// Gardener's probes. They ask no API server, although the pod has credentials. Without the label, the Go programs are back.
#[test]
fn a_shoot_of_a_fleet_gets_processes_that_take_no_lease() {
    play_apart(async |cluster| {
        let namespace = "shoot--project--moved";
        let policy = format!("{ROOT}/config/gardener/fleet.yaml");
        cluster.kubectl(&["apply", "--server-side", "--validate=strict", "-f", &policy], "");
        let before = shoot(cluster, namespace).await;
        assert!(are_of_gardener(&images(&before)), "{before}");
        let label = |labels: &[&str]| cluster.kubectl(&[&["label", "namespace", namespace], labels].concat(), "");
        label(&["gardener.cloud/role=shoot", "machine.mcm/fleet=default"]);
        let moved = pod_with_images(cluster, namespace, |images| images == [IMAGES[0], IMAGES[0]]).await;
        for container in moved["containers"].as_array().unwrap() {
            let probe = &container["livenessProbe"]["httpGet"];
            assert_eq!((&container["command"], &probe["path"]), (&json!(["/mcm", "presence"]), &json!("/healthz")));
            assert_eq!(container["args"], json!([format!("--port={}", probe["port"])]));
            assert_eq!(container["ports"][0]["containerPort"], probe["port"]);
        }

        let log = cluster.folder.join("cloud.log");
        let cloud = Cloud::start(cluster.control.kubeconfig(), &log, &[]).await;
        let processes = cluster.start_pod(namespace, &moved, &cloud).await;
        assert_eq!(processes.len(), 2);
        for mut process in processes {
            assert_eq!(process.get("/healthz").await.0, 200);
            assert!(process.get("/metrics").await.1.contains("mcm_build_info"));
            process.program.terminate();
            assert_eq!(process.program.ended().await.code(), Some(0));
        }
        each_log_line_is_parsed(cluster, namespace, 1);
        let kubeconfig = cluster.folder.join(namespace).join(format!("{NAME}.kubeconfig"));
        let requests = cluster.requests(&kubeconfig, &format!("system:serviceaccount:{namespace}:{NAME}")).await;
        assert_eq!(requests, Vec::<Value>::new());
        assert_eq!(cluster.kubectl(&["get", "leases", "-n", namespace, "-o", "name"], ""), "");

        label(&["machine.mcm/fleet-"]);
        let after = pod_with_images(cluster, namespace, are_of_gardener).await;
        assert_eq!(after["containers"], before["containers"]);
    });
}

fn are_of_gardener(images: &[String]) -> bool {
    images.iter().all(|image| image.starts_with("registry.invalid/"))
}

/// Deletes the pods of a namespace until there is one with other images: the API server reads policies and labels with a delay.
async fn pod_with_images(cluster: &Cluster, namespace: &str, are_wanted: impl Fn(&[String]) -> bool) -> Value {
    wait::until("a pod with other images", async || {
        let found = pod(cluster, namespace).await;
        if are_wanted(&images(&found)) {
            return Some(found);
        }
        cluster.kubectl(&["delete", "pods", "--all", "-n", namespace, "--force", "--grace-period=0"], "");
        None
    })
    .await
}
