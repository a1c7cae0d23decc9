//! The kustomize bases beside the chart.

use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    cluster::{CHART, Cluster, ROOT, documents, only, play, play_apart},
    rights::creatable,
    support::wait,
};

fn base(cluster: &Cluster, name: &str) -> String {
    cluster.kubectl(&["kustomize", &format!("{ROOT}/config/{name}")], "")
}

/// Differences on purpose: names, and how the namespace is named.
fn comparable(manifest: &str) -> Value {
    let mut pod = only(manifest, "Deployment")["spec"]["template"]["spec"].clone();
    pod.as_object_mut().unwrap().remove("serviceAccountName");
    // A base has its namespace, with a quota for this class, which some clusters demand.
    pod.as_object_mut().unwrap().remove("priorityClassName");
    for constraint in pod["topologySpreadConstraints"].as_array_mut().unwrap() {
        constraint.as_object_mut().unwrap().remove("labelSelector");
    }
    for container in pod["containers"].as_array_mut().unwrap() {
        container.as_object_mut().unwrap().remove("env");
        for argument in container["args"].as_array_mut().unwrap() {
            if argument.as_str().unwrap().starts_with("--namespace=") {
                *argument = json!("--namespace");
            }
        }
    }
    pod
}

/// The rules of all roles but that of users, in a fixed order.
fn rules(manifest: &str) -> Vec<String> {
    let is_bound = |one: &Value| one["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"].is_null();
    let is_role = |one: &Value| one["kind"].as_str().unwrap().ends_with("Role") && is_bound(one);
    let roles = documents(manifest).into_iter().filter(is_role);
    let mut rules: Vec<String> =
        roles.flat_map(|role| role["rules"].as_array().unwrap().clone()).map(|rule| rule.to_string()).collect();
    rules.sort_unstable();
    rules
}

#[rstest]
#[case("standalone")]
#[case("drop-in")]
fn a_base_is_what_the_chart_renders_by_default(#[case] name: &str) {
    play(async |cluster| {
        let chart = cluster.helm(&["template", "mcm", CHART, "-n", "mcm-system", "--set", &format!("mode={name}")]);
        let base = base(cluster, name);
        assert_eq!(comparable(&base), comparable(&chart));
        assert_eq!(rules(&base), rules(&chart));
        let count = |manifest: &str, kind: &str| documents(manifest).iter().filter(|one| one["kind"] == kind).count();
        for kind in [
            "CustomResourceDefinition",
            "PodDisruptionBudget",
            "NetworkPolicy",
            "Service",
            "ServiceAccount",
            "RoleBinding",
            "ClusterRoleBinding",
        ] {
            assert_eq!(count(&base, kind), count(&chart, kind), "{kind}");
        }
    });
}

/// The file that `hack/release/clusterctl` makes of the base without a kustomization.
fn stand_in() -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut release = std::process::Command::new(format!("{ROOT}/hack/release/clusterctl"));
    assert!(release.arg("v0.1.0").arg(folder.path()).status().unwrap().success());
    std::fs::read_to_string(folder.path().join("infrastructure-mcm/v0.1.0/stand-in-components.yaml")).unwrap()
}

/// A pod of the template is admitted by the strictest Pod Security Standard and by a quota that demands requests and limits.
async fn is_admitted_with_limits(cluster: &Cluster, namespace: &str, deployment: &Value) {
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "demands-limits", "namespace": namespace},
        "spec": {"hard": {"requests.cpu": "10", "requests.memory": "10Gi", "limits.memory": "10Gi"}},
    });
    cluster.kubectl(&["apply", "-f", "-"], &quota.to_string());
    // The quota controller, which writes it, does not run here.
    let used = json!({"requests.cpu": "0", "requests.memory": "0", "limits.memory": "0"});
    let status = json!({"status": {"hard": quota["spec"]["hard"], "used": used}}).to_string();
    let patch =
        ["patch", "resourcequota", "demands-limits", "-n", namespace, "--subresource=status", "--type=merge", "-p"];
    cluster.kubectl(&[&patch[..], &[&status]].concat(), "");
    let mut pod = deployment["spec"]["template"].clone();
    (pod["apiVersion"], pod["kind"], pod["metadata"]["name"]) = ("v1".into(), "Pod".into(), "one".into());
    let create = |pod: &Value| {
        cluster.try_kubectl(
            &["create", "--dry-run=server", "--validate=strict", "-n", namespace, "-f", "-"],
            &pod.to_string(),
        )
    };
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut pod = pod.clone();
        change(&mut pod["spec"]["containers"][0]);
        create(&pod).err()
    };
    wait::until("the quota", async || {
        let error = refused(&|container| drop(container.as_object_mut().unwrap().remove("resources")))?;
        error.contains("must specify limits.memory").then_some(())
    })
    .await;
    wait::until("an admitted pod", async || create(&pod).ok()).await;
    let error = refused(&|container| container["securityContext"]["allowPrivilegeEscalation"] = true.into()).unwrap();
    assert!(error.contains("violates PodSecurity \"restricted"), "{error}");
}

/// The provider has the right to patch all Secrets, for their finalizers.
async fn changes_only_finalizers(cluster: &Cluster, user: &str) {
    cluster.kubectl(&["create", "secret", "generic", "cloud", "-n", "default", "--from-literal=a=b"], "");
    let patch = |change: &Value| {
        let words = ["patch", "secret", "cloud", "-n", "default", "--type=merge", user, "-p"];
        cluster.try_kubectl(&[&words[..], &[&change.to_string()]].concat(), "")
    };
    wait::until("the policy", async || {
        let refused = patch(&json!({"metadata": {"labels": {"try": "1"}}})).err()?;
        refused.contains("nothing but the finalizers").then_some(())
    })
    .await;
    patch(&json!({"metadata": {"finalizers": ["machine.sapcloud.io/machine-controller-manager"]}})).unwrap();
    for change in
        [json!({"stringData": {"a": "c"}}), json!({"data": null}), json!({"metadata": {"annotations": {"a": "b"}}})]
    {
        assert!(patch(&change).is_err_and(|error| error.contains("nothing but the finalizers")), "{change}");
    }
    patch(&json!({"metadata": {"finalizers": null}})).unwrap();
}

/// Each base on an API server: two replicas with limits and patient probes, of which one stays during an eviction; and open ports
/// for metrics and probes only.
#[rstest]
#[case("standalone", "mcm-system", "mcm")]
#[case("drop-in", "mcm-system", "machine-controller-manager")]
#[case("cluster-api", "capmcm-system", "capmcm-controller-manager")]
#[case("stand-in", "mcm-stand-in", "mcm-stand-in")]
fn a_base_is_installed_with_one_command(#[case] name: &str, #[case] namespace: &str, #[case] deployment: &str) {
    play_apart(async |cluster| {
        let install = ["apply", "--server-side", "--validate=strict"];
        let folder = format!("{ROOT}/config/{name}");
        match name {
            "stand-in" => cluster.kubectl(&[&install[..], &["-f", "-"]].concat(), &stand_in()),
            _ => cluster.kubectl(&[&install[..], &["-k", &folder]].concat(), ""),
        };
        let labels = cluster.get("", "namespace", namespace).unwrap()["metadata"]["labels"].clone();
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
        wait::until("the pods", async || {
            let pods = cluster.kubectl(&["get", "pods", "-n", namespace, "-o", "name"], "");
            (pods.lines().count() == 2).then_some(())
        })
        .await;
        let found = cluster.get(namespace, "deployment", deployment).unwrap();
        is_admitted_with_limits(cluster, namespace, &found).await;
        let pod = &found["spec"]["template"]["spec"];
        assert_eq!(pod["priorityClassName"], "system-cluster-critical");
        let mut ports = Vec::new();
        for container in pod["containers"].as_array().unwrap() {
            for probe in ["livenessProbe", "readinessProbe"] {
                assert_eq!(container[probe]["timeoutSeconds"], 5);
            }
            ports.extend(container["ports"].as_array().unwrap().iter().map(|port| port["name"].clone()));
        }
        let selected = &found["spec"]["selector"]["matchLabels"];
        let budget = cluster.get(namespace, "pdb", deployment).unwrap();
        assert_eq!(
            (&budget["spec"]["selector"]["matchLabels"], &budget["spec"]["maxUnavailable"]),
            (selected, &json!(1))
        );
        let policy = cluster.get(namespace, "networkpolicy", deployment).unwrap()["spec"].clone();
        assert_eq!((&policy["podSelector"]["matchLabels"], &policy["policyTypes"]), (selected, &json!(["Ingress"])));
        let open = policy["ingress"][0]["ports"].as_array().unwrap().iter().map(|port| port["port"].clone());
        let (mut open, count): (Vec<Value>, usize) = (open.collect(), ports.len());
        open.retain(|port| ports.contains(port));
        assert_eq!(open.len(), count, "{policy}");
        let found = cluster.get(namespace, "deployment", deployment).unwrap();
        let account = found["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap().to_owned();
        let may = |verb: &str, kind: &str, of: &str| {
            let account = format!("--as=system:serviceaccount:{namespace}:{account}");
            cluster.kubectl(&["auth", "can-i", verb, kind, "-n", of, &account], "").trim() == "yes"
        };
        let account = format!("--as=system:serviceaccount:{namespace}:{account}");
        match name {
            "standalone" | "drop-in" => {
                assert!(may("create", "machines.machine.sapcloud.io", namespace) && may("patch", "nodes", ""));
                if name == "standalone" {
                    assert_eq!(creatable(cluster, &account, "kube-system"), [""; 0]);
                    let tokens = format!("{ROOT}/config/standalone/bootstrap-tokens.yaml");
                    cluster.kubectl(&["apply", "--server-side", "-f", &tokens], "");
                }
                wait::until("the right and the policy", async || {
                    (creatable(cluster, &account, "kube-system") == ["bootstrap.kubernetes.io/token"]).then_some(())
                })
                .await;
            }
            "stand-in" => {
                wait::until("the policy", async || {
                    (creatable(cluster, &account, "default") == ["Opaque"]).then_some(())
                })
                .await;
                cluster.kubectl(&["create", "secret", "generic", "of-others", "-n", "default"], "");
                let error = cluster.try_kubectl(&["delete", "secret", "of-others", "-n", "default", &account], "");
                assert!(error.as_ref().unwrap_err().contains("only Secrets that it created"), "{error:?}");
            }
            _ => {
                assert_eq!(creatable(cluster, &account, "default"), [""; 0]);
                changes_only_finalizers(cluster, &account).await;
            }
        }
    });
}
