//! Live reads.

use std::convert::Infallible;

use kube::{Client, client::Body};
use rstest::rstest;
use serde_json::json;

use super::super::apply::read_natives;
use mcm_runtime::{cache::Key, objects::CachedApi};

/// One native Machine that cannot be decoded does not prevent the adoption of other VMs, and keeps its own.
#[rstest]
#[case("simulated:///r/vm", None)]
#[case("simulated:///r/own", Some("broken"))]
#[tokio::test]
async fn an_unreadable_native_machine_keeps_its_vm_only(#[case] vm: &str, #[case] expected: Option<&str>) {
    let machine = |name: &str, spec: serde_json::Value| json!({ "metadata": { "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1" }, "spec": spec });
    let items = [
        machine("broken", json!({ "class": 1, "providerID": "simulated:///r/own" })),
        machine("sound", json!({ "providerID": "simulated:///r/sound" })),
    ];
    let list =
        json!({ "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineList", "metadata": {}, "items": items });
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let answer = http::Response::new(Body::from(list.to_string().into_bytes()));
        async move { Ok::<_, Infallible>(answer) }
    });
    let natives = CachedApi::namespaced(&mcm_controllers::machine::CACHE.empty(), &Client::new(service, "ns"));
    assert_eq!(read_natives(&natives, "ns", vm).await.unwrap().as_deref(), expected);
    assert!(natives.cache.get(&Key::new("ns", "sound")).is_some());
}
