//! The cloud returns errors, for a time, to everything; or its lists are broken.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::sleep};

use crate::{
    run::Run,
    stage::Stage,
    support::{control_plane::ControlPlane, wait},
};

/// The treatment of lists of VMs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lists {
    Whole,
    /// Every other VM is missing, without an error.
    Half,
    /// All VMs are missing, without an error.
    Empty,
    /// The answer ends in the middle.
    Cut,
}

/// The fault of the cloud.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// Every call fails.
    All(&'static str),
    /// Every list fails.
    List(&'static str),
    Lists(Lists),
}

const TROUBLES: [Trouble; 7] = [
    Trouble::All("Unauthenticated"),
    Trouble::All("Unavailable"),
    Trouble::List("Internal"),
    Trouble::List("NotFound"),
    Trouble::Lists(Lists::Half),
    Trouble::Lists(Lists::Empty),
    Trouble::Lists(Lists::Cut),
];

/// While the pool grows, shrinks and is rolled.
#[tokio::test]
async fn no_vm_is_lost_or_doubled_while_the_cloud_fails_and_all_recovers() {
    let run = Run::start("cloud_errors");
    let machines = run.count("machines", 20, 6);
    let trouble_for = run.seconds("trouble", 30.0, 8.0);
    let control = ControlPlane::shared().await;
    let stage = Stage::set(run, control, control, &[]).await;
    let lists = Arc::new(Mutex::new(Lists::Whole));
    let proxy = between(stage.world.cloud.url.clone(), Arc::clone(&lists)).await;
    let proxy = format!("--simulated-cloud={proxy}");
    // The shortest that the program takes.
    let manager = stage
        .world
        .launch("run", &["--leader-elect=false", &proxy, "--machine-safety-orphan-vms-period=1m"])
        .ready()
        .await;
    let strategy = json!({"rollingUpdate": {"maxSurge": "20%", "maxUnavailable": "20%"}});
    stage.pool(machines, json!({"spec": {"strategy": strategy}})).await;
    stage.settled(machines, "small").await;
    let mut made = machines;
    let mut class = "small";
    let few = machines / 4 + 1;

    for trouble in TROUBLES {
        stage.run.say(format!("{trouble:?}: {few} more, then {few} fewer, then a rollout"));
        for (step, begin) in [(0, machines + few), (1, machines), (2, machines)] {
            set(&stage, trouble, &lists).await;
            if step == 2 {
                class = if class == "small" { "large" } else { "small" };
                stage.world.roll(class).await;
            } else {
                stage.scale(begin).await;
            }
            // Not a wait for a state: the fault lasts for a time.
            sleep(trouble_for / 3).await;
            stage.world.cloud.control(json!({})).await;
            *lists.lock() = Lists::Whole;
            let start = Instant::now();
            stage.settled(begin, class).await;
            let what = ["growing", "shrinking", "rolling"][step];
            stage.run.measured(format!("{trouble:?}, {what}: recovery"), start.elapsed().as_secs_f64(), "s");
            made += [few, 0, machines][step];
        }
        let made_now = stage.recorder.made();
        stage.run.exactly(format!("{trouble:?}: VMs made so far"), made_now, made);
    }
    // The next complete list follows after a minute at most.
    wait::until_within(Duration::from_secs(90), "a list of VMs", async || {
        let (_, metrics) = manager.get("/metrics").await;
        metrics.contains("mcm_orphan_vms{").then_some(())
    })
    .await;
    stage.close(Some(made), &[&manager]).await;
}

async fn set(stage: &Stage, trouble: Trouble, lists: &Mutex<Lists>) {
    let fault = |operation: &str, code: &str| json!({"faults": [{"operation": operation, "code": code}]});
    match trouble {
        Trouble::All(code) => stage.world.cloud.control(fault("*", code)).await,
        Trouble::List(code) => stage.world.cloud.control(fault("list", code)).await,
        Trouble::Lists(state) => *lists.lock() = state,
    }
}

type Shared = (String, reqwest::Client, Arc<Mutex<Lists>>);

/// Returns the address of a proxy in front of the cloud.
async fn between(cloud: String, lists: Arc<Mutex<Lists>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(pass).with_state((cloud, reqwest::Client::new(), lists));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn pass(State((cloud, http, lists)): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let query = parts.uri.query().unwrap_or_default();
    let is_list = parts.method == Method::GET
        && parts.uri.path() == "/v1/vms"
        && !query.contains("machine=")
        && !query.contains("providerID=");
    let url = format!("{cloud}{}", parts.uri.path_and_query().unwrap());
    let call = http.request(parts.method, url).header("content-type", "application/json").body(body);
    let answer = match call.send().await {
        Ok(answer) => answer,
        Err(error) => return (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    };
    let status = answer.status();
    let bytes = answer.bytes().await.unwrap_or_default().to_vec();
    let state = *lists.lock();
    if !is_list || !status.is_success() || state == Lists::Whole {
        return (status, Body::from(bytes)).into_response();
    }
    let mut list: Value = serde_json::from_slice(&bytes).unwrap();
    let items = list["items"].as_array_mut().unwrap();
    match state {
        Lists::Half => {
            let mut at = 0;
            items.retain(|_| {
                at += 1;
                at % 2 == 0
            });
        }
        Lists::Empty => items.clear(),
        Lists::Whole | Lists::Cut => {}
    }
    let text = list.to_string();
    let end = if state == Lists::Cut { text.len() / 2 } else { text.len() };
    (status, text[..end].to_owned()).into_response()
}
