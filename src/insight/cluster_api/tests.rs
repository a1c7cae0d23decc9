use rstest::rstest;
use serde_json::{Value, json};

use super::{
    CapiFacts,
    cause::cause_of,
    named,
    object::{CapiObject, Kind},
    testing::{
        WORKER, condition, draining, healthy, nothing, read, set, set_condition, with_native, without_bootstrap_data,
        worker,
    },
};
use crate::{
    report,
    story::{NamespaceFacts, ObjectAnswer, ObjectVerdict},
    terminal::TerminalLook,
    testing::{at, held_lease, of_machine_pool, pool},
};
use mcm_api::reasons::ProviderReason;
use mcm_rules::plan::{WaitKind, cause::WaitCause, guide::RemedyDanger};

fn answer(facts: &NamespaceFacts, all: Vec<(Kind, Value)>, wanted: &str) -> ObjectAnswer {
    let objects = read(all);
    let (kind, name) = named(wanted).unwrap();
    CapiFacts { facts, objects: &objects }.answer(kind, name).unwrap()
}

fn of_worker(all: Vec<(Kind, Value)>) -> ObjectAnswer {
    answer(&with_native(nothing(), WORKER, "Available", &[]), all, &format!("ma/{WORKER}"))
}

#[rstest]
#[case("cluster/a", Some((Kind::Cluster, "a")))]
#[case("CL/a", Some((Kind::Cluster, "a")))]
#[case("machine.cluster.x-k8s.io/a", Some((Kind::Machine, "a")))]
#[case("machines.cluster.x-k8s.io/a", Some((Kind::Machine, "a")))]
#[case("machines.v1beta2.cluster.x-k8s.io/a", Some((Kind::Machine, "a")))]
#[case("ma/a", Some((Kind::Machine, "a")))]
#[case("md/a", Some((Kind::MachineDeployment, "a")))]
#[case("mcmmachines.infrastructure.cluster.x-k8s.io/a", Some((Kind::MCMMachine, "a")))]
#[case("mcmmachinepool/a", Some((Kind::MCMMachinePool, "a")))]
#[case("machinepools/a", Some((Kind::MachinePool, "a")))]
#[case::of_sapcloud("machine/a", None)]
#[case::of_sapcloud_by_its_group("machines.machine.sapcloud.io/a", None)]
#[case::of_another_group("cluster.example.com/a", None)]
#[case::without_a_kind("demo", None)]
fn kinds_of_cluster_api_are_named_as_kubectl_takes_them(#[case] wanted: &str, #[case] expected: Option<(Kind, &str)>) {
    assert_eq!(named(wanted), expected);
}

#[test]
fn a_healthy_cluster_is_settled_at_each_of_its_objects() {
    let facts = with_native(nothing(), WORKER, "Available", &[]);
    for (kind, object) in healthy() {
        let wanted = format!("{}.{}/{}", kind.name(), kind.group(), object["metadata"]["name"].as_str().unwrap());
        let answer = answer(&facts, healthy(), &wanted);
        assert_eq!(
            (answer.verdict, answer.waits.len(), answer.machines.len()),
            (ObjectVerdict::Settled, 0, 0),
            "{answer:?}"
        );
    }
}

/// Whoever may create a Machine chooses these texts, and an administrator pastes the commands.
#[test]
fn no_text_of_an_object_is_executed_by_a_remedy() {
    let evil = "x; reboot #";
    let mut cases = [without_bootstrap_data(), without_bootstrap_data(), healthy(), healthy()];
    set(&mut cases[0], Kind::Machine, "/spec/bootstrap/configRef/name", evil.into());
    set(&mut cases[1], Kind::Machine, "/spec/bootstrap/configRef/kind", evil.into());
    unjoined(&mut cases[2]);
    set(&mut cases[2], Kind::Machine, "/spec/clusterName", evil.into());
    set(&mut cases[2], Kind::Cluster, "/metadata/name", evil.into());
    unjoined(&mut cases[3]);
    set(&mut cases[3], Kind::Machine, "/spec/clusterName", evil.into());
    set(&mut cases[3], Kind::Cluster, "/metadata/name", evil.into());
    set(&mut cases[3], Kind::Cluster, "/status/initialization/controlPlaneInitialized", false.into());
    for all in cases {
        let answer = of_worker(all);
        let commands: Vec<&str> = answer.remedies().iter().map(|remedy| remedy.text.as_str()).collect();
        let named: Vec<&&str> = commands.iter().filter(|command| command.contains("reboot")).collect();
        let is_quoted = |command: &&&str| command.contains("'x; reboot #") || command.contains("'cluster/x; reboot #'");
        assert!(!named.is_empty() && named.iter().all(is_quoted), "{commands:?}");
    }
}

type All = Vec<(Kind, Value)>;
type Edit = fn(&mut All);

fn unjoined(all: &mut [(Kind, Value)]) {
    set(all, Kind::Machine, "/status/nodeRef", Value::Null);
}

/// Core reads no Node, because the control plane is not initialized.
fn uninitialized(all: &mut [(Kind, Value)]) {
    set(all, Kind::Cluster, "/status/initialization", json!({"infrastructureProvisioned": true}));
    let text = "Waiting for Cluster control plane to be initialized";
    set_condition(all, Kind::Machine, &condition("NodeHealthy", "Unknown", "InspectionFailed", text));
}

fn without_control_plane(all: &mut [(Kind, Value)]) {
    set(all, Kind::Cluster, "/spec/controlPlaneRef", Value::Null);
}

fn vm_is(all: &mut [(Kind, Value)], reason: &str, message: &str) {
    unjoined(all);
    set_condition(all, Kind::MCMMachine, &condition("VMProvisioned", "False", reason, message));
    set_condition(all, Kind::MCMMachine, &condition("Ready", "False", reason, message));
}

fn deleted(all: &mut [(Kind, Value)], reason: &str, message: &str) {
    set(all, Kind::Machine, "/metadata/deletionTimestamp", json!(at(357)));
    set_condition(all, Kind::Machine, &condition("Deleting", "True", reason, message));
}

#[rstest]
#[case::paused_cluster(
    |all: &mut All| set(all, Kind::Cluster, "/spec/paused", true.into()),
    (WaitKind::Hold, ObjectVerdict::Blocked, "Cluster demo to be resumed: its spec.paused is true")
)]
#[case::paused_machine(
    |all: &mut All| set(all, Kind::Machine, "/metadata/annotations", json!({"cluster.x-k8s.io/paused": ""})),
    (WaitKind::Hold, ObjectVerdict::Blocked, "its annotation cluster.x-k8s.io/paused to be removed")
)]
#[case::no_cluster(
    |all: &mut All| { unjoined(all); all.retain(|(kind, _)| *kind != Kind::Cluster) },
    (WaitKind::Owner, ObjectVerdict::Waiting, "Cluster demo, which does not exist")
)]
#[case::infrastructure_of_the_cluster(
    |all: &mut All| {
        unjoined(all);
        set(all, Kind::Cluster, "/status/initialization", json!({}));
        set_condition(all, Kind::MCMCluster, &condition("Ready", "False", "WaitingForControlPlaneEndpoint", "no endpoint"));
    },
    (WaitKind::Infrastructure, ObjectVerdict::Waiting, "MCMCluster demo of Cluster demo to be provisioned: no endpoint")
)]
#[case::secret_of_the_cluster(
    |all: &mut All| {
        unjoined(all);
        set(all, Kind::Cluster, "/status/initialization", json!({}));
        set_condition(all, Kind::MCMCluster, &condition("Ready", "False", "SecretMissing", "Secret cloud does not exist: create it"));
    },
    (WaitKind::Class, ObjectVerdict::Blocked, "MCMCluster demo of Cluster demo to be provisioned: Secret cloud does not exist")
)]
#[case::bootstrap_data(
    |all: &mut All| *all = without_bootstrap_data(),
    (WaitKind::Infrastructure, ObjectVerdict::Waiting, "its bootstrap data from KubeadmConfig demo-md-0-abcde-x7k2p: KubeadmConfig status")
)]
#[case::no_bootstrap_config(
    |all: &mut All| { *all = without_bootstrap_data(); set(all, Kind::Machine, "/spec/bootstrap", json!({})) },
    (WaitKind::Infrastructure, ObjectVerdict::Blocked, "its bootstrap data: spec.bootstrap names neither a Secret nor a config")
)]
#[case::control_plane(
    |all: &mut All| {
        *all = without_bootstrap_data();
        set(all, Kind::Cluster, "/status/initialization", json!({"infrastructureProvisioned": true}));
        let (kind, mut machine) = worker("demo-cp-1");
        machine["metadata"]["labels"]["cluster.x-k8s.io/control-plane"] = "".into();
        all.push((kind, machine));
    },
    (
        WaitKind::Infrastructure, ObjectVerdict::Waiting,
        "KubeadmControlPlane demo-cp, the control plane of Cluster demo, to be initialized; its Machine is demo-cp-1"
    )
)]
#[case::control_plane_of_a_machine_with_a_node(
    |all: &mut All| uninitialized(all),
    (
        WaitKind::Infrastructure, ObjectVerdict::Waiting,
        "KubeadmControlPlane demo-cp, the control plane of Cluster demo, to be initialized; it has no Machine yet"
    )
)]
#[case::external_control_plane(
    |all: &mut All| { uninitialized(all); without_control_plane(all) },
    (WaitKind::Infrastructure, ObjectVerdict::Blocked, "the control plane of Cluster demo to be reported as initialized")
)]
#[case::control_plane_of_a_cluster_class(
    |all: &mut All| {
        uninitialized(all);
        without_control_plane(all);
        set(all, Kind::Cluster, "/spec/topology", json!({"classRef": {"name": "simulated"}}));
    },
    (WaitKind::Infrastructure, ObjectVerdict::Waiting, "the control plane of Cluster demo to be initialized")
)]
#[case::no_mcm_machine(
    |all: &mut All| { unjoined(all); all.retain(|(kind, _)| *kind != Kind::MCMMachine) },
    (WaitKind::Owner, ObjectVerdict::Waiting, "MCMMachine demo-md-0-abcde-x7k2p, which does not exist")
)]
#[case::deleted_mcm_machine(
    |all: &mut All| {
        all.retain(|(kind, _)| *kind != Kind::MCMMachine);
        set_condition(all, Kind::Machine, &condition("InfrastructureReady", "False", "ObjectDeleted", "MCMMachine has been deleted"));
    },
    (WaitKind::SpecCorrection, ObjectVerdict::Blocked, "which was deleted with its VM: delete the Machine")
)]
#[case::provider_does_not_run(
    |all: &mut All| { unjoined(all); set(all, Kind::MCMMachine, "/status", json!({})) },
    (WaitKind::Infrastructure, ObjectVerdict::Waiting, "the provider to act on MCMMachine")
)]
#[case::class(
    |all: &mut All| vm_is(all, "ClassMissing", "MachineClass worker does not exist"),
    (WaitKind::Class, ObjectVerdict::Blocked, "MachineClass worker does not exist")
)]
#[case::taken_name(
    |all: &mut All| vm_is(all, "NameTaken", "another object has MCM Machine a: delete or rename one of them"),
    (WaitKind::SpecCorrection, ObjectVerdict::Blocked, "another object has MCM Machine a")
)]
#[case::unreadable_class(
    |all: &mut All| vm_is(all, "Unreadable", "MachineClass worker cannot be read"),
    (WaitKind::Unreadable, ObjectVerdict::Blocked, "its VM: MachineClass worker cannot be read")
)]
#[case::vm_in_the_making(
    |all: &mut All| vm_is(all, "Creating", "Creating VM"),
    (WaitKind::CloudOperation, ObjectVerdict::Waiting, "its VM to be created: Creating VM")
)]
#[case::load_balancer(
    |all: &mut All| {
        unjoined(all);
        let registering = condition("LoadBalancerRegistered", "False", "Registering", "registering in pool p");
        set_condition(all, Kind::MCMMachine, &registering);
        set_condition(all, Kind::MCMMachine, &condition("Ready", "False", "Registering", "registering in pool p"));
    },
    (WaitKind::CloudOperation, ObjectVerdict::Waiting, "the load balancer of the control plane: registering in pool p")
)]
#[case::another_provider(
    |all: &mut All| {
        set(all, Kind::Machine, "/spec/infrastructureRef", json!({"kind": "AWSMachine", "name": "a"}));
        set_condition(all, Kind::Machine, &condition("InfrastructureReady", "False", "NotReady", "InstanceTerminated"));
    },
    (WaitKind::Infrastructure, ObjectVerdict::Waiting, "AWSMachine a to be ready: InstanceTerminated")
)]
#[case::node_join(|all: &mut All| unjoined(all), (WaitKind::NodeJoin, ObjectVerdict::Waiting, "its Node to join"))]
#[case::node_health(
    |all: &mut All| set_condition(all, Kind::Machine, &condition("NodeHealthy", "False", "NodeNotHealthy", "* Node.Ready: kubelet stopped")),
    (WaitKind::NodeHealth, ObjectVerdict::Waiting, "Node demo-md-0-abcde-x7k2p to become healthy: Node.Ready: kubelet stopped")
)]
#[case::connection(
    |all: &mut All| set_condition(all, Kind::Machine, &condition("NodeHealthy", "Unknown", "ConnectionDown", "Remote connection down")),
    (WaitKind::NodesUnknown, ObjectVerdict::Waiting, "Remote connection down")
)]
#[case::remediation(
    |all: &mut All| {
        set_condition(all, Kind::Machine, &condition("HealthCheckSucceeded", "False", "UnhealthyNode", "Ready is Unknown"));
        set_condition(all, Kind::Machine, &condition("OwnerRemediated", "False", "WaitingForRemediation", "waiting"));
    },
    (WaitKind::Replacement, ObjectVerdict::Waiting, "its owner to replace it: Ready is Unknown")
)]
#[case::drain(
    |all: &mut All| *all = draining(),
    (WaitKind::Eviction, ObjectVerdict::Waiting, "to be drained: Pod web/guarded: cannot evict pod as it would violate")
)]
#[case::volumes(
    |all: &mut All| deleted(all, "WaitingForVolumeDetach", "Waiting for Node volumes to be detached"),
    (WaitKind::VolumeDetachment, ObjectVerdict::Waiting, "Waiting for Node volumes to be detached")
)]
#[case::hook(
    |all: &mut All| deleted(all, "WaitingForPreDrainHook", "hooks: pre-drain.delete.hook.machine.cluster.x-k8s.io/a"),
    (WaitKind::Finalizers, ObjectVerdict::Waiting, "pre-drain.delete.hook.machine.cluster.x-k8s.io/a")
)]
#[case::vm_in_deletion(
    |all: &mut All| {
        deleted(all, "WaitingForInfrastructureDeletion", "Waiting for MCMMachine to be deleted");
        set(all, Kind::MCMMachine, "/metadata/deletionTimestamp", json!(at(358)));
        set_condition(all, Kind::MCMMachine, &condition("Ready", "False", "Deleting", "the MCM Machine is being deleted"));
    },
    (WaitKind::CloudOperation, ObjectVerdict::Waiting, "its VM to be deleted: the MCM Machine is being deleted")
)]
#[case::v1beta1_conditions(
    |all: &mut All| {
        *all = without_bootstrap_data();
        let former = json!({"type": "BootstrapReady", "status": "False", "reason": "WaitingForControlPlaneAvailable"});
        set(all, Kind::Machine, "/status", json!({"deprecated": {"v1beta1": {"conditions": [former]}}}));
    },
    (WaitKind::Infrastructure, ObjectVerdict::Waiting, "WaitingForControlPlaneAvailable")
)]
fn the_cause_of_a_machine_that_does_not_run_is_named(
    #[case] edit: Edit,
    #[case] (kind, verdict, text): (WaitKind, ObjectVerdict, &str),
) {
    let mut all = healthy();
    edit(&mut all);
    let answer = of_worker(all);
    let first = &answer.waits[0];
    assert_eq!((first.kind, answer.verdict), (kind, verdict), "{first:?}");
    assert!(first.text.contains(text), "{}", first.text);
}

/// `clusterctl move` moves no status, and the deletion of a Machine does not help.
#[test]
fn the_remedy_for_an_external_control_plane_reports_it_and_deletes_no_machine() {
    let mut all = healthy();
    uninitialized(&mut all);
    without_control_plane(&mut all);
    for wanted in ["cluster/demo".to_owned(), format!("ma/{WORKER}")] {
        let answer = answer(&nothing(), all.clone(), &wanted);
        let commands: Vec<&str> = answer.remedies().iter().map(|one| one.text.as_str()).collect();
        assert!(commands[0].starts_with("kubectl patch cluster demo -n demo --subresource=status "), "{commands:?}");
        assert!(
            commands[0].contains(r#"{"status":{"initialization":{"controlPlaneInitialized":true},"#),
            "{commands:?}"
        );
        assert!(!commands.iter().any(|command| command.contains(" delete ")), "{commands:?}");
    }
}

#[test]
fn the_answer_about_a_cluster_does_not_recommend_itself() {
    let mut all = healthy();
    uninitialized(&mut all);
    let is_recommended = |wanted: &str| {
        let remedies = answer(&nothing(), all.clone(), wanted).waits.swap_remove(0).remedies;
        remedies.iter().any(|one| one.text.starts_with("mcm why cluster/demo "))
    };
    assert!(is_recommended(&format!("ma/{WORKER}")) && !is_recommended("cluster/demo"));
}

/// Core computes `ControlPlaneAvailable` from the object of the control plane, so it stays unknown without one.
#[rstest]
#[case::only_the_control_plane("", ObjectVerdict::Settled)]
#[case::its_workers("\n* WorkersAvailable:\n  * MachineDeployment demo-md-0: 0 of 1", ObjectVerdict::Waiting)]
fn the_unknown_availability_of_an_external_control_plane_is_no_wait(
    #[case] more: &str,
    #[case] expected: ObjectVerdict,
) {
    let mut all = healthy();
    let text = format!("* ControlPlaneAvailable: Please check controller logs for errors{more}");
    set_condition(&mut all, Kind::Cluster, &condition("Available", "Unknown", "AvailableUnknown", &text));
    let of_cluster = |all: &All| answer(&nothing(), all.clone(), "cluster/demo").verdict;
    assert_eq!(of_cluster(&all), ObjectVerdict::Waiting, "its object says more");
    without_control_plane(&mut all);
    assert_eq!(of_cluster(&all), expected);
}

#[rstest]
#[case::stopped(
    0,
    Some("the provider, which may not run: mcm-0 renewed the Lease controller-leader-election-capmcm 10m ago")
)]
#[case::running(598, None)]
fn the_provider_is_a_suspect_if_an_mcm_machine_is_not_deleted_with_its_machine(
    #[case] renewed: i64,
    #[case] suspicion: Option<&str>,
) {
    let mut all = healthy();
    deleted(&mut all, "InternalError", "Failed to delete MCMMachine, please check controller logs for errors");
    let (facts, mut objects) = (nothing(), read(all));
    let lease = "controller-leader-election-capmcm";
    objects.provider = Some(held_lease(lease, "provider", "mcm-0", at(renewed)));
    let answer = CapiFacts { facts: &facts, objects: &objects }.answer(Kind::Machine, WORKER).unwrap();
    let texts: Vec<&str> = answer.waits.iter().map(|wait| wait.text.as_str()).collect();
    let first = format!("the deletion of MCMMachine {WORKER}, whose provider may not run: Failed to delete MCMMachine");
    assert!(texts[0].starts_with(&first), "{texts:?}");
    assert_eq!(texts.get(1).copied(), suspicion);
    let remedies = answer.remedies();
    assert!(remedies.iter().any(|one| one.text == "kubectl get pods -n capmcm-system"), "{remedies:?}");
}

#[test]
fn one_machine_is_no_machines() {
    let mut all = healthy();
    set(&mut all, Kind::MachineDeployment, "/status/replicas", 2.into());
    assert_eq!(answer(&nothing(), all, "md/demo-md-0").waits[0].text, "1 machine to be deleted");
}

/// Only a user creates what is missing, so the MCMCluster and its Cluster do not merely wait.
#[rstest]
#[case("SecretMissing", WaitKind::Class, ObjectVerdict::Blocked)]
#[case("ClassMissing", WaitKind::Class, ObjectVerdict::Blocked)]
#[case("Unreadable", WaitKind::Unreadable, ObjectVerdict::Blocked)]
#[case("WaitingForControlPlaneEndpoint", WaitKind::Infrastructure, ObjectVerdict::Waiting)]
fn a_cluster_without_a_secret_or_a_class_is_blocked(
    #[case] reason: &str,
    #[case] kind: WaitKind,
    #[case] verdict: ObjectVerdict,
) {
    let mut all = healthy();
    set(&mut all, Kind::Cluster, "/status/initialization", json!({}));
    set_condition(&mut all, Kind::MCMCluster, &condition("Ready", "False", reason, "a message"));
    for wanted in ["mcmcluster/demo", "cluster/demo"] {
        let answer = answer(&nothing(), all.clone(), wanted);
        let first = &answer.waits[0];
        assert_eq!((first.kind, answer.verdict), (kind, verdict), "{wanted}: {first:?}");
        assert!(first.text.ends_with("a message"), "{wanted}: {}", first.text);
        assert!(!first.remedies.is_empty(), "{wanted}");
    }
}

#[test]
fn each_reason_of_the_provider_has_a_cause_and_a_wait() {
    let of_vm = ProviderReason::ALL.iter().filter(|reason| cause_of(**reason) == WaitCause::Vm);
    let of_vm: Vec<&str> = of_vm.map(|reason| reason.as_str()).collect();
    assert_eq!(of_vm, ["NotProvisioned", "Creating", "RollingOut", "Deleting", "Failed"]);
    for reason in ProviderReason::ALL {
        let (mut all, cause) = (healthy(), cause_of(*reason));
        vm_is(&mut all, reason.as_str(), "a message");
        if cause == WaitCause::LoadBalancer {
            set_condition(&mut all, Kind::MCMMachine, &condition("VMProvisioned", "True", "Provisioned", ""));
            let registered = condition("LoadBalancerRegistered", "False", reason.as_str(), "a message");
            set_condition(&mut all, Kind::MCMMachine, &registered);
        }
        let answer = of_worker(all);
        let wait = answer.waits.first().unwrap_or_else(|| panic!("{reason} is no wait"));
        let guide = cause.guide();
        assert_eq!((wait.kind, wait.end, wait.meaning), (cause.kind(), guide.end, guide.meaning), "{reason}");
        assert!(wait.text.ends_with("a message"), "{reason}: {}", wait.text);
        assert!(!wait.remedies.is_empty(), "{reason}");
    }
}

#[test]
fn a_machine_waits_for_what_its_mcm_machine_waits_for_and_no_remedy_deletes_the_mcm_machine() {
    let waits = [(WaitKind::NodeJoin, "node a to join"), (WaitKind::DriverRetry, "the next attempt: no host has room")];
    let facts = with_native(nothing(), WORKER, "Pending", &waits);
    let mut all = healthy();
    vm_is(&mut all, "ResourceExhausted", "no host has room");
    let answer = answer(&facts, all, &format!("machine.cluster.x-k8s.io/{WORKER}"));
    let kinds: Vec<WaitKind> = answer.waits.iter().map(|wait| wait.kind).collect();
    assert_eq!(kinds, [WaitKind::NodeJoin, WaitKind::DriverRetry]);
    let remedies: Vec<&str> =
        answer.waits.iter().flat_map(|wait| &wait.remedies).map(|one| one.text.as_str()).collect();
    assert!(!remedies.iter().any(|text| text.starts_with("kubectl delete ")), "{remedies:?}");
    let link = answer.links.iter().find(|link| link.api_group.is_none() && link.kind == "Machine").unwrap();
    assert_eq!((link.title().as_str(), link.verdict), ("MCM Machine demo-md-0-abcde-x7k2p", ObjectVerdict::Waiting));
}

#[test]
fn a_pool_that_rolls_out_shows_its_condition() {
    let facts = of_machine_pool(pool(3, Vec::new()));
    let text = "0 of 3 machines are available, 0 have the current template";
    let status = json!({"conditions": [condition("Ready", "False", "RollingOut", text)]});
    let object = json!({"metadata": {"name": "p", "namespace": "demo"}, "status": status});
    let answer = answer(&facts, vec![(Kind::MCMMachinePool, object)], "mcmmachinepool/p");
    assert_eq!((answer.verdict, answer.waits[0].text.as_str()), (ObjectVerdict::Waiting, text), "{answer:?}");
}

#[test]
fn a_paused_deployment_can_be_resumed() {
    let mut all = healthy();
    set(&mut all, Kind::MachineDeployment, "/spec/paused", true.into());
    let answer = answer(&nothing(), all, "md/demo-md-0");
    assert_eq!((answer.verdict, answer.waits[0].kind), (ObjectVerdict::Blocked, WaitKind::Paused));
    let remedy = &answer.waits[0].remedies[0].text;
    assert!(remedy.starts_with("kubectl patch machinedeployment.cluster.x-k8s.io demo-md-0 -n demo "), "{remedy}");
}

#[test]
fn a_drain_ends_at_its_timeout_and_can_be_skipped() {
    let answer = of_worker(draining());
    let wait = &answer.waits[0];
    assert_eq!(wait.forced_at, Some(at(960)));
    let skip = wait.remedies.iter().find(|one| one.danger == RemedyDanger::KillsPods).unwrap();
    let expected = format!(
        "kubectl annotate machine.cluster.x-k8s.io {WORKER} -n demo machine.cluster.x-k8s.io/exclude-node-draining="
    );
    assert_eq!(skip.text, expected);
}

#[test]
fn the_chain_of_a_machine_leads_from_its_cluster_to_its_node() {
    let answer = of_worker(healthy());
    let titles: Vec<String> = answer.links.iter().map(|link| format!("{}: {}", link.title(), link.state)).collect();
    let expected = [
        "Cluster demo: Provisioned, control plane initialized",
        "CAPI MachineDeployment demo-md-0: 1 of 1 available, 1 up to date",
        "CAPI MachineSet demo-md-0-abcde: 1 of 1 available, 1 up to date",
        "CAPI Machine demo-md-0-abcde-x7k2p: Running",
        "MCMMachine demo-md-0-abcde-x7k2p: ready",
        "MCM Machine demo-md-0-abcde-x7k2p: Available",
        "Node demo-md-0-abcde-x7k2p: healthy",
    ];
    assert_eq!(titles, expected);
    let same = answer_of_vm();
    assert_eq!(same.links.iter().map(|link| format!("{}: {}", link.title(), link.state)).collect::<Vec<_>>(), expected);
}

fn answer_of_vm() -> ObjectAnswer {
    let facts = with_native(nothing(), WORKER, "Available", &[]);
    answer(&facts, healthy(), &format!("mcmmachine/{WORKER}"))
}

#[rstest]
#[case("cluster/demo")]
#[case("md/demo-md-0")]
#[case("ms/demo-md-0-abcde")]
fn an_object_above_waits_for_its_machine_and_names_its_cause(#[case] wanted: &str) {
    let answer = answer(&nothing(), without_bootstrap_data(), wanted);
    assert_eq!((answer.verdict, answer.machines.len()), (ObjectVerdict::Waiting, 1), "{answer:?}");
    let culprit = answer.culprit().unwrap();
    assert_eq!(culprit.argument(), format!("machine.cluster.x-k8s.io/{WORKER}"));
    assert!(culprit.waits[0].text.starts_with("its bootstrap data from"), "{culprit:?}");
}

#[test]
fn kinds_that_were_not_read_are_unknown_and_nothing_is_concluded_from_them() {
    let facts = nothing();
    let mut objects = read(healthy());
    objects.by_kind.remove(&Kind::MCMMachine);
    objects.by_kind.remove(&Kind::Cluster);
    let world = CapiFacts { facts: &facts, objects: &objects };
    let machine = world.answer(Kind::Machine, WORKER).unwrap();
    assert_eq!(machine.verdict, ObjectVerdict::Settled);
    let states: Vec<(&str, &str)> =
        machine.links.iter().map(|link| (link.kind.as_str(), link.state.as_str())).collect();
    assert!(states.contains(&("Cluster", "not read")) && states.contains(&("MCMMachine", "not read")), "{states:?}");
    let cluster = world.answer(Kind::Cluster, "demo").unwrap();
    assert_eq!((cluster.verdict, cluster.state.as_str()), (ObjectVerdict::Unknown, "it could not be read"));
    let missing = world.answer(Kind::Machine, "demo-md-0-abcde-x7k2q").unwrap_err();
    assert_eq!(missing.hint, format!("did you mean machine.cluster.x-k8s.io/{WORKER}?"));
}

#[test]
fn an_object_of_any_shape_is_read_or_named_in_a_note() {
    let mut objects = read(healthy());
    let odd = json!({"metadata": {"name": "odd"}, "spec": {"replicas": "many"}});
    objects.add(Kind::MachineSet, vec![serde_json::from_value(odd).unwrap()]);
    let facts = nothing();
    let world = CapiFacts { facts: &facts, objects: &objects };
    assert_eq!(world.answer(Kind::MachineSet, "odd").unwrap().verdict, ObjectVerdict::Unknown);
    assert!(objects.notes[0].starts_with("MachineSet odd cannot be read: "), "{:?}", objects.notes);
}

#[test]
fn a_list_of_all_that_waits_has_the_machine_of_cluster_api_in_place_of_its_mcm_machine() {
    let facts = with_native(nothing(), WORKER, "Pending", &[(WaitKind::DriverRetry, "the next attempt: no room")]);
    assert!(facts.may_have_cluster_api());
    let mut all = healthy();
    vm_is(&mut all, "ResourceExhausted", "no room");
    let objects = read(all);
    let answers = CapiFacts { facts: &facts, objects: &objects }.with_all(facts.all());
    let named: Vec<String> = answers.iter().map(ObjectAnswer::argument).collect();
    assert_eq!(named, ["cluster/demo".to_owned(), format!("machine.cluster.x-k8s.io/{WORKER}")]);
}

#[test]
fn conditions_of_v1beta1_are_shown_once() {
    let mut all = without_bootstrap_data();
    let former =
        |type_: &str, message: &str| json!({"type": type_, "status": "False", "reason": "R", "message": message});
    let deprecated = [former("BootstrapReady", "repeated"), former("DrainingSucceeded", "only here")];
    set(&mut all, Kind::Machine, "/status/deprecated", json!({"v1beta1": {"conditions": deprecated}}));
    let answer = of_worker(all);
    let former: Vec<&str> =
        answer.conditions.iter().filter(|one| one.version == "v1beta1").map(|one| one.type_.as_str()).collect();
    assert_eq!(former, ["DrainingSucceeded"]);
}

#[test]
fn the_answers_fit_a_terminal() {
    let facts = nothing();
    let mut paused = healthy();
    set(&mut paused, Kind::Cluster, "/spec/paused", true.into());
    let screens = [
        (without_bootstrap_data(), format!("ma/{WORKER}")),
        (draining(), format!("ma/{WORKER}")),
        (paused, "cluster/demo".to_owned()),
        (without_bootstrap_data(), "md/demo-md-0".to_owned()),
    ];
    let screens =
        screens.map(|(all, wanted)| report::one(TerminalLook::PLAIN, &answer(&facts, all, &wanted), None, &[], &facts));
    let is_command = |line: &str| {
        ["kubectl ", "mcm ", "clusterctl "]
            .iter()
            .any(|program| line.get(13..).is_some_and(|text| text.starts_with(program)))
    };
    let text = screens.join("\n");
    assert!(text.lines().all(|line| line.chars().count() <= 80 || is_command(line)), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn an_object_without_any_field_is_read() {
    let object: CapiObject = serde_json::from_value(json!({})).unwrap();
    assert!(object.notable().is_empty() && object.since().is_none() && object.cluster_name().is_empty());
}
