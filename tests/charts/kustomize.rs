//! The kustomize bases beside the chart.

use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{CHART, Cluster, ROOT, documents, only, play, play_apart};

fn base(cluster: &Cluster, name: &str) -> String {
    cluster.kubectl(&["kustomize", &format!("{ROOT}/config/{name}")], "")
}

/// Differences on purpose: names, and how the namespace is named.
fn comparable(manifest: &str) -> Value {
    let mut pod = only(manifest, "Deployment")["spec"]["template"]["spec"].clone();
    pod.as_object_mut().unwrap().remove("serviceAccountName");
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
        for kind in
            ["CustomResourceDefinition", "PodDisruptionBudget", "ServiceAccount", "RoleBinding", "ClusterRoleBinding"]
        {
            assert_eq!(count(&base, kind), count(&chart, kind), "{kind}");
        }
    });
}

/// All bases on one API server: their pods are created in a namespace with the strictest Pod Security Standard.
#[rstest]
#[case("standalone", "mcm-system", "mcm")]
#[case("drop-in", "mcm-system", "machine-controller-manager")]
#[case("cluster-api", "capmcm-system", "capmcm-controller-manager")]
fn a_base_is_installed_with_one_command(#[case] name: &str, #[case] namespace: &str, #[case] deployment: &str) {
    play_apart(async |cluster| {
        let folder = format!("{ROOT}/config/{name}");
        cluster.kubectl(&["apply", "--server-side", "--validate=strict", "-k", &folder], "");
        let strict = "pod-security.kubernetes.io/enforce=restricted";
        cluster.kubectl(&["label", "--overwrite", "namespace", namespace, strict], "");
        crate::support::wait::until("the pods", async || {
            let pods = cluster.kubectl(&["get", "pods", "-n", namespace, "-o", "name"], "");
            (!pods.is_empty()).then_some(())
        })
        .await;
        let found = cluster.get(namespace, "deployment", deployment).unwrap();
        let account = found["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap().to_owned();
        let may = |verb: &str, kind: &str, of: &str| {
            let account = format!("--as=system:serviceaccount:{namespace}:{account}");
            cluster.kubectl(&["auth", "can-i", verb, kind, "-n", of, &account], "").trim() == "yes"
        };
        assert!(may("create", "machines.machine.sapcloud.io", namespace));
        if name != "cluster-api" {
            assert!(may("patch", "nodes", "") && may("create", "secrets", "kube-system"));
        }
    });
}
