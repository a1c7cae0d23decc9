//! `mcm why` and `mcm tree` on objects of Cluster API: each cause is found with one command.

use std::{path::Path, time::Instant};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    drain::guarded_pod,
    scene::Scene,
    support::{identity, program::mcm},
    world::{World, play},
};

impl Scene {
    /// Runs a reading command with `-o json`; its exit code and document.
    async fn read(&self, words: &[&str]) -> (i32, Value) {
        self.read_as(self.world.management.kubeconfig(), words).await
    }

    async fn read_as(&self, kubeconfig: &Path, words: &[&str]) -> (i32, Value) {
        let mut command = Command::new(mcm());
        command.args(words).args(["-n", &self.namespace, "-o", "json", "--kubeconfig"]);
        let output = command.arg(kubeconfig).output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.is_empty(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap(), serde_json::from_str(&text).unwrap())
    }

    /// Repeats the command until the first wait of an object has a text; the exit code and the answer.
    async fn until_it_waits_for(&self, object: &str, text: &str) -> (i32, Value) {
        self.until(&format!("{object} to wait for {text}"), async || {
            let (code, document) = self.read(&["why", object]).await;
            let answer = document["objects"][0].clone();
            let first = answer["waits"][0]["text"].as_str()?;
            first.contains(text).then_some((code, answer))
        })
        .await
    }

    /// Runs the first remedy of an answer, which is a command of kubectl, as it is printed.
    fn run_first_remedy(&self, answer: &Value) {
        let line = answer["waits"][0]["remedies"][0]["text"].as_str().unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[0], "kubectl", "{line}");
        assert!(!self.world.kubectl(&words[1..]).is_empty(), "{line}");
    }
}

/// Kinds of the chain, from the Cluster down.
fn kinds(answer: &Value) -> Vec<&str> {
    answer["links"].as_array().unwrap().iter().map(|link| link["kind"].as_str().unwrap()).collect()
}

#[test]
fn the_cause_of_a_machine_is_found_with_one_command() {
    play(async |world: &'static World| {
        let scene = Scene::with_workers(world, "explained", 2).await;
        scene.until("two Machines", async || scene.has_running(2)).await;
        let chosen = scene.machines().swap_remove(0);
        let (machine, mcm_machine) = (format!("machine.cluster.x-k8s.io/{chosen}"), format!("mcmmachine/{chosen}"));

        let begun = Instant::now();
        for object in [machine.as_str(), &mcm_machine, "cluster/explained", "md/explained-md-0"] {
            let document = scene
                .until(&format!("{object} to settle"), async || {
                    let (code, document) = scene.read(&["why", object]).await;
                    (code == 0 && document["objects"][0]["verdict"] == "Settled").then_some(document)
                })
                .await;
            assert!(
                document["notes"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|note| !note.as_str().unwrap().contains("Cluster API")),
                "{document}"
            );
        }
        println!("four answers after {:?}", begun.elapsed());
        let (_, document) = scene.read(&["why", &machine]).await;
        let expected = ["Cluster", "MachineDeployment", "MachineSet", "Machine", "MCMMachine", "Machine", "Node"];
        assert_eq!(kinds(&document["objects"][0]), expected, "{document}");

        // A user with `view` may read all of it.
        let (client, admin) = (world.management.client(), world.management.kubeconfig());
        let viewer = identity::viewer(&client, admin, &scene.namespace, false, world.folder()).await;
        let (code, document) = scene.read_as(&viewer, &["why", &machine]).await;
        let notes = document["notes"].to_string();
        assert!(code == 0 && !notes.contains("Cluster API"), "{document}");
        assert_eq!(kinds(&document["objects"][0]), expected, "{document}");

        let (code, document) = scene.read(&["tree", "cluster/explained"]).await;
        let tree = document["objects"][0].to_string();
        assert_eq!(code, 0, "{document}");
        for part in ["MCMCluster", "MCMMachine", &chosen, "\"kind\":\"Node\""] {
            assert!(tree.contains(part), "{part} is not in {tree}");
        }
        let (_, whole) = scene.read(&["tree"]).await;
        let roots: Vec<&Value> = whole["objects"].as_array().unwrap().iter().map(|root| &root["kind"]).collect();
        assert_eq!(roots, [&json!("Cluster")], "{whole}");

        // The VMs of classes that the provider created.
        let cloud = format!("--simulated-cloud={}", world.cloud.url);
        let (code, document) = scene.read(&["vms", &cloud]).await;
        assert_eq!((code, &document["notes"]), (0, &json!([])), "{document}");
        let vms = document["vms"].as_array().unwrap();
        let machines = scene.machines();
        assert_eq!(machines.len(), 2, "{machines:?}");
        for machine in &machines {
            let is_its_vm = |vm: &&Value| vm["capiMachine"] == machine.as_str();
            let vm = vms.iter().find(is_its_vm).unwrap_or_else(|| panic!("{machine} is missing: {document}"));
            assert_eq!((&vm["cluster"], &vm["standing"]), (&json!("explained"), &json!("Owned")), "{vm}");
            let class = scene.get("machineclass", vm["class"].as_str().unwrap());
            assert_eq!(class["metadata"]["ownerReferences"][0]["kind"], "MCMMachine", "{class}");
        }

        // A paused Cluster.
        let pause = |is_paused: bool| {
            let patch = json!({"spec": {"paused": is_paused}}).to_string();
            scene.kubectl(&["patch", "cluster", "explained", "--type=merge", "-p", &patch]);
        };
        pause(true);
        let (code, answer) = scene.until_it_waits_for(&machine, "Cluster explained to be resumed").await;
        assert_eq!((code, &answer["waits"][0]["kind"]), (3, &json!("Hold")), "{answer}");
        let remedies = answer["waits"][0]["remedies"].as_array().unwrap();
        let remedy =
            remedies.iter().find_map(|one| one["text"].as_str().filter(|text| text.starts_with("kubectl patch")));
        assert!(remedy.unwrap().contains("patch cluster explained"), "{answer}");
        pause(false);

        // An MCMMachine that no CAPI Machine names.
        let labels = json!({"cluster.x-k8s.io/cluster-name": "explained"});
        let mut spec = scene.get("mcmmachine", &chosen)["spec"].clone();
        spec.as_object_mut().unwrap().remove("providerID");
        world.apply(&json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine",
            "metadata": {"name": "explained-stray", "namespace": scene.namespace, "labels": labels},
            "spec": spec,
        }));
        let text = "Cluster API core to set its Machine as an owner";
        let (code, answer) = scene.until_it_waits_for("mcmmachine/explained-stray", text).await;
        assert_eq!((code, &answer["waits"][0]["kind"]), (4, &json!("Owner")), "{answer}");
        scene.run_first_remedy(&answer);
        scene.kubectl(&["delete", "mcmmachine", "explained-stray", "--timeout=600s"]);

        // A Machine without bootstrap data: its config is paused.
        let metadata = json!({
            "name": "explained-lone", "namespace": scene.namespace, "labels": labels,
            "annotations": {"cluster.x-k8s.io/paused": "true"},
        });
        world.apply(&json!({
            "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "KubeadmConfig", "metadata": metadata,
            "spec": {"format": "cloud-config"},
        }));
        world.apply(&json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": "explained-lone", "namespace": scene.namespace, "labels": labels},
            "spec": {
                "clusterName": "explained",
                "bootstrap": {"configRef": {
                    "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig", "name": "explained-lone",
                }},
                "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMMachine", "name": "nowhere"},
            },
        }));
        let lone = "machine.cluster.x-k8s.io/explained-lone";
        let text = "its bootstrap data from KubeadmConfig explained-lone";
        let (code, answer) = scene.until_it_waits_for(lone, text).await;
        assert_eq!((code, &answer["verdict"]), (4, &json!("Waiting")), "{answer}");
        assert_eq!(answer["waits"][0]["kind"], json!("Infrastructure"), "{answer}");
        scene.run_first_remedy(&answer);
        let (_, cluster) = scene.read(&["why", "cluster/explained"]).await;
        assert_eq!(cluster["objects"][0]["machines"][0]["object"]["name"], "explained-lone", "{cluster}");
        scene.kubectl(&["delete", "machine.cluster.x-k8s.io", "explained-lone", "--timeout=600s"]);

        // A drain that a budget blocks.
        guarded_pod(&scene, &chosen).await;
        scene.kubectl(&["annotate", "machine.cluster.x-k8s.io", &chosen, "cluster.x-k8s.io/delete-machine=yes"]);
        scene.scale(1);
        let (code, answer) = scene.until_it_waits_for(&machine, "guarded").await;
        assert_eq!((code, &answer["waits"][0]["kind"]), (4, &json!("Eviction")), "{answer}");
        let (_, document) = scene.read(&["why"]).await;
        let listed = document["objects"].as_array().unwrap().iter();
        assert!(listed.clone().any(|one| one["object"]["name"] == chosen.as_str()), "{document}");
        assert!(
            listed.clone().all(|one| one["object"]["kind"] != "Machine" || !one["apiGroup"].is_null()),
            "{document}"
        );

        // The remedy that the answer offers ends the drain.
        let remedies = answer["waits"][0]["remedies"].as_array().unwrap();
        let skip = remedies.iter().find(|one| one["danger"] == "KillsPods").unwrap();
        let words: Vec<&str> = skip["text"].as_str().unwrap().split(' ').skip(1).collect();
        world.kubectl(&words);
        scene.until("the Machine to be gone", async || scene.has_running(1)).await;
        scene.kubectl(&["delete", "cluster", "explained", "--cascade=foreground", "--timeout=600s"]);
        assert!(scene.vms().await.is_empty());
    });
}
