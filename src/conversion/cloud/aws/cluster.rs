//! Fields of an AWSCluster and of an AWSManagedControlPlane, with what they mean for the machines of the cluster.

use super::shared::MANAGED;
use crate::cloud::cluster_fields::{ClusterField, ClusterFieldEffect};

const USED: ClusterFieldEffect = ClusterFieldEffect::Used;
const NONE: ClusterFieldEffect = ClusterFieldEffect::None;
const IDENTITY: ClusterFieldEffect = ClusterFieldEffect::Reported {
    reason: "the Secret of a class has the credentials, and the VMs are in their account",
    advice: "use credentials of the account in which the identity has its role",
};

/// The tables of both kinds.
pub(super) const CLUSTER_FIELDS: &[(&str, &[ClusterField])] = &[("AWSCluster", CLUSTER), (MANAGED, CONTROL_PLANE)];

const CLUSTER: &[ClusterField] = &[
    ("additionalTags", USED),
    ("bastion", NONE),
    ("controlPlaneEndpoint", NONE),
    // The status has the security group of its role, which machines also have.
    ("controlPlaneLoadBalancer", USED),
    ("identityRef", IDENTITY),
    // A class has an image.
    ("imageLookupBaseOS", NONE),
    ("imageLookupFormat", NONE),
    ("imageLookupOrg", NONE),
    // Rules of security groups, which the provider keeps.
    ("network.additionalControlPlaneIngressRules", NONE),
    ("network.additionalNodeIngressRules", NONE),
    ("network.cni", NONE),
    ("network.nodePortIngressRuleCidrBlocks", NONE),
    // The status has the groups.
    ("network.securityGroupOverrides", USED),
    ("network.subnets", USED),
    // The subnet of a machine is in it, and has its settings.
    ("network.vpc", NONE),
    ("partition", NONE),
    ("region", USED),
    // Only for user data of Ignition, which is refused in the template.
    ("s3Bucket", NONE),
    ("secondaryControlPlaneLoadBalancer", NONE),
    ("sshKeyName", USED),
];

const CONTROL_PLANE: &[ClusterField] = &[
    ("accessConfig", NONE),
    ("accessEntries", NONE),
    ("additionalTags", USED),
    ("addons", NONE),
    ("associateOIDCProvider", NONE),
    ("bastion", NONE),
    ("bootstrapSelfManagedAddons", NONE),
    ("controlPlaneEndpoint", NONE),
    ("eksClusterName", USED),
    ("encryptionConfig", NONE),
    ("endpointAccess", NONE),
    // The note about the role of the nodes names it.
    ("iamAuthenticatorConfig", USED),
    ("identityRef", IDENTITY),
    ("imageLookupBaseOS", NONE),
    ("imageLookupFormat", NONE),
    ("imageLookupOrg", NONE),
    ("kubeProxy", NONE),
    ("logging", NONE),
    ("network.additionalControlPlaneIngressRules", NONE),
    ("network.additionalNodeIngressRules", NONE),
    ("network.cni", NONE),
    ("network.nodePortIngressRuleCidrBlocks", NONE),
    ("network.securityGroupOverrides", USED),
    ("network.subnets", USED),
    ("network.vpc", NONE),
    ("oidcIdentityProviderConfig", NONE),
    ("partition", NONE),
    ("region", USED),
    ("restrictPrivateSubnets", NONE),
    ("roleAdditionalPolicies", NONE),
    ("roleName", NONE),
    ("rolePath", NONE),
    ("rolePermissionsBoundary", NONE),
    ("secondaryCidrBlock", NONE),
    ("sshKeyName", USED),
    ("tokenMethod", NONE),
    ("upgradePolicy", NONE),
    ("version", NONE),
    ("vpcCni", NONE),
];
