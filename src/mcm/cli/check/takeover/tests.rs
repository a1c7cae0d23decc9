use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::machine::MachineDeployment,
    cli::{
        args::go_flags,
        check::{finding::CheckLevel, report},
    },
};
use mcm_insight::{story::ManagerLease, terminal::TerminalLook, testing::held_lease};

/// The Deployment as Gardener makes it.
fn gardener() -> Value {
    json!({
        "metadata": {"name": "machine-controller-manager", "namespace": "shoot--dev--one"},
        "spec": {"replicas": 1, "selector": {}, "template": {"spec": {
            "serviceAccountName": "machine-controller-manager",
            "terminationGracePeriodSeconds": 5,
            "containers": [
                {
                    "name": "machine-controller-manager",
                    "image": "registry.example/machine-controller-manager:v0.60.0",
                    "command": [
                        "./machine-controller-manager", "--control-kubeconfig=inClusterConfig",
                        "--machine-safety-overshooting-period=1m", "--namespace=$(NAMESPACE)", "--port=10258",
                        "--safety-up=2", "--safety-down=1", "--target-kubeconfig=/var/run/target/kubeconfig", "--v=3",
                        "--min-resync-period=12h",
                    ],
                    "env": [{"name": "NAMESPACE", "value": "shoot--dev--one"}],
                },
                {
                    "name": "machine-controller-manager-provider-aws",
                    "image": "registry.example/machine-controller-manager-provider-aws:v0.25.0",
                    "args": [
                        "--control-kubeconfig=inClusterConfig", "--machine-creation-timeout=20m", "--namespace", "shoot--dev--one",
                        "--target-kubeconfig=/var/run/target/kubeconfig", "--v=3",
                    ],
                },
                {"name": "proxy", "image": "registry.example/proxy:v1"},
            ],
        }}},
    })
}

fn workload(change: impl FnOnce(&mut Value)) -> GoDeployment {
    let mut deployment = gardener();
    change(&mut deployment);
    GoDeployment::from_deployment(&serde_json::from_value(deployment).unwrap(), go_flags)
}

fn nothing(_: &mut Value) {}

const CONTAINERS: &str = "/spec/template/spec/containers";

fn container(deployment: &mut Value, index: usize) -> &mut Value {
    &mut deployment.pointer_mut(CONTAINERS).unwrap()[index]
}

#[test]
fn the_programs_are_found_by_command_image_or_name() {
    let workload = workload(nothing);
    let programs: Vec<_> = workload.containers.iter().map(|one| (one.program, one.has_command)).collect();
    assert_eq!(programs, [("machine-controller-manager", true), ("machine-controller", false)]);
    assert_eq!((workload.grace, workload.service_account.as_str()), (5, "machine-controller-manager"));
    assert!(!workload.has_one_cluster() && workload.elects() && workload.overlaps);
}

#[test]
fn flags_without_effect_are_named() {
    let findings = judge::flags(&workload(nothing));
    assert_eq!(findings, [CheckFinding::good("flags", "14 of 14 known; 1 without effect: --min-resync-period")]);
}

#[rstest]
#[case::unknown("--no-such-flag=1", "has flags that mcm does not know: --no-such-flag")]
#[case::value("--safety-up=many", "would not start")]
fn a_flag_that_stops_a_container_is_a_problem(#[case] flag: &str, #[case] text: &str) {
    let findings = judge::flags(&workload(|deployment| {
        container(deployment, 0)["command"].as_array_mut().unwrap().push(flag.into());
    }));
    assert_eq!((findings.len(), findings[0].result), (1, CheckLevel::Problem), "{findings:?}");
    assert!(findings[0].text.contains(text), "{findings:?}");
}

#[test]
fn flags_in_a_script_are_an_open_question() {
    let findings = judge::flags(&workload(|deployment| {
        container(deployment, 0)["command"] = json!(["sh", "-c", "exec ./machine-controller-manager --v=3"]);
    }));
    assert_eq!((findings.len(), findings[0].result), (1, CheckLevel::Unknown));
}

#[test]
fn a_container_without_a_command_depends_on_its_image() {
    let findings = judge::entry_points(&workload(nothing));
    assert_eq!(findings.len(), 1);
    let next = "use an image whose entry point is /machine-controller, or set its command to [/machine-controller]";
    assert_eq!(findings[0].next.as_deref(), Some(next));
}

#[rstest]
#[case(5, CheckLevel::Note)]
#[case(30, CheckLevel::Good)]
fn a_short_grace_period_is_a_note(#[case] seconds: i64, #[case] level: CheckLevel) {
    let workload = workload(|deployment| {
        deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = seconds.into();
    });
    assert_eq!(judge::grace(&workload, "demo")[0].result, level);
}

#[rstest]
#[case::elects("--v=1", "RollingUpdate", false)]
#[case::one_after_the_other("--leader-elect=false", "Recreate", false)]
#[case::both_at_once("--leader-elect=false", "RollingUpdate", true)]
fn pods_that_overlap_need_leader_election(#[case] flag: &str, #[case] strategy: &str, #[case] is_problem: bool) {
    let workload = workload(|deployment| {
        deployment["spec"]["strategy"] = json!({"type": strategy});
        container(deployment, 1)["args"].as_array_mut().unwrap().push(flag.into());
    });
    assert_eq!(judge::election(&workload).is_some(), is_problem);
}

fn manager(holder: &str, renewed: i64) -> ManagerLease {
    held_lease("machine-controller", "machines", holder, Timestamp::from_second(renewed).unwrap())
}

#[rstest]
#[case::pod("machine-controller-manager-7d4-x_uuid", 998, CheckLevel::Good)]
#[case::other("laptop_uuid", 998, CheckLevel::Note)]
#[case::gone("machine-controller-manager-7d4-x_uuid", 100, CheckLevel::Note)]
fn the_holder_of_a_lease_is_a_pod_of_the_deployment(
    #[case] holder: &str,
    #[case] renewed: i64,
    #[case] level: CheckLevel,
) {
    let now = Timestamp::from_second(1000).unwrap();
    let findings = judge::leases(&Ok(vec![manager(holder, renewed)]), &[workload(nothing)], now);
    assert_eq!(findings[0].result, level, "{findings:?}");
}

#[test]
fn a_deployment_that_rolls_is_a_note() {
    let deployment = |value: Value| serde_json::from_value::<MachineDeployment>(value).unwrap();
    let rolling = deployment(json!({
        "metadata": {"name": "pool-b", "generation": 2}, "spec": {"replicas": 8, "template": {}},
        "status": {"observedGeneration": 2, "replicas": 9, "updatedReplicas": 3},
    }));
    let settled = deployment(json!({
        "metadata": {"name": "pool-a", "generation": 2}, "spec": {"replicas": 8, "template": {}},
        "status": {"observedGeneration": 2, "replicas": 8, "updatedReplicas": 8},
    }));
    let finding = judge::settled(&[("pool-a".to_owned(), settled), ("pool-b".to_owned(), rolling)].into());
    assert_eq!(finding.text, "pool-b (3 of 8) is rolling, and is taken over in the middle");
    assert_eq!(judge::settled(&[].into()).result, CheckLevel::Good);
}

#[rstest]
#[case::plain("r.example:5000/mcm:v1", "r.example:5000/mcm:v1", "r.example:5000/mcm:v1-machine-controller")]
#[case::of_the_sidecar("r/mcm:v1-machine-controller", "r/mcm:v1", "r/mcm:v1-machine-controller")]
#[case::with_a_digest("r/mcm:v1@sha256:00", "r/mcm:v1@sha256:00", "r/mcm:v1-machine-controller")]
#[case::without_a_tag("r.example:5000/mcm@sha256:00", "r.example:5000/mcm@sha256:00", "r.example:5000/mcm@sha256:00")]
fn a_sidecar_without_a_command_gets_the_image_that_starts_its_program(
    #[case] image: &str,
    #[case] manager: &str,
    #[case] sidecar: &str,
) {
    let next = |workload: GoDeployment| judge::image(Some(image), &[workload], "demo")[0].next.clone().unwrap();
    let set = |sidecar: &str| {
        let names = ["machine-controller-manager", "machine-controller-manager-provider-aws"];
        format!("kubectl set image deployment/{0} -n demo {0}={manager} {1}={sidecar}", names[0], names[1])
    };
    assert_eq!(next(workload(nothing)), set(sidecar));
    let with_a_command = workload(|deployment| container(deployment, 1)["command"] = json!(["/machine-controller"]));
    assert_eq!(next(with_a_command), set(manager));
}

/// Gardener restores its Deployments, so no command that changes one is proposed.
#[rstest]
#[case::role_of_the_deployment("/metadata", "gardener.cloud/role", "controlplane")]
#[case::role_of_the_pod("/spec/template/metadata", "gardener.cloud/role", "controlplane")]
#[case::label_of_an_extension("/metadata", "extensions.gardener.cloud/provider", "aws")]
#[case::label_of_a_webhook("/metadata", "high-availability-config.resources.gardener.cloud/type", "controller")]
fn of_gardener_the_image_vectors_are_changed(#[case] at: &str, #[case] key: &str, #[case] value: &str) {
    let workload = workload(|deployment| {
        deployment["spec"]["template"]["metadata"] = json!({});
        deployment.pointer_mut(at).unwrap()["labels"] = json!({ key: value });
        container(deployment, 0)["command"].as_array_mut().unwrap().push("--no-such".into());
        container(deployment, 1)["args"].as_array_mut().unwrap().push("--leader-elect=false".into());
    });
    assert!(workload.is_of_gardener);
    let findings = [
        judge::flags(&workload),
        judge::entry_points(&workload),
        judge::grace(&workload, "shoot--dev--one"),
        judge::election(&workload).into_iter().collect(),
        judge::image(Some("registry.example/mcm:v9.9.9"), std::slice::from_ref(&workload), "shoot--dev--one"),
    ]
    .concat();
    assert_eq!(findings.len(), 5, "{findings:?}");
    let next: Vec<&str> = findings.iter().filter_map(|finding| finding.next.as_deref()).collect();
    assert!(
        !next.iter().any(|next| next.starts_with("kubectl") || next.contains("remove") || next.contains("set its")),
        "{next:?}"
    );
    assert_eq!(
        *next.last().unwrap(),
        "set imageVectorOverwrite, in that of gardenlet machine-controller-manager: registry.example/mcm:v9.9.9; in that of the \
         provider extension machine-controller-manager-provider-aws: registry.example/mcm:v9.9.9-machine-controller. gardenlet \
         reverts kubectl set image; docs/gardener.md has the steps"
    );
}

#[rstest]
#[case::another_domain("notgardener.cloud/role")]
#[case::no_domain("role")]
fn labels_of_others_are_not_those_of_gardener(#[case] key: &str) {
    let workload = workload(|deployment| deployment["metadata"]["labels"] = json!({ key: "controlplane" }));
    assert!(!workload.is_of_gardener);
    assert!(judge::grace(&workload, "demo")[0].next.as_deref().unwrap().starts_with("kubectl patch"));
}

#[test]
fn the_whole_report_at_eighty_columns() {
    let workload = workload(nothing);
    let now = Timestamp::from_second(1000).unwrap();
    let findings = [
        judge::flags(&workload),
        judge::entry_points(&workload),
        judge::grace(&workload, "shoot--dev--one"),
        judge::leases(&Ok(vec![manager("machine-controller-manager-7d4-x_uuid", 998)]), &[], now),
        vec![judge::target_rights(&workload)],
        judge::image(Some("registry.example/mcm:v9.9.9"), std::slice::from_ref(&workload), "shoot--dev--one"),
        vec![judge::no_workload("shoot--dev--one")],
    ]
    .concat();
    insta::assert_snapshot!(report::text(TerminalLook::PLAIN, &findings));
}
