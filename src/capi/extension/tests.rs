//! Requests as Cluster API core 1.14 sends them, and their responses.

use std::{collections::BTreeMap, sync::Arc};

use http::{Request, Response};
use kube::{Client, client::Body};
use rstest::rstest;
use serde_json::{Value, json};

use super::{ExtensionHook, HookResponder, hooks::HookRequest};
use crate::testing::world::{class, infrastructure_ref};
use mcm_api::{patch, reasons::ProviderCondition};

/// The objects of an API server, by their paths.
type ObjectPaths = BTreeMap<String, Value>;

const CLASSES: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/ns/machineclasses";
const INFRASTRUCTURE: &str = "/apis/infrastructure.cluster.x-k8s.io/v1beta2/namespaces/ns";

/// Sends a request to the extension, beside an API server with these objects. Without objects it refuses to respond.
async fn ask(hook: ExtensionHook, request: &Value, objects: Option<ObjectPaths>) -> Value {
    let objects = Arc::new(objects);
    let server = tower::service_fn(move |request: Request<Body>| {
        let objects = Arc::clone(&objects);
        async move {
            let path = request.uri().path();
            let name = path.rsplit('/').next().unwrap_or_default();
            let missing = || json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "details": { "name": name } });
            let (code, body) = match objects.as_ref() {
                None => {
                    (503, json!({ "kind": "Status", "status": "Failure", "reason": "ServiceUnavailable", "code": 503 }))
                }
                Some(all) => all.get(path).map_or_else(|| (404, missing()), |object| (200, object.clone())),
            };
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    let responder = HookResponder::new(Client::new(server, "default"));
    responder.respond(hook, &serde_json::to_vec(request).unwrap()).await
}

/// The classes `small` and, with a change, `other`.
fn classes(change: &Value) -> ObjectPaths {
    let mut other = class("small", "a");
    other["metadata"]["name"] = json!("other");
    patch::apply(&mut other, change);
    let all = [("small", class("small", "a")), ("other", other)];
    all.into_iter().map(|(name, class)| (format!("{CLASSES}/{name}"), class)).collect()
}

fn larger() -> Value {
    json!({ "nodeTemplate": { "capacity": { "cpu": "2" } } })
}

/// The objects of a question about a set, with the spec of the template.
fn of_set(spec: &Value) -> Value {
    json!({
        "machineSet": {
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet",
            "metadata": { "name": "md-0-x", "namespace": "ns", "labels": { "cluster.x-k8s.io/cluster-name": "c" } },
            "spec": { "clusterName": "c", "replicas": 1, "template": { "spec": {
                "clusterName": "c", "version": "v1.33.0",
                "bootstrap": { "configRef": { "apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfigTemplate", "name": "md-0" } },
                "infrastructureRef": infrastructure_ref("MCMMachineTemplate", "md-0"),
            } } },
        },
        "infrastructureMachineTemplate": {
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachineTemplate",
            "metadata": { "name": "md-0", "namespace": "ns" }, "spec": { "template": { "spec": spec } },
        },
        "bootstrapConfigTemplate": { "kind": "KubeadmConfigTemplate", "spec": { "template": { "spec": {} } } },
    })
}

/// The same about one machine.
fn of_machine(spec: &Value, zone: &str) -> Value {
    json!({
        "machine": {
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": { "name": "m", "namespace": "ns" },
            "spec": { "clusterName": "c", "failureDomain": zone, "bootstrap": {}, "infrastructureRef": infrastructure_ref("MCMMachine", "m") },
        },
        "infrastructureMachine": {
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine",
            "metadata": { "name": "m", "namespace": "ns" }, "spec": spec,
        },
        "bootstrapConfig": { "kind": "KubeadmConfig", "spec": {} },
    })
}

fn question(hook: &str, current: Value, desired: Value) -> Value {
    json!({
        "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "kind": format!("{hook}Request"), "settings": {},
        "current": current, "desired": desired,
    })
}

/// The operations of a claim.
fn operations(response: &Value, field: &str) -> Value {
    assert_eq!(response["status"], "Success", "{response}");
    if response[field].is_null() {
        return json!([]);
    }
    assert_eq!(response[field]["patchType"], "JSONPatch");
    let k8s_openapi::ByteString(bytes) = serde_json::from_value(response[field]["patch"].clone()).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

async fn claimed_of_set(current: &Value, desired: &Value, objects: ObjectPaths) -> Value {
    let request = question("CanUpdateMachineSet", of_set(current), of_set(desired));
    let response = ask(ExtensionHook::CanUpdateMachineSet, &request, Some(objects)).await;
    operations(&response, "infrastructureMachineTemplatePatch")
}

fn named(class: &str) -> Value {
    json!({ "machineClassRef": { "name": class } })
}

#[tokio::test]
async fn core_finds_the_handlers_and_their_paths() {
    let response = ask(ExtensionHook::Discovery, &json!({ "kind": "DiscoveryRequest" }), None).await;
    let handler = |name: &str, hook: &str| {
        json!({
            "name": name, "requestHook": { "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "hook": hook },
            "timeoutSeconds": 10, "failurePolicy": "Fail",
        })
    };
    let expected = json!({
        "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "kind": "DiscoveryResponse", "status": "Success",
        "handlers": [
            handler("can-update-machine", "CanUpdateMachine"), handler("can-update-machine-set", "CanUpdateMachineSet"),
            handler("update-machine", "UpdateMachine"),
        ],
    });
    assert_eq!(response, expected);
    let paths = ExtensionHook::ALL.map(ExtensionHook::path);
    assert_eq!(paths[0], "/hooks.runtime.cluster.x-k8s.io/v1alpha1/discovery");
    assert_eq!(paths[2], "/hooks.runtime.cluster.x-k8s.io/v1alpha1/canupdatemachineset/can-update-machine-set");
}

#[tokio::test]
async fn a_claim_is_written_as_core_reads_it() {
    let request = question("CanUpdateMachineSet", of_set(&named("small")), of_set(&named("other")));
    let response = ask(ExtensionHook::CanUpdateMachineSet, &request, Some(classes(&larger()))).await;
    let patch = r#"[{"op":"add","path":"/spec/template/spec/machineClassRef","value":{"name":"other"}}]"#;
    let expected = json!({
        "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "kind": "CanUpdateMachineSetResponse", "status": "Success",
        "infrastructureMachineTemplatePatch": {
            "patchType": "JSONPatch", "patch": k8s_openapi::ByteString(patch.as_bytes().to_vec()),
        },
    });
    assert_eq!(response, expected);
}

#[rstest]
#[case::another_vm(json!({ "providerSpec": { "instanceType": "large" } }))]
#[case::another_zone(json!({ "nodeTemplate": { "zone": "b" } }))]
#[case::other_data(json!({ "secretRef": { "name": "s", "namespace": "ns" } }))]
#[case::broken(json!({ "nodeTemplate": 3 }))]
#[tokio::test]
async fn a_class_of_another_vm_is_not_claimed(#[case] change: Value) {
    assert_eq!(claimed_of_set(&named("small"), &named("other"), classes(&change)).await, json!([]));
}

#[rstest]
#[tokio::test]
async fn a_class_that_does_not_exist_is_not_claimed(#[values("small", "other")] gone: &str) {
    let mut objects = classes(&larger());
    objects.remove(&format!("{CLASSES}/{gone}"));
    assert_eq!(claimed_of_set(&named("small"), &named("other"), objects).await, json!([]));
}

/// Core would replace the machines for a claim that is missing only because nothing could be read.
#[tokio::test]
async fn core_asks_again_while_the_api_server_does_not_answer() {
    let request = question("CanUpdateMachineSet", of_set(&named("small")), of_set(&named("other")));
    let response = ask(ExtensionHook::CanUpdateMachineSet, &request, None).await;
    assert_eq!(response["status"], "Failure");
    let message = response["message"].as_str().unwrap();
    assert!(message.starts_with("MachineClass ns/small cannot be read"), "{message}");
}

fn described(change: &Value) -> Value {
    let mut spec = json!({ "machineClass": {
        "provider": "simulated", "providerSpec": { "instanceType": "small" },
        "nodeTemplate": { "capacity": { "cpu": "1" }, "instanceType": "small", "region": "r", "zone": "a" },
    } });
    patch::apply(&mut spec, change);
    spec
}

#[rstest]
#[case::node_template(
    json!({ "machineClass": { "nodeTemplate": { "capacity": { "cpu": "2" } } } }),
    json!([{
        "op": "add", "path": "/spec/template/spec/machineClass/nodeTemplate",
        "value": { "capacity": { "cpu": "2" }, "instanceType": "small", "region": "r", "zone": "a" },
    }])
)]
#[case::zones_of_other_machines(
    json!({ "zones": { "b": { "subnet": "x" } } }),
    json!([{ "op": "add", "path": "/spec/template/spec/zones", "value": { "b": { "subnet": "x" } } }])
)]
#[case::only_for_new_vms(
    json!({ "creationTimeoutSeconds": 60, "nodeTemplate": { "labels": { "a": "b" } } }),
    json!([
        { "op": "add", "path": "/spec/template/spec/creationTimeoutSeconds", "value": 60 },
        { "op": "add", "path": "/spec/template/spec/nodeTemplate", "value": { "labels": { "a": "b" } } },
    ])
)]
#[case::configuration(
    json!({ "machineClass": { "providerSpec": { "instanceType": "large" }, "nodeTemplate": { "capacity": { "cpu": "2" } } } }),
    json!([])
)]
#[case::credentials(json!({ "machineClass": { "credentialsSecretRef": { "name": "s" } } }), json!([]))]
#[case::a_class_instead(json!({ "machineClass": null, "machineClassRef": { "name": "small" } }), json!([]))]
#[case::a_field_of_a_later_release(json!({ "size": "large" }), json!([]))]
#[tokio::test]
async fn exactly_the_fields_for_which_vms_stay_are_claimed(#[case] change: Value, #[case] expected: Value) {
    let found = claimed_of_set(&described(&json!({})), &described(&change), classes(&larger())).await;
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_field_that_is_absent_afterwards_is_removed() {
    let before = described(&json!({ "creationTimeoutSeconds": 60 }));
    let found = claimed_of_set(&before, &described(&json!({})), ObjectPaths::new()).await;
    assert_eq!(found, json!([{ "op": "remove", "path": "/spec/template/spec/creationTimeoutSeconds" }]));
}

/// A machine of a control plane in a failure domain, whose class is another one than its object names.
#[rstest]
#[case::same_vm(json!({ "small": "small", "other": "other" }), true)]
#[case::other_vm(json!({ "small": "small", "other": "huge" }), false)]
#[tokio::test]
async fn the_class_of_the_failure_domain_decides(#[case] overrides: Value, #[case] is_claimed: bool) {
    let mut objects = classes(&larger());
    let mut huge = class("small", "a");
    patch::apply(&mut huge, &json!({ "metadata": { "name": "huge" }, "providerSpec": { "instanceType": "huge" } }));
    objects.insert(format!("{CLASSES}/huge"), huge);
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": { "name": "c", "namespace": "ns" },
        "spec": { "infrastructureRef": infrastructure_ref("MCMCluster", "c") },
    });
    objects.insert("/apis/cluster.x-k8s.io/v1beta2/namespaces/ns/clusters/c".to_owned(), cluster);
    let request = question("CanUpdateMachine", of_machine(&named("small"), "a"), of_machine(&named("other"), "a"));
    let response = ask(ExtensionHook::CanUpdateMachine, &request, Some(objects.clone())).await;
    assert_eq!(operations(&response, "infrastructureMachinePatch"), json!([]), "the MCMCluster is missing");
    let infrastructure = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMCluster",
        "metadata": { "name": "c", "namespace": "ns" },
        "spec": { "failureDomains": [{ "name": "a", "machineClassOverrides": overrides }] },
    });
    objects.insert(format!("{INFRASTRUCTURE}/mcmclusters/c"), infrastructure);
    let response = ask(ExtensionHook::CanUpdateMachine, &request, Some(objects)).await;
    let expected = json!([{ "op": "add", "path": "/spec/machineClassRef", "value": { "name": "other" } }]);
    let expected = if is_claimed { expected } else { json!([]) };
    assert_eq!(operations(&response, "infrastructureMachinePatch"), expected);
}

#[tokio::test]
async fn a_machine_in_another_failure_domain_is_not_claimed() {
    let request = question(
        "CanUpdateMachine",
        of_machine(&named("small"), "a"),
        of_machine(&json!({ "machineClassRef": { "name": "small" }, "creationTimeoutSeconds": 60 }), "b"),
    );
    let response = ask(ExtensionHook::CanUpdateMachine, &request, Some(classes(&larger()))).await;
    assert_eq!(operations(&response, "infrastructureMachinePatch"), json!([]));
}

/// An MCMMachine of generation 2, as the provider shows it.
fn shown(class_resolved: &Value, generation: i64) -> Value {
    let condition = |type_: &str, status: &Value| {
        let mut condition = json!({
            "type": type_, "reason": "A", "message": "", "observedGeneration": generation,
            "lastTransitionTime": "2027-01-01T00:00:00Z",
        });
        patch::apply(&mut condition, status);
        condition
    };
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine",
        "metadata": { "name": "m", "namespace": "ns", "generation": 2 }, "spec": named("other"),
        "status": { "conditions": [
            condition(ProviderCondition::ClassResolved.as_str(), class_resolved), condition(ProviderCondition::MachineSynced.as_str(), &json!({ "status": "True" })),
        ] },
    })
}

#[rstest]
#[case::applied(json!({ "status": "True" }), 2, "other", "", 0)]
#[case::not_yet(json!({ "status": "True" }), 1, "other", "the provider has not applied the change yet: mcm capi-manager has to run", 5)]
#[case::refused(json!({ "status": "False", "reason": "NewVMRequired", "message": "another VM" }), 2, "other", "another VM", 30)]
#[case::unreadable(json!({ "status": "False", "reason": "ClassMissing", "message": "create it" }), 2, "other", "create it", 5)]
#[case::changed_again(json!({ "status": "True" }), 2, "third", "the MCMMachine was changed after this request", 5)]
#[tokio::test]
async fn an_update_is_done_when_the_provider_shows_it(
    #[case] class_resolved: Value,
    #[case] generation: i64,
    #[case] asked: &str,
    #[case] message: &str,
    #[case] retry: u32,
) {
    let objects = [(format!("{INFRASTRUCTURE}/mcmmachines/m"), shown(&class_resolved, generation))].into();
    let request = json!({ "kind": "UpdateMachineRequest", "desired": of_machine(&named(asked), "") });
    let response = ask(ExtensionHook::UpdateMachine, &request, Some(objects)).await;
    let expected = json!({
        "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "kind": "UpdateMachineResponse", "status": "Success",
        "message": message, "retryAfterSeconds": retry,
    });
    assert_eq!(response, expected);
}

#[tokio::test]
async fn an_object_that_is_gone_or_paused_or_of_others_is_never_done() {
    let mut request = json!({ "desired": of_machine(&named("other"), "") });
    let response = ask(ExtensionHook::UpdateMachine, &request, Some(ObjectPaths::new())).await;
    assert_eq!(response["retryAfterSeconds"], 30);
    let mut paused = shown(&json!({ "status": "True" }), 2);
    let condition = json!({
        "type": "Paused", "status": "True", "reason": "Paused", "message": "Waiting for a user",
        "lastTransitionTime": "2027-01-01T00:00:00Z",
    });
    paused["status"]["conditions"].as_array_mut().unwrap().push(condition);
    let objects = [(format!("{INFRASTRUCTURE}/mcmmachines/m"), paused)].into();
    let response = ask(ExtensionHook::UpdateMachine, &request, Some(objects)).await;
    assert_eq!(response["message"], "the MCMMachine is paused: Waiting for a user");
    request["desired"]["infrastructureMachine"]["kind"] = json!("AWSMachine");
    let response = ask(ExtensionHook::UpdateMachine, &request, Some(ObjectPaths::new())).await;
    assert_eq!(response["status"], "Failure");
}

#[tokio::test]
async fn other_objects_and_broken_requests_lead_to_no_claim() {
    let mut request = question("CanUpdateMachineSet", of_set(&named("small")), of_set(&named("other")));
    request["desired"]["infrastructureMachineTemplate"]["kind"] = json!("AWSMachineTemplate");
    let response = ask(ExtensionHook::CanUpdateMachineSet, &request, None).await;
    assert_eq!(operations(&response, "infrastructureMachineTemplatePatch"), json!([]));
    let response = ask(ExtensionHook::CanUpdateMachineSet, &json!([1]), None).await;
    assert_eq!(response["status"], "Failure");
    assert!(serde_json::from_value::<HookRequest>(json!({})).is_ok());
}
