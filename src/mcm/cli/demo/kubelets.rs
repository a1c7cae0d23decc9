//! The kubelets of simulated Nodes, which have none: pods run as soon as they are scheduled, and end as soon as they are deleted.

use futures::StreamExt;
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};

const CONDITIONS: [&str; 4] = ["PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"];

/// The work of a kubelet on a pod.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Run,
    End,
}

/// Does the work of all kubelets of the cluster, until it is aborted.
pub async fn play(client: Client) {
    let mut pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .boxed();
    while let Some(pod) = pods.next().await {
        if let Ok(pod) = pod {
            // A step that fails is repeated with the next change of the pod.
            let _ = step(&client, &pod).await;
        }
    }
}

async fn step(client: &Client, pod: &Pod) -> kube::Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    match due(pod) {
        Some(Step::Run) => {
            let patch = Patch::Merge(json!({"status": running(Timestamp::now())}));
            api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.map(drop)
        }
        Some(Step::End) => {
            let same = Preconditions { uid: pod.uid(), resource_version: None };
            let now = DeleteParams::default().grace_period(0).preconditions(same);
            api.delete(&pod.name_any(), &now).await.map(drop)
        }
        None => Ok(()),
    }
}

fn due(pod: &Pod) -> Option<Step> {
    pod.spec.as_ref()?.node_name.as_ref()?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    match (&pod.metadata.deletion_timestamp, phase) {
        (Some(_), _) => Some(Step::End),
        (None, None | Some("Pending")) => Some(Step::Run),
        _ => None,
    }
}

/// The status of a pod that runs.
pub(super) fn running(now: Timestamp) -> Value {
    let conditions =
        CONDITIONS.map(|name| json!({"type": name, "status": "True", "lastTransitionTime": now.to_string()}));
    json!({"phase": "Running", "startTime": now.to_string(), "conditions": conditions})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_scheduled_pod_runs_and_a_deleted_one_ends() {
        let waiting = pod(json!({"spec": {"containers": []}, "status": {"phase": "Pending"}}));
        assert_eq!(due(&waiting), None);
        let scheduled = json!({"spec": {"containers": [], "nodeName": "n"}, "status": {"phase": "Pending"}});
        assert_eq!(due(&pod(scheduled.clone())), Some(Step::Run));
        let mut runs = scheduled.clone();
        runs["status"] = running("2026-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(due(&pod(runs.clone())), None);
        runs["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:01Z"});
        assert_eq!(due(&pod(runs)), Some(Step::End));
    }
}
