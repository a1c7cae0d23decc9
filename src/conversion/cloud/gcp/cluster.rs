//! Fields of a GCPCluster, with what they mean for the machines of the cluster.

use crate::cloud::cluster_fields::{ClusterField, ClusterFieldEffect};

const USED: ClusterFieldEffect = ClusterFieldEffect::Used;
const NONE: ClusterFieldEffect = ClusterFieldEffect::None;
const CREDENTIALS: ClusterFieldEffect = ClusterFieldEffect::Reported {
    reason: "the Secret of a class has the credentials",
    advice: "use an account with the same rights",
};

/// The table of its kind.
pub(super) const CLUSTER_FIELDS: &[(&str, &[ClusterField])] = &[("GCPCluster", CLUSTER)];

const CLUSTER: &[ClusterField] = &[
    ("additionalLabels", USED),
    ("controlPlaneEndpoint", NONE),
    ("credentialsRef", CREDENTIALS),
    ("failureDomains", USED),
    ("loadBalancer", NONE),
    ("network.autoCreateSubnetworks", NONE),
    ("network.hostProject", USED),
    ("network.loadBalancerBackendPort", NONE),
    ("network.mtu", NONE),
    ("network.name", USED),
    // A template names its subnetwork.
    ("network.subnets", NONE),
    (
        "project",
        ClusterFieldEffect::Reported {
            reason: "a class has no project: its VMs are in that of its credentials",
            advice: "set projectID in the Secret, if its credentials are of another project",
        },
    ),
    ("region", USED),
    (
        "resourceManagerTags",
        ClusterFieldEffect::Refused {
            reason: "the provider gives them to each VM, and MCM does not support resource manager tags",
            advice: "remove them, or use network tags in the firewall rules",
        },
    ),
    (
        "serviceEndpoints.compute",
        ClusterFieldEffect::Reported {
            reason: "a class has no endpoint",
            advice: "set endpointURL in the Secret, and allow its host with --allowed-cloud-endpoints",
        },
    ),
    ("serviceEndpoints.container", NONE),
    ("serviceEndpoints.iam", NONE),
    ("serviceEndpoints.resourceManager", NONE),
];
