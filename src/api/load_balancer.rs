//! Load balancers that exist in a cloud, as `controlPlaneLoadBalancer` of an MCMCluster names them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The existing part of a cloud whose members are the VMs of a control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LoadBalancer {
    /// A target group of AWS, whose targets are instances or IP addresses.
    AwsTargetGroup(TargetGroup),
    /// Unmanaged instance groups of Google Cloud in the project of the VMs, one for each zone.
    GcpInstanceGroups(Vec<InstanceGroup>),
    /// A pool of Octavia, the load balancers of OpenStack.
    OpenstackPool(Pool),
    /// A load balancer of the simulated cloud.
    Simulated(Simulated),
}

/// A target group of AWS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetGroup {
    /// Its ARN.
    pub arn: String,
}

/// An unmanaged instance group of Google Cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstanceGroup {
    /// Its zone, which is also that of its members.
    pub zone: String,
    /// Its name.
    pub name: String,
}

/// A pool of Octavia. A member is a VM with a port and a subnet, so another port or subnet means other members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Pool {
    /// Its ID. Names of pools change, and several pools may have the same.
    pub id: String,
    /// The port of the API server on its members.
    pub protocol_port: u16,
    /// The subnet of its members, which have their addresses in it. Without it they are in the first network of their class,
    /// and Octavia reaches them as it reaches the address of the load balancer.
    #[serde(rename = "subnetID", skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<String>,
}

impl Pool {
    /// The port that kubeadm gives to API servers.
    pub const DEFAULT_PORT: u16 = 6443;
}

impl Default for Pool {
    fn default() -> Self {
        Self { id: String::new(), protocol_port: Self::DEFAULT_PORT, subnet_id: None }
    }
}

/// A load balancer of the simulated cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Simulated {
    /// Its name.
    pub name: String,
}

/// Kind of a load balancer. A driver serves at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadBalancerKind {
    /// [`LoadBalancer::AwsTargetGroup`].
    AwsTargetGroup,
    /// [`LoadBalancer::GcpInstanceGroups`].
    GcpInstanceGroups,
    /// [`LoadBalancer::OpenstackPool`].
    OpenstackPool,
    /// [`LoadBalancer::Simulated`].
    Simulated,
}

impl LoadBalancer {
    /// Its kind.
    pub const fn kind(&self) -> LoadBalancerKind {
        match self {
            Self::AwsTargetGroup(_) => LoadBalancerKind::AwsTargetGroup,
            Self::GcpInstanceGroups(_) => LoadBalancerKind::GcpInstanceGroups,
            Self::OpenstackPool(_) => LoadBalancerKind::OpenstackPool,
            Self::Simulated(_) => LoadBalancerKind::Simulated,
        }
    }

    /// It has a name. Without one it is no load balancer: templates write an empty name if the user gives none.
    pub fn is_named(&self) -> bool {
        match self {
            Self::AwsTargetGroup(group) => !group.arn.is_empty(),
            Self::GcpInstanceGroups(groups) => groups.iter().any(|group| !group.name.is_empty()),
            Self::OpenstackPool(pool) => !pool.id.is_empty(),
            Self::Simulated(simulated) => !simulated.name.is_empty(),
        }
    }
}

impl LoadBalancerKind {
    /// The field of an MCMCluster.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AwsTargetGroup => "awsTargetGroup",
            Self::GcpInstanceGroups => "gcpInstanceGroups",
            Self::OpenstackPool => "openstackPool",
            Self::Simulated => "simulated",
        }
    }
}

impl fmt::Display for LoadBalancerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for LoadBalancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AwsTargetGroup(group) => write!(f, "target group {}", group.arn),
            Self::GcpInstanceGroups(groups) => {
                let names: Vec<_> = groups.iter().map(|group| format!("{}/{}", group.zone, group.name)).collect();
                write!(f, "instance groups {}", names.join(", "))
            }
            Self::OpenstackPool(pool) => write!(f, "pool {} with port {}", pool.id, pool.protocol_port),
            Self::Simulated(simulated) => write!(f, "simulated load balancer {}", simulated.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case(json!({ "awsTargetGroup": { "arn": "arn:aws:x" } }), "target group arn:aws:x")]
    #[case(json!({ "gcpInstanceGroups": [{ "zone": "a", "name": "cp" }, { "zone": "b", "name": "cp" }] }), "instance groups a/cp, b/cp")]
    #[case(json!({ "openstackPool": { "id": "p", "protocolPort": 443, "subnetID": "s" } }), "pool p with port 443")]
    #[case(json!({ "simulated": { "name": "cp" } }), "simulated load balancer cp")]
    fn a_load_balancer_is_one_field_with_its_kind(#[case] written: Value, #[case] text: &str) {
        let read: LoadBalancer = serde_json::from_value(written.clone()).unwrap();
        assert_eq!((serde_json::to_value(&read).unwrap(), read.to_string().as_str()), (written.clone(), text));
        assert!(written.get(read.kind().as_str()).is_some() && read.is_named());
    }

    #[rstest]
    #[case(json!({ "awsTargetGroup": { "arn": "" } }))]
    #[case(json!({ "gcpInstanceGroups": [{ "zone": "a", "name": "" }] }))]
    #[case(json!({ "openstackPool": { "id": "" } }))]
    #[case(json!({ "simulated": { "name": "" } }))]
    fn an_empty_name_is_no_load_balancer(#[case] written: Value) {
        assert!(!serde_json::from_value::<LoadBalancer>(written).unwrap().is_named());
    }

    #[test]
    fn members_of_a_pool_have_the_port_of_kubeadm() {
        let read: LoadBalancer = serde_json::from_value(json!({ "openstackPool": { "id": "p" } })).unwrap();
        assert_eq!(
            serde_json::to_value(&read).unwrap(),
            json!({ "openstackPool": { "id": "p", "protocolPort": 6443 } })
        );
    }
}
