//! The permissions of each mode: the life of some machines needs all of them, and no more.

use std::collections::BTreeSet;

use kube::api::DeleteParams;
use mcm::api::machine::Machine;
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    cluster::{CHART, Cluster, ROOT, documents, only, play},
    support::{
        cloud::Cloud,
        objects, pods,
        program::mcm,
        scene::{Scene, Watched},
        wait::{self, PATIENCE},
    },
};

/// A namespace with a cloud, and machines in it.
pub struct Life {
    cluster: &'static Cluster,
    pub namespace: String,
    pub cloud: Cloud,
    pub scene: Watched,
}

impl Life {
    pub async fn begin(cluster: &'static Cluster, namespace: &str) -> Self {
        let client = cluster.control.client();
        let log = cluster.folder.join(format!("{namespace}-cloud.log"));
        // The Nodes are deleted by mcm, and not by the cloud.
        let cloud = Cloud::start(cluster.control.kubeconfig(), &log, &["--node-removal-delay=1h"]).await;
        let scene = Watched::start(&client, &client, namespace);
        Self { cluster, namespace: namespace.to_owned(), cloud, scene }
    }

    pub async fn apply(&self, mut object: Value) {
        object["metadata"]["namespace"] = self.namespace.as_str().into();
        if let Some(reference) = object.get_mut("secretRef") {
            reference["namespace"] = self.namespace.as_str().into();
        }
        objects::apply(&self.cluster.control.client(), &object).await;
    }

    /// The deployment `pool`, with its Secret and classes.
    pub async fn pool(&self, replicas: u32) {
        self.apply(objects::secret("pool")).await;
        for class in ["small", "large"] {
            self.apply(objects::class(class)).await;
        }
        self.apply(objects::deployment("pool", replicas)).await;
    }

    pub async fn settled(&self, count: usize, class: &str) {
        self.until(&format!("{count} machines of class {class}"), |scene| scene.settled(count, class)).await;
    }

    pub async fn until(&self, what: &str, is_so: impl Fn(&Scene) -> bool) {
        self.scene.find(what, PATIENCE, |scene| is_so(scene).then_some(())).await;
    }

    /// Deletes the deployment, its classes and the Secret, and waits until all are deleted.
    pub async fn end(&self) {
        let delete = |kind: &str, names: &[&str]| {
            self.cluster.kubectl(&[&["delete", kind, "-n", &self.namespace, "--timeout=60s"], names].concat(), "");
        };
        delete("mcd", &["pool"]);
        self.until("all machines to be deleted", |scene| scene.machines.is_empty() && scene.sets.is_empty()).await;
        assert_eq!(self.cloud.count("/alive").await, 0);
        delete("mcc", &["small", "large"]);
        delete("secret", &["pool"]);
    }

    /// Created with a bootstrap token, rolled; a drain that a budget blocks, and then by force; deleted.
    pub async fn play(&self) {
        self.pool(2).await;
        self.settled(2, "small").await;
        let client = self.cluster.control.client();
        let roll = json!({"spec": {"template": {"spec": {"class": {"name": "large"}}}}}).to_string();
        self.cluster.kubectl(&["patch", "mcd", "pool", "-n", &self.namespace, "--type=merge", "-p", &roll], "");
        self.settled(2, "large").await;

        let machine = self.scene.now().names().into_iter().next().unwrap();
        pods::run(&client, &self.namespace, pods::pod("web", &machine)).await;
        self.apply(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "strict"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
        }))
        .await;
        wait::until("the budget to be counted", async || {
            let budget = self.cluster.get(&self.namespace, "pdb", "strict")?;
            (budget["status"]["currentHealthy"] == 1).then_some(())
        })
        .await;
        let machines: kube::Api<Machine> = kube::Api::namespaced(client, &self.namespace);
        machines.delete(&machine, &DeleteParams::default()).await.unwrap();
        self.until("the budget to be told", |scene| scene.was_told(&machine, "strict")).await;
        self.cluster.kubectl(&["label", "mc", &machine, "-n", &self.namespace, "force-deletion=True"], "");
        self.until("the machine to be replaced", |scene| !scene.machines.contains_key(&machine)).await;
        self.settled(2, "large").await;
        self.end().await;
    }
}

/// The permission of a rule: API group, resource with its subresource, verb.
pub type Right = (String, String, String);

/// Rights of which one short life makes no use, and what does.
const UNUSED: [(&str, &[&str], &str); 7] = [
    (
        "get",
        &[
            "machineclasses",
            "machinedeployments",
            "machines",
            "machinesets",
            "leases",
            "nodes",
            "pods",
            "volumeattachments",
        ],
        "included in list, or a read that is repeated before a decision",
    ),
    ("patch", &["events"], "an event that repeats: src/runtime/events.rs"),
    (
        "watch",
        &["poddisruptionbudgets", "volumeattachments", "persistentvolumeclaims", "persistentvolumes"],
        "drains: volumes::",
    ),
    ("list", &["persistentvolumeclaims", "persistentvolumes"], "drains of pods with volumes: volumes::"),
    ("delete", &["volumeattachments"], "forced drains of pods with volumes: tests/faults/stuck_drains.rs"),
    ("watch", &["leases"], "a standby: standby::"),
    ("create", &["pods/eviction"], "none but the first attempt, which a budget refuses"),
];

fn rights(rules: &[Value]) -> BTreeSet<Right> {
    let words = |rule: &Value, field: &str| -> Vec<String> {
        rule[field].as_array().into_iter().flatten().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut all = BTreeSet::new();
    for rule in rules {
        for group in words(rule, "apiGroups") {
            for resource in words(rule, "resources") {
                all.extend(words(rule, "verbs").into_iter().map(|verb| (group.clone(), resource.clone(), verb)));
            }
        }
    }
    all
}

/// The rights of all roles in a manifest but that of users, which is bound to no ServiceAccount.
pub fn granted(manifest: &str) -> BTreeSet<Right> {
    let is_bound = |one: &Value| one["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"].is_null();
    let roles =
        documents(manifest).into_iter().filter(|one| one["kind"].as_str().unwrap().ends_with("Role") && is_bound(one));
    roles.flat_map(|role| rights(role["rules"].as_array().unwrap())).collect()
}

/// The rights that recorded requests used.
pub fn used(requests: &[Value]) -> BTreeSet<Right> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let about_objects = requests.iter().filter(|event| event["objectRef"]["resource"].is_string());
    about_objects
        .map(|event| {
            let of = &event["objectRef"];
            let resource = match of["subresource"].as_str() {
                Some(subresource) => format!("{}/{subresource}", text(&of["resource"])),
                None => text(&of["resource"]),
            };
            (text(&of["apiGroup"]), resource, text(&event["verb"]))
        })
        .collect()
}

/// The requests that the API server refused for want of a right.
pub fn denied(requests: &[Value]) -> Vec<String> {
    let refused = requests.iter().filter(|event| event["annotations"]["authorization.k8s.io/decision"] == "forbid");
    refused.map(|event| format!("{} {}", event["verb"], event["requestURI"])).collect()
}

fn is_known(known: &[(&str, &[&str], &str)], (_, resource, verb): &Right) -> bool {
    known.iter().any(|(of, resources, _)| of == verb && resources.contains(&resource.as_str()))
}

fn in_files(folder: &str) -> BTreeSet<Right> {
    let read = |name: &str| std::fs::read_to_string(format!("{ROOT}/config/{folder}/{name}.yaml")).unwrap();
    let tokens = if folder == "standalone" { read("bootstrap-tokens") } else { String::new() };
    granted(&[read("classes"), read("control"), read("target"), tokens].join("\n---\n"))
}

/// The types of Secrets that a user may create in a namespace. The first would be a token of another ServiceAccount.
pub fn creatable(cluster: &Cluster, user: &str, namespace: &str) -> Vec<&'static str> {
    let types = ["kubernetes.io/service-account-token", "Opaque", "bootstrap.kubernetes.io/token"];
    let may = |of: &&&str| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": of,
            "metadata": {
                "name": "bootstrap-token-abcdef", "namespace": namespace,
                "annotations": {"kubernetes.io/service-account.name": "default"},
            },
            "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef"},
        });
        let created = cluster.try_kubectl(&["create", "--dry-run=server", user, "-f", "-"], &secret.to_string());
        created
            .inspect_err(|error| assert!(error.contains("forbidden") || error.contains("denied request"), "{error}"))
            .is_ok()
    };
    types.iter().filter(may).copied().collect()
}

/// The standalone mode has no right to create Secrets, and a Secret that others created cannot be deleted.
#[test]
fn the_standalone_mode_creates_no_secrets_unless_a_value_asks_for_it() {
    play(async |cluster| {
        let namespace = cluster.control.namespace("tokens").await;
        let words = ["mcm", CHART, "-n", &namespace, "--set", "crds.enabled=false"];
        cluster.helm(&[&["install"], &words[..]].concat());
        let user = format!("--as=system:serviceaccount:{namespace}:mcm");
        for of in ["kube-system", &namespace] {
            assert_eq!(creatable(cluster, &user, of), [""; 0], "{of}");
        }
        cluster.helm(&[&["upgrade"], &words[..], &["--set", "target.bootstrapTokens=true"]].concat());
        wait::until("the right", async || {
            (creatable(cluster, &user, "kube-system") == ["bootstrap.kubernetes.io/token"]).then_some(())
        })
        .await;
        assert_eq!(creatable(cluster, &user, &namespace), [""; 0]);
        let name = format!("of-others-{namespace}");
        cluster.kubectl(&["create", "secret", "generic", &name, "-n", "kube-system"], "");
        let error = cluster.try_kubectl(&["delete", "secret", &name, "-n", "kube-system", &user], "").unwrap_err();
        assert!(error.contains("creates and deletes only Secrets of the type"), "{error}");
    });
}

/// The role of the Go programs has all rights to the Secrets of the control namespace.
#[test]
fn the_drop_in_creates_only_bootstrap_tokens_in_any_namespace() {
    play(async |cluster| {
        let namespace = cluster.control.namespace("tokens").await;
        cluster.helm(&["install", "mcm", CHART, "-n", &namespace, "--set", "crds.enabled=false,mode=drop-in"]);
        let user = format!("--as=system:serviceaccount:{namespace}:mcm");
        wait::until("the policy", async || {
            (creatable(cluster, &user, &namespace) == ["bootstrap.kubernetes.io/token"]).then_some(())
        })
        .await;
        assert_eq!(creatable(cluster, &user, "kube-system"), ["bootstrap.kubernetes.io/token"]);
    });
}

#[rstest]
#[case::standalone("standalone")]
#[case::drop_in("drop-in")]
fn the_life_of_machines_needs_each_right_of_the_chart_and_no_more(#[case] mode: &str) {
    play(async |cluster| {
        let namespace = cluster.control.namespace(mode).await;
        let values = format!("mode={mode},crds.enabled=false,target.bootstrapTokens=true");
        cluster.helm(&["install", "mcm", CHART, "-n", &namespace, "--set", &values]);
        let life = Life::begin(cluster, &namespace).await;
        let _managers = cluster.start_deployment(&namespace, "mcm", &life.cloud).await;
        life.play().await;

        let kubeconfig = cluster.folder.join(&namespace).join("mcm.kubeconfig");
        let requests = cluster.requests(&kubeconfig, &format!("system:serviceaccount:{namespace}:mcm")).await;
        assert!(requests.len() > 100, "{} recorded requests", requests.len());
        assert_eq!(denied(&requests), [""; 0]);
        let granted = granted(&cluster.helm(&["get", "manifest", "mcm", "-n", &namespace]));
        let used = used(&requests);
        let missing: Vec<&Right> =
            used.difference(&granted).filter(|right| right.0 != "authorization.k8s.io").collect();
        assert!(missing.is_empty(), "used without a rule of the chart: {missing:?}");
        // The Go programs have more rights, so that they can take back over.
        let least = in_files("standalone");
        let is_of_go = |right: &Right| mode == "drop-in" && !least.contains(right);
        let unused: Vec<&Right> =
            granted.difference(&used).filter(|right| !is_known(&UNUSED, right) && !is_of_go(right)).collect();
        assert!(unused.is_empty(), "of no use: {unused:?}");

        // The policy allows less than the roles.
        let user = format!("--as=system:serviceaccount:{namespace}:mcm");
        assert_eq!(creatable(cluster, &user, "kube-system"), ["bootstrap.kubernetes.io/token"]);

        // As the pod of helm test.
        let set = format!("mode={mode}");
        let test = cluster.helm(&[
            "template",
            "mcm",
            CHART,
            "-n",
            &namespace,
            "--set",
            &set,
            "-s",
            "templates/tests/check.yaml",
        ]);
        let container = only(&test, "Pod")["spec"]["containers"][0].clone();
        assert_eq!(container["command"], json!(["/mcm", "check"]));
        let mut check = std::process::Command::new(mcm());
        check
            .arg("check")
            .args(container["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()));
        let output = check.arg("--kubeconfig").arg(&kubeconfig).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    });
}

/// So whoever has the rights of the Go programs can run mcm.
#[test]
fn the_go_programs_have_all_rights_of_the_standalone_mode() {
    // For the owner of VMs; without it their owner is the name of the namespace.
    let (least, of_go) = (in_files("standalone"), in_files("rbac"));
    let missing: Vec<&Right> = least.difference(&of_go).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(of_go.len() > 2 * least.len());
}
