//! The pod that Gardener deploys on a seed, with our image and the permissions of Gardener.

use std::path::PathBuf;

use crate::{
    cluster::{Cluster, ROOT, play},
    rights::{Life, denied},
    shoot::{NAME, images, pod, shoot},
    support::{logs, wait},
};

const IMAGES: [&str; 2] = ["registry.example/mcm:v0.1.0", "registry.example/mcm:v0.1.0-machine-controller"];

/// The expression of the fluent-bit parser that Gardener configures for these containers.
const LOG_LINE: &str = r"^(?<severity>\w)(?<time>\d{4} [^\s]*)\s+(?<pid>\d+)\s+(?<source>[^ \]]+)\] (?<log>.*)$";

/// The log pipeline of a seed finds severity and time in what both containers wrote so far, without a flag for it.
fn each_log_line_is_parsed(cluster: &Cluster, namespace: &str) {
    let parser = regex::Regex::new(LOG_LINE).unwrap();
    let is_ours =
        |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(&format!("{namespace}-{NAME}"));
    let logs: Vec<PathBuf> = logs::of(&cluster.folder).into_iter().filter(is_ours).collect();
    assert_eq!(logs.len(), 2, "{logs:?}");
    for log in logs {
        let text = std::fs::read_to_string(&log).unwrap();
        // The last line may not be complete.
        let lines: Vec<&str> = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).collect();
        assert!(lines.len() > 20, "{text}");
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
        assert!(images(&before).iter().all(|image| image.starts_with("registry.invalid/")), "{before}");
        shoot(cluster, namespace).await;
        // The API server reads policies with a delay.
        let ours = wait::until("a pod with our image", async || {
            let found = pod(cluster, namespace).await;
            if images(&found) == IMAGES {
                return Some(found);
            }
            cluster.kubectl(&["delete", "pods", "--all", "-n", namespace, "--force", "--grace-period=0"], "");
            None
        })
        .await;
        assert!(ours["containers"][1]["command"].is_null());
        assert_eq!(ours["containers"][1]["args"].as_array().unwrap().len(), 13);
        assert!(ours["containers"][0]["command"][0] == "./machine-controller-manager");

        let life = Life::begin(cluster, namespace).await;
        let _managers = cluster.start_pod(namespace, &ours, &life.cloud).await;
        life.play().await;
        each_log_line_is_parsed(cluster, namespace);
        let kubeconfig = cluster.folder.join(namespace).join(format!("{NAME}.kubeconfig"));
        let requests = cluster.requests(&kubeconfig, &format!("system:serviceaccount:{namespace}:{NAME}")).await;
        let denied = denied(&requests);
        // Without this right the owner of VMs is the name of the namespace.
        let is_optional = |request: &&String| request.contains(&format!("get\" \"/api/v1/namespaces/{namespace}\""));
        let refused: Vec<&String> = denied.iter().filter(|request| !is_optional(request)).collect();
        assert!(requests.len() > 100 && refused.is_empty(), "{refused:?}");

        cluster.kubectl(&["delete", "-f", &policy], "");
        wait::until("a pod with the image of Gardener", async || {
            cluster.kubectl(&["delete", "pods", "--all", "-n", namespace, "--force", "--grace-period=0"], "");
            images(&pod(cluster, namespace).await)[0].starts_with("registry.invalid/").then_some(())
        })
        .await;
    });
}
