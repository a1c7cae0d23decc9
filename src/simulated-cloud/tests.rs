//! The HTTP API as a stranger uses it.

use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{CloudCallError, CloudSimulator, SimulationSettings, router};
use mcm_driver::tls::use_ring;

async fn serve_http() -> String {
    use_ring();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let cloud = Arc::new(CloudSimulator::new(1, SimulationSettings::default()));
    tokio::spawn(axum::serve(listener, router(cloud)).into_future());
    format!("http://{address}")
}

#[rstest]
#[case("POST", "/v1/vms", "{", 400, "the body is invalid")]
#[case("POST", "/v1/vms", r#"{"machineName": "a", "namespace": "n", "size": 1}"#, 400, "unknown field `size`")]
#[case("POST", "/v1/vms", r#"{"machineName": "", "namespace": "n"}"#, 400, "machineName and namespace are required")]
#[case(
    "POST",
    "/v1/vms",
    r#"{"machineName": "a", "namespace": "n", "providerSpec": {"zone": 1}}"#,
    400,
    "providerSpec.zone: expected a non-empty string, found the number 1"
)]
#[case("DELETE", "/v1/vms?cluster=ns", "", 400, "name the VM to delete by machine or by providerID")]
#[case("DELETE", "/v1/vms/vm-1", "", 404, "there is no VM")]
#[case("DELETE", "/v1/load-balancers/cp/members/vm-1", "", 404, "there is no load balancer")]
#[case("POST", "/v1/vms/vm-1/kill", "", 404, "there is no VM")]
#[case("PUT", "/v1/control", "[]", 400, "the body is not a JSON object")]
#[case("PATCH", "/v1/control", r#"{"faults": [{"rate": 2}]}"#, 400, "faults[0].rate is 2: use a number from 0 to 1")]
#[case("PATCH", "/v1/control", r#"{"speed": 2}"#, 400, "unknown field `speed`")]
#[case("GET", "/v2/vms", "", 404, "there is no such path")]
#[case("PUT", "/v1/vms", "", 404, "there is no such method of this path")]
#[tokio::test]
async fn the_api_explains_its_refusals(
    #[case] method: &str,
    #[case] path: &str,
    #[case] body: &'static str,
    #[case] status: u16,
    #[case] text: &str,
) {
    let base = serve_http().await;
    let call = reqwest::Client::new().request(method.parse().unwrap(), format!("{base}{path}")).body(body);
    let answer = call.send().await.unwrap();
    assert_eq!(answer.status().as_u16(), status);
    let failure: CloudCallError = answer.json().await.unwrap();
    assert!(failure.message.contains(text), "{}", failure.message);
}

#[tokio::test]
async fn control_and_inspection_work_over_http() {
    let base = serve_http().await;
    let http = reqwest::Client::new();
    let call = async |method: &str, path: &str, body: Value| -> Value {
        let call = http.request(method.parse().unwrap(), format!("{base}{path}")).json(&body);
        let answer = call.send().await.unwrap();
        assert!(answer.status().is_success(), "{method} {path}: {}", answer.status());
        answer.json().await.unwrap()
    };
    let vm = call("POST", "/v1/vms", json!({"machineName": "a", "namespace": "ns", "token": "t"})).await;
    let id = vm["id"].as_str().unwrap();
    assert_eq!(call("GET", "/v1/vms", json!({})).await["items"][0], vm);
    let control = call("PATCH", "/v1/control", json!({"latency": {"create": "90s"}})).await;
    assert_eq!(control["latency"]["create"], "1m30s");
    assert_eq!(call("GET", "/v1/control", json!({})).await, control);
    assert_eq!(call("PUT", "/v1/control", json!({})).await["latency"]["create"], "0s");
    let set =
        call("POST", &format!("/v1/vms/{id}/condition"), json!({"type": "KernelDeadlock", "status": "True"})).await;
    assert_eq!(set["conditions"][0]["type"], "KernelDeadlock");
    let taken =
        call("POST", &format!("/v1/vms/{id}/condition"), json!({"type": "KernelDeadlock", "status": null})).await;
    assert_eq!(taken["conditions"], json!([]));
    let volumes =
        call("POST", &format!("/v1/vms/{id}/volumes"), json!({"attach": ["v1", "v2"], "detach": ["v1"]})).await;
    assert_eq!(volumes["volumes"], json!(["v1", "v2"]));
    let killed = call("POST", &format!("/v1/vms/{id}/kill"), json!({"mode": "stop"})).await;
    assert_eq!(killed["state"], "Stopped");
    call("POST", &format!("/v1/vms/{id}/kill"), json!({"mode": "vanish"})).await;
    assert_eq!(call("GET", "/v1/state", json!({})).await, json!({"vms": [], "departed": []}));
    let empty = json!({"name": "cp", "members": []});
    assert_eq!(call("PUT", "/v1/load-balancers/cp", json!({})).await, empty);
    assert_eq!(call("GET", "/v1/load-balancers/cp", json!({})).await, empty);
    let stats = call("GET", "/v1/stats", json!({})).await;
    assert_eq!((&stats["created"], &stats["killed"], &stats["maxAlive"]), (&json!(1), &json!(1), &json!(1)));
    assert_eq!(stats["calls"]["create"], json!({"total": 1, "failed": {}}));
    assert_eq!(reqwest::get(format!("{base}/healthz")).await.unwrap().text().await.unwrap(), "ok");
}
