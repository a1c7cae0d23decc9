//! Labels, annotations and types of Cluster API, which other programs also read. The values never change.

use mcm_api::{hash::fnv1a_32, syntax};

/// Label on every object of a cluster: the name of the Cluster.
pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// Label on a Machine: the name of its MachineDeployment. Also the selector of a deployment without a selector.
pub const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
/// Label on a Machine: the name of its MachineSet. Also the selector of a set without a selector.
pub const SET_NAME: &str = "cluster.x-k8s.io/set-name";
/// Label on a Machine: the name of its MachinePool.
pub const POOL_NAME: &str = "cluster.x-k8s.io/pool-name";
/// Label on a Machine of the control plane.
pub const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
/// Condition of a Machine of a control plane that kubeadm's provider manages.
pub const API_SERVER_POD_HEALTHY: &str = "APIServerPodHealthy";
/// Annotation: no controller touches the object.
pub const PAUSED: &str = "cluster.x-k8s.io/paused";
/// Annotation on an infrastructure object: another program manages it.
pub const MANAGED_BY: &str = "cluster.x-k8s.io/managed-by";
/// Label: the value of `--watch-filter` of the only manager that may touch the object.
pub const WATCH_FILTER: &str = "cluster.x-k8s.io/watch-filter";
/// The annotation that `clusterctl move` leaves as the only one on what it deletes at the source.
pub const DELETE_FOR_MOVE: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";
/// Label of a CRD: the provider of Cluster API that it belongs to.
pub const PROVIDER: &str = "cluster.x-k8s.io/provider";
/// Value of [`PROVIDER`] for core.
pub const CORE_PROVIDER: &str = "cluster-api";
/// Lease of the manager of core.
pub const CORE_LEASE: &str = "controller-leader-election-capi";
/// Label of a CRD: its versions that speak this contract, joined by `_`.
pub const CONTRACT: &str = "cluster.x-k8s.io/v1beta2";
/// Finalizer on an MCMCluster.
pub const CLUSTER_FINALIZER: &str = "mcmcluster.infrastructure.cluster.x-k8s.io";
/// Finalizer on an MCMMachine.
pub const MACHINE_FINALIZER: &str = "mcmmachine.infrastructure.cluster.x-k8s.io";
/// Annotation on a Machine: it is deleted first when its set is scaled down.
pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
/// Annotation on a Machine: health checks do not replace it.
pub const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
/// Annotation on a Machine: it is replaced as if it were unhealthy.
pub const REMEDIATE_MACHINE: &str = "cluster.x-k8s.io/remediate-machine";
/// Annotation on a Machine: its Node is not drained.
pub const EXCLUDE_DRAIN: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
/// Prefix of annotations on a Machine that hold back the drain.
pub const PRE_DRAIN_HOOK: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io";
/// Prefix of annotations on a Machine that hold back the deletion of its VM.
pub const PRE_TERMINATE_HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io";
/// Annotation on a deployment or set: the autoscaler's minimum.
pub const AUTOSCALER_MIN: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
/// Annotation on a deployment or set: the autoscaler's maximum.
pub const AUTOSCALER_MAX: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
/// Prefix of annotations with options of the autoscaler.
pub const AUTOSCALING_OPTIONS: &str = "cluster.x-k8s.io/autoscaling-options-";
/// Prefix of annotations that core derives (mind the plural).
pub const DERIVED: &str = "machinedeployment.clusters.x-k8s.io/";
/// Annotation on a Machine and its infrastructure object: core updates the VM in place. Core removes it at the end.
pub const UPDATE_IN_PROGRESS: &str = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress";
/// Prefix of annotations that name the template an object was made from.
pub const CLONED_FROM: &str = "cluster.x-k8s.io/cloned-from-";

/// Domains whose labels go from a Machine to its Node.
pub const NODE_LABEL_DOMAINS: [&str; 3] =
    ["node-role.kubernetes.io", "node-restriction.kubernetes.io", "node.cluster.x-k8s.io"];
/// Domains whose annotations go from a Machine to its Node.
pub const NODE_ANNOTATION_DOMAINS: [&str; 1] = ["node.cluster.x-k8s.io"];

/// Annotation on a MachinePool: another program than core sets its number of machines, unless the value is `false`.
pub const REPLICAS_MANAGED_BY: &str = "cluster.x-k8s.io/replicas-managed-by";
/// Finalizer on an MCMMachinePool.
pub const POOL_FINALIZER: &str = "mcmmachinepool.infrastructure.cluster.x-k8s.io";
/// Key of the kubeconfig in its Secret.
pub const KUBECONFIG_KEY: &str = "value";
/// The value of a label that names an object: its name, or a hash if that is no label value, as core computes it.
pub fn label_value(name: &str) -> String {
    if is_label_value(name) {
        return name.to_owned();
    }
    // In the alphabet of base64 for URLs.
    let hash = fnv1a_32(name.bytes());
    let text = serde_json::to_value(k8s_openapi::ByteString(hash.to_be_bytes().to_vec())).unwrap_or_default();
    let text = text.as_str().unwrap_or_default().trim_end_matches('=').replace('+', "-").replace('/', "_");
    format!("hash_{text}_z")
}

/// A name can be the value of a label.
pub fn is_label_value(name: &str) -> bool {
    !name.is_empty() && syntax::is_label_value(name)
}

/// Type of Secrets with bootstrap data and kubeconfigs.
pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";
/// Name of Machines if nothing else is said.
pub const DEFAULT_MACHINE_NAME: &str = "{{ .machineSet.name }}-{{ .random }}";

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// P12: core selects the MCMMachines of a pool by this value. The hash is what core computes for the name.
    #[rstest]
    #[case("pool-0".to_owned(), "pool-0")]
    #[case("a".repeat(63), &"a".repeat(63))]
    #[case("a".repeat(64), "hash_2W8PhQ_z")]
    fn a_name_that_is_no_label_value_is_hashed(#[case] name: String, #[case] expected: &str) {
        assert_eq!(label_value(&name), expected);
        assert!(is_label_value(&label_value(&name)));
    }
}
