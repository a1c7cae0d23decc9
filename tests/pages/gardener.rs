//! A user who runs Gardener: the page on a seed, with the Deployment that Gardener makes there.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, ROOT, entry_point, play_apart},
    page::Page,
    shell::{Release, Shell},
    shoot::{images, pod, shoot},
    support::{cloud::Cloud, control_plane, objects, wait, world::Manager},
};

const SHOOT: &str = "shoot--project--name";
const REGISTRY: &str = "registry.example/mcm:";
/// Until here mcm runs.
const FIRST_OF_RETURN: &str = "kubectl delete -f config/gardener/one-shoot.yaml";

#[test]
fn one_shoot_of_a_seed_gets_nodes_from_mcm_and_returns() {
    play_apart(async |cluster| {
        let client = cluster.control.client();
        control_plane::install(&client, &mcm::api::crd::crds()).await.unwrap();
        shoot(cluster, SHOOT).await;
        let release = Release::on_disk().copy(&cluster.folder);
        let registry = cluster.folder.join("registry");
        let page = Page::read("docs/gardener.md")
            .with(&format!("docker://{REGISTRY}"), &format!("oci:{}:", registry.display()));
        let mut shell = Shell::start(&cluster.folder, &release, Some(cluster.control.kubeconfig()));
        // The page is for readers of a release who have its program.
        shell.run("mkdir mcm && tar -xzf mcm-*-linux-*.tar.gz -C mcm && export PATH=$PWD/mcm:$PATH");
        let log = cluster.folder.join("cloud.log");
        let cloud = Cloud::start(cluster.control.kubeconfig(), &log, &["--node-removal-delay=1h"]).await;

        let mut running: Option<Seed> = None;
        let mut first = None;
        for command in page.commands() {
            if command == FIRST_OF_RETURN {
                first = Some(shell.elapsed());
            }
            let printed = shell.run(command);
            if command.starts_with("kubectl get lease") {
                assert_eq!(printed.matches("machine-controller").count(), 2, "{printed}");
            } else if command.starts_with("kubectl get mcd") {
                assert!(printed.contains("Running"), "{printed}");
            } else if command.starts_with("kubectl get pod") {
                again_until_ours(cluster, &mut shell, &page, printed).await;
                running = Some(Seed::start(cluster, &mut shell, &registry, &cloud).await);
            }
        }
        drop(running);
        wait::until("a pod with the images of Gardener", async || {
            cluster.kubectl(&["delete", "pods", "--all", "-n", SHOOT, "--force", "--grace-period=0"], "");
            images(&pod(cluster, SHOOT).await).iter().all(|image| image.starts_with("registry.invalid/")).then_some(())
        })
        .await;
        shell.report("docs/gardener.md", first.unwrap());
    });
}

/// "If the last command still shows the images of Gardener, delete the pod once more."
async fn again_until_ours(cluster: &Cluster, shell: &mut Shell, page: &Page, mut printed: String) {
    let find = |start: &str| page.commands().iter().find(|command| command.starts_with(start)).unwrap();
    wait::until("a pod with the images of mcm", async || {
        if printed.contains(REGISTRY) {
            return Some(());
        }
        shell.run(find("kubectl delete pod"));
        pod(cluster, SHOOT).await;
        printed = shell.run(find("kubectl get pod"));
        None
    })
    .await;
}

/// The programs of the pod, with a pool of the shoot.
struct Seed(#[expect(dead_code, reason = "they end with it")] Vec<Manager>);

impl Seed {
    async fn start(cluster: &'static Cluster, shell: &mut Shell, registry: &Path, cloud: &Cloud) -> Self {
        let pod = pod(cluster, SHOOT).await;
        for image in images(&pod) {
            // The image that the page copied into the registry is that of the pod.
            let tag = image.strip_prefix(REGISTRY).unwrap();
            let config: Value =
                serde_json::from_str(&shell.run(&format!("skopeo inspect --config oci:{}:{tag}", registry.display())))
                    .unwrap();
            assert_eq!(config["config"]["Entrypoint"], json!([entry_point(&image)]));
        }
        let managers = cluster.start_pod(SHOOT, &pod, cloud).await;
        // As the worker controller of Gardener does.
        let client = cluster.control.client();
        for mut object in [objects::secret("pool"), objects::class("small"), objects::deployment("pool", 1)] {
            object["metadata"]["namespace"] = SHOOT.into();
            if let Some(reference) = object.get_mut("secretRef") {
                reference["namespace"] = SHOOT.into();
            }
            objects::apply(&client, &object).await;
        }
        wait::until("a Machine with a Node", async || {
            let nodes: Value = serde_json::from_str(&cluster.kubectl(&["get", "nodes", "-o", "json"], "")).unwrap();
            let machines = cluster.kubectl(&["get", "mc", "-n", SHOOT], "");
            (!nodes["items"].as_array()?.is_empty() && machines.contains("Running")).then_some(())
        })
        .await;
        Self(managers)
    }
}

/// `config/gardener/extension-values.yaml` and `gardenlet-values.yaml` name the images that the policy for one shoot names.
#[test]
fn a_seed_and_a_provider_get_the_images_of_the_page() {
    let page = std::fs::read_to_string(format!("{ROOT}/docs/gardener.md")).unwrap();
    for file in ["gardenlet-values.yaml", "extension-values.yaml"] {
        let values: Value =
            serde_yaml_ng::from_str(&std::fs::read_to_string(format!("{ROOT}/config/gardener/{file}")).unwrap())
                .unwrap();
        let vector: Value = serde_yaml_ng::from_str(values["imageVectorOverwrite"].as_str().unwrap()).unwrap();
        let text = |key: &str| vector["images"][0][key].as_str().unwrap();
        assert!(page.contains(&format!("docker://{}:{}\n", text("repository"), text("tag"))), "{file}");
    }
}
