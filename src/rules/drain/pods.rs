use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use crate::plan::SubjectRef;

/// Identifies one incarnation of a pod. A call about it carries the UID as precondition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    pub uid: Arc<str>,
}

impl PodRef {
    pub fn subject(&self) -> SubjectRef {
        SubjectRef { kind: "Pod".to_owned(), namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Identifies a PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimRef {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The facts about a pod that a drain needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// The pod.
    pub pod: PodRef,
    /// Its labels; disruption budgets select by them.
    pub labels: BTreeMap<String, String>,
    /// A mirror pod: it runs because of a file on the Node, and the API server cannot stop it.
    pub is_mirror: bool,
    /// Belongs to a DaemonSet, which would recreate it immediately.
    pub is_daemon: bool,
    /// Succeeded or Failed: nothing runs in it.
    pub is_finished: bool,
    /// When its termination began; `None` if it is not terminating.
    pub terminating_since: Option<Timestamp>,
    /// The pod's grace period; once it is terminating, the granted grace period.
    pub grace: SignedDuration,
    /// `spec.priority`; 0 if it is absent, as for the scheduler.
    pub priority: i32,
    /// The PersistentVolumeClaims of its volumes.
    pub claims: Vec<PodVolumeClaim>,
}

/// A PersistentVolumeClaim of a pod, in its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodVolumeClaim {
    pub name: String,
    /// It belongs to a generic ephemeral volume, so it is deleted with the pod.
    pub is_ephemeral: bool,
}

impl PodFacts {
    /// Extracts the facts from a pod.
    pub fn from_pod(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        let name = meta.name.clone().unwrap_or_default();
        let spec = pod.spec.as_ref();
        let deletion_grace = SignedDuration::from_secs(meta.deletion_grace_period_seconds.unwrap_or_default());
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        Self {
            labels: meta.labels.clone().unwrap_or_default(),
            is_mirror: meta.annotations.as_ref().is_some_and(|map| map.contains_key(MIRROR)),
            is_daemon: meta
                .owner_references
                .iter()
                .flatten()
                .any(|owner| owner.controller == Some(true) && owner.kind == "DaemonSet"),
            is_finished: matches!(phase, Some("Succeeded" | "Failed")),
            // The stored time is the end of the grace period.
            terminating_since: meta
                .deletion_timestamp
                .as_ref()
                .map(|time| time.0.checked_sub(deletion_grace).unwrap_or(time.0)),
            grace: match meta.deletion_timestamp {
                Some(_) => deletion_grace,
                None => SignedDuration::from_secs(
                    spec.and_then(|spec| spec.termination_grace_period_seconds).unwrap_or_default().max(0),
                ),
            },
            claims: spec
                .iter()
                .flat_map(|spec| spec.volumes.iter().flatten())
                .filter_map(|volume| {
                    if let Some(claim) = &volume.persistent_volume_claim {
                        return Some(PodVolumeClaim { name: claim.claim_name.clone(), is_ephemeral: false });
                    }
                    let name = format!("{name}-{}", volume.name);
                    volume.ephemeral.as_ref().map(|_| PodVolumeClaim { name, is_ephemeral: true })
                })
                .collect(),
            priority: spec.and_then(|spec| spec.priority).unwrap_or_default(),
            pod: PodRef {
                namespace: meta.namespace.clone().unwrap_or_default(),
                name,
                uid: Arc::from(meta.uid.as_deref().unwrap_or_default()),
            },
        }
    }

    pub(super) fn claim_ref(&self, claim: &PodVolumeClaim) -> ClaimRef {
        ClaimRef { namespace: self.pod.namespace.clone(), name: claim.name.clone() }
    }

    /// Its claims, with their namespace.
    pub(super) fn claim_refs(&self) -> impl Iterator<Item = ClaimRef> {
        self.claims.iter().map(|claim| self.claim_ref(claim))
    }

    /// It is drained: every pod except mirror pods and pods of DaemonSets.
    pub fn is_drained(&self) -> bool {
        !self.is_mirror && !self.is_daemon
    }
}

/// Annotation of mirror pods.
const MIRROR: &str = "kubernetes.io/config.mirror";

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn facts(pod: Value) -> PodFacts {
        PodFacts::from_pod(&serde_json::from_value(pod).unwrap())
    }

    #[rstest]
    #[case::plain(json!({}), true)]
    #[case::mirror(json!({ "annotations": { "kubernetes.io/config.mirror": "" } }), false)]
    #[case::daemon(json!({ "ownerReferences": [{ "kind": "DaemonSet", "controller": true, "apiVersion": "apps/v1", "name": "d", "uid": "1" }] }), false)]
    #[case::daemon_set_that_does_not_control_it(json!({ "ownerReferences": [{ "kind": "DaemonSet", "apiVersion": "apps/v1", "name": "d", "uid": "1" }] }), true)]
    #[case::terminating(json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }), true)]
    fn everything_is_drained_but_mirror_pods_and_daemons(#[case] metadata: Value, #[case] expected: bool) {
        assert_eq!(facts(json!({ "metadata": metadata })).is_drained(), expected);
    }

    #[test]
    fn reads_since_when_a_pod_terminates_and_which_claims_it_holds() {
        let pod = facts(json!({
            "metadata": { "name": "db-0", "namespace": "n", "uid": "u", "deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 60 },
            "spec": { "containers": [], "priority": 7, "terminationGracePeriodSeconds": 5, "volumes": [
                { "name": "data", "persistentVolumeClaim": { "claimName": "data-db-0" } },
                { "name": "scratch", "ephemeral": {} },
                { "name": "tmp", "emptyDir": {} },
            ] },
            "status": { "phase": "Succeeded" },
        }));
        assert_eq!(pod.terminating_since, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(pod.grace.as_secs(), 60, "what the eviction granted counts, not what the pod asks for");
        let claim = |name: &str, is_ephemeral| PodVolumeClaim { name: name.to_owned(), is_ephemeral };
        assert_eq!(pod.claims, [claim("data-db-0", false), claim("db-0-scratch", true)]);
        assert_eq!(pod.priority, 7);
        assert_eq!(facts(json!({})).priority, 0, "the reference crashes on a pod without one");
        assert!(pod.is_finished);
    }
}
