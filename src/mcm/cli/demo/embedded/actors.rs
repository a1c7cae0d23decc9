//! Carries out the steps of the controllers, the scheduler and the kubelets.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::{sync::Notify, time::sleep};

use super::steps::{ClusterObjects, ClusterStep, due};
use mcm_fake_api::{ApiServer, RequestRefusal, kinds::ALL, merge};

/// Time between two reads of all objects while they change.
const PACE: Duration = Duration::from_millis(20);
/// Time between two reads while nothing changes: some steps are due after a time.
const IDLE: Duration = Duration::from_secs(1);

/// Does their work until it is aborted.
pub async fn play(server: ApiServer) {
    let written = Arc::new(Notify::new());
    let notify = Arc::clone(&written);
    server.observe(move |_| notify.notify_one());
    loop {
        take_steps(&server, Timestamp::now());
        sleep(PACE).await;
        let _ = tokio::time::timeout(IDLE, written.notified()).await;
    }
}

/// Carries out the steps that are due, and returns their number.
pub(super) fn take_steps(server: &ApiServer, now: Timestamp) -> usize {
    let objects = ClusterObjects::new(ALL.into_iter().map(|kind| (kind, server.all(kind))));
    let steps = due(&objects, now);
    let number = steps.len();
    for step in steps {
        // An object that was changed or deleted since is read again.
        let _ = carry_out(server, step);
    }
    number
}

fn carry_out(server: &ApiServer, step: ClusterStep) -> Result<(), RequestRefusal> {
    match step {
        ClusterStep::Create(kind, object) => server.create(kind, object).map(drop),
        ClusterStep::Patch(kind, object, patch) => {
            let namespace = object.value["metadata"]["namespace"].as_str().unwrap_or_default();
            let is_same = |value: &Value| value["metadata"]["uid"] == object.value["metadata"]["uid"];
            let change = |value: &mut Value| {
                if is_same(value) {
                    merge(value, &patch);
                }
            };
            server.edit(kind, namespace, object.name(), change).map(drop)
        }
        ClusterStep::Delete(kind, object) => {
            let namespace = object.value["metadata"]["namespace"].as_str().unwrap_or_default();
            server.delete(kind, namespace, object.name())
        }
        ClusterStep::DeleteNow(kind, object) => server.delete_now(kind, &object),
    }
}
