//! Each value of the chart: the API server accepts what is rendered, and Helm refuses what no template reads.

use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{CHART, Cluster, ROOT, documents, only, play};

const DIGEST: &str = "image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// Kinds that the chart makes only on request, and that Kubernetes does not have.
const OF_OPERATOR: [&str; 2] = ["ServiceMonitor", "PrometheusRule"];

fn render(cluster: &Cluster, namespace: &str, values: &[&str]) -> Result<String, String> {
    let mut words = vec!["template", "mcm", CHART, "--no-hooks", "-n", namespace];
    for value in values {
        words.extend(["--set", *value]);
    }
    cluster.try_helm(&words)
}

fn pod(manifest: &str) -> Value {
    only(manifest, "Deployment")["spec"]["template"]["spec"].clone()
}

#[rstest]
#[case::default(&[])]
#[case::drop_in(&["mode=drop-in"])]
#[case::one_program(&["mode=drop-in", "dropIn.programs={machine-controller-manager}"])]
#[case::capi_manager(&["mode=capi-manager"])]
#[case::digest(&[DIGEST, "imagePullSecrets[0].name=pull"])]
#[case::other_names(&["fullnameOverride=machines", "nameOverride=nodes", "serviceAccount.name=nodes"])]
#[case::control_namespace(&["controlNamespace=default"])]
#[case::bootstrap_tokens(&["target.bootstrapTokens=true"])]
#[case::drop_in_without_tokens(&["mode=drop-in", "target.bootstrapTokens=false"])]
#[case::own_account(&["mode=capi-manager", "serviceAccount.name=provider", "rbac.create=false"])]
#[case::certificate(&["mode=capi-manager", "metrics.tlsSecretName=certificate"])]
#[case::peers(&["networkPolicy.from[0].namespaceSelector.matchLabels.name=monitoring"])]
#[case::target_of_a_secret(&["target.type=secret", "target.secretName=shoot"])]
#[case::no_target(&["target.type=none"])]
#[case::flags(&["extraArgs.run={--machine-drain-timeout=5m,--provider=AWS}", "log.level=3", "log.format=json"])]
#[case::volumes(&[
    "extraVolumes[0].name=token", "extraVolumes[0].emptyDir.sizeLimit=1Mi", "extraEnv[0].name=AWS_REGION",
    "extraEnv[0].value=eu-west-1", "extraVolumeMounts[0].name=token", "extraVolumeMounts[0].mountPath=/token",
])]
#[case::scheduling(&[
    "priorityClassName=system-cluster-critical", "nodeSelector.role=system", "tolerations[0].operator=Exists",
    "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key=a",
    "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator=Exists",
    "podAnnotations.a=b", "podLabels.c=d", "topologySpreadConstraints=null",
])]
#[case::nothing_beside(&[
    "crds.enabled=false", "rbac.create=false", "serviceAccount.create=false", "podDisruptionBudget.enabled=false",
])]
#[case::crds_that_end_with_the_release(&["crds.keep=false"])]
#[case::dashboards(&["monitoring.dashboards.enabled=true"])]
fn the_api_server_accepts_what_a_value_renders(#[case] values: &[&str]) {
    play(async |cluster| {
        let namespace = cluster.namespace("options").await;
        let manifest = render(cluster, &namespace, values).unwrap();
        cluster.accepts(&manifest);
        cluster.helm(&["lint", "--strict", CHART, "--set", &values.join(",")]);
    });
}

/// Without the operator the API server has no such kinds.
#[test]
fn kinds_of_the_prometheus_operator_are_rendered_on_request_only() {
    play(async |cluster| {
        let kinds = |values: &[&str]| -> Vec<String> {
            let manifest = render(cluster, "default", values).unwrap();
            let kinds = documents(&manifest).into_iter().map(|one| one["kind"].as_str().unwrap().to_owned());
            kinds.filter(|kind| OF_OPERATOR.contains(&kind.as_str())).collect()
        };
        assert_eq!(kinds(&[]), [""; 0]);
        for mode in ["standalone", "drop-in", "capi-manager"] {
            let values = [&format!("mode={mode}"), "monitoring.serviceMonitor.enabled=true"];
            let manifest = render(cluster, "default", &values).unwrap();
            let monitor = only(&manifest, "ServiceMonitor");
            let service = only(&manifest, "Service");
            assert_eq!(monitor["spec"]["selector"]["matchLabels"], service["spec"]["selector"]);
            let scraped = monitor["spec"]["endpoints"].as_array().unwrap().iter().map(|one| one["port"].clone());
            let served = service["spec"]["ports"].as_array().unwrap().iter().map(|one| one["name"].clone());
            assert_eq!(scraped.collect::<Vec<_>>(), served.collect::<Vec<_>>(), "{mode}");
            let job = &monitor["spec"]["endpoints"][0]["relabelings"][0]["replacement"];
            assert_eq!(job == "machine-controller-manager", mode == "drop-in", "{job}");
        }
    });
}

#[rstest]
#[case::standalone("standalone", &["rules"])]
#[case::drop_in("drop-in", &["rules", "rules-drop-in"])]
#[case::capi_manager("capi-manager", &["rules"])]
fn the_alerts_of_the_chart_are_those_of_the_files_with_the_address_of_their_pages(
    #[case] mode: &str,
    #[case] files: &[&str],
) {
    play(async |cluster| {
        for base in ["", "https://git.example/mcm/blob/v0.1.0/"] {
            let enabled = "monitoring.prometheusRule.enabled=true";
            let base_of_pages = format!("monitoring.prometheusRule.runbookBase={base}");
            let manifest = render(cluster, "default", &[&format!("mode={mode}"), enabled, &base_of_pages]).unwrap();
            let mut written = Vec::new();
            for file in files {
                let text = std::fs::read_to_string(format!("{ROOT}/config/monitoring/{file}.yaml")).unwrap();
                let text = text.replace("runbook_url: docs/", &format!("runbook_url: {base}docs/"));
                let file: Value = serde_yaml_ng::from_str(&text).unwrap();
                written.extend(file["groups"].as_array().unwrap().clone());
            }
            assert_eq!(only(&manifest, "PrometheusRule")["spec"]["groups"], Value::from(written));
        }
    });
}

/// Commands in pages of alerts select pods and Deployments by a label that no value changes.
#[rstest]
fn pages_of_alerts_find_the_pods_of_the_chart(#[values("standalone", "drop-in", "capi-manager")] mode: &str) {
    play(async |cluster| {
        let names = ["nameOverride=nodes", "fullnameOverride=machines"];
        for values in [&names[..0], &names[..]] {
            let mode = format!("mode={mode}");
            let manifest = render(cluster, "default", &[&[mode.as_str()], values].concat()).unwrap();
            let deployment = only(&manifest, "Deployment");
            for of in [&deployment["metadata"], &deployment["spec"]["template"]["metadata"]] {
                assert_eq!(of["labels"]["app.kubernetes.io/part-of"], "mcm");
            }
        }
    });
}

#[rstest]
#[case::unknown("replica=3", "replica")]
#[case::unknown_below("image.registry=localhost", "registry")]
#[case::mode("mode=dropin", "mode")]
#[case::type_of_a_value("replicas=two", "replicas")]
#[case::digest("image.digest=latest", "digest")]
#[case::address_of_pages("monitoring.prometheusRule.runbookBase=docs", "runbookBase")]
#[case::secret_without_a_name("target.type=secret", "secretName")]
#[case::program("dropIn.programs={kubelet}", "programs")]
#[case::flags_of_no_program("extraArgs.mcm={--v=3}", "extraArgs")]
#[case::flags_of_another_mode("mode=drop-in,extraArgs.run={--v=3}", "extraArgs")]
#[case::flags_of_a_program_that_does_not_run(
    "mode=drop-in,dropIn.programs={machine-controller},extraArgs.machine-controller-manager={--v=3}",
    "extraArgs"
)]
#[case::programs_of_another_mode("dropIn.programs={machine-controller}", "dropIn")]
#[case::key_without_a_secret("target.secretKey=value", "secretKey")]
#[case::tokens_of_another_cluster("target.type=none,target.bootstrapTokens=true", "bootstrapTokens")]
#[case::annotations_of_the_account_of_others(
    "serviceAccount.create=false,serviceAccount.annotations.a=b",
    "annotations"
)]
#[case::certificate_of_another_mode("metrics.tlsSecretName=certificate", "tlsSecretName")]
#[case::capi_with_a_policy("mode=capi-manager,policy.enabled=false", "policy")]
#[case::capi_with_a_control_namespace("mode=capi-manager,controlNamespace=a", "controlNamespace")]
#[case::capi_with_a_target("mode=capi-manager,target.type=none", "target")]
fn helm_refuses_a_value_that_no_template_reads(#[case] value: &str, #[case] named: &str) {
    play(async |cluster| {
        let error = render(cluster, "default", &[value]).unwrap_err();
        assert!(error.contains(named) && error.contains("values don't meet"), "{error}");
    });
}

#[test]
fn values_reach_the_pod() {
    play(async |cluster| {
        let default = pod(&render(cluster, "a", &[]).unwrap());
        let container = &default["containers"][0];
        assert_eq!(container["image"], "localhost/mcm:v0.1.0");
        assert_eq!(container["args"][2], "--namespace=a");
        assert_eq!(
            (&default["terminationGracePeriodSeconds"], &default["securityContext"]["runAsUser"]),
            (&json!(30), &json!(65532))
        );

        let digest = pod(&render(cluster, "a", &[DIGEST, "image.tag=v9"]).unwrap());
        assert!(digest["containers"][0]["image"].as_str().unwrap().starts_with("localhost/mcm@sha256:0123"));

        let secret = ["target.type=secret", "target.secretName=shoot", "target.secretKey=value"];
        let manifest = render(cluster, "a", &secret).unwrap();
        let secret = pod(&manifest);
        assert_eq!(
            secret["volumes"][0]["secret"],
            json!({"secretName": "shoot", "items": [{"key": "value", "path": "kubeconfig"}]})
        );
        assert_eq!(secret["containers"][0]["volumeMounts"][0]["mountPath"], "/etc/mcm/target");
        assert!(
            secret["containers"][0]["args"]
                .as_array()
                .unwrap()
                .contains(&"--target-kubeconfig=/etc/mcm/target/kubeconfig".into())
        );
        let bound = |manifest: &str| {
            let bindings = documents(manifest).into_iter().filter(|one| one["kind"] == "ClusterRoleBinding");
            bindings.map(|one| one["roleRef"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(bound(&manifest), ["a-mcm-classes"], "no rights to Nodes of this cluster");
        let none = render(cluster, "a", &["target.type=none"]).unwrap();
        assert_eq!(bound(&none), ["a-mcm-classes"]);

        let elsewhere = render(cluster, "a", &["controlNamespace=b"]).unwrap();
        let binding = documents(&elsewhere)
            .into_iter()
            .find(|one| one["kind"] == "RoleBinding" && one["metadata"]["namespace"] == "b");
        assert_eq!(binding.unwrap()["subjects"][0]["namespace"], "a");
        assert_eq!(pod(&elsewhere)["containers"][0]["args"][2], "--namespace=b");
    });
}

/// The account that the pod names exists, is bound, and is the one in the policies, whatever its name.
#[test]
fn the_account_of_capi_manager_is_in_its_bindings() {
    play(async |cluster| {
        for (value, account) in [("log.level=0", "capmcm-manager"), ("serviceAccount.name=provider", "provider")] {
            let manifest = render(cluster, "a", &["mode=capi-manager", value]).unwrap();
            assert_eq!(pod(&manifest)["serviceAccountName"], account);
            assert_eq!(only(&manifest, "ServiceAccount")["metadata"]["name"], account);
            let all = documents(&manifest);
            let bindings: Vec<&Value> =
                all.iter().filter(|one| one["kind"].as_str().unwrap().ends_with("RoleBinding")).collect();
            assert_eq!(bindings.len(), 2);
            for binding in bindings {
                assert_eq!(binding["subjects"], json!([{"kind": "ServiceAccount", "name": account, "namespace": "a"}]));
            }
            assert!(manifest.contains(&format!("endsWith(':{account}')")));
        }
        let alone = render(cluster, "a", &["mode=capi-manager", "rbac.create=false"]).unwrap();
        assert_eq!(only(&alone, "ServiceAccount")["metadata"]["name"], "capmcm-manager");
        let of_others = ["mode=capi-manager", "serviceAccount.create=false", "serviceAccount.name=provider"];
        let of_others = render(cluster, "a", &of_others).unwrap();
        assert!(documents(&of_others).iter().all(|one| one["kind"] != "ServiceAccount"));
        assert_eq!(pod(&of_others)["serviceAccountName"], "provider");
    });
}

/// A scraper verifies the certificate of the Secret that the manager serves.
#[test]
fn the_service_monitor_verifies_the_certificate_if_there_is_one() {
    play(async |cluster| {
        let enabled = ["mode=capi-manager", "monitoring.serviceMonitor.enabled=true"];
        let self_signed = only(&render(cluster, "a", &enabled).unwrap(), "ServiceMonitor");
        assert_eq!(self_signed["spec"]["endpoints"][0]["tlsConfig"], json!({"insecureSkipVerify": true}));
        let given = [&enabled[..], &["metrics.tlsSecretName=certificate"]].concat();
        let manifest = render(cluster, "a", &given).unwrap();
        let tls = json!({
            "ca": {"secret": {"name": "certificate", "key": "ca.crt"}}, "serverName": "mcm-metrics.a.svc",
        });
        assert_eq!(only(&manifest, "ServiceMonitor")["spec"]["endpoints"][0]["tlsConfig"], tls);
        assert_eq!(only(&manifest, "Service")["metadata"]["name"], "mcm-metrics");
        let pod = pod(&manifest);
        assert_eq!(pod["volumes"], json!([{"name": "tls", "secret": {"secretName": "certificate"}}]));
        let arguments = pod["containers"][0]["args"].to_string();
        assert!(arguments.contains("--tls-cert-file=/etc/mcm/tls/tls.crt"), "{arguments}");
        assert_eq!(pod["containers"][0]["volumeMounts"][0]["mountPath"], "/etc/mcm/tls");
    });
}

/// The pod of helm test passes the strictest Pod Security Standard.
#[test]
fn the_pod_of_helm_test_is_admitted() {
    play(async |cluster| {
        let namespace = cluster.namespace("helm-test").await;
        for mode in ["standalone", "drop-in", "capi-manager"] {
            let words = [
                "template",
                "mcm",
                CHART,
                "-n",
                &namespace,
                "--set",
                &format!("mode={mode}"),
                "-s",
                "templates/tests/check.yaml",
            ];
            let pod = cluster.helm(&words);
            let account = only(&pod, "Pod")["spec"]["serviceAccountName"].as_str().unwrap().to_owned();
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}});
            cluster.kubectl(&["apply", "-n", &namespace, "-f", "-"], &account.to_string());
            cluster.kubectl(&["create", "--dry-run=server", "--validate=strict", "-n", &namespace, "-f", "-"], &pod);
        }
    });
}
